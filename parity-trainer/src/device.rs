//! Where networks compute: the processor, or a graphics card through CUDA.
//!
//! Chosen once, like the number of threads. New networks lie there and take inputs from anywhere; a
//! network that is trained moves to the processor, so that what is written of it is the same
//! everywhere. Sums are made in another order on a card: results agree within tolerance and not to
//! the bit.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use tch::{Cuda, Device};

use crate::SetupError;

static CHOSEN: OnceLock<Device> = OnceLock::new();

/// A device as it is named on the command line: `cpu`, `cuda` (the first card) or `cuda:N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceName {
    #[default]
    Cpu,
    Cuda(usize),
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let number = match name {
            "cpu" => return Ok(Self::Cpu),
            "cuda" => Some("0"),
            _ => name.strip_prefix("cuda:"),
        };
        let number = number.and_then(|number| number.parse().ok());
        number
            .map(Self::Cuda)
            .ok_or_else(|| "give cpu, cuda or cuda:N".to_owned())
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => formatter.write_str("cpu"),
            Self::Cuda(number) => write!(formatter, "cuda:{number}"),
        }
    }
}

impl DeviceName {
    /// Makes networks on this device from now on; to be called before the first is made.
    ///
    /// # Errors
    /// [`SetupError::Device`] if libtorch does not see that card.
    pub fn choose(self) -> Result<(), SetupError> {
        let device = match self {
            Self::Cpu => Device::Cpu,
            Self::Cuda(number) => {
                let cards = if Cuda::is_available() {
                    Cuda::device_count()
                } else {
                    0
                };
                if i64::try_from(number).is_ok_and(|number| number < cards) {
                    Device::Cuda(number)
                } else {
                    return Err(SetupError::Device {
                        name: self.to_string(),
                        cards,
                    });
                }
            }
        };
        // Chosen before: that stands.
        let _ = CHOSEN.set(device);
        Ok(())
    }
}

pub fn chosen() -> DeviceName {
    match device() {
        Device::Cuda(number) => DeviceName::Cuda(number),
        _ => DeviceName::Cpu,
    }
}

/// Where networks are made.
pub(crate) fn device() -> Device {
    CHOSEN.get().copied().unwrap_or(Device::Cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (name, device) in [
            ("cpu", DeviceName::Cpu),
            ("cuda", DeviceName::Cuda(0)),
            ("cuda:3", DeviceName::Cuda(3)),
        ] {
            assert_eq!(name.parse(), Ok(device));
        }
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda0"] {
            assert!(wrong.parse::<DeviceName>().is_err(), "{wrong}");
        }
    }
}

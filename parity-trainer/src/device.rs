//! Where networks compute: the processor, or a graphics card through CUDA.
//!
//! New networks lie there and take inputs from anywhere; a trained one moves to the processor. Sums
//! are made in another order on a card: results agree within tolerance and not to the bit.

use std::sync::OnceLock;

use tch::{Cuda, Device};

use crate::TrainError;

static CHOSEN: OnceLock<Device> = OnceLock::new();

/// Parses a device as the command line names it: `cpu`, `cuda` (the first card) or `cuda:N`.
pub fn parse(name: &str) -> Result<Device, String> {
    let number = match name {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => Some(0),
        _ => name.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
    };
    number.map(Device::Cuda).ok_or_else(|| "give cpu, cuda or cuda:N".to_owned())
}

/// Makes networks on `device` from now on; to be called before the first is made.
pub fn choose(device: Device) -> Result<(), TrainError> {
    if let Device::Cuda(number) = device {
        let cards = if Cuda::is_available() { Cuda::device_count() } else { 0 };
        if number as i64 >= cards {
            return Err(TrainError::Input(format!(
                "--device cuda:{number}: libtorch sees {cards} such devices; give --device cpu, or \
                 a PyTorch with CUDA in LD_LIBRARY_PATH and its libtorch_cuda.so in LD_PRELOAD"
            )));
        }
    }
    // A device that was chosen before stands.
    let _ = CHOSEN.set(device);
    Ok(())
}

pub(crate) fn device() -> Device {
    CHOSEN.get().copied().unwrap_or(Device::Cpu)
}

/// The chosen device's name, as [`parse`] takes it.
pub fn name() -> String {
    match device() {
        Device::Cuda(number) => format!("cuda:{number}"),
        _ => "cpu".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_parsed_from_its_name() {
        let known = [("cpu", Device::Cpu), ("cuda", Device::Cuda(0)), ("cuda:3", Device::Cuda(3))];
        for (name, device) in known {
            assert_eq!(parse(name), Ok(device));
        }
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda0"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

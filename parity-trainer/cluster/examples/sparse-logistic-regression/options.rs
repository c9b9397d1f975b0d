//! Arguments of the command line.

use std::str::FromStr;

use parapet_parameter_server::{Kkt, LeftOut};

/// A KKT filter as `off`, `kept:SHARE` or `dropped:SHARE`, the share of the L1 penalty up to which
/// gradients are left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KktOption(pub(crate) Option<(f32, LeftOut)>);

impl FromStr for KktOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no KKT filter: write off, kept:0.5 or dropped:0.5, a share up to 1"
            )
        };
        if text == "off" {
            return Ok(Self(None));
        }
        let (left_out, share) = match text.split_once(':') {
            Some(("kept", share)) => (LeftOut::KeptBack, share),
            Some(("dropped", share)) => (LeftOut::Dropped, share),
            _ => return Err(wrong()),
        };
        let share: f32 = share.parse().map_err(|_| wrong())?;
        if share > 0.0 && share <= 1.0 {
            Ok(Self(Some((share, left_out))))
        } else {
            Err(wrong())
        }
    }
}

impl KktOption {
    /// The filter for a penalty of `l1` and this many workers.
    pub(crate) fn filter(self, l1: f32, workers: usize) -> Option<Kkt> {
        self.0.map(|(share, left_out)| Kkt {
            threshold: share * l1,
            scale: workers as f32,
            left_out,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_and_mistakes_are_shown_how_to_mend() {
        let kkt = |text: &str| {
            text.parse::<KktOption>()
                .map(|option| option.filter(2.0, 4))
        };
        assert_eq!(kkt("off"), Ok(None));
        let kept = Kkt {
            threshold: 1.0,
            scale: 4.0,
            left_out: LeftOut::KeptBack,
        };
        assert_eq!(kkt("kept:0.5"), Ok(Some(kept)));
        assert_eq!(
            kkt("dropped:0.5"),
            Ok(Some(Kkt {
                left_out: LeftOut::Dropped,
                ..kept
            }))
        );
        for bad in ["", "on", "kept", "kept:0", "kept:1.5", "kept:nan", "0.5"] {
            assert!(kkt(bad).unwrap_err().contains("kept:0.5"), "{bad}");
        }
    }
}

//! What stands on the command line.

use std::str::FromStr;

use parapet_parameter_server::{Consistency, Kkt, LeftOut};

/// A consistency model as `bsp`, `bounded-delay:TAU`, `ssp:SLACK`, `eager-ssp:SLACK` or `eventual`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsistencyOption(pub Consistency);

impl FromStr for ConsistencyOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once(':').map_or((text, None), |(name, number)| (name, Some(number)));
        let slack = || {
            let number = number.ok_or(format!("{name} needs a number of clocks: {name}:4"))?;
            number.parse().map_err(|_| format!("'{number}' is no number of clocks: write {name}:4"))
        };
        let consistency = match name {
            "bounded-delay" => Consistency::BoundedDelay(slack()?),
            "ssp" => Consistency::Ssp(slack()?),
            "eager-ssp" => Consistency::EagerSsp(slack()?),
            "bsp" if number.is_none() => Consistency::Bsp,
            "eventual" if number.is_none() => Consistency::Eventual,
            _ => {
                return Err(format!(
                    "'{text}' is no consistency model: write bsp, bounded-delay:4, ssp:4, eager-ssp:4 or eventual"
                ));
            }
        };
        Ok(Self(consistency))
    }
}

/// A KKT filter as `off`, `kept:SHARE` or `dropped:SHARE`, the share of the L1 penalty up to which gradients are left out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KktOption(pub Option<(f32, LeftOut)>);

impl FromStr for KktOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is no KKT filter: write off, kept:0.5 or dropped:0.5, a share up to 1");
        if text == "off" {
            return Ok(Self(None));
        }
        let (left_out, share) = match text.split_once(':') {
            Some(("kept", share)) => (LeftOut::KeptBack, share),
            Some(("dropped", share)) => (LeftOut::Dropped, share),
            _ => return Err(wrong()),
        };
        let share: f32 = share.parse().map_err(|_| wrong())?;
        if share > 0.0 && share <= 1.0 { Ok(Self(Some((share, left_out)))) } else { Err(wrong()) }
    }
}

impl KktOption {
    /// The filter for a penalty of `l1` and this many workers.
    pub fn filter(self, l1: f32, workers: usize) -> Option<Kkt> {
        self.0.map(|(share, left_out)| Kkt { threshold: share * l1, scale: workers as f32, left_out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_filters_are_read_and_mistakes_are_shown_how_to_mend() {
        let consistency = |text: &str| text.parse::<ConsistencyOption>().map(|option| option.0);
        assert_eq!(consistency("bsp"), Ok(Consistency::Bsp));
        assert_eq!(consistency("bounded-delay:8"), Ok(Consistency::BoundedDelay(8)));
        assert_eq!(consistency("eager-ssp:0"), Ok(Consistency::EagerSsp(0)));
        for bad in ["", "ssp", "ssp:x", "bsp:1", "sps:3"] {
            assert!(consistency(bad).unwrap_err().contains("ssp"), "{bad}");
        }
        let kkt = |text: &str| text.parse::<KktOption>().map(|option| option.filter(2.0, 4));
        assert_eq!(kkt("off"), Ok(None));
        let kept = Kkt { threshold: 1.0, scale: 4.0, left_out: LeftOut::KeptBack };
        assert_eq!(kkt("kept:0.5"), Ok(Some(kept)));
        assert_eq!(kkt("dropped:0.5"), Ok(Some(Kkt { left_out: LeftOut::Dropped, ..kept })));
        for bad in ["", "on", "kept", "kept:0", "kept:1.5", "kept:nan", "0.5"] {
            assert!(kkt(bad).unwrap_err().contains("kept:0.5"), "{bad}");
        }
    }
}

//! Consistency models: which pulls wait, and which pushes are added up before they are applied.
//!
//! A worker in iteration c has pushed the clocks before c. What its pull may miss of the others:
//!
//! | model | a pull at c waits for | source |
//! |---|---|---|
//! | BSP | all updates below c; a clock is applied when all workers have pushed it | Valiant 1990 |
//! | bounded delay tau | all updates below c - tau | Li et al., OSDI 2014, section 3.4 |
//! | SSP s | all updates below c - s, and the worker's own below c | Ho et al., NIPS 2013 |
//! | eager SSP s | as SSP; readers are sent fresh rows after a clock | Cui et al., ATC 2014 |
//! | eventual | nothing | OSDI 2014 |

use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::Display;

use crate::{Clock, KeyRange, RangedClocks, WorkerId};

/// Bound on the staleness of what workers read; as text `bsp`, `bounded-delay:TAU`, `ssp:SLACK`,
/// `eager-ssp:SLACK` or `eventual`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Display, SerializeDisplay, DeserializeFromStr,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Consistency {
    /// Bulk synchronous: every iteration sees exactly those before it.
    #[default]
    Bsp,
    /// At most this many clocks behind.
    #[strum(to_string = "bounded-delay:{0}")]
    BoundedDelay(u64),
    /// Stale synchronous: at most this many clocks behind, and never behind oneself.
    #[strum(to_string = "ssp:{0}")]
    Ssp(u64),
    /// SSP in which servers send rows before they are asked for.
    #[strum(to_string = "eager-ssp:{0}")]
    EagerSsp(u64),
    /// Whatever has arrived.
    Eventual,
}

impl Consistency {
    /// The clock whose updates, of all workers, a pull at `clock` must contain.
    pub const fn needed(self, clock: Clock) -> Clock {
        match self {
            Self::Bsp => clock.minus(1),
            Self::BoundedDelay(slack) | Self::Ssp(slack) | Self::EagerSsp(slack) => {
                clock.minus(slack.saturating_add(1))
            }
            Self::Eventual => Clock(0),
        }
    }

    /// Returns true if a pull of `range` by `worker` in iteration `clock` can be answered from
    /// values that contain `applied`.
    pub fn may_read(
        self,
        applied: &RangedClocks,
        worker: WorkerId,
        range: KeyRange,
        clock: Clock,
    ) -> bool {
        let contains = |applied: Option<Clock>, needed| applied.is_none_or(|at| at >= needed);
        let must_see_itself = matches!(self, Self::Ssp(_) | Self::EagerSsp(_));
        // Eventual asks for clock 0, which a worker that joins has always finished.
        contains(applied.finished(range), self.needed(clock))
            && (!must_see_itself || contains(applied.lowest_of(worker, range), clock.minus(1)))
    }

    /// Returns true if the pushes of one clock are added up and applied together, once every worker
    /// has sent its own: one operation goes down the chain instead of one for each worker.
    pub const fn adds_up_clocks(self) -> bool {
        matches!(self, Self::Bsp)
    }

    /// Returns true if rows are sent to their readers when a clock is finished.
    pub const fn sends_fresh_rows(self) -> bool {
        matches!(self, Self::EagerSsp(_))
    }
}

impl FromStr for Consistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':');
        let (name, number) = parts.map_or((text, None), |(name, number)| (name, Some(number)));
        let slack = || {
            let number = number.ok_or(format!("{name} needs a number of clocks: {name}:4"))?;
            let no_number = |_| format!("'{number}' is no number of clocks: write {name}:4");
            number.parse().map_err(no_number)
        };
        match name {
            "bounded-delay" => Ok(Self::BoundedDelay(slack()?)),
            "ssp" => Ok(Self::Ssp(slack()?)),
            "eager-ssp" => Ok(Self::EagerSsp(slack()?)),
            "bsp" if number.is_none() => Ok(Self::Bsp),
            "eventual" if number.is_none() => Ok(Self::Eventual),
            _ => Err(format!(
                "'{text}' is no consistency model: write bsp, bounded-delay:4, ssp:4, eager-ssp:4 \
                    or eventual"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_read_back_and_mistakes_are_shown_how_to_mend() {
        for text in ["bsp", "bounded-delay:8", "ssp:2", "eager-ssp:0", "eventual"] {
            let model: Result<Consistency, String> = text.parse();
            assert_eq!(model.map(|model| model.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "ssp", "ssp:x", "ssp:-1", "bsp:1", "sps:3"] {
            let error = text.parse::<Consistency>().err();
            assert!(error.as_ref().is_some_and(|error| error.contains("ssp")), "{text}: {error:?}");
        }
    }
}

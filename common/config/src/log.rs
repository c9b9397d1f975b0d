//! Logs of the programs: lines on standard error, whose level `RUST_LOG` sets, for all of a program
//! (`debug`) or by target (`parapet_frontend=debug,warn`).

use std::error::Error;
use std::io::IsTerminal as _;

use serde::{Deserialize, Serialize};
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use tracing_subscriber::filter::LevelFilter;

/// Form of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// An object on each line.
    Json,
}

/// Starts the program's log, at `default` where `RUST_LOG` sets no level.
pub fn start(format: LogFormat, default: LevelFilter) {
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let filter = filter(std::env::var("RUST_LOG").ok().as_deref(), default);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

/// An error and its causes in one line, but for causes that it tells itself.
pub fn one_line(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.map(ToString::to_string).fold(error.to_string(), |said, cause| {
        if said.contains(&cause) { said } else { format!("{said}: {cause}") }
    })
}

fn filter(asked: Option<&str>, default: LevelFilter) -> Targets {
    let parsed = asked.and_then(|directives| directives.parse().ok());
    parsed.unwrap_or_else(|| Targets::new().with_default(default))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level as At;

    #[test]
    fn a_level_is_for_all_targets_or_for_one() {
        let by_target = filter(Some("parapet_frontend=debug,warn"), LevelFilter::INFO);
        for (target, level, shown) in [
            ("parapet_frontend::driver", At::DEBUG, true),
            ("parapet_frontend::driver", At::TRACE, false),
            ("hyper", At::WARN, true),
            ("hyper", At::INFO, false),
        ] {
            assert_eq!(by_target.would_enable(target, &level), shown, "{target} {level}");
        }
        assert!(filter(Some("debug"), LevelFilter::INFO).would_enable("any", &At::DEBUG));
    }

    #[test]
    fn the_default_holds_where_nothing_sound_is_asked() {
        for asked in [None, Some("parapet=loud")] {
            let filter = filter(asked, LevelFilter::INFO);
            assert!(filter.would_enable("any", &At::INFO), "{asked:?}");
            assert!(!filter.would_enable("any", &At::DEBUG), "{asked:?}");
        }
    }
}

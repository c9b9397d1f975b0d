//! Ctrl-C and SIGTERM: answered at once, or after the step that is under way.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parity_trainer::{SetupError, TrainError};
use parking_lot::Mutex;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The exit code of an interrupted command.
pub(crate) const EXIT_CODE: u8 = 130;

#[derive(Debug, Clone, Copy)]
enum Answer {
    /// The program ends, and says how to go on.
    Now { hint: &'static str },
    /// The running command asks [`Interrupt::is_asked`] after each step, and may have to
    /// write a checkpoint.
    Later,
}

/// Listens for signals. A second one ends the program at once, whatever it does.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    asked: AtomicBool,
    answer: Mutex<Answer>,
}

impl Interrupt {
    /// Listens from now on; a signal ends the program, which can be run again.
    pub(crate) fn listen() -> Result<Self, TrainError> {
        let answer = Answer::Now {
            hint: "run the same command again",
        };
        let shared = Arc::new(Shared {
            asked: AtomicBool::new(false),
            answer: Mutex::new(answer),
        });
        let failed = |source| SetupError::Signal { source };
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let own = Arc::clone(&shared);
        let listener = std::thread::Builder::new().name("signals".to_owned());
        listener
            .spawn(move || signals.forever().for_each(|_| own.take()))
            .map_err(failed)?;
        Ok(Self(shared))
    }

    /// From now on a signal ends the program at once: nothing is half done.
    ///
    /// # Errors
    /// If one came before.
    pub(crate) fn end_at_once(&self, hint: &'static str) -> Result<(), TrainError> {
        let mut answer = self.0.answer.lock();
        *answer = Answer::Now { hint };
        if self.is_asked() {
            Err(SetupError::Interrupted {
                hint: hint.to_owned(),
            }
            .into())
        } else {
            Ok(())
        }
    }

    /// From now on a signal waits until it is asked for.
    pub(crate) fn wait_for_step(&self) {
        *self.0.answer.lock() = Answer::Later;
    }

    /// Returns true if the user wants an end.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.asked.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn take(&self) {
        let answer = self.answer.lock();
        let again = self.asked.swap(true, Ordering::Relaxed);
        let hint = match *answer {
            Answer::Later if !again => return,
            Answer::Later => "checkpoints that were written before are whole",
            Answer::Now { hint } => hint,
        };
        // Leave the progress bar as it is.
        let bar = if std::io::stderr().is_terminal() {
            "\n"
        } else {
            ""
        };
        eprintln!(
            "{bar}error: {}",
            SetupError::Interrupted {
                hint: hint.to_owned()
            }
        );
        // Not by way of destructors: another thread computes.
        signal_hook::low_level::exit(i32::from(EXIT_CODE));
    }
}

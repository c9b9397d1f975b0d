//! Ctrl-C and SIGTERM: answered at once, or after the step that is under way.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parity_trainer::TrainError;
use parking_lot::Mutex;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub(crate) const EXIT_CODE: u8 = 130;
static LISTENING: Mutex<Option<Arc<Interrupt>>> = Mutex::new(None);

/// Listens for signals. A second one ends the program at once, whatever it does.
#[derive(Debug, Default)]
pub(crate) struct Interrupt {
    asked: AtomicBool,
    /// Advice on how to go on, where a signal ends the program at once. Without it the running
    /// command asks [`Interrupt::is_asked`] after each step, and may have to write a checkpoint.
    hint: Mutex<Option<&'static str>>,
}

impl Interrupt {
    /// Listens from now on; a signal ends the program, which can be run again. Fails if one came
    /// before. All of a process's commands get the same.
    pub(crate) fn listen() -> Result<Arc<Self>, TrainError> {
        let failed = |error| TrainError::Failed(format!("cannot listen for Ctrl-C: {error}"));
        let mut listening = LISTENING.lock();
        let own = listening.clone().unwrap_or_default();
        own.end_at_once("run the same command again")?;
        if listening.is_none() {
            let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
            let listener = Arc::clone(listening.insert(Arc::clone(&own)));
            std::thread::Builder::new()
                .name("signals".to_owned())
                .spawn(move || signals.forever().for_each(|_| listener.take()))
                .map_err(failed)?;
        }
        Ok(own)
    }

    /// From now on a signal ends the program at once: nothing is half done. Fails after a signal.
    pub(crate) fn end_at_once(&self, hint: &'static str) -> Result<(), TrainError> {
        let mut own = self.hint.lock();
        *own = Some(hint);
        if self.is_asked() { Err(TrainError::Interrupted(hint)) } else { Ok(()) }
    }

    /// From now on a signal waits until it is asked for.
    pub(crate) fn wait_for_step(&self) {
        *self.hint.lock() = None;
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    fn take(&self) {
        let hint = self.hint.lock();
        let again = self.asked.swap(true, Ordering::Relaxed);
        if hint.is_none() && !again {
            return;
        }
        let hint = hint.unwrap_or("checkpoints that were written before are whole");
        // Leave the progress bar as it is.
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
        eprintln!("error: {}", TrainError::Interrupted(hint));
        // Not by way of destructors: another thread computes.
        signal_hook::low_level::exit(i32::from(EXIT_CODE));
    }
}

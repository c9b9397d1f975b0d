//! Follows a store that other processes serve until the last listener is gone, however often
//! the connection breaks.

use std::convert::Infallible;

use tokio::sync::mpsc;

use crate::registry::RegistryError;
use crate::registry::backoff::Backoff;
use crate::registry::store::Batch;

#[derive(Debug)]
pub(crate) enum End {
    /// The last listener is gone.
    Unwanted,
    /// The store no longer has the changes that are next: all has to be read again.
    Compacted,
    /// Another process serves the same store, and answers where this one does not.
    Moved,
    /// The connection broke, or stands still.
    Broken(RegistryError),
}

impl From<RegistryError> for End {
    fn from(error: RegistryError) -> Self {
        Self::Broken(error)
    }
}

impl From<mpsc::error::SendError<Batch>> for End {
    fn from(_: mpsc::error::SendError<Batch>) -> Self {
        Self::Unwanted
    }
}

/// A store's own way of telling what is new.
pub(crate) trait Source: Send + 'static {
    /// Tells of everything, or of what came since it broke off, and then of changes. It may be
    /// dropped at any time: what it has to remember is remembered as soon as it is told of. Each
    /// sign of life resets `backoff`.
    fn follow(
        &mut self,
        batches: &mpsc::Sender<Batch>,
        backoff: &mut Backoff,
    ) -> impl Future<Output = Result<Infallible, End>> + Send;
}

/// Follows again and again until the receiver is dropped; says when the store is away.
pub(crate) fn keep_following(mut source: impl Source) -> mpsc::Receiver<Batch> {
    let (batches, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut backoff = Backoff::default();
        loop {
            let Err(end) = tokio::select! {
                end = source.follow(&batches, &mut backoff) => end,
                () = batches.closed() => return,
            };
            match end {
                End::Unwanted => return,
                End::Compacted | End::Moved => {}
                End::Broken(error) => {
                    tracing::debug!(%error, "following the registry broke off");
                    if batches.send(Batch::Away).await.is_err() {
                        return;
                    }
                    backoff.pause().await;
                }
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::*;

    /// Tells the number of each attempt, and ends as it is told to.
    struct Script {
        attempts: u64,
        ends: fn(u64) -> End,
        /// Closed when the script is dropped.
        _alive: mpsc::Sender<()>,
    }

    impl Source for Script {
        async fn follow(
            &mut self,
            batches: &mpsc::Sender<Batch>,
            backoff: &mut Backoff,
        ) -> Result<Infallible, End> {
            self.attempts += 1;
            batches.send(told(self.attempts)).await?;
            if self.attempts == 4 {
                backoff.reset();
            }
            match (self.ends)(self.attempts) {
                End::Unwanted => std::future::pending().await,
                end => Err(end),
            }
        }
    }

    fn told(attempt: u64) -> Batch {
        Batch::Changes(vec![Err(attempt.to_string())])
    }

    fn broken() -> End {
        RegistryError::Unreachable {
            endpoints: "a:1".into(),
            cause: "it was cut".into(),
        }
        .into()
    }

    fn start(ends: fn(u64) -> End) -> (mpsc::Receiver<Batch>, mpsc::Receiver<()>) {
        let (alive, ended) = mpsc::channel(1);
        (
            keep_following(Script {
                attempts: 0,
                ends,
                _alive: alive,
            }),
            ended,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_breaks_off_is_away_and_is_tried_again_ever_later() {
        let (mut batches, _) = start(|_| broken());
        let mut pauses = Vec::new();
        for attempt in 1..=5 {
            let asked = Instant::now();
            assert_eq!(batches.recv().await, Some(told(attempt)));
            pauses.push(asked.elapsed().as_millis());
            assert_eq!(batches.recv().await, Some(Batch::Away));
        }
        // The fourth attempt showed a sign of life.
        assert_eq!(pauses, [0, 50, 100, 200, 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_compacted_is_read_again_at_once() {
        let (mut batches, _) = start(|attempt| {
            if attempt < 3 {
                End::Compacted
            } else {
                End::Unwanted
            }
        });
        let asked = Instant::now();
        for attempt in 1..=3 {
            assert_eq!(batches.recv().await, Some(told(attempt)));
        }
        assert_eq!(asked.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_followed_for_nobody() {
        let (mut batches, mut ended) = start(|_| End::Unwanted);
        assert_eq!(batches.recv().await, Some(told(1)));
        let lasts = timeout(Duration::from_secs(60), ended.recv()).await;
        assert!(lasts.is_err(), "it goes on while somebody listens");
        drop(batches);
        assert_eq!(
            timeout(Duration::from_secs(60), ended.recv()).await,
            Ok(None)
        );
    }
}

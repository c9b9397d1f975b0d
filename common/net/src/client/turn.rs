//! Two futures that wake each other, polled in turns by one task.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// Polls in a row at most. A future may wake itself to let other tasks go first.
const MOST_TURNS: usize = 8;

/// Waker of futures within a task. Woken while these are polled, it has them polled again; the
/// runtime, which would do so only after the task has come to its end, is not asked.
#[derive(Debug)]
pub(super) struct Turns {
    waker: Waker,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    task: AtomicWaker,
    polling: AtomicBool,
    woken: AtomicBool,
}

impl Wake for State {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if !self.polling.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        let state = Arc::<State>::default();
        Self { waker: Waker::from(Arc::clone(&state)), state }
    }
}

impl Turns {
    /// Polls with this waker, until there is a result or nothing is left to do.
    pub(super) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let State { task, polling, woken } = &*self.state;
        task.register(context.waker());
        for _ in 0..MOST_TURNS {
            polling.store(true, Ordering::SeqCst);
            woken.store(false, Ordering::SeqCst);
            let result = poll(&mut Context::from_waker(&self.waker));
            polling.store(false, Ordering::SeqCst);
            if result.is_ready() || !woken.load(Ordering::SeqCst) {
                return result;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Polls `first`, and `second` as long as it is not over, until the first is. Returns its result,
/// and true if the second is over, too.
pub(super) async fn in_turns<T>(
    turns: &Turns,
    mut first: Pin<&mut impl Future<Output = T>>,
    mut second: Pin<&mut impl Future>,
) -> (T, bool) {
    let mut is_over = false;
    let result = std::future::poll_fn(|context| {
        turns.poll(context, |context| {
            let result = first.as_mut().poll(context);
            if result.is_ready() || is_over {
                return result;
            }
            is_over = second.as_mut().poll(context).is_ready();
            if is_over { first.as_mut().poll(context) } else { result }
        })
    });
    (result.await, is_over)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::sync::oneshot;

    use super::*;

    /// Number of times that a future is polled until it is ready.
    async fn polls<T>(future: impl Future<Output = T>) -> (T, usize) {
        let (mut future, mut count) = (pin!(future), 0);
        let result = std::future::poll_fn(|context| {
            count += 1;
            future.as_mut().poll(context)
        });
        (result.await, count)
    }

    #[tokio::test]
    async fn what_futures_tell_each_other_takes_one_poll() {
        let (ask, asked) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let first = async {
            ask.send(()).unwrap();
            answered.await.unwrap()
        };
        let second = async {
            asked.await.unwrap();
            tokio::task::consume_budget().await;
            answer.send(7).unwrap();
            std::future::pending::<()>().await
        };
        let (first, second) = (pin!(first), pin!(second));
        let turns = Turns::default();
        assert_eq!(polls(in_turns(&turns, first, second)).await, ((7, false), 1));
    }

    #[tokio::test]
    async fn wake_from_another_task_polls_again() {
        let (answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            tokio::task::yield_now().await;
            answer.send(7).unwrap();
        });
        let turns = Turns::default();
        let second = pin!(std::future::pending::<()>());
        let (result, _) = in_turns(&turns, pin!(answered), second).await;
        assert_eq!(result, Ok(7));
    }

    #[tokio::test]
    async fn second_that_ends_leaves_the_first() {
        let (answer, answered) = oneshot::channel();
        let second = pin!(async move { answer.send(7).unwrap() });
        let turns = Turns::default();
        assert_eq!(in_turns(&turns, pin!(answered), second).await, (Ok(7), true));
    }

    #[tokio::test]
    async fn future_that_wakes_itself_lets_others_run() {
        let yields = async {
            for _ in 0..3 * MOST_TURNS {
                tokio::task::yield_now().await;
            }
        };
        let wakes_itself = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        let (turns, first) = (Turns::default(), pin!(wakes_itself));
        let second = pin!(std::future::pending::<()>());
        tokio::select! {
            biased;
            _ = in_turns(&turns, first, second) => {}
            () = yields => {}
        }
    }
}

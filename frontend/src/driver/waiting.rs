//! A client that waits for its answer, and the request to an instance that its task drives.

use std::sync::Arc;
use std::task::{Context, Poll};

use parapet_frontend_core::{Answer, QueryId};
use tokio::sync::oneshot;

use super::Driver;
use super::work::{Sending, Work};
use crate::payload::Output;
use crate::upstream::Transport;

/// Abandons its query when dropped before the answer.
pub(super) struct Waiting<'a, T: Transport> {
    pub(super) driver: &'a Arc<Driver<T>>,
    pub(super) query: QueryId,
    /// Its own request, driven by the task that waits: that spares two task switches. It goes on
    /// in a task of its own if it is not over when the wait is.
    pub(super) own: Option<Sending>,
    pub(super) answered: bool,
}

/// Lets the tasks that are ready go first. What arrived together is then read together and sent
/// together, and who sleeps at the other end is woken once for all of it.
async fn after_ready_tasks() {
    let mut was_polled = false;
    let wait = |context: &mut Context<'_>| match std::mem::replace(&mut was_polled, true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    };
    std::future::poll_fn(wait).await
}

impl<T: Transport> Waiting<'_, T> {
    pub(super) async fn answer(
        &mut self,
        mut receiver: oneshot::Receiver<Answer<Output>>,
    ) -> Option<Answer<Output>> {
        if let Some(own) = &mut self.own {
            after_ready_tasks().await;
            let mut work = tokio::select! {
                biased;
                work = own => work,
                answer = &mut receiver => return answer.ok(),
            };
            self.own = None;
            let is_answer =
                |work: &mut Work| matches!(work, Work::Answer(query, ..) if *query == self.query);
            let found = work.extract_if(.., is_answer).next();
            if found.is_some() {
                // Else the sender that is dropped would wake this task.
                receiver.close();
            }
            self.driver.run(work);
            after_ready_tasks().await;
            if let Some(Work::Answer(_, _, answer)) = found {
                return Some(answer);
            }
        }
        receiver.await.ok()
    }
}

impl<T: Transport> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            Arc::clone(self.driver).spawn(own);
        }
        if !self.answered {
            self.driver.feed_locked(|locked, now| {
                locked.waiters.remove(&self.query);
                locked.engine.abandoned(now, self.query, &mut locked.actions);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_that_came_together_are_all_read_before_one_is_sent() {
        let (events, mut seen) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..2 {
            let events = events.clone();
            tokio::spawn(async move {
                events.send("read").unwrap();
                after_ready_tasks().await;
                events.send("sent").unwrap();
            });
        }
        drop(events);
        let mut order = Vec::new();
        while let Some(event) = seen.recv().await {
            order.push(event);
        }
        assert_eq!(order, ["read", "read", "sent", "sent"]);
    }
}

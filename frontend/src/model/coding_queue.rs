//! Coding that takes long: off the threads that serve requests, one piece after another, and
//! bounded.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Where pieces of one class's coding wait for their turn.
#[derive(Debug, Clone)]
pub struct CodingQueue {
    places: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

impl CodingQueue {
    /// A line in which `places` pieces may wait, the one that is being computed among them.
    pub fn new(places: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(places)),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Has `piece` computed on another thread when it is its turn. False, and nothing is done, when
    /// the line is full.
    pub fn join(&self, piece: impl FnOnce() + Send + 'static) -> bool {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return false;
        };
        let turn = Arc::clone(&self.turn);
        tokio::spawn(async move {
            if let Ok(turn) = turn.acquire_owned().await {
                tokio::task::spawn_blocking(move || {
                    // Given back at the end of the piece, even if it panics.
                    let _given_back = (place, turn);
                    piece();
                });
            }
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn pieces_keep_their_order_and_a_full_line_takes_none() {
        let queue = CodingQueue::new(3);
        let (go, gate) = mpsc::channel::<()>();
        let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let tell = told.clone();
        assert!(queue.join(move || {
            gate.recv().unwrap();
            tell.send(0).unwrap();
        }));
        for piece in 1..3 {
            let tell = told.clone();
            assert!(queue.join(move || tell.send(piece).unwrap()));
        }
        assert!(!queue.join(|| panic!("a fourth has no place")));
        go.send(()).unwrap();
        for piece in 0..3 {
            assert_eq!(heard.recv().await, Some(piece));
        }
    }

    #[tokio::test]
    async fn a_piece_that_panics_holds_up_none_behind_it() {
        let queue = CodingQueue::new(2);
        assert!(queue.join(|| panic!("on purpose")));
        let (told, heard) = tokio::sync::oneshot::channel();
        assert!(queue.join(move || told.send(()).unwrap()));
        heard.await.unwrap();
    }
}

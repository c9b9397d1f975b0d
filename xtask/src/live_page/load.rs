//! Requests to a cluster, some at a time, for as long as a check lasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::http;
use crate::sample::{self, MODEL, SampleCluster};

/// Clients, each of which asks again after its answer and this pause.
const CLIENTS: u8 = 6;
const PAUSE: Duration = Duration::from_millis(60);

pub(super) struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(super) fn start(cluster: &SampleCluster) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let client = |number: u8| {
            let url = format!("{}/v2/models/{MODEL}/infer", cluster.frontend);
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || {
                let mut value = f32::from(number);
                while !stop.load(Ordering::Relaxed) {
                    value = (value + 0.37) % 17.0;
                    answered.fetch_add(
                        u64::from(http::post(&url, &sample::query(value)).is_ok()),
                        Ordering::Relaxed,
                    );
                    std::thread::sleep(PAUSE);
                }
            })
        };
        let clients = (0..CLIENTS).map(client).collect();
        Self {
            stop,
            answered,
            clients,
        }
    }

    pub(super) fn stop(mut self) -> u64 {
        self.end();
        self.answered.load(Ordering::Relaxed)
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

//! A network between a registry and its etcd that can be cut.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Fate of sent messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// It is lost without a notice.
    Silent,
    /// Connections are reset.
    Closed,
}

pub struct Proxy {
    endpoint: String,
    state: watch::Sender<State>,
}

impl Proxy {
    pub async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let (state, now) = watch::channel(State::Open);
        tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                if *now.borrow() != State::Closed {
                    tokio::spawn(carry(inner, to.clone(), now.clone()));
                }
            }
        });
        Self { endpoint, state }
    }

    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// Ends all connections, and accepts no more, or accepts them again.
    pub fn set_open(&self, open: bool) {
        self.state.send_replace(if open { State::Open } else { State::Closed });
    }

    /// Nothing gets through any longer, and no connection ends; new ones are accepted.
    pub fn fall_silent(&self) {
        self.state.send_replace(State::Silent);
    }
}

/// Until the network changes; then what was silent is reset.
async fn carry(mut inner: TcpStream, to: String, mut now: watch::Receiver<State>) {
    let Ok(mut outer) = TcpStream::connect(to).await else {
        return;
    };
    if *now.borrow_and_update() == State::Open {
        tokio::select! {
            _ = copy_bidirectional(&mut inner, &mut outer) => return,
            _ = now.wait_for(|&state| state != State::Open) => {}
        }
    }
    let _ = now.wait_for(|&state| state != State::Silent).await;
}

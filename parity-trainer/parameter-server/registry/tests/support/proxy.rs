//! A network between a registry and its etcd that can be cut.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Proxy {
    endpoint: String,
    open: watch::Sender<bool>,
}

impl Proxy {
    pub async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let (open, is_open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut inner, _)) = listener.accept().await {
                if !*is_open.borrow() {
                    continue;
                }
                let (to, mut is_open) = (to.clone(), is_open.clone());
                tokio::spawn(async move {
                    let Ok(mut outer) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut inner, &mut outer) => {}
                        _ = is_open.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { endpoint, open }
    }

    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// Ends all connections, and accepts no more, or accepts them again.
    pub fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

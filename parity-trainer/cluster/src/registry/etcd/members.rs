//! The members of an etcd, one of which is asked.
//!
//! Everything goes to one member: requests, watches, renewals. When it has been silent for a while
//! ([`Members::patience`]) it is asked for a key; if it does not answer that either, all are, and
//! the first that answers is the one from then on, for everything that waits. The key is read
//! through etcd's quorum, so a member that is cut off from the others does not count as one that
//! answers. A client with all endpoints would go on to spread requests over them: to it, a
//! connection on which nothing comes back is as good as any.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error};
use futures::future::select_ok;
use tokio::sync::{Mutex, watch};
use tokio::time::{sleep, timeout};

use super::EtcdConfig;

/// Interval of pings on a connection with waiting requests, so that one to a member that is gone
/// for good is given up; etcd refuses pings that are less than 5 s apart.
const PING: Duration = Duration::from_secs(10);

/// All members that the configuration names.
pub(super) struct Members {
    clients: Vec<Client>,
    chosen: watch::Sender<usize>,
    /// Held while members are asked, so that they are asked once for all that wait.
    asking: Mutex<()>,
    key: String,
    limit: Duration,
}

/// The member that is asked.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) client: Client,
    place: usize,
    chosen: watch::Receiver<usize>,
}

impl Member {
    /// Ends when another member is asked instead.
    pub(super) async fn left(&self) {
        let place = self.place;
        // The sender lives as long as whatever waits here.
        let _ = self
            .chosen
            .clone()
            .wait_for(|&chosen| chosen != place)
            .await;
    }

    pub(super) fn is_left(&self) -> bool {
        *self.chosen.borrow() != self.place
    }
}

impl Members {
    /// Nothing is sent yet.
    pub(super) async fn new(config: &EtcdConfig, key: String) -> Result<Self, Error> {
        let options = ConnectOptions::new()
            .with_connect_timeout(config.timeout)
            .with_tcp_keepalive(Duration::from_secs(5))
            .with_keep_alive(PING, config.timeout);
        let mut clients = Vec::with_capacity(config.endpoints.len());
        for endpoint in &config.endpoints {
            clients.push(Client::connect([endpoint], Some(options.clone())).await?);
        }
        let (chosen, _) = watch::channel(0);
        Ok(Self {
            clients,
            chosen,
            asking: Mutex::new(()),
            key,
            limit: config.timeout,
        })
    }

    /// The one that is asked now.
    pub(super) fn chosen(&self) -> Result<Member, Error> {
        let place = *self.chosen.borrow();
        let none = || Error::InvalidArgs("no endpoint is named".to_owned());
        let client = self.clients.get(place).cloned().ok_or_else(none)?;
        Ok(Member {
            client,
            place,
            chosen: self.chosen.subscribe(),
        })
    }

    /// For how long a member may be silent before it is asked whether it is there, and how long it
    /// may take to say so.
    pub(super) fn patience(&self) -> Duration {
        self.limit / 8
    }

    /// Ends when another member is asked instead of this one, because it was silent for this time
    /// and more, and still is.
    pub(super) async fn another_than(&self, member: &Member, silent: Duration) {
        let seek = async {
            sleep(silent).await;
            while !self.seek(member).await {
                sleep(self.patience()).await;
            }
        };
        tokio::select! {
            () = member.left() => {}
            () = seek => {}
        }
    }

    /// Asks this member, and if it is silent all of them, whether they answer. Whether another one
    /// is asked from now on.
    pub(super) async fn seek(&self, member: &Member) -> bool {
        if self.clients.len() < 2 {
            return false;
        }
        let _asking = self.asking.lock().await;
        if member.is_left() {
            return true;
        }
        if matches!(
            timeout(self.patience(), self.answers(member.place, &member.client)).await,
            Ok(Ok(_))
        ) {
            return false;
        }
        let all = self.clients.iter().enumerate();
        let first = select_ok(all.map(|(place, client)| Box::pin(self.answers(place, client))));
        let Ok(Ok((place, _))) = timeout(self.limit, first).await else {
            return false;
        };
        if place != member.place {
            tracing::info!(
                from = member.place,
                to = place,
                "a member of etcd is silent; another one is asked"
            );
            self.chosen.send_replace(place);
        }
        place != member.place
    }

    async fn answers(&self, place: usize, client: &Client) -> Result<usize, Error> {
        client
            .clone()
            .get(self.key.as_bytes(), None)
            .await
            .map(|_| place)
    }
}

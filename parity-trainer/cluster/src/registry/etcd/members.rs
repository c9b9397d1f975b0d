//! The members of an etcd, one of which is asked.
//!
//! Everything goes to one member: requests, watches, renewals. It is asked for a key several times
//! a second; if it does not answer, all are, and the first that answers is the one from then on,
//! for everything that waits. The key is read through etcd's quorum, so a member that is cut off
//! from the others does not count as one that answers. A client with all endpoints would go on to
//! spread requests over them: to it, a connection on which nothing comes back is as good as any.

use std::time::Duration;

use etcd_client::{Client, ConnectOptions, Error};
use futures::future::select_ok;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code::{Cancelled, DeadlineExceeded, Internal, Unavailable, Unknown};

use crate::registry::{RegistryError, Result};

const TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which a member is asked whether it is there, and how long it may take to say so.
const PATIENCE: Duration = Duration::from_millis(250);

/// Interval of pings on a connection with waiting requests, so that one to a member that is gone
/// for good is given up; etcd refuses pings that are less than 5 s apart.
const PING: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    place: usize,
    answers: bool,
}

pub(super) struct Members {
    pub(super) endpoints: String,
    clients: Vec<Client>,
    asked: watch::Receiver<Asked>,
    _probing: AbortOnDropHandle<()>,
}

impl Members {
    /// Nothing is sent yet. Members are probed by reading `key`.
    pub(super) async fn new(endpoints: &[String], key: String) -> Result<Self> {
        let options = ConnectOptions::new()
            .with_connect_timeout(TIMEOUT)
            .with_tcp_keepalive(Duration::from_secs(5))
            .with_keep_alive(PING, TIMEOUT);
        let names = endpoints.join(", ");
        let mut clients = Vec::with_capacity(endpoints.len());
        for endpoint in endpoints {
            let client = Client::connect([endpoint], Some(options.clone())).await;
            clients.push(client.map_err(|error| explain(&names, &error))?);
        }
        let (place, answers) = (0, true);
        let (asked, receiver) = watch::channel(Asked { place, answers });
        let probing = tokio::spawn(probe(clients.clone(), key, asked));
        Ok(Self {
            endpoints: names,
            clients,
            asked: receiver,
            _probing: AbortOnDropHandle::new(probing),
        })
    }

    pub(super) fn place(&self) -> usize {
        self.asked.borrow().place
    }

    pub(super) async fn answers(&self) {
        let mut asked = self.asked.clone();
        // The sender lives as long as this.
        let _ = asked.wait_for(|asked| asked.answers).await;
    }

    /// Waits until another member is asked than this one, or none answers.
    pub(super) async fn left(&self, place: usize) {
        let mut asked = self.asked.clone();
        let has_left = |asked: &Asked| asked.place != place || !asked.answers;
        let _ = asked.wait_for(has_left).await;
    }

    /// Waits until another member is asked than this one; false if it is not soon.
    pub(super) async fn moves_on(&self, place: usize) -> bool {
        let mut asked = self.asked.clone();
        let other = asked.wait_for(|asked| asked.place != place);
        self.clients.len() > 1 && timeout(3 * PATIENCE, other).await.is_ok()
    }

    /// Asks for what may be asked twice: another member if the first is silent, until time is up.
    pub(super) async fn ask<T, F>(&self, call: impl Fn(Client) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let asking = async {
            loop {
                let place = self.place();
                let answer = self.ask_once(&call).await;
                let is_away = matches!(answer, Err(RegistryError::Unreachable { .. }));
                if !is_away || !self.moves_on(place).await {
                    return answer;
                }
            }
        };
        let answer = timeout(TIMEOUT, asking).await;
        answer.unwrap_or_else(|_| Err(self.silent()))
    }

    /// Asks for what may be done only once. After an error it is unknown whether it was done.
    pub(super) async fn ask_once<T, F>(&self, call: impl FnOnce(Client) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let place = self.place();
        let Some(client) = self.clients.get(place).cloned() else {
            return Err(self.unreachable("no endpoint is named"));
        };
        let mut asked = self.asked.clone();
        tokio::select! {
            biased;
            answer = timeout(TIMEOUT, call(client)) => match answer {
                Ok(answer) => answer.map_err(|error| explain(&self.endpoints, &error)),
                Err(_) => Err(self.silent()),
            },
            _ = asked.wait_for(|asked| asked.place != place) => {
                Err(self.unreachable("the member that was asked is silent"))
            }
        }
    }

    fn silent(&self) -> RegistryError {
        self.unreachable(&format!("nothing came within {TIMEOUT:?}"))
    }

    pub(super) fn unreachable(&self, cause: &str) -> RegistryError {
        let (endpoints, cause) = (self.endpoints.clone(), cause.to_owned());
        RegistryError::Unreachable { endpoints, cause }
    }
}

/// Probes the member that is asked, and all of them when it does not answer.
async fn probe(clients: Vec<Client>, key: String, asked: watch::Sender<Asked>) {
    let key = key.as_bytes();
    let answer = async |place: usize| match clients.get(place) {
        Some(client) => client.clone().get(key, None).await.map(|_| place),
        None => Err(Error::InvalidArgs("no endpoint is named".into())),
    };
    loop {
        sleep(PATIENCE).await;
        let (place, answers) = (asked.borrow().place, true);
        let mut next = Asked { place, answers };
        if !matches!(timeout(PATIENCE, answer(place)).await, Ok(Ok(_))) {
            let all = (0..clients.len()).map(|place| Box::pin(answer(place)));
            match timeout(TIMEOUT, select_ok(all)).await {
                Ok(Ok((first, _))) => next.place = first,
                _ => next.answers = false,
            }
        }
        if next.place != place {
            let to = next.place;
            tracing::info!(from = place, to, "a member of etcd is silent; another one is asked");
        }
        asked.send_if_modified(|asked| std::mem::replace(asked, next) != next);
    }
}

/// Tells a member that could not be reached, or cannot reach the others, from one that refuses.
pub(super) fn explain(endpoints: &str, error: &Error) -> RegistryError {
    let is_away = match error {
        Error::GRpcStatus(status) => {
            matches!(status.code(), Unavailable | DeadlineExceeded | Cancelled | Unknown | Internal)
        }
        Error::IoError(_) | Error::TransportError(_) | Error::EndpointError(_) => true,
        _ => false,
    };
    let endpoints = endpoints.to_owned();
    let cause = match error {
        Error::GRpcStatus(status) if is_away => status.message().to_owned(),
        _ => error.to_string(),
    };
    match is_away {
        true => RegistryError::Unreachable { endpoints, cause },
        false => RegistryError::Refused { endpoints, cause },
    }
}

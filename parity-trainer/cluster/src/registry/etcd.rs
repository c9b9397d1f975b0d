//! A store in etcd (v3 protocol; 3.4 and later).
//!
//! All keys of a cluster begin with `/parapet/CLUSTER/`. A lease is granted for whole seconds, and
//! for at least one and a half of etcd's election timeouts: asked for one second, a single etcd of
//! Debian grants two and takes keys away after 2.0 to 2.5 s (measured). So leases say who has gone;
//! who has died is suspected on the data plane, within milliseconds.

mod follow;
mod lease;
mod members;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Client, Error, PutOptions, Txn, TxnOp};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Code;

use crate::registry::RegistryError;
use crate::registry::following::keep_following;
use crate::registry::store::{Batch, CommitOutcome, Entry, Lease, Revision, Store, Transaction};
use follow::Watch;
use lease::EtcdLease;
use members::{Member, Members};

/// Where an etcd is, and how long it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConfig {
    /// `HOST:PORT`, of one member or more. The first is asked as long as it answers: name
    /// the nearest first.
    pub endpoints: Vec<String>,
    /// Keeps clusters that share an etcd apart.
    pub cluster: String,
    /// For how long etcd keeps a member that it does not hear from; whole seconds.
    pub lease: Duration,
    /// Time that a request may take. A member that is silent for a quarter of it is left for
    /// another one that answers.
    pub timeout: Duration,
}

impl EtcdConfig {
    /// From `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`.
    ///
    /// # Errors
    /// [`RegistryError::Address`] if it is anything else.
    pub fn parse(address: &str) -> Result<Self, RegistryError> {
        let given = || RegistryError::Address {
            given: address.to_owned(),
        };
        let rest = address.strip_prefix("etcd://").ok_or_else(given)?;
        let (hosts, cluster) = rest.split_once('/').unwrap_or((rest, "default"));
        let endpoints: Vec<String> = hosts.split(',').map(str::to_owned).collect();
        let has_port = |endpoint: &String| {
            let parts = endpoint.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !endpoints.iter().all(has_port) || cluster.is_empty() || !cluster.chars().all(is_plain) {
            return Err(given());
        }
        Ok(Self {
            cluster: cluster.to_owned(),
            ..Self::new(endpoints)
        })
    }

    /// The cluster `default` at these endpoints.
    pub fn new(endpoints: Vec<String>) -> Self {
        let (lease, timeout) = (Duration::from_secs(1), Duration::from_secs(2));
        Self {
            endpoints,
            cluster: "default".to_owned(),
            lease,
            timeout,
        }
    }

    fn prefix(&self) -> String {
        format!("/parapet/{}/", self.cluster)
    }
}

/// State that all parts of the store share.
#[derive(Clone)]
struct Connection {
    members: Arc<Members>,
    config: Arc<EtcdConfig>,
}

/// Reason why an answer did not come.
#[derive(Debug)]
enum Unanswered {
    /// The member was silent, or its connection broke, and another one is asked from now on.
    Left,
    /// There is no other.
    Failed(RegistryError),
}

/// A store in etcd. Clones share its connections.
#[derive(Clone)]
pub struct EtcdStore(Connection);

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdStore at {}", self.0.endpoints())
    }
}

impl EtcdStore {
    /// Connects, and makes sure that an etcd answers.
    ///
    /// # Errors
    /// [`RegistryError::Unreachable`], which names the endpoints, after
    /// [`EtcdConfig::timeout`] at most.
    pub async fn connect(config: EtcdConfig) -> Result<Self, RegistryError> {
        let refused = |error: Error| RegistryError::Refused {
            endpoints: config.endpoints.join(", "),
            cause: error.to_string(),
        };
        let key = format!("{}{}", config.prefix(), crate::registry::documents::NEXT);
        let members = Arc::new(Members::new(&config, key).await.map_err(refused)?);
        let store = Self(Connection {
            members,
            config: Arc::new(config),
        });
        store.get(crate::registry::documents::NEXT).await?;
        Ok(store)
    }
}

impl Connection {
    fn endpoints(&self) -> String {
        self.config.endpoints.join(", ")
    }

    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.config.prefix())
    }

    fn member(&self) -> Result<Member, RegistryError> {
        self.members.chosen().map_err(|error| self.explain(&error))
    }

    /// Asks for what may be asked twice: another member if the first is silent, until time is up.
    async fn ask<T, F>(&self, call: impl Fn(Client) -> F) -> Result<T, RegistryError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let asking = async {
            loop {
                let member = self.member()?;
                match self.answer(&member, call(member.client.clone())).await {
                    Ok(answer) => return Ok(answer),
                    Err(Unanswered::Left) => {}
                    Err(Unanswered::Failed(error)) => return Err(error),
                }
            }
        };
        timeout(self.config.timeout, asking)
            .await
            .unwrap_or_else(|_| Err(self.silent()))
    }

    /// Asks for what may be done only once. After an error it is unknown whether it was done.
    async fn ask_once<T, F>(&self, call: impl FnOnce(Client) -> F) -> Result<T, RegistryError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let member = self.member()?;
        self.answer(&member, call(member.client.clone()))
            .await
            .map_err(|unanswered| match unanswered {
                Unanswered::Left => {
                    self.unreachable("the member that was asked is silent".to_owned())
                }
                Unanswered::Failed(error) => error,
            })
    }

    /// Waits for what `member` answers: no longer than is allowed, nor than until it is left
    /// for another one.
    async fn answer<T>(
        &self,
        member: &Member,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Unanswered> {
        let answer = async {
            tokio::select! {
                biased;
                answer = call => match answer {
                    Ok(answer) => Ok(answer),
                    Err(error) => Err(self.failed(member, &error).await),
                },
                () = self.members.another_than(member, self.members.patience()) =>
                    Err(Unanswered::Left),
            }
        };
        let in_time = timeout(self.config.timeout, answer).await;
        in_time.unwrap_or_else(|_| Err(Unanswered::Failed(self.silent())))
    }

    /// Handles an error of `member`: another one is asked if this one cannot be reached
    /// and another can.
    async fn failed(&self, member: &Member, error: &Error) -> Unanswered {
        if is_away(error) && self.members.seek(member).await {
            return Unanswered::Left;
        }
        Unanswered::Failed(self.explain(error))
    }

    fn silent(&self) -> RegistryError {
        self.unreachable(format!("nothing came within {:?}", self.config.timeout))
    }

    fn unreachable(&self, cause: String) -> RegistryError {
        RegistryError::Unreachable {
            endpoints: self.endpoints(),
            cause,
        }
    }

    fn explain(&self, error: &Error) -> RegistryError {
        match error {
            Error::GRpcStatus(status) if is_away(error) => {
                self.unreachable(status.message().to_owned())
            }
            _ if is_away(error) => self.unreachable(error.to_string()),
            _ => RegistryError::Refused {
                endpoints: self.endpoints(),
                cause: error.to_string(),
            },
        }
    }

    fn entry(&self, held: &etcd_client::KeyValue) -> Entry {
        Entry {
            key: self.short(held.key()),
            value: held.value().to_vec(),
            modified: revision(held.mod_revision()),
        }
    }

    /// The key without what all keys begin with.
    fn short(&self, key: &[u8]) -> String {
        let key = String::from_utf8_lossy(key);
        key.strip_prefix(&self.config.prefix())
            .unwrap_or(&key)
            .to_owned()
    }
}

/// Returns true if the member could not be reached, or cannot reach the others.
fn is_away(error: &Error) -> bool {
    use Code::{Cancelled, DeadlineExceeded, Internal, Unavailable, Unknown};
    match error {
        Error::GRpcStatus(status) => {
            matches!(
                status.code(),
                Unavailable | DeadlineExceeded | Cancelled | Unknown | Internal
            )
        }
        Error::IoError(_) | Error::TransportError(_) | Error::EndpointError(_) => true,
        _ => false,
    }
}

fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

fn number(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

#[async_trait]
impl Store for EtcdStore {
    async fn get(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
        let connection = &self.0;
        let key = connection.key(key);
        let found = connection
            .ask(|mut client| {
                let key = key.clone();
                async move { client.get(key, None).await }
            })
            .await?;
        Ok(found.kvs().first().map(|held| connection.entry(held)))
    }

    async fn commit(&self, transaction: Transaction) -> Result<CommitOutcome, RegistryError> {
        let connection = &self.0;
        let compare = |compare: crate::registry::Compare| {
            let key = connection.key(&compare.key);
            let modified = number(compare.modified);
            etcd_client::Compare::mod_revision(key, etcd_client::CompareOp::Equal, modified)
        };
        let put = |put: crate::registry::Put| {
            let options = put.lease.map(|lease| PutOptions::new().with_lease(lease.0));
            TxnOp::put(connection.key(&put.key), put.value, options)
        };
        let delete = |key: String| TxnOp::delete(connection.key(&key), None);
        let changes = transaction.puts.into_iter().map(put);
        let changes: Vec<TxnOp> = changes
            .chain(transaction.deletes.into_iter().map(delete))
            .collect();
        let when: Vec<etcd_client::Compare> = transaction.when.into_iter().map(compare).collect();
        let transaction = Txn::new().when(when).and_then(changes);
        let answer = connection
            .ask_once(|mut client| async move { client.txn(transaction).await })
            .await?;
        if !answer.succeeded() {
            return Ok(CommitOutcome::Failed);
        }
        Ok(CommitOutcome::Done(revision(
            answer
                .header()
                .map_or(0, etcd_client::ResponseHeader::revision),
        )))
    }

    async fn grant(&self) -> Result<Arc<dyn Lease>, RegistryError> {
        Ok(Arc::new(EtcdLease::grant(self.0.clone()).await?))
    }

    fn follow(&self) -> mpsc::Receiver<Batch> {
        keep_following(Watch::new(self.0.clone()))
    }
}

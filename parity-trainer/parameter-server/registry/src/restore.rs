//! A checkpoint's arrays in the registry. There is one restore at a time.

use std::sync::Arc;

use parapet_parameter_server::{ArrayId, NodeId, Routing, WorkerId};

use crate::documents;
use crate::store::{Compare, Lease, Outcome, Put, Revision, Transaction};
use crate::{ArrayInfo, Member, Registry, RegistryError, Table};

/// Servers whose presence is a condition of the transaction; the others' is looked at just before it. Whoever goes then is
/// missed as one that goes after it.
const CONDITIONS: usize = 64;

/// A restore that is under way, until this is dropped or its lease is over. The registry's view shows it, and servers keep
/// what they have read for it until then.
#[derive(Debug)]
pub struct Restoring {
    lease: Arc<dyn Lease>,
    began: Revision,
}

impl Restoring {
    /// Its number, which no other restore in this registry has or had; later ones have higher numbers.
    pub const fn number(&self) -> u64 {
        self.began.0
    }

    /// Ends it at once, so that another one can begin.
    ///
    /// # Errors
    /// If the store does not answer; it ends with its lease then.
    pub async fn end(self) -> Result<(), RegistryError> {
        self.lease.revoke().await
    }
}

impl Registry {
    /// Begins a restore.
    ///
    /// # Errors
    /// [`RegistryError::Restoring`] if another one is under way.
    pub async fn begin_restore(&self) -> Result<Restoring, RegistryError> {
        let lease = self.store().grant().await?;
        let begun = Put { key: documents::RESTORING.into(), value: b"{}".to_vec(), lease: Some(lease.id()) };
        let transaction = Transaction {
            when: vec![Compare::new(documents::RESTORING, Revision(0))],
            puts: vec![begun],
            deletes: Vec::new(),
        };
        match self.store().commit(transaction).await? {
            Outcome::Done(began) => Ok(Restoring { lease, began }),
            Outcome::Failed => Err(RegistryError::Restoring),
        }
    }

    /// Makes arrays known, together with the shards of them that servers have read, in one transaction. `routing` is the table
    /// after `base`, with these shards. No member to come gets a number up to `past`, that of a worker of which the shards
    /// have a clock.
    ///
    /// # Errors
    /// [`RegistryError::Conflict`] if the table has changed, one of the arrays is known, one of the servers has gone, or
    /// somebody works already or has just joined; [`RegistryError::RestoreOver`] if `restoring` does not last any longer.
    pub async fn restore(
        &self,
        restoring: &Restoring,
        base: &Table,
        routing: &Routing,
        arrays: &[(ArrayId, ArrayInfo)],
        past: WorkerId,
    ) -> Result<(), RegistryError> {
        let next = self.store().get(documents::NEXT).await?;
        let number = next.as_ref().map_or(Ok(1), |e| documents::read_number(documents::NEXT, &e.value))?;
        let workers = self.workers().await?;
        if !workers.workers.is_empty() {
            return Err(RegistryError::Conflict);
        }
        let mut when = vec![
            Compare::new(documents::RESTORING, restoring.began),
            Compare::new(documents::TABLE, base.revision),
            Compare::new(documents::NEXT, next.map_or(Revision(0), |e| e.modified)),
            Compare::new(documents::WORKERS, workers.revision),
        ];
        when.extend(self.present(routing, arrays).await?.into_iter().take(CONDITIONS));
        let mut puts = Vec::new();
        let mut put = |key: String, value| puts.push(Put { key, value, lease: None });
        put(documents::TABLE.into(), documents::write_table(routing, &base.hand_overs)?);
        put(documents::NEXT.into(), number.max(past.0.saturating_add(1)).to_string().into_bytes());
        for (array, info) in arrays {
            let key = documents::array_key(*array);
            when.push(Compare::new(&key, Revision(0)));
            put(key, documents::write_array(info)?);
        }
        match self.store().commit(Transaction { when, puts, deletes: Vec::new() }).await? {
            Outcome::Done(_) => Ok(()),
            Outcome::Failed => {
                let under_way = self.store().get(documents::RESTORING).await?;
                let lasts = under_way.is_some_and(|entry| entry.modified == restoring.began);
                Err(if lasts { RegistryError::Conflict } else { RegistryError::RestoreOver })
            }
        }
    }

    /// The conditions that the servers of these arrays are there.
    async fn present(
        &self,
        routing: &Routing,
        arrays: &[(ArrayId, ArrayInfo)],
    ) -> Result<Vec<Compare>, RegistryError> {
        let restored = |array: ArrayId| arrays.iter().any(|&(other, _)| other == array);
        let routes = routing.routes().iter().filter(|route| restored(route.array));
        let mut servers: Vec<NodeId> = routes.flat_map(|route| route.chain.iter().copied()).collect();
        servers.sort_unstable();
        servers.dedup();
        let mut present = Vec::with_capacity(servers.len());
        for server in servers {
            let key = documents::member_key(Member::Server(server));
            let entry = self.store().get(&key).await?.ok_or(RegistryError::Conflict)?;
            present.push(Compare::new(key, entry.modified));
        }
        Ok(present)
    }
}

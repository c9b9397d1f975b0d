//! The instances of all pools, to look at.

use rustc_hash::FxHashMap;

use super::Core;
use crate::{InstanceId, InstanceView, Pool, Time};

impl<I, O> Core<I, O> {
    /// At most `limit` instances, in the order of their ids. Looks at every request once.
    pub(crate) fn view_instances(&self, now: Time, limit: usize) -> Vec<InstanceView> {
        let mut views: Vec<InstanceView> = self.pools.iter().flat_map(Pool::view).collect();
        views.sort_unstable_by_key(|view| view.id);
        views.truncate(limit);
        let mut oldest: FxHashMap<InstanceId, Time> = FxHashMap::default();
        for job in self.jobs.values() {
            if let Some(instance) = job.instance {
                let first = oldest.entry(instance).or_insert(job.sent);
                *first = (*first).min(job.sent);
            }
        }
        for view in &mut views {
            view.oldest = oldest.get(&view.id).map(|sent| now.since(*sent));
            if let Some(outliers) = &self.outliers {
                (view.failed, view.ejections) = outliers.record(view.id);
            }
        }
        views
    }
}

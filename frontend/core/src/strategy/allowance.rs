//! Gate that all strategies ask before they add a request: the budget, and room at the
//! deployed model (CG-7).

use std::time::Duration;

use crate::stats::Fate;
use crate::{BudgetView, Core, Failure, PoolId, QueryId, TokenBucket};

/// A budget of redundant requests that is closed while too many queries wait.
#[derive(Debug)]
pub(super) struct Allowance {
    bucket: TokenBucket,
    shed_above: Option<usize>,
}

impl Allowance {
    /// `share` requests for each accepted query over time, `burst` at once; none while more than
    /// `shed_above` queries wait for a slot; as many as there are slots if `None`.
    pub(super) fn new(share: f64, burst: f64, shed_above: Option<usize>) -> Self {
        Self { bucket: TokenBucket::new(share, burst), shed_above }
    }

    pub(super) fn view(&self) -> BudgetView {
        self.bucket.view()
    }

    pub(super) fn earn(&mut self) {
        self.bucket.earn();
    }

    /// Sends a copy of `query` to an instance of its own, if all allows it.
    pub(super) fn copy<I, O>(&mut self, core: &mut Core<I, O>, query: QueryId) -> bool {
        self.spend(core, query, |core| core.dispatch_copy(query))
    }

    /// The same for a query that counts as late after `delay`. Half of the burst is kept for those
    /// that have waited for longer, a quarter for those beyond twice the delay, and so on.
    pub(super) fn late_copy<I, O>(
        &mut self,
        core: &mut Core<I, O>,
        query: QueryId,
        delay: Duration,
    ) {
        let arrived = core.query(query).map(|query| query.arrived);
        let waited = arrived.map_or(delay, |arrived| core.now().since(arrived)).max(delay);
        let kept = 0.5 * delay.as_secs_f64() / waited.as_secs_f64().max(f64::MIN_POSITIVE);
        let is_open = self.bucket.can_spend_beside(kept) && !core.is_congested(self.shed_above);
        if is_open && core.dispatch_copy(query) {
            self.bucket.spend();
        } else if waited < 2 * delay {
            // Later looks at it are not counted.
            core.count(query.class(), Fate::Shed);
        }
    }

    /// Asks the backup model in `pool`, if all allows it; once more `after` a failure.
    pub(super) fn backup<I, O>(
        &mut self,
        core: &mut Core<I, O>,
        query: QueryId,
        pool: PoolId,
        after: Option<&Failure>,
    ) -> bool {
        self.spend(core, query, |core| core.dispatch_backup(query, pool, after))
    }

    fn spend<I, O>(
        &mut self,
        core: &mut Core<I, O>,
        query: QueryId,
        dispatch: impl FnOnce(&mut Core<I, O>) -> bool,
    ) -> bool {
        let open = self.bucket.can_spend() && !core.is_congested(self.shed_above);
        if open && dispatch(core) {
            return self.bucket.spend();
        }
        core.count(query.class(), Fate::Shed);
        false
    }
}

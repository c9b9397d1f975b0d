//! Gate that all strategies ask before they add a request: the budget, and room at the
//! deployed model (CG-7).

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
        Self {
            bucket: TokenBucket::new(share, burst),
            shed_above,
        }
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

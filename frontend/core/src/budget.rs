//! Budgets for work beyond one request per query (CG-7).

/// A token bucket that is filled by accepted queries instead of time, so that it needs no clock:
/// extra work stays below `share` of the requests, plus a burst.
#[derive(Debug, Clone)]
pub(crate) struct TokenBucket {
    share: f64,
    burst: f64,
    tokens: f64,
}

impl TokenBucket {
    /// Extra work of at most `share` a query over time, and `burst` at once; starts full.
    pub(crate) fn new(share: f64, burst: f64) -> Self {
        let burst = burst.max(1.0);
        Self { share: share.max(0.0), burst, tokens: if share > 0.0 { burst } else { 0.0 } }
    }

    pub(crate) fn view(&self) -> BudgetView {
        BudgetView { share: self.share, burst: self.burst, left: self.tokens }
    }

    pub(crate) fn earn(&mut self) {
        self.tokens = (self.tokens + self.share).min(self.burst);
    }

    /// Returns true if there is a token for one extra request.
    pub(crate) fn can_spend(&self) -> bool {
        self.tokens >= 1.0
    }

    /// Returns true if there is a token for one extra request beside this share of the burst.
    pub(crate) fn can_spend_beside(&self, share: f64) -> bool {
        self.tokens - (self.burst * share).floor() >= 1.0
    }

    /// Takes one token for one extra request; false when there is none.
    pub(crate) fn spend(&mut self) -> bool {
        let allowed = self.can_spend();
        if allowed {
            self.tokens -= 1.0;
        }
        allowed
    }
}

/// A budget as people look at it.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct BudgetView {
    /// Redundant requests allowed for each accepted query over time.
    pub share: f64,
    /// Limit of tokens, and so of redundant requests at once.
    pub burst: f64,
    /// Of those, how many are left now.
    pub left: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn extra_work_stays_within_share_and_burst(
            share in 0.0f64..1.5, burst in 1.0f64..20.0,
            wants in proptest::collection::vec(0u8..4, 1..400),
        ) {
            let mut bucket = TokenBucket::new(share, burst);
            let (mut earned, mut spent) = (0u32, 0u32);
            for want in wants {
                bucket.earn();
                earned += 1;
                for _ in 0..want {
                    spent += u32::from(bucket.spend());
                }
                prop_assert!(f64::from(spent) <= f64::from(earned) * share + burst + 1e-9);
            }
        }
    }
}

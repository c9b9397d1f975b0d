//! Tenants: bearer keys, quotas, and the mixing domains of coding groups.
//!
//! Keys are random and long ([`Key::generate`]), so that a plain SHA-256 of them is enough at rest:
//! 256 bits cannot be guessed, and a slow hash is for passwords that people think of. What a client
//! sends is hashed and compared with every tenant's hashes in constant time, whichever matches.

mod key;
mod quota;

pub use key::{Key, KeyHash};
pub use quota::Quota;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use metrics::Counter;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::error::ServeError;
use crate::metrics::Metrics;

/// A tenant as configured.
#[derive(Debug, Clone)]
pub struct TenantConfig {
    /// Its name: in logs, metrics and group keys.
    pub name: String,
    /// Hashes of its keys, any of which will do.
    pub keys: Vec<KeyHash>,
    /// Requests per second, and at once; as many as it likes if `None`.
    pub quota: Option<(f64, f64)>,
    /// True if its queries may share coding groups with those of other tenants that allow it.
    pub may_mix: bool,
}

/// Queries that may share coding groups (CG-6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MixingDomain(u32);

impl MixingDomain {
    /// Of all who allow mixing, and of everybody where there are no tenants.
    pub const SHARED: Self = Self(0);

    /// A tenant's own. Follows from its name, so that it is the same after a reload, when the
    /// groups of before are still about; the configuration refuses two tenants that have the same.
    pub fn of_tenant(name: &str) -> Self {
        let hash: [u8; 32] = Sha256::digest(name).into();
        let [a, b, c, d, ..] = hash;
        Self(u32::from_be_bytes([a, b, c, d]).max(1))
    }

    /// As a number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Client with a key.
#[derive(Debug)]
pub struct Tenant {
    config: TenantConfig,
    quota: Option<Mutex<Quota>>,
    admitted: Counter,
    over_quota: Counter,
}

impl Tenant {
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Returns the mixing domain of its queries.
    pub fn domain(&self) -> MixingDomain {
        if self.config.may_mix {
            MixingDomain::SHARED
        } else {
            MixingDomain::of_tenant(&self.config.name)
        }
    }
}

/// All who may ask; everybody, if there are none.
#[derive(Debug)]
pub struct Tenants {
    tenants: Vec<Arc<Tenant>>,
    since: Instant,
    no_key: Counter,
}

impl Tenants {
    /// Tenants with full quotas.
    pub fn new(configs: &[TenantConfig], metrics: &Metrics) -> Self {
        let tenant = |config: &TenantConfig| {
            let (admitted, over_quota) = metrics.tenant(&config.name);
            let quota = config
                .quota
                .map(|(rate, burst)| Mutex::new(Quota::new(rate, burst)));
            Arc::new(Tenant {
                config: config.clone(),
                quota,
                admitted,
                over_quota,
            })
        };
        Self {
            tenants: configs.iter().map(tenant).collect(),
            since: Instant::now(),
            no_key: metrics.unauthenticated(),
        }
    }

    /// Returns true if requests need no key.
    pub fn is_open(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Returns the tenant of a request; `None` where no key is needed.
    ///
    /// # Errors
    /// [`ServeError::Unauthenticated`].
    pub fn identify(&self, headers: &HeaderMap) -> Result<Option<Arc<Tenant>>, ServeError> {
        if self.is_open() {
            return Ok(None);
        }
        let given = bearer(headers).map(KeyHash::of);
        let mut found = None;
        for tenant in &self.tenants {
            for key in &tenant.config.keys {
                // All are compared, whether or not one was found.
                if given.as_ref().is_some_and(|given| given.equals(key)) {
                    found = Some(tenant);
                }
            }
        }
        if found.is_none() {
            self.no_key.increment(1);
        }
        found.cloned().map(Some).ok_or(ServeError::Unauthenticated)
    }

    /// Counts a request against the tenant's quota.
    ///
    /// # Errors
    /// [`ServeError::OverQuota`].
    pub fn admit(&self, tenant: &Tenant) -> Result<(), ServeError> {
        let taken = tenant
            .quota
            .as_ref()
            .map_or(Ok(()), |quota| quota.lock().take(self.since.elapsed()));
        match taken {
            Ok(()) => tenant.admitted.increment(1),
            Err(wait) => {
                tenant.over_quota.increment(1);
                return Err(ServeError::OverQuota {
                    tenant: tenant.name().to_owned(),
                    retry_after: in_seconds(wait),
                });
            }
        }
        Ok(())
    }
}

/// Rounded up, for `Retry-After`.
fn in_seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

/// The key that a request carries: `Authorization: Bearer KEY`. One with two such
/// headers carries none.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let value = given.next()?.as_bytes();
    if given.next().is_some() {
        return None;
    }
    let (scheme, key) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    fn tenant(name: &str, keys: &[&Key], quota: Option<(f64, f64)>, may_mix: bool) -> TenantConfig {
        TenantConfig {
            name: name.to_owned(),
            keys: keys.iter().map(|key| key.hash()).collect(),
            quota,
            may_mix,
        }
    }

    #[test]
    fn a_key_names_its_tenant_and_nothing_else_does() {
        let (a, b, c) = (Key::generate(), Key::generate(), Key::generate());
        let configs = [
            tenant("one", &[&a, &b], None, false),
            tenant("two", &[&c], None, true),
        ];
        let tenants = Tenants::new(&configs, &Metrics::new().unwrap());
        let name = |value: String| {
            tenants
                .identify(&headers(&value))
                .map(|tenant| tenant.unwrap().name().to_owned())
                .ok()
        };
        for (key, expected) in [(&a, "one"), (&b, "one"), (&c, "two")] {
            assert_eq!(
                name(format!("Bearer {}", key.text())).as_deref(),
                Some(expected)
            );
            assert_eq!(
                name(format!("bearer {}", key.text())).as_deref(),
                Some(expected)
            );
        }
        for wrong in [
            format!("Bearer {}", Key::generate().text()),
            format!("Bearer {}x", a.text()),
            format!("Bearer {}", &a.text()[1..]),
            format!("Basic {}", a.text()),
            format!("Bearer  {}", a.text()),
            format!("Bearer {}", a.hash()),
            a.text().to_owned(),
            "Bearer ".to_owned(),
            String::new(),
        ] {
            assert_eq!(name(wrong.clone()), None, "{wrong}");
        }
        let mut twice = headers(&format!("Bearer {}", a.text()));
        twice.append(
            AUTHORIZATION,
            format!("Bearer {}", c.text()).parse().unwrap(),
        );
        assert!(tenants.identify(&twice).is_err() && tenants.identify(&HeaderMap::new()).is_err());
    }

    #[test]
    fn those_who_allow_it_share_groups_and_nobody_else() {
        let domain = |name: &str, may_mix| {
            let tenants = Tenants::new(
                &[tenant(name, &[], None, may_mix)],
                &Metrics::new().unwrap(),
            );
            tenants.tenants[0].domain()
        };
        assert_eq!(domain("one", true), domain("two", true));
        assert_ne!(domain("one", false), domain("two", false));
        assert_ne!(domain("one", false), domain("one", true));
        assert_eq!(
            domain("one", false),
            domain("one", false),
            "also after a reload"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_over_quota_hears_when_to_come_again() {
        let key = Key::generate();
        let tenants = Tenants::new(
            &[tenant("one", &[&key], Some((0.5, 1.0)), false)],
            &Metrics::new().unwrap(),
        );
        let one = tenants
            .identify(&headers(&format!("Bearer {}", key.text())))
            .unwrap()
            .unwrap();
        assert!(tenants.admit(&one).is_ok());
        let refused = tenants.admit(&one).unwrap_err();
        assert_eq!(
            (refused.classify().0.as_u16(), refused.retry_after()),
            (429, Some(2))
        );
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(tenants.admit(&one).is_ok());
    }

    #[test]
    fn where_there_are_no_tenants_everybody_may_ask() {
        let tenants = Tenants::new(&[], &Metrics::new().unwrap());
        assert!(tenants.identify(&HeaderMap::new()).unwrap().is_none());
    }
}

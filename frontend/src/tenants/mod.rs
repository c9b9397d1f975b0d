//! Tenants: bearer keys, quotas, and the mixing domains of coding groups.
//!
//! Keys are random and long ([`Key::generate`]), so that a plain SHA-256 of them is enough at rest:
//! 256 bits cannot be guessed, and a slow hash is for passwords that people think of. What a client
//! sends is hashed and compared with every tenant's hashes in constant time, whichever matches.

mod key;

pub use key::{Key, KeyHash};

use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use metrics::Counter;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::error::ServeError;
use crate::metrics::Metrics;

#[derive(Debug, Clone)]
pub struct TenantConfig {
    pub name: String,
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

    pub const fn number(self) -> u32 {
        self.0
    }
}

#[derive(Debug)]
struct Tenant {
    config: TenantConfig,
    quota: Option<Mutex<Quota>>,
    admitted: Counter,
    over_quota: Counter,
}

impl Tenant {
    fn domain(&self) -> MixingDomain {
        match self.config.may_mix {
            true => MixingDomain::SHARED,
            false => MixingDomain::of_tenant(&self.config.name),
        }
    }
}

/// All who may ask; everybody, if there are none.
#[derive(Debug)]
pub struct Tenants {
    tenants: Vec<Tenant>,
    since: Instant,
    no_key: Counter,
}

impl Tenants {
    pub fn new(configs: &[TenantConfig], metrics: &Metrics) -> Self {
        let tenant = |config: &TenantConfig| {
            let [admitted, over_quota] = metrics.tenant(&config.name);
            let quota = config.quota.map(|(rate, burst)| Mutex::new(Quota::new(rate, burst)));
            Tenant { config: config.clone(), quota, admitted, over_quota }
        };
        Self {
            tenants: configs.iter().map(tenant).collect(),
            since: Instant::now(),
            no_key: metrics.unauthenticated(),
        }
    }

    pub fn is_open(&self) -> bool {
        self.tenants.is_empty()
    }

    fn identify(&self, headers: &HeaderMap) -> Option<&Tenant> {
        let tenants = self.tenants.iter();
        let keys =
            tenants.flat_map(|tenant| tenant.config.keys.iter().map(move |key| (tenant, key)));
        owner(headers, keys)
    }

    /// Admits a request, and counts it against its tenant's quota if it asks for a prediction.
    pub fn admit(&self, headers: &HeaderMap, counts: bool) -> Result<MixingDomain, ServeError> {
        if self.is_open() {
            return Ok(MixingDomain::SHARED);
        }
        let Some(tenant) = self.identify(headers) else {
            self.no_key.increment(1);
            return Err(ServeError::Unauthenticated);
        };
        if counts {
            let now = self.since.elapsed();
            let taken = tenant.quota.as_ref().map_or(Ok(()), |quota| quota.lock().take(now));
            if let Err(wait) = taken {
                tenant.over_quota.increment(1);
                // Rounded up, for `Retry-After`.
                return Err(ServeError::OverQuota {
                    tenant: tenant.config.name.clone(),
                    retry_after: u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX),
                });
            }
            tenant.admitted.increment(1);
        }
        Ok(tenant.domain())
    }
}

/// Owner of the key that a request carries. All keys are compared, whether or not one was found.
pub(crate) fn owner<'a, T>(
    headers: &HeaderMap,
    keys: impl Iterator<Item = (T, &'a KeyHash)>,
) -> Option<T> {
    let given = KeyHash::of(bearer(headers)?);
    keys.filter(|(_, key)| given.equals(key)).fold(None, |found, (owner, _)| found.or(Some(owner)))
}

/// The key that a request carries: `Authorization: Bearer KEY`, once.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let value = given.next()?.as_bytes();
    if given.next().is_some() {
        return None;
    }
    let (scheme, key) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key)
}

#[derive(Debug, Clone)]
pub struct Quota {
    rate: f64,
    burst: f64,
    tokens: f64,
    /// When `tokens` was right, after some start.
    at: Duration,
}

impl Quota {
    /// `rate` requests a second over time, `burst` at once; starts full.
    pub fn new(rate: f64, burst: f64) -> Self {
        let burst = burst.max(1.0);
        Self { rate: rate.max(f64::MIN_POSITIVE), burst, tokens: burst, at: Duration::ZERO }
    }

    /// Takes a token at `now`, or returns the time until there is one.
    pub fn take(&mut self, now: Duration) -> Result<(), Duration> {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed * self.rate).min(self.burst);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return Ok(());
        }
        Err(Duration::try_from_secs_f64((1.0 - self.tokens) / self.rate).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    fn tenants(configs: &[TenantConfig]) -> Tenants {
        Tenants::new(configs, &Metrics::new().unwrap())
    }

    #[test]
    fn a_key_names_its_tenant_and_nothing_else_does() {
        let (a, b, c) = (Key::generate(), Key::generate(), Key::generate());
        let one = tenant("one", &[&a, &b], None, false);
        let tenants = tenants(&[one, tenant("two", &[&c], None, true)]);
        let name = |value: &str| {
            let tenant = tenants.identify(&headers(value));
            tenant.map(|tenant| tenant.config.name.as_str())
        };
        for (key, expected) in [(&a, "one"), (&b, "one"), (&c, "two")] {
            for scheme in ["Bearer", "bearer"] {
                assert_eq!(name(&format!("{scheme} {}", key.text())), Some(expected));
            }
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
            assert_eq!(name(&wrong), None, "{wrong}");
        }
        let mut twice = headers(&format!("Bearer {}", a.text()));
        twice.append(AUTHORIZATION, format!("Bearer {}", c.text()).parse().unwrap());
        for refused in [twice, HeaderMap::new()] {
            assert!(matches!(tenants.admit(&refused, true), Err(ServeError::Unauthenticated)));
        }
    }

    #[test]
    fn tenants_that_allow_it_share_groups_and_no_others() {
        let domain =
            |name: &str, may_mix| tenants(&[tenant(name, &[], None, may_mix)]).tenants[0].domain();
        assert_eq!(domain("one", true), domain("two", true));
        assert_ne!(domain("one", false), domain("two", false));
        assert_ne!(domain("one", false), domain("one", true));
        assert_eq!(domain("one", false), domain("one", false), "also after a reload");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_over_the_quota_is_told_when_to_come_again() {
        let key = Key::generate();
        let tenants = tenants(&[tenant("one", &[&key], Some((0.5, 1.0)), false)]);
        let headers = headers(&format!("Bearer {}", key.text()));
        assert!(tenants.admit(&headers, true).is_ok());
        let refused = tenants.admit(&headers, true).unwrap_err();
        assert_eq!((refused.classify().0.as_u16(), refused.retry_after()), (429, Some(2)));
        assert!(tenants.admit(&headers, false).is_ok(), "metadata costs nothing");
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(tenants.admit(&headers, true).is_ok());
    }

    #[test]
    fn without_tenants_every_client_may_ask() {
        let domain = tenants(&[]).admit(&HeaderMap::new(), true).unwrap();
        assert_eq!(domain, MixingDomain::SHARED);
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut quota = Quota::new(10.0, 5.0);
        let granted = |quota: &mut Quota, ms: u64| quota.take(Duration::from_millis(ms)).is_ok();
        assert_eq!((0..20).filter(|_| granted(&mut quota, 0)).count(), 5);
        assert_eq!(quota.take(Duration::ZERO).unwrap_err().as_millis(), 100);
        assert_eq!((1..=10_000).filter(|&ms| granted(&mut quota, ms)).count(), 100);
        let granted_later = (0..20).filter(|_| granted(&mut quota, 1_000_000)).count();
        assert_eq!(granted_later, 5, "it never holds more than the burst");
        assert!(!granted(&mut quota, 10), "time that goes back grants nothing");
    }
}

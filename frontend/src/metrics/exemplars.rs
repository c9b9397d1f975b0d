//! Exemplars: for each bucket of a request's duration, a trace that fell into it, so that a slow
//! bucket leads to a slow trace.
//!
//! One for each bucket is kept, the last; only requests that are traced leave any.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::names::{REQUEST_SECONDS, SECONDS};

/// A request that fell into a bucket.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exemplar {
    trace_id: String,
    seconds: f64,
    at: SystemTime,
}

/// Exemplars of each bucket, and of the rest.
type Buckets = [Option<Exemplar>; SECONDS.len() + 1];

/// By model and provenance.
#[derive(Debug, Default)]
pub(super) struct Exemplars(Mutex<BTreeMap<(String, &'static str), Buckets>>);

impl Exemplars {
    pub(super) fn keep(
        &self,
        model: &str,
        provenance: &'static str,
        took: Duration,
        trace_id: &str,
    ) {
        let exemplar = Exemplar {
            trace_id: trace_id.to_owned(),
            seconds: took.as_secs_f64(),
            at: SystemTime::now(),
        };
        let bucket = SECONDS.partition_point(|bound| *bound < exemplar.seconds);
        let mut kept = self.0.lock();
        let buckets = kept.entry((model.to_owned(), provenance)).or_default();
        if let Some(place) = buckets.get_mut(bucket) {
            *place = Some(exemplar);
        }
    }

    /// Returns the exemplar of each series that has one.
    pub(super) fn by_series(&self) -> HashMap<String, String> {
        let kept = self.0.lock();
        let bounds = || {
            SECONDS
                .iter()
                .map(f64::to_string)
                .chain(["+Inf".to_owned()])
        };
        let series = kept.iter().flat_map(|((model, provenance), buckets)| {
            bounds().zip(buckets).filter_map(move |(le, exemplar)| {
                let labels = format!("model=\"{model}\",provenance=\"{provenance}\",le=\"{le}\"");
                Some((
                    format!("{REQUEST_SECONDS}_bucket{{{labels}}}"),
                    exemplar.as_ref()?.render(),
                ))
            })
        });
        series.collect()
    }
}

impl Exemplar {
    fn render(&self) -> String {
        let Self {
            trace_id,
            seconds,
            at,
        } = self;
        let at = at
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        format!("# {{trace_id=\"{trace_id}\"}} {seconds} {at:.3}")
    }
}

//! Every metric of the frontend by its name, and what it says of itself.

/// Buckets for all durations, 0.25 ms to 10 s.
pub(crate) const SECONDS: [f64; 18] = [
    0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2,
    0.5, 1.0, 2.5, 10.0,
];

/// Requests by model and outcome: `exact`, `hedged`, `backup`, `reconstructed`, or a kind of error.
pub const REQUESTS: &str = "parapet_requests_total";
/// Seconds from a request's arrival to its answer, by model and provenance.
pub const REQUEST_SECONDS: &str = "parapet_request_duration_seconds";
/// Seconds of one upstream request, by model and pool.
pub const UPSTREAM_SECONDS: &str = "parapet_upstream_request_duration_seconds";
/// Upstream requests that failed, by model, pool and kind.
pub const UPSTREAM_FAILURES: &str = "parapet_upstream_failures_total";
/// Reconstructions and backup models' predictions compared with the truth, by model, code (or
/// `backup`), source and whether they agree on the top class.
pub const AGREEMENT: &str = "parapet_reconstruction_agreement_total";
/// True if an instance is up, by model, pool and address. (A label `instance` would clash with the
/// one that Prometheus gives.)
pub const INSTANCE_UP: &str = "parapet_instance_up";
/// True if the backend that a pool's instances are looked for in answers, by model and pool; only
/// where they are not listed.
pub const DISCOVERY_UP: &str = "parapet_discovery_up";
/// Redundant requests (copies, to a backup model, parity queries) by model, class, strategy and
/// what became of them.
pub const REDUNDANT: &str = "parapet_redundant_requests_total";
/// Coding groups encoded, by model and whether they were completed with fillers.
pub const GROUPS: &str = "parapet_coding_groups_total";
/// Attempts after a failed one, by model.
pub const RETRIES: &str = "parapet_retries_total";
/// Late queries that could not be reconstructed when they came to be late, by model.
pub const UNRECOVERABLE: &str = "parapet_late_unrecoverable_total";
/// Queries in the table, by model.
pub const IN_FLIGHT: &str = "parapet_queries_in_flight";
/// Coding groups whose members were all answered before their parity queries were due, by model.
pub const GROUPS_SPARED: &str = "parapet_coding_groups_spared_total";
/// Queries that joined no group, since too many kinds of query were about, by model.
pub const UNCODED: &str = "parapet_queries_uncoded_total";
/// Bytes of the inputs of answered queries that are kept for coding groups, by model.
pub const KEPT_BYTES: &str = "parapet_kept_inputs_bytes";
/// Coding groups in memory, by model.
pub const GROUPS_OPEN: &str = "parapet_coding_groups_in_flight";
/// The current hold-back, by model.
pub const HOLD_BACK: &str = "parapet_hold_back_seconds";
/// Connections that are open.
pub const CONNECTIONS_OPEN: &str = "parapet_connections_open";
pub const CONNECTIONS: &str = "parapet_connections_total";
/// Connections closed at once, since their peer had its share.
pub const CONNECTIONS_REFUSED: &str = "parapet_connections_refused_total";
/// Requests without a known key.
pub const UNAUTHENTICATED: &str = "parapet_requests_unauthenticated_total";
/// Requests of tenants, by tenant and whether they were `admitted` or `over_quota`.
pub const TENANT_REQUESTS: &str = "parapet_tenant_requests_total";
/// Reloads of the configuration, by whether it was taken.
pub const RELOADS: &str = "parapet_config_reloads_total";
/// Bytes that the bodies of requests hold.
pub const BODY_BYTES: &str = "parapet_request_bodies_bytes";
/// Queries that wait for a slot of the deployed model, by model.
pub const QUEUED: &str = "parapet_queries_queued";
/// Queries that may wait for a slot of the deployed model, by model; found out while serving.
pub const QUEUE_LIMIT: &str = "parapet_queue_limit";
/// Instances of the deployed model that get no requests since their answers were bad, by model.
pub const EJECTED: &str = "parapet_instances_ejected";
/// Times that an instance was ejected for its bad answers, by model.
pub const EJECTIONS: &str = "parapet_instance_ejections_total";
/// 1 while new queries get the redundancy that is configured, 0 while an operator has switched it
/// off, by model.
pub const REDUNDANCY_ON: &str = "parapet_redundancy_on";
/// 1 while an operator has put another hold-back in place of the configured one, by model.
pub const HOLD_BACK_OVERRIDDEN: &str = "parapet_hold_back_overridden";
/// Violations of an invariant, by model and invariant.
pub const VIOLATIONS: &str = "parapet_invariant_violations_total";

/// When a certificate expires, in seconds since 1970, by role: of a listener (`data`, `grpc`,
/// `admin`), or what is shown to the instances of a model and pool (`instances`) or to the etcd
/// that knows where they are (`etcd`).
pub const CERTIFICATE_EXPIRY: &str = "parapet_certificate_expiry_timestamp_seconds";
/// When the next revocation list is due, in seconds since 1970, by the role of the certificate
/// beside which it stands.
pub const REVOCATION_LIST_EXPIRY: &str = "parapet_revocation_list_expiry_timestamp_seconds";

pub(super) fn describe_presence() {
    use metrics::{Unit, describe_gauge};
    describe_gauge!(INSTANCE_UP, "1 when the instance is up");
    describe_gauge!(
        DISCOVERY_UP,
        "1 when the backend that says where the instances are answers"
    );
    describe_gauge!(
        CERTIFICATE_EXPIRY,
        Unit::Seconds,
        "When a certificate expires, in seconds since 1970"
    );
    describe_gauge!(
        REVOCATION_LIST_EXPIRY,
        Unit::Seconds,
        "When the next revocation list is due, in seconds since 1970"
    );
}

/// Counters, and what they say of themselves.
const COUNTERS: [(&str, &str); 16] = [
    (
        REQUESTS,
        "Requests by outcome: exact, hedged, backup, reconstructed, or a kind of error",
    ),
    (UPSTREAM_FAILURES, "Upstream requests that failed"),
    (
        AGREEMENT,
        "Approximate answers compared with the deployed model's prediction",
    ),
    (
        REDUNDANT,
        "Redundant requests by strategy and what became of them",
    ),
    (GROUPS, "Coding groups encoded"),
    (RETRIES, "Attempts after a failed one"),
    (
        UNRECOVERABLE,
        "Late queries that could not be reconstructed when they came to be late",
    ),
    (
        GROUPS_SPARED,
        "Coding groups all answered before their parity queries were due",
    ),
    (
        UNCODED,
        "Queries that joined no coding group, since too many kinds of query were about",
    ),
    (CONNECTIONS, "Connections accepted"),
    (
        CONNECTIONS_REFUSED,
        "Connections closed at once, since their peer had its share",
    ),
    (UNAUTHENTICATED, "Requests without a known key"),
    (
        TENANT_REQUESTS,
        "Requests of tenants, admitted and over their quota",
    ),
    (RELOADS, "Reloads of the configuration, taken and refused"),
    (
        EJECTIONS,
        "Times that an instance was ejected for its bad answers",
    ),
    (VIOLATIONS, "Violations of a numbered invariant; always 0"),
];

/// Gauges without a unit, and what they say of themselves.
const GAUGES: [(&str, &str); 8] = [
    (
        IN_FLIGHT,
        "Queries in the table, awaited late truths included",
    ),
    (GROUPS_OPEN, "Coding groups in memory"),
    (CONNECTIONS_OPEN, "Connections that are open"),
    (QUEUED, "Queries that wait for a slot of the deployed model"),
    (
        QUEUE_LIMIT,
        "Queries that may wait for a slot of the deployed model",
    ),
    (
        EJECTED,
        "Instances of the deployed model that are ejected for their bad answers",
    ),
    (
        REDUNDANCY_ON,
        "0 while an operator has switched redundancy off",
    ),
    (
        HOLD_BACK_OVERRIDDEN,
        "1 while an operator has changed the hold-back",
    ),
];

pub(super) fn describe() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    for (name, text) in COUNTERS {
        describe_counter!(name, text);
    }
    for (name, text) in GAUGES {
        describe_gauge!(name, text);
    }
    describe_histogram!(
        REQUEST_SECONDS,
        Unit::Seconds,
        "From a request's arrival to its answer"
    );
    describe_histogram!(UPSTREAM_SECONDS, Unit::Seconds, "One upstream request");
    describe_gauge!(
        KEPT_BYTES,
        Unit::Bytes,
        "Bytes of answered queries' inputs that are kept for coding groups"
    );
    describe_gauge!(
        HOLD_BACK,
        Unit::Seconds,
        "How long reconstructions are held back"
    );
    describe_gauge!(
        BODY_BYTES,
        Unit::Bytes,
        "Bytes that the bodies of requests hold"
    );
}

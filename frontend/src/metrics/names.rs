//! Every metric of the frontend: its name, and its description in the scrape.

pub(super) const SECONDS: [f64; 18] = [
    0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2,
    0.5, 1.0, 2.5, 10.0,
];

macro_rules! declare {
    ($($constant:ident: &str = $name:literal: $description:literal;)*) => {
        $(pub(super) const $constant: &str = $name;)*
        const DESCRIPTIONS: &[(&str, &str)] = &[$(($name, $description)),*];
    };
}

declare! {
    REQUESTS: &str = "parapet_requests_total":
        "Requests by outcome: exact, hedged, backup, reconstructed, or a kind of error";
    REQUEST_SECONDS: &str = "parapet_request_duration_seconds":
        "From a request's arrival to its answer";
    UPSTREAM_SECONDS: &str = "parapet_upstream_request_duration_seconds": "One upstream request";
    UPSTREAM_FAILURES: &str = "parapet_upstream_failures_total": "Upstream requests that failed";
    AGREEMENT: &str = "parapet_reconstruction_agreement_total":
        "Approximate answers compared with the deployed model's prediction";
    INSTANCE_UP: &str = "parapet_instance_up": "1 when the instance is up";
    DISCOVERY_UP: &str = "parapet_discovery_up":
        "1 when the backend that says where the instances are answers";
    REDUNDANT: &str = "parapet_redundant_requests_total":
        "Redundant requests by strategy and what became of them";
    GROUPS: &str = "parapet_coding_groups_total": "Coding groups encoded";
    RETRIES: &str = "parapet_retries_total": "Attempts after a failed one";
    UNRECOVERABLE: &str = "parapet_late_unrecoverable_total":
        "Late queries that could not be reconstructed when they came to be late";
    IN_FLIGHT: &str = "parapet_queries_in_flight":
        "Queries in the table, awaited late truths included";
    GROUPS_SPARED: &str = "parapet_coding_groups_spared_total":
        "Coding groups all answered before their parity queries were due";
    UNCODED: &str = "parapet_queries_uncoded_total":
        "Queries that joined no coding group: too many kinds, foreign parameters, or too long";
    KEPT_BYTES: &str = "parapet_kept_inputs_bytes":
        "Bytes of answered queries' inputs that are kept for coding groups";
    GROUPS_OPEN: &str = "parapet_coding_groups_in_flight": "Coding groups in memory";
    HOLD_BACK: &str = "parapet_hold_back_seconds": "How long reconstructions are held back";
    CONNECTIONS_OPEN: &str = "parapet_connections_open": "Connections that are open";
    CONNECTIONS: &str = "parapet_connections_total": "Connections accepted";
    CONNECTIONS_REFUSED: &str = "parapet_connections_refused_total":
        "Connections closed at once, since their peer had its share";
    UNAUTHENTICATED: &str = "parapet_requests_unauthenticated_total":
        "Requests without a known key";
    TENANT_REQUESTS: &str = "parapet_tenant_requests_total":
        "Requests of tenants, admitted and over their quota";
    RELOADS: &str = "parapet_config_reloads_total":
        "Reloads of the configuration, taken and refused";
    BODY_BYTES: &str = "parapet_request_bodies_bytes": "Bytes that the bodies of requests hold";
    QUEUED: &str = "parapet_queries_queued": "Queries that wait for a slot of the deployed model";
    QUEUE_LIMIT: &str = "parapet_queue_limit":
        "Queries that may wait for a slot of the deployed model";
    SLOTS: &str = "parapet_slots_per_instance":
        "Requests that an instance of the deployed model is sent at a time";
    EJECTED: &str = "parapet_instances_ejected":
        "Instances of the deployed model that are ejected for their bad answers";
    EJECTIONS: &str = "parapet_instance_ejections_total":
        "Times that an instance was ejected for its bad answers";
    REDUNDANCY_ON: &str = "parapet_redundancy_on":
        "0 while an operator has switched redundancy off";
    HOLD_BACK_OVERRIDDEN: &str = "parapet_hold_back_overridden":
        "1 while an operator has changed the hold-back";
    VIOLATIONS: &str = "parapet_invariant_violations_total":
        "Violations of a numbered invariant; always 0";
    CERTIFICATE_EXPIRY: &str = "parapet_certificate_expiry_timestamp_seconds":
        "When a certificate expires, in seconds since 1970";
    REVOCATION_LIST_EXPIRY: &str = "parapet_revocation_list_expiry_timestamp_seconds":
        "When the next revocation list is due, in seconds since 1970";
}

/// The exporter keeps descriptions by name, whatever their kind.
pub(super) fn describe() {
    for (name, description) in DESCRIPTIONS {
        metrics::describe_gauge!(*name, *description);
    }
}

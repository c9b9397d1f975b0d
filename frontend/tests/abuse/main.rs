//! Kinds of abuse, each done to a real frontend: the abuser gets the right status or is cut off at
//! the limit, a bystander is answered meanwhile, and neither connections nor memory are left over.
//!
//! `SECURITY.md` has the same list in words.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod bodies;
mod connections;
mod flood;
mod grpc;
mod headers;
mod replay;
mod requests;
mod site;

/// A test for each kind: its name, what is done, and lines of the server's configuration that are
/// its own; within these limits and beside a bystander of this protocol.
macro_rules! kinds {
    ($limits:ident, $protocol:ident: $($name:ident: $abuse:path $(, $server:literal)?;)*) => {$(
        #[tokio::test]
        async fn $name() {
            use crate::site::{Limits, Protocol, while_others_are_served};
            let limits = (Limits::$limits, concat!("", $($server)?));
            while_others_are_served(limits, Protocol::$protocol, $abuse).await;
        }
    )*};
}

kinds! { Tight, Http:
    // Headers.
    headers_that_trickle: headers::trickle;
    a_header_field_too_long: headers::field_too_long;
    a_header_that_never_ends: headers::endless;
    too_many_header_fields: headers::too_many_fields;
    a_path_too_long: headers::path_too_long;
    two_content_lengths_that_differ: headers::two_lengths;
    content_length_and_chunks_at_once: headers::length_and_chunks;
    garbage_on_the_port: headers::garbage;
    a_tls_hello_on_the_plain_port: headers::tls_hello;
    an_http_2_preface: headers::http_2_preface;
    // Bodies.
    bodies_that_trickle: bodies::trickle;
    chunks_that_trickle: bodies::trickling_chunks;
    a_body_too_long_by_its_content_length: bodies::too_long_announced;
    a_body_too_long_by_its_chunks: bodies::too_long_chunked;
    chunks_of_garbage: bodies::garbled_chunks;
    chunk_extensions_and_trailers_without_end: bodies::endless_chunk_parts;
    large_bodies_that_fill_memory: bodies::fill_memory;
    expect_100_continue_and_no_body: bodies::expect_continue;
    a_body_that_breaks_off: bodies::broken_off;
    // Requests.
    json_that_is_deep: requests::deep_json;
    json_that_is_wide: requests::wide_json;
    tensor_sizes_that_are_only_claimed: requests::claimed_sizes;
    a_binary_header_beyond_the_body: requests::header_beyond_body;
    numbers_out_of_range: requests::numbers;
    absurd_deadlines: requests::deadlines;
    names_without_number: requests::cardinality;
    requests_that_are_given_up: requests::given_up, "max_connections_per_peer = 40";
    // Connections.
    idle_connections: connections::idle;
    a_flood_of_connections_from_one_peer: connections::flood_from_one;
    a_flood_of_connections_from_everywhere: connections::flood_from_everywhere;
    connections_that_are_reset: connections::reset;
    half_closed_connections: connections::half_closed;
    requests_sent_ahead_by_who_does_not_read: connections::pipelined_unread;
    a_reader_that_trickles: connections::trickling_reader;
    endless_keep_alive: connections::endless_keep_alive, "max_connection_age_ms = 700";
}

/// Without a line of `[server]`: what the defaults let through.
mod by_default {
    use crate::flood;

    kinds! { Default, Http:
        bodies_that_errors_could_repeat: flood::error_bodies;
        names_of_megabytes: flood::long_names;
        lists_of_many_parts: flood::wide_lists;
        data_that_grows_when_it_is_read: flood::wide_data;
        elements_of_megabytes: flood::long_elements;
        bodies_of_megabytes: flood::long_bodies;
    }
}

mod over_grpc {
    use crate::grpc::{connections, frames, messages};

    kinds! { Tight, Grpc:
        connections_without_a_request: connections::idle;
        a_header_that_trickles: connections::trickle;
        garbage_before_and_after_the_preface: connections::garbage;
        a_flood_of_connections_from_one_peer: connections::flood_from_one;
        half_closed_connections: connections::half_closed;
        a_connection_that_is_never_let_go: connections::endless, "max_connection_age_ms = 700";
        // Frames.
        streams_that_are_reset_at_once: frames::rapid_reset;
        streams_that_are_reset_one_by_one: frames::slow_reset;
        header_fields_too_long: frames::long_header;
        continuations_without_end: frames::continuations;
        pings_and_settings_without_end: frames::control_flood;
        streams_beyond_the_limit: frames::too_many_streams, "grpc_max_streams = 32";
        answers_left_in_the_window: frames::closed_window;
        answers_left_in_the_socket: frames::unread_socket;
        frames_of_nothing: frames::empty_data;
        // Messages.
        messages_too_long: messages::too_long;
        lengths_that_are_only_claimed: messages::claimed;
        messages_that_unpack_to_more: messages::bombs;
        messages_that_never_end: messages::endless;
        messages_that_fill_memory: messages::fill_memory;
        several_messages_of_one_call: messages::several;
        calls_that_are_given_up: messages::given_up;
    }
}

mod over_grpc_by_default {
    use crate::grpc::flood;

    kinds! { Default, Grpc:
        messages_that_errors_could_repeat: flood::error_bodies;
        names_of_megabytes: flood::long_names;
        lists_of_many_parts: flood::wide_lists;
        data_that_grows_when_it_is_read: flood::wide_data;
    }
}

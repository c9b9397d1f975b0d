//! Answers that break each of the requirements.

use parapet_open_inference::{Tensor, encode_response};

use super::*;

fn question() -> Question {
    Question {
        id: "q-1".to_owned(),
        rows: 1,
        samples: vec![1.0, -2.0, 3.0, 4.0, -5.0, 6.0, 7.0, 8.0],
        class: None,
        allow_approximate: true,
        deadline: Duration::from_millis(400),
        expected: Expected::Answer,
    }
}

/// An answer as the frontend would give it, with these values.
fn answer_with(question: &Question, provenance: &str, values: &[f32]) -> Answer {
    let own = matches!(provenance, "exact" | "hedged");
    let confidence = if own { 1.0 } else { 0.7 };
    let parameters = serde_json::json!({ "provenance": provenance, "confidence": confidence });
    let shape = vec![values.len() / OUTPUTS, OUTPUTS];
    let output = Tensor::from_f32("output", shape, values).unwrap();
    let response = InferResponse {
        model_name: DEPLOYED.to_owned(),
        model_version: Some("1".to_owned()),
        id: Some(question.id.clone()),
        parameters: parameters.as_object().unwrap().clone(),
        outputs: vec![output],
    };
    let encoded = encode_response(&response, |_| true).unwrap();
    let length = encoded.header_length.unwrap().to_string();
    let mut headers = vec![
        ("x-request-id", question.id.as_str()),
        ("parapet-provenance", provenance),
        (HEADER_CONTENT_LENGTH, &length),
    ];
    if provenance == "reconstructed" {
        headers.push(("parapet-code", "sum(k=2,r=1)"));
    }
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Answer {
        status: 200,
        headers: headers.into_iter().map(owned).collect(),
        body: encoded.body,
        took: Duration::from_millis(60),
        missing_at: None,
    }
}

fn answer(question: &Question, provenance: &str) -> Answer {
    let of = match provenance {
        "backup" => Of::Cheap,
        _ => Of::Deployed,
    };
    answer_with(question, provenance, &truth(of, &question.samples))
}

const QUIET: Circumstances = Circumstances {
    failing_at_once: false,
    failing: false,
    stalled: false,
    delay: Duration::ZERO,
    calm: false,
};

/// The verdict in these circumstances, or the invariant that is broken.
fn judged(
    question: &Question,
    answer: &Answer,
    now: Circumstances,
) -> Result<Verdict, &'static str> {
    judge(question, answer, now).map_err(|(invariant, _)| invariant)
}

fn broken(question: &Question, answer: &Answer) -> &'static str {
    judged(question, answer, QUIET).unwrap_err()
}

fn expecting(expected: Expected) -> Question {
    Question { expected, ..question() }
}

fn refusal(status: u16) -> Answer {
    let body = Bytes::from_static(br#"{"error":"no"}"#);
    Answer {
        status,
        headers: vec![("retry-after".to_owned(), "1".to_owned())],
        body,
        took: Duration::from_millis(500),
        missing_at: None,
    }
}

#[test]
fn what_is_as_it_must_be_is_told_by_its_kind() {
    let of_backup = Question { class: Some(CLASS_BACKUP), ..question() };
    let failing = Circumstances { failing: true, ..QUIET };
    let bad = expecting(Expected::BadRequest);
    let poison = expecting(Expected::Overflow);
    let usual = || question();
    for (question, answer, now, verdict) in [
        (usual(), answer(&usual(), "exact"), QUIET, Verdict::Exact),
        (usual(), answer(&usual(), "hedged"), QUIET, Verdict::Hedged),
        (usual(), answer(&usual(), "reconstructed"), QUIET, Verdict::Reconstructed),
        (of_backup.clone(), answer(&of_backup, "backup"), QUIET, Verdict::Backup),
        (usual(), refusal(503), QUIET, Verdict::Overloaded),
        (usual(), refusal(504), QUIET, Verdict::DeadlineExceeded),
        (usual(), refusal(502), failing, Verdict::Upstream),
        (bad, refusal(400), QUIET, Verdict::Refused),
        (poison.clone(), refusal(502), QUIET, Verdict::Upstream),
    ] {
        assert_eq!(judged(&question, &answer, now), Ok(verdict));
    }
    assert_eq!(broken(&poison, &answer(&poison, "exact")), "CG-6");
}

#[test]
fn values_of_another_query_are_seen_whatever_the_answer_calls_itself() {
    let question = question();
    let other = [9.0, 1.0, 0.0, 2.0, 3.0, 1.0, 1.0, 0.0];
    let swapped = truth(Of::Deployed, &other);
    for (provenance, invariant) in
        [("exact", "CG-2"), ("reconstructed", "CG-6"), ("hedged", "CG-6")]
    {
        let answer = answer_with(&question, provenance, &swapped);
        assert_eq!(broken(&question, &answer), invariant, "{provenance}");
    }
    let mut whole = answer(&question, "exact");
    whole.headers[0].1 = "q-2".to_owned();
    assert_eq!(broken(&question, &whole), "CG-1");
}

#[test]
fn numbers_that_are_none_other_shapes_and_the_slightest_deviation_are_seen() {
    let question = question();
    let right = truth(Of::Deployed, &question.samples);
    let (mut no_number, mut deviating) = (right.clone(), right.clone());
    no_number[3] = f32::NAN;
    deviating[0] = deviating[0].next_up();
    let two = [right, vec![0.0; OUTPUTS]].concat();
    for (provenance, values, invariant) in
        [("reconstructed", no_number, "CG-6"), ("exact", deviating, "CG-2"), ("exact", two, "CG-2")]
    {
        let answer = answer_with(&question, provenance, &values);
        assert_eq!(broken(&question, &answer), invariant, "{values:?}");
    }
}

#[test]
fn approximations_only_for_those_who_take_them_and_from_strategies_that_make_them() {
    for (class, allow_approximate, provenance) in [
        (None, false, "reconstructed"),
        (Some(CLASS_PLAIN), true, "reconstructed"),
        (Some(CLASS_PLAIN), true, "hedged"),
        (Some(CLASS_HEDGED), true, "reconstructed"),
        (Some(CLASS_BACKUP), true, "reconstructed"),
        (None, true, "backup"),
    ] {
        let question = Question { class, allow_approximate, ..question() };
        let invariant = broken(&question, &answer(&question, provenance));
        assert_eq!(invariant, "provenance", "{class:?} {provenance}");
    }
}

#[test]
fn what_an_answer_says_of_itself_must_agree() {
    let question = question();
    let mut other_header = answer(&question, "exact");
    other_header.headers[1].1 = "reconstructed".to_owned();
    let mut without_code = answer(&question, "reconstructed");
    without_code.headers.pop();
    for answer in [other_header, without_code] {
        assert_eq!(broken(&question, &answer), "provenance", "{answer:?}");
    }
}

/// An answer that came so long after the deadline, and was missing at the end of the grace.
fn late(by: Duration) -> Answer {
    Answer {
        took: question().deadline + by,
        missing_at: Some(question().deadline + GRACE),
        ..answer(&question(), "exact")
    }
}

#[test]
fn answers_that_come_too_late_or_are_given_up_too_soon_are_seen_unless_the_machine_stood_still() {
    let late = late(GRACE + Duration::from_millis(1));
    assert_eq!(broken(&question(), &late), "CG-1");
    let stalled = Circumstances { stalled: true, ..QUIET };
    assert_eq!(judged(&question(), &late, stalled), Ok(Verdict::Exact));
    let soon = Answer { took: Duration::from_millis(300), ..refusal(504) };
    assert_eq!(broken(&question(), &soon), "CG-1");
}

#[test]
fn answer_that_is_missing_60_ms_after_its_deadline_is_late() {
    let late = Answer {
        missing_at: Some(question().deadline + Duration::from_millis(50)),
        ..late(Duration::from_millis(60))
    };
    assert_eq!(broken(&question(), &late), "CG-1");
}

#[test]
fn delay_of_the_client_itself_is_not_charged_to_the_server() {
    let arrived_in_time = Answer { missing_at: None, ..late(Duration::from_millis(200)) };
    let judged = |answer, ms| {
        let delay = Duration::from_millis(ms);
        judged(&question(), answer, Circumstances { delay, ..QUIET })
    };
    assert_eq!(judged(&arrived_in_time, 0), Ok(Verdict::Exact));
    let late = late(GRACE + Duration::from_millis(30));
    assert_eq!(judged(&late, 30), Ok(Verdict::Exact));
    assert!(judged(&late, 20).is_err());
}

#[test]
fn a_reconstruction_before_its_query_is_late_is_seen_unless_predictions_are_lost_at_once() {
    let early = Answer { took: SHORTEST_HOLD_BACK / 2, ..answer(&question(), "reconstructed") };
    assert_eq!(broken(&question(), &early), "CG-4");
    let failing = Circumstances { failing_at_once: true, ..QUIET };
    let verdict = Ok(Verdict::Reconstructed);
    assert_eq!(judged(&question(), &early, failing), verdict);
}

#[test]
fn errors_when_all_is_well_again_are_seen_unless_there_was_hardly_any_time() {
    let calm = Circumstances { calm: true, ..QUIET };
    let judged = |question: &Question| judged(question, &refusal(503), calm);
    assert_eq!(judged(&question()), Err("recovery"));
    let hurried = Question { deadline: ENOUGH / 2, ..question() };
    assert_eq!(judged(&hurried), Ok(Verdict::Overloaded));
}

#[test]
fn errors_must_be_those_of_the_protocol() {
    let without_retry_after = Answer { headers: Vec::new(), ..refusal(503) };
    let no_object = Answer { body: Bytes::from_static(b"no"), ..refusal(503) };
    let answers = [400, 404, 500, 502].map(refusal).into_iter();
    for answer in answers.chain([without_retry_after, no_object]) {
        assert_eq!(broken(&question(), &answer), "protocol", "{answer:?}");
    }
    let bad = expecting(Expected::BadRequest);
    assert_eq!(broken(&bad, &answer(&bad, "exact")), "protocol");
}

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
    let confidence = if matches!(provenance, "exact" | "hedged") {
        1.0
    } else {
        0.7
    };
    let parameters = serde_json::json!({ "provenance": provenance, "confidence": confidence });
    let response = InferResponse {
        model_name: DEPLOYED.to_owned(),
        model_version: Some("1".to_owned()),
        id: Some(question.id.clone()),
        parameters: parameters.as_object().unwrap().clone(),
        outputs: vec![
            Tensor::from_f32("output", vec![values.len() / OUTPUTS, OUTPUTS], values).unwrap(),
        ],
    };
    let encoded = encode_response(&response, |_| true).unwrap();
    let mut headers = vec![
        ("x-request-id".to_owned(), question.id.clone()),
        ("parapet-provenance".to_owned(), provenance.to_owned()),
        (
            HEADER_CONTENT_LENGTH.to_owned(),
            encoded.header_length.unwrap().to_string(),
        ),
    ];
    if provenance == "reconstructed" {
        headers.push(("parapet-code".to_owned(), "sum(k=2,r=1)".to_owned()));
    }
    let took = Duration::from_millis(60);
    Answer {
        status: 200,
        headers,
        body: encoded.body,
        took,
        missing_at: None,
    }
}

fn answer(question: &Question, provenance: &str) -> Answer {
    let of = if provenance == "backup" {
        Of::Cheap
    } else {
        Of::Deployed
    };
    answer_with(question, provenance, &truth(of, &question.samples))
}

fn broken(question: &Question, answer: &Answer) -> &'static str {
    judge(question, answer, Circumstances::default())
        .unwrap_err()
        .invariant
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
    let calm = Circumstances::default();
    for (provenance, verdict) in [
        ("exact", Verdict::Exact),
        ("hedged", Verdict::Hedged),
        ("reconstructed", Verdict::Reconstructed),
    ] {
        assert_eq!(
            judge(&question(), &answer(&question(), provenance), calm),
            Ok(verdict)
        );
    }
    let of_backup = Question {
        class: Some(CLASS_BACKUP),
        ..question()
    };
    assert_eq!(
        judge(&of_backup, &answer(&of_backup, "backup"), calm),
        Ok(Verdict::Backup)
    );
    assert_eq!(
        judge(&question(), &refusal(503), calm),
        Ok(Verdict::Overloaded)
    );
    assert_eq!(
        judge(&question(), &refusal(504), calm),
        Ok(Verdict::DeadlineExceeded)
    );
    let failing = Circumstances {
        failing: true,
        ..calm
    };
    assert_eq!(
        judge(&question(), &refusal(502), failing),
        Ok(Verdict::Upstream)
    );
    let bad = Question {
        expected: Expected::BadRequest,
        ..question()
    };
    assert_eq!(judge(&bad, &refusal(400), calm), Ok(Verdict::Refused));
    let poison = Question {
        expected: Expected::Overflow,
        ..question()
    };
    assert_eq!(judge(&poison, &refusal(502), calm), Ok(Verdict::Upstream));
    assert_eq!(broken(&poison, &answer(&poison, "exact")), "CG-6");
}

#[test]
fn values_of_another_query_are_seen_whatever_the_answer_calls_itself() {
    let other = Question {
        samples: vec![9.0, 1.0, 0.0, 2.0, 3.0, 1.0, 1.0, 0.0],
        ..question()
    };
    let swapped = truth(Of::Deployed, &other.samples);
    assert_eq!(
        broken(&question(), &answer_with(&question(), "exact", &swapped)),
        "CG-2"
    );
    assert_eq!(
        broken(
            &question(),
            &answer_with(&question(), "reconstructed", &swapped)
        ),
        "CG-6"
    );
    assert_eq!(
        broken(&question(), &answer_with(&question(), "hedged", &swapped)),
        "CG-6"
    );
    let mut whole = answer(&question(), "exact");
    whole.headers[0].1 = "q-2".to_owned();
    assert_eq!(broken(&question(), &whole), "CG-1");
}

#[test]
fn numbers_that_are_none_other_shapes_and_the_slightest_deviation_are_seen() {
    let mut values = truth(Of::Deployed, &question().samples);
    values[3] = f32::NAN;
    assert_eq!(
        broken(
            &question(),
            &answer_with(&question(), "reconstructed", &values)
        ),
        "CG-6"
    );
    let mut values = truth(Of::Deployed, &question().samples);
    values[0] = values[0].next_up();
    assert_eq!(
        broken(&question(), &answer_with(&question(), "exact", &values)),
        "CG-2"
    );
    let two = [truth(Of::Deployed, &question().samples), vec![0.0; OUTPUTS]].concat();
    assert_eq!(
        broken(&question(), &answer_with(&question(), "exact", &two)),
        "CG-2"
    );
}

#[test]
fn approximations_only_for_those_who_take_them_and_from_strategies_that_make_them() {
    let strict = Question {
        allow_approximate: false,
        ..question()
    };
    assert_eq!(
        broken(&strict, &answer(&strict, "reconstructed")),
        "provenance"
    );
    for (class, provenance) in [
        (Some(CLASS_PLAIN), "reconstructed"),
        (Some(CLASS_PLAIN), "hedged"),
        (Some(CLASS_HEDGED), "reconstructed"),
        (Some(CLASS_BACKUP), "reconstructed"),
        (None, "backup"),
    ] {
        let question = Question {
            class,
            ..question()
        };
        assert_eq!(
            broken(&question, &answer(&question, provenance)),
            "provenance",
            "{class:?} {provenance}"
        );
    }
}

#[test]
fn what_an_answer_says_of_itself_must_agree() {
    let mut answer = answer(&question(), "exact");
    answer.headers[1].1 = "reconstructed".to_owned();
    assert_eq!(broken(&question(), &answer), "provenance");
    let mut without_code = self::answer(&question(), "reconstructed");
    without_code.headers.pop();
    assert_eq!(broken(&question(), &without_code), "provenance");
}

#[test]
fn answers_that_come_too_late_or_are_given_up_too_soon_are_seen_unless_the_machine_stood_still() {
    let mut late = answer(&question(), "exact");
    late.took = question().deadline + GRACE + Duration::from_millis(1);
    late.missing_at = Some(question().deadline + GRACE);
    assert_eq!(broken(&question(), &late), "CG-1");
    let stalled = Circumstances {
        stalled: true,
        ..Circumstances::default()
    };
    assert_eq!(judge(&question(), &late, stalled), Ok(Verdict::Exact));
    let soon = Answer {
        took: Duration::from_millis(300),
        ..refusal(504)
    };
    assert_eq!(broken(&question(), &soon), "CG-1");
}

#[test]
fn answer_that_is_missing_60_ms_after_its_deadline_is_late() {
    let mut late = answer(&question(), "exact");
    late.took = question().deadline + Duration::from_millis(60);
    late.missing_at = Some(question().deadline + Duration::from_millis(50));
    assert_eq!(broken(&question(), &late), "CG-1");
}

#[test]
fn delay_of_the_client_itself_is_not_charged_to_the_server() {
    let took = question().deadline + Duration::from_millis(200);
    let arrived_in_time = Answer {
        took,
        ..answer(&question(), "exact")
    };
    assert_eq!(
        judge(&question(), &arrived_in_time, Circumstances::default()),
        Ok(Verdict::Exact)
    );
    let missing_at = Some(question().deadline + GRACE);
    let late = Answer {
        took: question().deadline + GRACE + Duration::from_millis(30),
        missing_at,
        ..arrived_in_time
    };
    let delayed = |ms| Circumstances {
        delay: Duration::from_millis(ms),
        ..Circumstances::default()
    };
    assert_eq!(judge(&question(), &late, delayed(30)), Ok(Verdict::Exact));
    assert!(judge(&question(), &late, delayed(20)).is_err());
}

#[test]
fn a_reconstruction_before_its_query_is_late_is_seen_unless_predictions_are_lost_at_once() {
    let early = Answer {
        took: SHORTEST_HOLD_BACK / 2,
        ..answer(&question(), "reconstructed")
    };
    assert_eq!(broken(&question(), &early), "CG-4");
    let failing = Circumstances {
        failing_at_once: true,
        ..Circumstances::default()
    };
    assert_eq!(
        judge(&question(), &early, failing),
        Ok(Verdict::Reconstructed)
    );
}

#[test]
fn errors_when_all_is_well_again_are_seen_unless_there_was_hardly_any_time() {
    let calm = Circumstances {
        calm: true,
        ..Circumstances::default()
    };
    let judged = |question: &Question| {
        judge(question, &refusal(503), calm).map_err(|violation| violation.invariant)
    };
    assert_eq!(judged(&question()), Err("recovery"));
    assert_eq!(
        judged(&Question {
            deadline: ENOUGH / 2,
            ..question()
        }),
        Ok(Verdict::Overloaded)
    );
}

#[test]
fn errors_must_be_those_of_the_protocol() {
    for status in [400, 404, 500, 502] {
        assert_eq!(
            broken(&question(), &refusal(status)),
            "protocol",
            "{status}"
        );
    }
    assert_eq!(
        broken(
            &question(),
            &Answer {
                headers: Vec::new(),
                ..refusal(503)
            }
        ),
        "protocol"
    );
    assert_eq!(
        broken(
            &question(),
            &Answer {
                body: Bytes::from_static(b"no"),
                ..refusal(503)
            }
        ),
        "protocol"
    );
    let bad = Question {
        expected: Expected::BadRequest,
        ..question()
    };
    assert_eq!(broken(&bad, &answer(&bad, "exact")), "protocol");
}

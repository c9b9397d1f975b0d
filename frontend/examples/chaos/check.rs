//! Requirements on every answer, whatever is done to the cluster meanwhile. Pure: a question, what
//! came back, and what was going on.

use std::time::Duration;

use bytes::Bytes;
use parapet_open_inference::{ErrorObject, HEADER_CONTENT_LENGTH, InferResponse, decode_response};
use serde_json::Value;

use crate::configuration::{CLASS_BACKUP, CLASS_HEDGED, CLASS_PLAIN, SHORTEST_HOLD_BACK};
use crate::model::{DEPLOYED, OUTPUTS, Of, truth};
pub use crate::verdict::{Verdict, Violation};

/// Time after its deadline at which a request must be answered at the latest. Frontends share a few
/// cores with all of the cluster, so they need time to be scheduled. The client's own delay does
/// not count: see [`Answer::missing_at`].
pub const GRACE: Duration = Duration::from_millis(50);
/// A client that gives a healthy cluster this long gets a prediction.
const ENOUGH: Duration = Duration::from_millis(300);
/// Clocks of two processes, and whole milliseconds where deadlines have them.
const EARLY: Duration = Duration::from_millis(3);

/// Expected answer of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// A prediction, or an error that is not the client's.
    Answer,
    /// Its input is not what the model takes.
    BadRequest,
    /// Its key is unknown.
    Unauthorized,
    /// An error: the input overflows the model.
    Overflow,
}

#[derive(Debug, Clone)]
pub struct Question {
    pub id: String,
    pub rows: usize,
    pub samples: Vec<f32>,
    /// The default one without a name.
    pub class: Option<&'static str>,
    pub allow_approximate: bool,
    pub deadline: Duration,
    pub expected: Expected,
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub took: Duration,
    /// Time since the request was sent at which the client looked for the answer in vain. It looks
    /// once, after the grace.
    pub missing_at: Option<Duration>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Faults that were active while it was asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances {
    /// Instances failed requests at once: a query may have lost its prediction before it was late.
    pub failing_at_once: bool,
    /// Answers were spoilt: all attempts of a query may have failed.
    pub failing: bool,
    /// The machine stood still for a time: nothing is said about how long things took.
    pub stalled: bool,
    /// Longest delay with which the client itself was scheduled meanwhile: the frontend
    /// shares its cores.
    pub delay: Duration,
    /// All has been well again for some time.
    pub calm: bool,
}

/// Judges an answer to a request.
///
/// # Errors
/// Returns the invariant that it breaks.
pub fn judge(
    question: &Question,
    answer: &Answer,
    now: Circumstances,
) -> Result<Verdict, Violation> {
    in_time(question, answer, now)?;
    if matches!(
        question.expected,
        Expected::BadRequest | Expected::Unauthorized
    ) {
        let wanted = if question.expected == Expected::BadRequest {
            400
        } else {
            401
        };
        // Clients without a place are turned away before their request is read.
        let no_room = question.expected == Expected::BadRequest && answer.status == 503;
        if answer.status != wanted && !no_room {
            return Err(Violation::new(
                "protocol",
                format!("status {}, not {wanted}", answer.status),
            ));
        }
        error_object(answer)?;
        return Ok(Verdict::Refused);
    }
    let overflows = question.expected == Expected::Overflow;
    if overflows && answer.status == 200 {
        return Err(Violation::new(
            "CG-6",
            "a prediction for an input that overflows the model",
        ));
    }
    if now.calm && !overflows && !now.stalled && answer.status != 200 && question.deadline >= ENOUGH
    {
        let said = format!(
            "status {} though all is well again: {}",
            answer.status,
            said(answer)
        );
        return Err(Violation::new("recovery", said));
    }
    match answer.status {
        200 => prediction(question, answer, now),
        503 if answer.header("retry-after").is_none() => {
            Err(Violation::new("protocol", "503 without Retry-After"))
        }
        503 => error_object(answer).map(|()| Verdict::Overloaded),
        504 if answer.took + EARLY < question.deadline && !now.stalled => {
            let said = format!("504 after {:?} of {:?}", answer.took, question.deadline);
            Err(Violation::new("CG-1", said))
        }
        504 => error_object(answer).map(|()| Verdict::DeadlineExceeded),
        502 if now.failing || overflows => error_object(answer).map(|()| Verdict::Upstream),
        status => Err(Violation::new(
            "protocol",
            format!("status {status}: {}", said(answer)),
        )),
    }
}

fn said(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body)
        .chars()
        .take(200)
        .collect()
}

fn in_time(question: &Question, answer: &Answer, now: Circumstances) -> Result<(), Violation> {
    let limit = question.deadline + GRACE;
    let was_missing = answer
        .missing_at
        .is_some_and(|missing_at| missing_at >= limit);
    if was_missing && answer.took > limit + now.delay && !now.stalled {
        let Question { deadline, .. } = question;
        let said = format!(
            "answered after {:?}, the deadline was {deadline:?}; the client was scheduled up to \
                {:?} late",
            answer.took, now.delay
        );
        return Err(Violation::new("CG-1", said));
    }
    Ok(())
}

fn error_object(answer: &Answer) -> Result<(), Violation> {
    let object: Result<ErrorObject, _> = serde_json::from_slice(&answer.body);
    match object {
        Ok(object) if !object.error.is_empty() => Ok(()),
        _ => Err(Violation::new(
            "protocol",
            format!("{} without an error object", answer.status),
        )),
    }
}

fn prediction(
    question: &Question,
    answer: &Answer,
    now: Circumstances,
) -> Result<Verdict, Violation> {
    let header_length = answer
        .header(HEADER_CONTENT_LENGTH)
        .and_then(|length| length.parse().ok());
    let response = decode_response(answer.body.clone(), header_length)
        .map_err(|error| Violation::new("protocol", error.to_string()))?;
    whose(question, answer, &response)?;
    let verdict = provenance(question, answer, &response)?;
    if matches!(verdict, Verdict::Reconstructed | Verdict::Backup)
        && answer.took < SHORTEST_HOLD_BACK
        && answer.took + 2 * EARLY < question.deadline
        && !now.failing_at_once
    {
        let said = format!(
            "{} after {:?}, which is not late",
            verdict.outcome(),
            answer.took
        );
        return Err(Violation::new("CG-4", said));
    }
    values(question, &response, verdict)?;
    Ok(verdict)
}

/// It must be the answer to this question.
fn whose(question: &Question, answer: &Answer, response: &InferResponse) -> Result<(), Violation> {
    if response.id.as_deref() != Some(&question.id)
        || answer.header("x-request-id") != Some(&question.id)
        || response.model_name != DEPLOYED
    {
        let of = (
            &response.id,
            answer.header("x-request-id"),
            &response.model_name,
        );
        return Err(Violation::new(
            "CG-1",
            format!("an answer to another request: {of:?}"),
        ));
    }
    Ok(())
}

/// It says how it came about, twice, and such an answer was allowed.
fn provenance(
    question: &Question,
    answer: &Answer,
    response: &InferResponse,
) -> Result<Verdict, Violation> {
    let inconsistent = |said: String| Err(Violation::new("provenance", said));
    let said = response
        .parameters
        .get("provenance")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if answer.header("parapet-provenance") != Some(said) {
        return inconsistent(format!(
            "{:?} in the header, {said:?} in the body",
            answer.header("parapet-provenance")
        ));
    }
    let verdict = match said {
        "exact" => Verdict::Exact,
        "hedged" => Verdict::Hedged,
        "backup" => Verdict::Backup,
        "reconstructed" => Verdict::Reconstructed,
        other => return inconsistent(format!("{other:?}")),
    };
    let own = matches!(verdict, Verdict::Exact | Verdict::Hedged);
    let confidence = response
        .parameters
        .get("confidence")
        .and_then(Value::as_f64)
        .unwrap_or(f64::NAN);
    if !(0.0..=1.0).contains(&confidence) || (own && confidence < 1.0) {
        return inconsistent(format!("{said} with a confidence of {confidence}"));
    }
    if answer.header("parapet-code").is_some() != (verdict == Verdict::Reconstructed) {
        return inconsistent(format!(
            "{said} with code {:?}",
            answer.header("parapet-code")
        ));
    }
    if !own && !question.allow_approximate {
        return Err(Violation::new(
            "provenance",
            format!("{said} for a client that takes no approximation"),
        ));
    }
    let possible: &[Verdict] = match question.class {
        Some(CLASS_PLAIN) => &[Verdict::Exact],
        Some(CLASS_HEDGED) => &[Verdict::Exact, Verdict::Hedged],
        Some(CLASS_BACKUP) => &[Verdict::Exact, Verdict::Backup],
        _ => &[Verdict::Exact, Verdict::Hedged, Verdict::Reconstructed],
    };
    if !possible.contains(&verdict) {
        return inconsistent(format!("{said} in class {:?}", question.class));
    }
    Ok(verdict)
}

fn values(
    question: &Question,
    response: &InferResponse,
    verdict: Verdict,
) -> Result<(), Violation> {
    let wrong = |said: String| {
        Err(Violation::new(
            if verdict == Verdict::Exact {
                "CG-2"
            } else {
                "CG-6"
            },
            said,
        ))
    };
    let [output] = response.outputs.as_slice() else {
        return wrong(format!("{} outputs", response.outputs.len()));
    };
    if output.name != "output" || output.shape != [question.rows, OUTPUTS] {
        return wrong(format!(
            "output {:?} of shape {:?}",
            output.name, output.shape
        ));
    }
    let values = output
        .f32s()
        .map_err(|error| Violation::new("CG-6", error.to_string()))?;
    let of = if verdict == Verdict::Backup {
        Of::Cheap
    } else {
        Of::Deployed
    };
    let truth = truth(of, &question.samples);
    // Whole numbers: an answer that is not equal is wrong, NaN among them. Minus zero is zero.
    if values != truth {
        return wrong(format!(
            "{values:?} ({}), the truth is {truth:?}",
            verdict.outcome()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
    fn answers_that_come_too_late_or_are_given_up_too_soon_are_seen_unless_the_machine_stood_still()
    {
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
}

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
mod tests;

//! Requirements on every answer, whatever is done to the cluster meanwhile. Pure: a question, what
//! came back, and what was going on.

use std::time::Duration;

use bytes::Bytes;
use parapet_open_inference::{ErrorObject, HEADER_CONTENT_LENGTH, InferResponse, decode_response};
use serde_json::Value;

use crate::configuration::{CLASS_BACKUP, CLASS_HEDGED, CLASS_PLAIN, SHORTEST_HOLD_BACK};
use crate::model::{DEPLOYED, OUTPUTS, Of, truth};
use crate::wire::header;

/// Time after its deadline at which a request must be answered at the latest. Frontends share a few
/// cores with all of the cluster, so they need time to be scheduled. The client's own delay does
/// not count: see [`Answer::missing_at`].
pub const GRACE: Duration = Duration::from_millis(50);
/// A client that gives a healthy cluster this long gets a prediction.
const ENOUGH: Duration = Duration::from_millis(300);
/// Clocks of two processes, and whole milliseconds where deadlines have them.
const EARLY: Duration = Duration::from_millis(3);

/// Kind of an answer that is as it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Exact,
    Hedged,
    Backup,
    Reconstructed,
    Overloaded,
    DeadlineExceeded,
    Upstream,
    Refused,
}

impl Verdict {
    pub const PREDICTIONS: [Self; 4] =
        [Self::Exact, Self::Hedged, Self::Backup, Self::Reconstructed];
    /// Errors that are not the client's.
    pub const ERRORS: [Self; 3] = [Self::Overloaded, Self::DeadlineExceeded, Self::Upstream];

    /// Name of it in metrics.
    pub fn outcome(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Hedged => "hedged",
            Self::Backup => "backup",
            Self::Reconstructed => "reconstructed",
            Self::Overloaded => "overloaded or unavailable",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Upstream => "upstream",
            Self::Refused => "invalid_request",
        }
    }
}

/// Invariant that was broken, and how.
pub type Violation = (&'static str, String);

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
        header(&self.headers, name)
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
    let status = answer.status;
    let refusal = match question.expected {
        Expected::BadRequest => Some(400),
        Expected::Unauthorized => Some(401),
        Expected::Answer | Expected::Overflow => None,
    };
    if let Some(wanted) = refusal {
        // Clients without a place are turned away before their request is read.
        let no_room = wanted == 400 && status == 503;
        if status != wanted && !no_room {
            return Err(("protocol", format!("status {status}, not {wanted}")));
        }
        return error_object(answer, Verdict::Refused);
    }
    let overflows = question.expected == Expected::Overflow;
    if overflows && status == 200 {
        let said = "a prediction for an input that overflows the model";
        return Err(("CG-6", said.to_owned()));
    }
    let is_well = now.calm && !overflows && !now.stalled && question.deadline >= ENOUGH;
    let body = String::from_utf8_lossy(&answer.body);
    let said: String = body.chars().take(200).collect();
    if is_well && status != 200 {
        let said = format!("status {status} though all is well again: {said}");
        return Err(("recovery", said));
    }
    match status {
        200 => prediction(question, answer, now),
        503 if answer.header("retry-after").is_none() => {
            Err(("protocol", "503 without Retry-After".to_owned()))
        }
        503 => error_object(answer, Verdict::Overloaded),
        504 if answer.took + EARLY < question.deadline && !now.stalled => {
            let said = format!("504 after {:?} of {:?}", answer.took, question.deadline);
            Err(("CG-1", said))
        }
        504 => error_object(answer, Verdict::DeadlineExceeded),
        502 if now.failing || overflows => error_object(answer, Verdict::Upstream),
        status => Err(("protocol", format!("status {status}: {said}"))),
    }
}

fn in_time(question: &Question, answer: &Answer, now: Circumstances) -> Result<(), Violation> {
    let (took, deadline) = (answer.took, question.deadline);
    let limit = deadline + GRACE;
    let was_missing = answer.missing_at.is_some_and(|missing_at| missing_at >= limit);
    if was_missing && took > limit + now.delay && !now.stalled {
        let said = format!(
            "answered after {took:?}, the deadline was {deadline:?}; the client was scheduled up \
             to {:?} late",
            now.delay
        );
        return Err(("CG-1", said));
    }
    Ok(())
}

/// An error must say what it is.
fn error_object(answer: &Answer, verdict: Verdict) -> Result<Verdict, Violation> {
    let object: Result<ErrorObject, _> = serde_json::from_slice(&answer.body);
    if object.is_ok_and(|object| !object.error.is_empty()) {
        return Ok(verdict);
    }
    let said = format!("{} without an error object", answer.status);
    Err(("protocol", said))
}

fn prediction(
    question: &Question,
    answer: &Answer,
    now: Circumstances,
) -> Result<Verdict, Violation> {
    let length = answer.header(HEADER_CONTENT_LENGTH);
    let length = length.and_then(|length| length.parse().ok());
    let response = decode_response(answer.body.clone(), length);
    let response = response.map_err(|error| ("protocol", error.to_string()))?;
    whose(question, answer, &response)?;
    let verdict = provenance(question, answer, &response)?;
    let took = answer.took;
    if matches!(verdict, Verdict::Reconstructed | Verdict::Backup)
        && took < SHORTEST_HOLD_BACK
        && took + 2 * EARLY < question.deadline
        && !now.failing_at_once
    {
        let outcome = verdict.outcome();
        let said = format!("{outcome} after {took:?}, which is not late");
        return Err(("CG-4", said));
    }
    values(question, &response, verdict)?;
    Ok(verdict)
}

/// It must be the answer to this question.
fn whose(question: &Question, answer: &Answer, response: &InferResponse) -> Result<(), Violation> {
    let id = Some(question.id.as_str());
    let (named, model) = (answer.header("x-request-id"), &response.model_name);
    if response.id.as_deref() != id || named != id || model != DEPLOYED {
        let of = (&response.id, named, model);
        return Err(("CG-1", format!("an answer to another request: {of:?}")));
    }
    Ok(())
}

/// It says how it came about, twice, and such an answer was allowed.
fn provenance(
    question: &Question,
    answer: &Answer,
    response: &InferResponse,
) -> Result<Verdict, Violation> {
    let inconsistent = |said: String| Err(("provenance", said));
    let said = response.parameters.get("provenance").and_then(Value::as_str);
    let said = said.unwrap_or_default();
    let header = answer.header("parapet-provenance");
    if header != Some(said) {
        return inconsistent(format!("{header:?} in the header, {said:?} in the body"));
    }
    let mut known = Verdict::PREDICTIONS.into_iter();
    let Some(verdict) = known.find(|known| known.outcome() == said) else {
        return inconsistent(format!("{said:?}"));
    };
    let own = matches!(verdict, Verdict::Exact | Verdict::Hedged);
    let confidence = response.parameters.get("confidence").and_then(Value::as_f64);
    let confidence = confidence.unwrap_or(f64::NAN);
    if !(0.0..=1.0).contains(&confidence) || (own && confidence < 1.0) {
        return inconsistent(format!("{said} with a confidence of {confidence}"));
    }
    let code = answer.header("parapet-code");
    if code.is_some() != (verdict == Verdict::Reconstructed) {
        return inconsistent(format!("{said} with code {code:?}"));
    }
    if !own && !question.allow_approximate {
        let said = format!("{said} for a client that takes no approximation");
        return inconsistent(said);
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
    let is_exact = verdict == Verdict::Exact;
    let wrong = |said: String| Err((if is_exact { "CG-2" } else { "CG-6" }, said));
    let [output] = response.outputs.as_slice() else {
        return wrong(format!("{} outputs", response.outputs.len()));
    };
    let (name, shape) = (&output.name, &output.shape);
    if name != "output" || *shape != [question.rows, OUTPUTS] {
        return wrong(format!("output {name:?} of shape {shape:?}"));
    }
    let values = output.f32s().map_err(|error| ("CG-6", error.to_string()))?;
    let of = match verdict {
        Verdict::Backup => Of::Cheap,
        _ => Of::Deployed,
    };
    let truth = truth(of, &question.samples);
    // Whole numbers: an answer that is not equal is wrong, NaN among them. Minus zero is zero.
    if values != truth {
        let outcome = verdict.outcome();
        return wrong(format!("{values:?} ({outcome}), the truth is {truth:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

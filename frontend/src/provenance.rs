//! Provenance of answers: exact, from a copy, by a backup model, or reconstructed.

use parapet_encoder::OutputDomain;
use parapet_open_inference::Parameters;

/// In the response's parameters and headers.
#[derive(Debug, Clone, PartialEq)]
pub struct Provenance {
    /// One of [`Provenance::KINDS`].
    pub kind: &'static str,
    /// 1 for any model's own prediction; for a reconstruction see [`parapet_decoder::Score`]. None
    /// for a reconstruction whose output has no class scores.
    pub confidence: Option<f32>,
    /// True if that is how often such reconstructions agreed when it was measured
    /// ([`parapet_decoder::Calibration`]).
    pub calibrated: bool,
    /// For a reconstruction, the code's short name.
    pub code: Option<String>,
    /// Scale of the output's numbers: the deployed model's own, but for reconstructions
    /// by some codes.
    pub domain: OutputDomain,
}

impl Provenance {
    /// The kinds: the deployed model's own prediction; the same from a redundant copy of the query;
    /// a backup model's; one decoded from a coding group.
    pub const KINDS: [&str; 4] = ["exact", "hedged", "backup", "reconstructed"];

    pub(crate) fn parameters(&self) -> Parameters {
        let mut parameters = Parameters::new();
        parameters.insert("provenance".to_owned(), self.kind.into());
        if let Some(confidence) = self.confidence {
            parameters.insert("confidence".to_owned(), f64::from(confidence).into());
        }
        if self.calibrated {
            parameters.insert("confidence_calibrated".to_owned(), true.into());
        }
        if let Some(code) = &self.code {
            parameters.insert("code".to_owned(), code.as_str().into());
        }
        if self.domain != OutputDomain::Deployed {
            parameters.insert("output_domain".to_owned(), self.domain.name().into());
        }
        parameters
    }
}

//! The code: k queries, r parity rows, and the r x k generator, the share of each query in a row.

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::{CodeError, OutputTransform, generator};

/// Largest coding group. Beyond it accuracy collapsed (ParM figure 8); fixed scratch stays small.
pub const K_MAX: usize = 16;
/// Most parity rows. Every u x u system with u <= R_MAX is solved on the stack.
pub const R_MAX: usize = 4;

/// Ways to combine the queries of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum EncoderKind {
    /// `P_j = sum_i a_ji X_i`, any shape (ParM section 3.2).
    Sum,
    /// The k images, shrunk, side by side in one image (ParM section 4.2.3).
    Concat,
    /// The k samples, of any shape, on a new axis: a parity query is k times as long as a query.
    Stack,
    /// Neural networks, trained through the deployed model, which answers the parity queries itself
    /// (Kosaian, Rashmi, Venkataraman, *Learning a Code*, arXiv 1806.01259).
    Learned,
}

impl EncoderKind {
    /// Returns true if parity models answer parity queries, and not the deployed model itself.
    pub const fn has_parity_models(self) -> bool {
        !matches!(self, Self::Learned)
    }

    /// Returns the decoding that goes with its parity queries where none is named.
    pub const fn usual_decoding(self) -> Decoding {
        match self {
            Self::Sum | Self::Concat | Self::Learned => Decoding::Linear,
            Self::Stack => Decoding::Slots,
        }
    }
}

/// Ways to get predictions from parity outputs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Decoding {
    /// A parity output is a weighted sum of the group's predictions: the exact ones are
    /// subtracted (ParM section 3.3).
    #[default]
    Linear,
    /// A parity output has a slot for each member of the group, with an approximation of its
    /// prediction. No other prediction is needed.
    Slots,
}

impl Decoding {
    /// Returns true if `missing` predictions of a group can be had from `outputs` parity outputs:
    /// with a linear code any `missing <= outputs`, with slots any number from one output.
    pub const fn can_recover(self, missing: usize, outputs: usize) -> bool {
        match self {
            Self::Linear => missing <= outputs,
            Self::Slots => missing == 0 || outputs > 0,
        }
    }

    /// Returns true for [`Linear`](Self::Linear), the default.
    pub const fn is_linear(&self) -> bool {
        matches!(self, Self::Linear)
    }

    /// Returns true if a reconstruction is computed from the predictions of the other members.
    pub const fn needs_siblings(self) -> bool {
        self.is_linear()
    }
}

/// A code as it stands in a configuration or a model repository: unchecked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeSpec {
    /// Way in which queries are combined.
    pub encoder: EncoderKind,
    /// Way in which predictions come from parity outputs.
    #[serde(default, skip_serializing_if = "Decoding::is_linear")]
    pub decoding: Decoding,
    /// Queries in a coding group.
    pub k: usize,
    /// Parity queries (and parity models) of a group.
    #[serde(default = "one")]
    pub r: usize,
    /// r rows of k coefficients; the default has ones in the first row and well-conditioned ones in
    /// the others. Codes without parity models have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<Vec<Vec<f32>>>,
    /// The domain in which predictions are added.
    #[serde(default, skip_serializing_if = "OutputTransform::is_raw")]
    pub transform: OutputTransform,
}

impl CodeSpec {
    /// A code with the usual decoding and the default generator, for predictions as they are.
    pub fn new(encoder: EncoderKind, k: usize, r: usize) -> Self {
        Self {
            encoder,
            decoding: encoder.usual_decoding(),
            k,
            r,
            generator: None,
            transform: OutputTransform::Raw,
        }
    }

    /// Returns true if parity outputs are weighted sums, whose weights are the generator.
    const fn is_weighted(&self) -> bool {
        self.encoder.has_parity_models() && self.decoding.is_linear()
    }
}

fn one() -> usize {
    1
}

/// A validated code: 2 <= k <= [`K_MAX`], 1 <= r <= min(k, [`R_MAX`]). A linear one solves every
/// u <= r missing predictions from every choice of u parity rows (a learned one as its networks
/// were trained to); with slots each row is a parity model of its own, for any of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Code {
    /// Without its generator: the default one, spelled out, is the same code.
    spec: CodeSpec,
    /// Row-major, r x k.
    generator: Vec<f32>,
}

impl Code {
    /// Queries in a coding group.
    pub fn k(&self) -> usize {
        self.spec.k
    }

    /// Number of parity rows.
    pub fn r(&self) -> usize {
        self.spec.r
    }

    /// Returns the way in which queries are combined.
    pub fn encoder(&self) -> EncoderKind {
        self.spec.encoder
    }

    /// Returns the way in which predictions come from parity outputs.
    pub fn decoding(&self) -> Decoding {
        self.spec.decoding
    }

    /// Samples that a parity query holds for each sample of a query: k where samples are stacked.
    pub fn stacked(&self) -> usize {
        match self.spec.encoder {
            EncoderKind::Stack => self.k(),
            EncoderKind::Sum | EncoderKind::Concat | EncoderKind::Learned => 1,
        }
    }

    /// Predictions that a parity output holds for each sample: k with slots, one without.
    pub fn slots(&self) -> usize {
        match self.spec.decoding {
            Decoding::Linear => 1,
            Decoding::Slots => self.k(),
        }
    }

    /// Shape of one sample of a parity query, for queries with samples of this shape.
    pub fn parity_input_shape(&self, sample_shape: &[usize]) -> Vec<usize> {
        with_axis(self.stacked(), sample_shape)
    }

    /// Shape of one sample of a parity output, for predictions of this shape.
    pub fn parity_output_shape(&self, sample_shape: &[usize]) -> Vec<usize> {
        with_axis(self.slots(), sample_shape)
    }

    /// The k coefficients of parity row `row`; empty when there is no such row.
    pub fn row(&self, row: usize) -> &[f32] {
        self.generator.get(row * self.k()..(row + 1) * self.k()).unwrap_or_default()
    }

    /// The coefficient of query `slot` in parity row `row`.
    pub fn coefficient(&self, row: usize, slot: usize) -> f32 {
        self.row(row).get(slot).copied().unwrap_or_default()
    }

    /// The domain in which predictions are added.
    pub fn transform(&self) -> &OutputTransform {
        &self.spec.transform
    }

    /// A short name for logs and answers, like `sum-k2-r1` or `stack-slots-k2-r1`.
    pub fn label(&self) -> String {
        let decoding = match self.spec.decoding {
            Decoding::Linear => "",
            Decoding::Slots => "-slots",
        };
        format!("{}{decoding}-k{}-r{}", self.encoder(), self.k(), self.r())
    }

    /// The spec that makes this code, generator spelled out.
    pub fn to_spec(&self) -> CodeSpec {
        let rows = || self.generator.chunks(self.k()).map(<[f32]>::to_vec).collect();
        CodeSpec { generator: self.spec.is_weighted().then(rows), ..self.spec.clone() }
    }
}

impl TryFrom<&CodeSpec> for Code {
    type Error = CodeError;

    fn try_from(spec: &CodeSpec) -> Result<Self, CodeError> {
        let &CodeSpec { encoder, decoding, k, r, .. } = spec;
        if !(2..=K_MAX).contains(&k) {
            let problem = format!("{k}: a coding group has 2 to {K_MAX} queries");
            return Err(CodeError::new("k", problem, "set 2, 3 or 4 to begin with"));
        }
        let most = k.min(R_MAX);
        if !(1..=most).contains(&r) {
            let problem = format!("{r}: parity rows number 1 to {most} for k = {k}");
            return Err(CodeError::new("r", problem, "set 1 to begin with"));
        }
        check_decoding(encoder, decoding)?;
        let generator = match &spec.generator {
            Some(_) if !spec.is_weighted() => {
                let problem =
                    format!("encoder = \"{encoder}\", decoding = \"{decoding}\" takes none");
                return Err(CodeError::new("generator", problem, "leave it out"));
            }
            // Nothing is weighed: networks take the place of the sum, or slots.
            None if !spec.is_weighted() => vec![1.0; r * k],
            Some(rows) => flatten(rows, k, r)?,
            None => generator::default_rows(k, r),
        };
        let is_uneven = r != 1 || generator.iter().any(|&a| a != 1.0);
        if encoder == EncoderKind::Concat && decoding == Decoding::Linear && is_uneven {
            let problem = format!(
                "\"concat\" has r = 1 and a generator of ones where it is linear, not r = {r}"
            );
            return Err(CodeError::new("encoder", problem, "use \"sum\", or decoding = \"slots\""));
        }
        spec.transform.check_numbers()?;
        let code = Self { spec: CodeSpec { generator: None, ..spec.clone() }, generator };
        // What networks give for missing predictions does not come from solving a system.
        if spec.is_weighted() {
            generator::check_recoverable(&code.generator, k)?;
        }
        Ok(code)
    }
}

/// Checks that parity outputs of this encoder's queries can be decoded in this way.
fn check_decoding(encoder: EncoderKind, decoding: Decoding) -> Result<(), CodeError> {
    let fix = match (encoder, decoding) {
        (EncoderKind::Stack, Decoding::Linear) => "set decoding = \"slots\"",
        // A sum has lost what belongs to which member.
        (EncoderKind::Sum | EncoderKind::Learned, Decoding::Slots) => {
            "leave it out, or set encoder = \"stack\" or \"concat\""
        }
        _ => return Ok(()),
    };
    let problem = format!("\"{decoding}\" does not go with encoder = \"{encoder}\"");
    Err(CodeError::new("decoding", problem, fix))
}

/// `shape` with an axis of `count` in front, if there are several.
fn with_axis(count: usize, shape: &[usize]) -> Vec<usize> {
    (count > 1).then_some(count).into_iter().chain(shape.iter().copied()).collect()
}

fn flatten(rows: &[Vec<f32>], k: usize, r: usize) -> Result<Vec<f32>, CodeError> {
    if rows.len() != r || rows.iter().any(|row| row.len() != k) {
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let (problem, fix) =
            (format!("rows of {lengths:?} numbers"), format!("give r = {r} rows of k = {k}"));
        return Err(CodeError::new("generator", problem, fix));
    }
    let rows = rows.concat();
    if let Some(at) = rows.iter().position(|a| !a.is_finite() || *a == 0.0) {
        let field = format!("generator[{}][{}]", at / k, at % k);
        let fix = "give a finite number other than zero";
        return Err(CodeError::new(field, rows[at].to_string(), fix));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests;

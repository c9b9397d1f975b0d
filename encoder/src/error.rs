//! Errors of codes and of groups handed to an encoder.

use thiserror::Error;

use crate::EncoderKind;

/// A code that cannot exist, or that does not fit the model's input. Found at start-up, never
/// on a request.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum CodeError {
    /// k outside 2..=K_MAX.
    #[error(
        "code.k = {k}: a coding group needs 2 to {max} queries; set k to 2, 3 or 4 to begin with"
    )]
    GroupSize {
        /// The k asked for.
        k: usize,
        /// The largest k supported.
        max: usize,
    },
    /// r outside 1..=min(k, R_MAX).
    #[error(
        "code.r = {r}: parity rows must number 1 to {max} (never more than k = {k}); set r = 1 to \
            begin with"
    )]
    ParityRows {
        /// The r asked for.
        r: usize,
        /// The k it goes with.
        k: usize,
        /// The largest r allowed here.
        max: usize,
    },
    /// The generator is not r rows of k numbers.
    #[error(
        "code.generator has {rows} rows, row {row} has {columns} numbers; it must be r = {r} rows \
            of k = {k}"
    )]
    GeneratorShape {
        /// Number of rows given.
        rows: usize,
        /// First row with the wrong length (or the row count when that is what is wrong).
        row: usize,
        /// Numbers in that row.
        columns: usize,
        /// Number of rows wanted.
        r: usize,
        /// Number of columns wanted.
        k: usize,
    },
    /// A coefficient that makes a query unrecoverable from that row.
    #[error("code.generator[{row}][{column}] = {value}: coefficients must be finite and not zero")]
    GeneratorValue {
        /// Row of the coefficient.
        row: usize,
        /// Column of the coefficient.
        column: usize,
        /// Value of the coefficient.
        value: f32,
    },
    /// Some erasure pattern could not be decoded.
    #[error(
        "code.generator: rows {rows:?} and columns {columns:?} form a (nearly) singular matrix, \
            so those queries could not be recovered together; leave the generator out to use the \
            default"
    )]
    Singular {
        /// Parity rows of the submatrix.
        rows: Vec<usize>,
        /// Missing slots of the submatrix.
        columns: Vec<usize>,
    },
    /// Concatenation wants image samples.
    #[error(
        "code.encoder = \"concat\" needs samples of shape [channels, height, width] with height \
            and width of at least {grid} for k = {k}, the model's input is {shape:?}; use encoder \
            = \"sum\""
    )]
    NotAnImage {
        /// The model's sample shape.
        shape: Vec<usize>,
        /// Cells per side that k needs.
        grid: usize,
        /// Queries in a group.
        k: usize,
    },
    /// Concatenation is one parity query, so it has one row of ones.
    #[error(
        "code.encoder = \"concat\" supports r = 1 with a generator of ones, not r = {r}; use \
            encoder = \"sum\""
    )]
    ConcatRows {
        /// The r asked for.
        r: usize,
    },
    /// A learned code has networks in place of coefficients.
    #[error("code.generator: encoder = \"{encoder}\" takes none, k and r say it all; leave it out")]
    NoGenerator {
        /// Encoder that takes no coefficients.
        encoder: EncoderKind,
    },
    /// Learned codes are networks, which this crate cannot run.
    #[error(
        "code.encoder = \"learned\" has networks of its own; load the code from its model \
            repository"
    )]
    Networks,
    /// The transform's two lists do not go together.
    #[error(
        "code.transform: {mean} means and {deviation} deviations; give one of each, or one for \
            each output"
    )]
    TransformUnequal {
        /// Number of means given.
        mean: usize,
        /// Number of deviations given.
        deviation: usize,
    },
    /// The transform's lists do not fit the model's output.
    #[error(
        "code.transform: {entries} entries, the model has {output_len} outputs a sample; give 1 \
            or {output_len}"
    )]
    TransformLength {
        /// Number of entries given.
        entries: usize,
        /// The model's outputs for one sample.
        output_len: usize,
    },
    /// A mean that is no number.
    #[error("code.transform.mean[{index}] = {value}: means must be finite")]
    TransformMean {
        /// Index of the mean.
        index: usize,
        /// Value of the mean.
        value: f32,
    },
    /// A deviation that cannot be divided by.
    #[error(
        "code.transform.deviation[{index}] = {value}: deviations must be finite and above zero"
    )]
    TransformDeviation {
        /// Index of the deviation.
        index: usize,
        /// Value of the deviation.
        value: f32,
    },
    /// A floor that is no log-probability.
    #[error(
        "code.transform.floor = {floor}: the least log-probability must be finite and below zero, \
            like -20"
    )]
    TransformFloor {
        /// Value of the floor.
        floor: f32,
    },
    /// Log-softmax of nothing to choose from.
    #[error(
        "code.transform.kind = \"log_softmax\" needs at least two outputs a sample, the model has \
            {output_len}; use \"raw\" or \"standardised\""
    )]
    TransformOneOutput {
        /// The model's outputs for one sample.
        output_len: usize,
    },
    /// A sample without elements cannot be coded.
    #[error("the model's input shape {shape:?} has no elements; coding needs at least one")]
    EmptySample {
        /// The model's sample shape.
        shape: Vec<usize>,
    },
}

/// A group that does not fit the code. A bug in the caller or a bad upstream answer; harms
/// only that group.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Row index out of range.
    #[error("parity row {row} asked of a code with r = {r}")]
    NoSuchRow {
        /// Row asked for.
        row: usize,
        /// Rows of the code.
        r: usize,
    },
    /// Not k queries.
    #[error("a coding group of {got} queries was handed to a code with k = {expected}")]
    GroupSize {
        /// Number of queries that the code wants, k.
        expected: usize,
        /// Queries handed in.
        got: usize,
    },
    /// Queries of a group differ in length.
    #[error("query in slot {slot} has {got} elements where its group has {expected}")]
    UnequalLength {
        /// Slot of the query.
        slot: usize,
        /// Elements of the parity query.
        expected: usize,
        /// Elements of this query.
        got: usize,
    },
    /// The length is not a whole number of samples.
    #[error("{len} elements are not a whole number of samples of {sample_len} elements")]
    PartialSample {
        /// Elements handed in.
        len: usize,
        /// Elements of a sample.
        sample_len: usize,
    },
    /// A learned encoder's network broke.
    #[error("the encoder's network failed: {reason}")]
    Network {
        /// Message of the runtime, on one line.
        reason: String,
    },
}

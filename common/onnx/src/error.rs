//! Errors of a graph.

/// A layer that does not fit what comes before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum BuildError {
    /// The layer takes values of another rank.
    #[error(
        "{layer}: takes {wanted}, the value before it has shape {shape:?} (without the batch axis)"
    )]
    Rank {
        /// The layer's name, such as `Gemm_3`.
        layer: String,
        wanted: &'static str,
        /// The shape it was given, without the batch axis.
        shape: Vec<usize>,
    },
    /// The layer's weights have another number of elements than the shapes ask for.
    #[error(
        "{layer}: {what} has {found} elements, {wanted} are needed for an input of shape {shape:?}"
    )]
    Weights {
        layer: String,
        what: &'static str,
        found: usize,
        wanted: usize,
        /// The shape of the layer's input, without the batch axis.
        shape: Vec<usize>,
    },
    /// A window, stride or padding leaves no output.
    #[error("{layer}: {what} does not fit an input of shape {shape:?}")]
    Window {
        layer: String,
        what: String,
        /// The shape of the layer's input, without the batch axis.
        shape: Vec<usize>,
    },
    /// The two branches of a residual block end in different shapes.
    #[error(
        "{layer}: the branches end in shapes {main:?} and {shortcut:?}; give the shortcut a 1x1 \
            convolution"
    )]
    Branches {
        layer: String,
        /// Shape of the main branch.
        main: Vec<usize>,
        /// Shape of the shortcut.
        shortcut: Vec<usize>,
    },
}

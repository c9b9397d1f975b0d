//! What can be wrong with a graph.

/// A layer that does not fit what comes before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The layer takes values of another rank.
    #[error(
        "{layer}: takes {wanted}, the value before it has shape {shape:?} (without the batch axis)"
    )]
    Rank {
        /// The layer's name, such as `Gemm_3`.
        layer: String,
        /// What it takes.
        wanted: &'static str,
        /// The shape it was given, without the batch axis.
        shape: Vec<usize>,
    },
    /// The layer's weights have another number of elements than the shapes ask for.
    #[error(
        "{layer}: {what} has {found} elements, {wanted} are needed for an input of shape {shape:?}"
    )]
    Weights {
        /// The layer's name.
        layer: String,
        /// Which of its arrays.
        what: &'static str,
        /// Elements found.
        found: usize,
        /// Elements needed.
        wanted: usize,
        /// The shape of the layer's input, without the batch axis.
        shape: Vec<usize>,
    },
    /// A window, stride or padding leaves no output.
    #[error("{layer}: {what} does not fit an input of shape {shape:?}")]
    Window {
        /// The layer's name.
        layer: String,
        /// What does not fit.
        what: String,
        /// The shape of the layer's input, without the batch axis.
        shape: Vec<usize>,
    },
    /// The two branches of a residual block end in different shapes.
    #[error(
        "{layer}: the branches end in shapes {main:?} and {shortcut:?}; give the shortcut a 1x1 convolution"
    )]
    Branches {
        /// The layer's name.
        layer: String,
        /// Shape of the main branch.
        main: Vec<usize>,
        /// Shape of the shortcut.
        shortcut: Vec<usize>,
    },
}

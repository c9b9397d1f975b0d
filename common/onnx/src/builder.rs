//! Builds a graph layer by layer.

mod sequences;

use prost::Message;

use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};

/// A layer that does not fit what comes before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{layer}: {problem}")]
pub struct BuildError {
    /// Name of the layer, such as `Gemm_3`.
    pub layer: String,
    /// Shapes that do not go together.
    pub problem: String,
}

/// A two-dimensional convolution in `[channels, height, width]`, square kernel.
#[derive(Debug, Clone, Copy)]
pub struct Conv<'a> {
    /// `[out channels, in channels, kernel, kernel]`, row-major.
    pub weights: &'a [f32],
    /// `[out channels]`.
    pub bias: &'a [f32],
    /// Side of the kernel, pixels.
    pub kernel: usize,
    /// Step between windows, pixels.
    pub stride: usize,
    /// Zeros added at each edge, pixels.
    pub padding: usize,
    /// Step between the pixels of a window; 1 for neighbours.
    pub dilation: usize,
}

/// Batch normalisation by fixed statistics: `scale * (x - mean) / sqrt(variance + epsilon) + bias`.
#[derive(Debug, Clone, Copy)]
pub struct BatchNorm<'a> {
    /// `[channels]`.
    pub scale: &'a [f32],
    /// `[channels]`.
    pub bias: &'a [f32],
    /// `[channels]`.
    pub mean: &'a [f32],
    /// `[channels]`.
    pub variance: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
}

/// A graph with one input, built by chaining layers; each takes the value of the one before.
///
/// Shapes are those of one sample, without the batch axis, and are checked as layers are
/// added. The first layer that does not fit is reported by [`GraphBuilder::finish`]; layers
/// after it are ignored.
#[derive(Debug)]
#[must_use = "a graph is built by `finish`"]
pub struct GraphBuilder {
    graph: GraphProto,
    /// Name and shape of the last layer's value.
    value: String,
    shape: Vec<usize>,
    /// True if the input is of sequences; then the masks of their steps, by the steps that a
    /// sequence of the input's shape has where they apply.
    is_free: bool,
    masks: Vec<(usize, String)>,
    error: Option<BuildError>,
}

impl GraphBuilder {
    /// An empty graph whose input `name` has `shape` (without the batch axis), 32-bit floats.
    pub fn new(name: &str, shape: &[usize]) -> Self {
        let input = ValueInfoProto::batch_of(name.to_owned(), shape);
        let graph = GraphProto {
            name: Some("parapet".to_owned()),
            input: vec![input],
            ..GraphProto::default()
        };
        let (value, shape) = (name.to_owned(), shape.to_vec());
        Self { graph, value, shape, is_free: false, masks: Vec::new(), error: None }
    }

    /// The shape of the current value, without the batch axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// A convolution: `[channels, height, width]` to `[out channels, height', width']`.
    pub fn conv(self, conv: Conv<'_>) -> Self {
        self.layer("Conv", |layer| {
            let (kernel, stride) = (conv.kernel, conv.stride);
            let (padding, dilation) = (conv.padding, conv.dilation);
            let [channels, height, width] = layer.image()?;
            let side = |length: usize| {
                let reach = dilation * kernel.saturating_sub(1) + 1;
                Some((length + 2 * padding).checked_sub(reach)?.checked_div(stride)? + 1)
            };
            let (Some(rows), Some(columns)) = (side(height), side(width)) else {
                return Err(layer.window(format!(
                    "kernel {kernel}, stride {stride}, padding {padding}, dilation {dilation}"
                )));
            };
            let out = conv.bias.len();
            layer.weights("weights", &[out, channels, kernel, kernel], conv.weights)?;
            layer.weights("bias", &[out], conv.bias)?;
            layer.node.attribute = vec![
                AttributeProto::ints("kernel_shape", &[kernel, kernel]),
                AttributeProto::ints("strides", &[stride, stride]),
                AttributeProto::ints("pads", &[padding; 4]),
                AttributeProto::ints("dilations", &[dilation; 2]),
            ];
            Ok(vec![out, rows, columns])
        })
    }

    /// Dense layer: `[columns]` to `[rows]`; `weights` rows x columns, row-major; `bias` `[rows]`.
    pub fn gemm(self, weights: &[f32], bias: &[f32]) -> Self {
        self.layer("Gemm", |layer| {
            let &[columns] = layer.shape.as_slice() else {
                return Err(layer.rank("[features]; put a flatten before it"));
            };
            layer.weights("weights", &[bias.len(), columns], weights)?;
            layer.weights("bias", &[bias.len()], bias)?;
            layer.node.attribute = vec![AttributeProto::int("transB", 1)];
            Ok(vec![bias.len()])
        })
    }

    /// `max(x, 0)`.
    pub fn relu(self) -> Self {
        self.layer("Relu", |layer| Ok(layer.shape.clone()))
    }

    /// The softmax over the last axis.
    pub fn softmax(self) -> Self {
        self.layer("Softmax", |layer| {
            layer.node.attribute = vec![AttributeProto::int("axis", -1)];
            Ok(layer.shape.clone())
        })
    }

    /// `1 / (1 + exp(-x))`.
    pub fn sigmoid(self) -> Self {
        self.layer("Sigmoid", |layer| Ok(layer.shape.clone()))
    }

    /// The maximum of each `size` x `size` window, without overlap; an edge's remainder is dropped.
    pub fn max_pool(self, size: usize) -> Self {
        self.layer("MaxPool", |layer| {
            let [channels, height, width] = layer.image()?;
            match (height.checked_div(size), width.checked_div(size)) {
                (Some(rows @ 1..), Some(columns @ 1..)) => {
                    layer.node.attribute = vec![
                        AttributeProto::ints("kernel_shape", &[size, size]),
                        AttributeProto::ints("strides", &[size, size]),
                    ];
                    Ok(vec![channels, rows, columns])
                }
                _ => Err(layer.window(format!("window {size}"))),
            }
        })
    }

    /// The mean of each channel: `[channels, height, width]` to `[channels, 1, 1]`.
    pub fn global_average_pool(mut self) -> Self {
        let mask = self.mask_here();
        self = self.masked().layer("GlobalAveragePool", |layer| {
            layer.image().map(|[channels, ..]| vec![channels, 1, 1])
        });
        let Some(mask) = mask else { return self };
        let axes = AttributeProto::ints("axes", &[2, 3]);
        let share = self.node("ReduceMean", vec![mask], vec![axes]);
        self.layer("Div", |layer| {
            layer.node.input.push(share);
            Ok(layer.shape.clone())
        })
    }

    /// Any shape to `[elements]`.
    pub fn flatten(self) -> Self {
        self.layer("Flatten", |layer| {
            layer.node.attribute = vec![AttributeProto::int("axis", 1)];
            Ok(vec![layer.shape.iter().product()])
        })
    }

    /// Batch normalisation over channels with fixed statistics.
    pub fn batch_norm(self, norm: BatchNorm<'_>) -> Self {
        self.layer("BatchNormalization", |layer| {
            let [channels, ..] = layer.image()?;
            layer.weights("scale", &[channels], norm.scale)?;
            layer.weights("bias", &[channels], norm.bias)?;
            layer.weights("mean", &[channels], norm.mean)?;
            layer.weights("variance", &[channels], norm.variance)?;
            layer.node.attribute = vec![AttributeProto::float("epsilon", norm.epsilon)];
            Ok(layer.shape.clone())
        })
    }

    /// `(x - mean) / deviation` for each channel of an image, or each feature of a vector.
    pub fn normalise(self, mean: &[f32], deviation: &[f32]) -> Self {
        self.by_channel("Sub", "mean", mean).by_channel("Div", "deviation", deviation)
    }

    fn by_channel(self, operator: &str, what: &str, values: &[f32]) -> Self {
        self.layer(operator, |layer| {
            let dims: Vec<usize> = match *layer.shape.as_slice() {
                [channels, _, _] => vec![channels, 1, 1],
                [features] => vec![features],
                _ => return Err(layer.rank("[channels, height, width] or [features]")),
            };
            layer.weights(what, &dims, values)?;
            Ok(layer.shape.clone())
        })
    }

    /// Puts the first axis of a sample into the batch axis: what follows treats each part as a
    /// sample of its own, until [`GraphBuilder::reshape`] brings them together.
    pub fn unstack(self) -> Self {
        if self.is_free {
            return self.unstack_sequences();
        }
        self.layer("Reshape", |layer| {
            let (_, part) = (layer.shape.split_first()).ok_or_else(|| layer.rank("[count, ..]"))?;
            let part = part.to_vec();
            layer.reshape_to(&part);
            Ok(part)
        })
    }

    /// Any values to samples of `shape`, some times as long: the batch axis takes what is left.
    pub fn reshape(self, shape: &[usize]) -> Self {
        self.layer("Reshape", |layer| {
            let [len, own] = [shape, &layer.shape].map(|shape| shape.iter().product::<usize>());
            if !len.is_multiple_of(own) {
                return Err(layer.error(format!("{own} values do not fill the shape {shape:?}")));
            }
            layer.reshape_to(shape);
            Ok(shape.to_vec())
        })
    }

    /// A residual block: the current value goes through `main` and through `shortcut` (`Ok` for the
    /// identity), and their ends are added.
    ///
    /// # Errors
    /// The first one of a branch.
    pub fn residual<E>(
        self,
        main: impl FnOnce(Self) -> Result<Self, E>,
        shortcut: impl FnOnce(Self) -> Result<Self, E>,
    ) -> Result<Self, E> {
        let (start, start_shape) = (self.value.clone(), self.shape.clone());
        let mut graph = main(self)?;
        let main_end = std::mem::replace(&mut graph.value, start);
        let main_shape = std::mem::replace(&mut graph.shape, start_shape);
        Ok(shortcut(graph)?.layer("Add", |layer| {
            let shortcut = &layer.shape;
            if *shortcut != main_shape {
                return Err(layer.error(format!(
                    "the branches end in shapes {main_shape:?} and {shortcut:?}; give the shortcut \
                        a 1x1 convolution"
                )));
            }
            layer.node.input.push(main_end);
            Ok(main_shape)
        }))
    }

    /// The finished file's bytes; the last layer's value becomes the output `name`.
    ///
    /// # Errors
    /// If a layer did not fit.
    pub fn finish(mut self, name: &str) -> Result<Vec<u8>, BuildError> {
        if self.graph.node.is_empty() {
            self = self.layer("Identity", |layer| Ok(layer.shape.clone()));
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut graph = self.graph;
        if let Some(last) = graph.node.last_mut() {
            last.output = vec![name.to_owned()];
        }
        graph.output = vec![ValueInfoProto::batch_of(name.to_owned(), &self.shape)];
        Ok(ModelProto::of(graph).encode_to_vec())
    }

    fn layer(
        mut self,
        operator: &str,
        define: impl FnOnce(&mut Layer) -> Result<Vec<usize>, BuildError>,
    ) -> Self {
        if self.error.is_some() {
            return self;
        }
        let name = format!("{operator}_{}", self.graph.node.len());
        let mut layer = Layer {
            node: NodeProto {
                input: vec![self.value.clone()],
                output: vec![format!("{name}_output")],
                op_type: Some(operator.to_owned()),
                ..NodeProto::default()
            },
            name,
            shape: self.shape.clone(),
            initialisers: Vec::new(),
        };
        match define(&mut layer) {
            Ok(shape) => {
                self.value.clone_from(&layer.node.output[0]);
                self.shape = shape;
                self.graph.initializer.append(&mut layer.initialisers);
                layer.node.name = Some(layer.name);
                self.graph.node.push(layer.node);
            }
            Err(error) => self.error = Some(error),
        }
        self
    }
}

struct Layer {
    name: String,
    node: NodeProto,
    shape: Vec<usize>,
    initialisers: Vec<TensorProto>,
}

impl Layer {
    fn image(&self) -> Result<[usize; 3], BuildError> {
        self.shape.as_slice().try_into().map_err(|_| self.rank("[channels, height, width]"))
    }

    fn weights(&mut self, what: &str, dims: &[usize], values: &[f32]) -> Result<(), BuildError> {
        let wanted: usize = dims.iter().product();
        if values.len() != wanted {
            let (found, shape) = (values.len(), &self.shape);
            return Err(self.error(format!(
                "{what} has {found} elements, {wanted} are needed for an input of shape {shape:?}"
            )));
        }
        let name = format!("{}_{what}", self.name);
        self.node.input.push(name.clone());
        self.initialisers.push(TensorProto::floats(name, dims, values));
        Ok(())
    }

    /// Gives the node its second input: `shape`, behind a batch axis that takes what is left.
    fn reshape_to(&mut self, shape: &[usize]) {
        let dims = shape.iter().map(|&dim| dim as i64);
        let dims: Vec<i64> = std::iter::once(-1).chain(dims).collect();
        let name = format!("{}_shape", self.name);
        self.node.input.push(name.clone());
        self.initialisers.push(TensorProto::integers(name, &dims));
    }

    fn rank(&self, wanted: &str) -> BuildError {
        let shape = &self.shape;
        self.error(format!(
            "takes {wanted}, the value before it has shape {shape:?} (without the batch axis)"
        ))
    }

    fn window(&self, what: String) -> BuildError {
        let shape = &self.shape;
        self.error(format!("{what} does not fit an input of shape {shape:?}"))
    }

    fn error(&self, problem: String) -> BuildError {
        BuildError { layer: self.name.clone(), problem }
    }
}

/// A model that computes `weights * x + bias` exactly as written: input `input` of `input_shape`,
/// output `output` of `[bias.len()]`; `weights` has a row for each output and a column for each
/// input element, row-major.
///
/// For tests that need a model whose answers, and whose parity model, are known in closed form.
///
/// # Errors
/// If `weights` has not `bias.len()` times the input's elements.
pub fn linear_model(
    input_shape: &[usize],
    weights: &[f32],
    bias: &[f32],
) -> Result<Vec<u8>, BuildError> {
    GraphBuilder::new("input", input_shape).flatten().gemm(weights, bias).finish("output")
}

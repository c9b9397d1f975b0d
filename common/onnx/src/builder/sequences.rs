//! Sequences: samples whose steps are an axis of any length, padded where several are stacked.

use super::GraphBuilder;
use crate::proto::{AttributeProto, FLOAT, INT64, NodeProto, TensorProto, ValueInfoProto};

impl GraphBuilder {
    /// Makes the input one of sequences: its last axis but one may have any length, and layers for
    /// images take steps for their height. [`shape`](Self::shape) goes on with the given length.
    pub fn sequences(mut self) -> Self {
        let axis = self.shape.len().saturating_sub(1);
        if let Some(input) = self.graph.input.first_mut() {
            input.free(axis);
        }
        self.is_free = true;
        self
    }

    /// A sequence `[steps, features]` to `[1, steps, features]`; one of that shape stays.
    pub fn sequence_image(self) -> Self {
        match self.shape.as_slice() {
            [_, _] => self.reshape_sequences(1),
            _ => self,
        }
    }

    pub(super) fn unstack_sequences(self) -> Self {
        self.reshape_sequences(2)
    }

    /// Puts axes before the axis `from`, the batch axis counted, into the batch axis; the rest
    /// becomes `[1, steps, features]`.
    fn reshape_sequences(mut self, from: usize) -> Self {
        let part = self.shape.get(from - 1..).unwrap_or_default().to_vec();
        let front = if part.len() == 2 { &[-1, 1][..] } else { &[-1] };
        let (value, front) = (self.value.clone(), self.integers(&[front.len() as i64], front));
        let start = AttributeProto::int("start", from as i64);
        let rest = self.node("Shape", vec![value], vec![start]);
        let axis = AttributeProto::int("axis", 0);
        let shape = self.node("Concat", vec![front, rest], vec![axis]);
        self.layer("Reshape", |layer| {
            layer.node.input.push(shape);
            match *part.as_slice() {
                [1, steps, features] | [steps, features] => Ok(vec![1, steps, features]),
                _ => Err(layer.rank("[count, 1, steps, features] or [count, steps, features]")),
            }
        })
    }

    /// Adds an input `name`, INT64 `[count]`: lengths of the sequences, `[1, steps, features]`, that
    /// [`unstack`](Self::unstack) made of a sample. The steps behind count as the zeros of a padding
    /// in what follows, and not at all in [`global_average_pool`](Self::global_average_pool).
    pub fn lengths(mut self, name: &str, count: usize) -> Self {
        self.graph.input.push(ValueInfoProto::batch_of_type(
            name.to_owned(),
            INT64,
            &[count as i64],
        ));
        let [start, end] =
            [("start", 2), ("end", 3)].map(|(at, axis)| AttributeProto::int(at, axis));
        let steps = self.node("Shape", vec![self.value.clone()], vec![start, end]);
        let steps = self.node("Squeeze", vec![steps], Vec::new());
        let [zero, one] = [0, 1].map(|number| self.integers(&[], &[number]));
        let steps = self.node("Range", vec![zero, steps, one.clone()], Vec::new());
        let column = self.integers(&[4], &[1, 1, -1, 1]);
        let steps = self.node("Reshape", vec![steps, column], Vec::new());
        let lengths = self.node("Max", vec![name.to_owned(), one], Vec::new());
        let each = self.integers(&[4], &[-1, 1, 1, 1]);
        let lengths = self.node("Reshape", vec![lengths, each], Vec::new());
        let is_own = self.node("Less", vec![steps, lengths], Vec::new());
        let to = AttributeProto::int("to", i64::from(FLOAT));
        let mask = self.node("Cast", vec![is_own], vec![to]);
        self.masks = vec![(self.shape.get(1).copied().unwrap_or_default(), mask)];
        self
    }

    /// The mask for the current value, whose steps may have been halved since the input.
    pub(super) fn mask_here(&mut self) -> Option<String> {
        let here = self.shape.get(1).copied().unwrap_or_default();
        loop {
            let (steps, last) = self.masks.last()?.clone();
            if let Some((_, mask)) = self.masks.iter().find(|(steps, _)| *steps == here) {
                return Some(mask.clone());
            }
            if steps < here {
                return None;
            }
            let [from, to, axis, by] =
                [0, i64::MAX, 2, 2].map(|number| self.integers(&[1], &[number]));
            let half = self.node("Slice", vec![last, from, to, axis, by], Vec::new());
            self.masks.push((steps.div_ceil(2), half));
        }
    }

    /// Makes zeros of the steps behind the sequences, if their lengths are known.
    pub fn masked(mut self) -> Self {
        let Some(mask) = self.mask_here() else { return self };
        self.layer("Mul", |layer| {
            layer.node.input.push(mask);
            Ok(layer.shape.clone())
        })
    }

    /// Adds a node beside the layers; returns the name of its output.
    pub(super) fn node(
        &mut self,
        operator: &str,
        input: Vec<String>,
        attribute: Vec<AttributeProto>,
    ) -> String {
        let name = format!("{operator}_{}", self.graph.node.len());
        let output = format!("{name}_output");
        self.graph.node.push(NodeProto {
            input,
            output: vec![output.clone()],
            name: Some(name),
            op_type: Some(operator.to_owned()),
            attribute,
        });
        output
    }

    pub(super) fn integers(&mut self, dims: &[i64], values: &[i64]) -> String {
        let name = format!("integers_{}", self.graph.initializer.len());
        let tensor = TensorProto::integers(name.clone(), values);
        self.graph.initializer.push(TensorProto { dims: dims.to_vec(), ..tensor });
        name
    }
}

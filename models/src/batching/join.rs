//! Joining requests on the batch axis, and splitting the outputs again.

use bytes::{Bytes, BytesMut};
use parapet_open_inference::{Parameters, Tensor};

use crate::engine::EngineError;

/// Joins the inputs of requests, each in the model's order, into one batch. A single request is
/// passed on as it is.
pub(super) fn join(requests: &[&[Tensor]]) -> Vec<Tensor> {
    let Some((first, others)) = requests.split_first() else { return Vec::new() };
    if others.is_empty() {
        return first.to_vec();
    }
    let joined = |(index, tensor): (usize, &Tensor)| {
        let parts = || requests.iter().filter_map(move |inputs| inputs.get(index));
        let mut data = BytesMut::with_capacity(parts().map(|part| part.data.len()).sum());
        parts().for_each(|part| data.extend_from_slice(&part.data));
        let mut shape = tensor.shape.clone();
        if let Some(rows) = shape.first_mut() {
            *rows = parts().filter_map(|part| part.shape.first()).sum();
        }
        let (name, datatype) = (tensor.name.clone(), tensor.datatype);
        Tensor { name, datatype, shape, data: data.freeze(), parameters: Parameters::new() }
    };
    first.iter().enumerate().map(joined).collect()
}

/// Splits a batch's outputs among requests of so many `rows` each, without a copy.
pub(super) fn split(
    mut outputs: Vec<Tensor>,
    rows: &[usize],
) -> Result<Vec<Vec<Tensor>>, EngineError> {
    let total: usize = rows.iter().sum();
    let is_wrong = |output: &&Tensor| output.shape.first() != Some(&total);
    if let Some(wrong) = outputs.iter().find(is_wrong) {
        let problem = format!("shape {:?} for a batch of {total} rows", wrong.shape);
        return Err(EngineError::Output { output: wrong.name.clone(), problem });
    }
    if let [_] = rows {
        return Ok(vec![outputs]);
    }
    let take = |&rows: &usize| outputs.iter_mut().map(|output| take_rows(output, rows)).collect();
    Ok(rows.iter().map(take).collect())
}

/// Takes the first `rows` off; the rows share the memory.
pub(super) fn take_rows(rest: &mut Tensor, rows: usize) -> Tensor {
    let left = rest.shape.first().copied().unwrap_or_default();
    let bytes = match rest.datatype.size() {
        Some(_) => rows * rest.data.len().checked_div(left).unwrap_or_default(),
        None => {
            let row: usize = rest.shape.iter().skip(1).product();
            let elements = rest.byte_strings().take(rows * row);
            elements.map(|element| size_of::<u32>() + element.len()).sum()
        }
    };
    let data: Bytes = rest.data.split_to(bytes.min(rest.data.len()));
    let mut shape = rest.shape.clone();
    if let (Some(taken), Some(left)) = (shape.first_mut(), rest.shape.first_mut()) {
        *taken = rows.min(*left);
        *left -= *taken;
    }
    let (name, datatype) = (rest.name.clone(), rest.datatype);
    Tensor { name, datatype, shape, data, parameters: Parameters::new() }
}

#[cfg(test)]
mod tests {
    use parapet_open_inference::Datatype;
    use proptest::prelude::*;

    use super::*;

    fn request(rows: usize, first: f32) -> Vec<Tensor> {
        let values = |width: usize| -> Vec<f32> {
            (0..rows * width).map(|index| first + index as f32).collect()
        };
        let text = |index: usize| {
            let text = "x".repeat(index % 3 + first as usize % 7);
            let length = (text.len() as u32).to_le_bytes();
            [&length[..], text.as_bytes()].concat()
        };
        let texts: Vec<u8> = (0..rows * 2).flat_map(text).collect();
        vec![
            Tensor::from_f32("a", [rows, 3], &values(3)).unwrap(),
            Tensor::from_f32("b", [rows, 2, 2], &values(4)).unwrap(),
            Tensor::new("c", Datatype::Bytes, vec![rows, 2], texts.into()).unwrap(),
        ]
    }

    proptest! {
        #[test]
        fn what_is_joined_splits_into_the_same(rows in prop::collection::vec(1_usize..5, 1..6)) {
            let requests: Vec<_> = rows
                .iter()
                .enumerate()
                .map(|(index, &rows)| request(rows, 100.0 * index as f32))
                .collect();
            let slices: Vec<&[Tensor]> = requests.iter().map(Vec::as_slice).collect();
            let joined = join(&slices);
            prop_assert_eq!(joined[1].shape[0], rows.iter().sum::<usize>());
            prop_assert_eq!(
                joined[1].f32s().unwrap().len(),
                joined[1].element_count().unwrap()
            );
            prop_assert_eq!(split(joined, &rows).unwrap(), requests);
        }
    }

    #[test]
    fn outputs_with_other_rows_than_the_batch_are_refused() {
        let split = split(request(3, 0.0), &[1, 1]);
        assert!(matches!(split, Err(EngineError::Output { .. })));
    }
}

//! A shard as a safetensors file.
//!
//! Tensors `values` (rows x width), `state` (slots x rows x width), `steps`, `keys` (of sparse arrays) and `clocks` (worker,
//! first key, end, clock). What they belong to is metadata.

use std::collections::HashMap;

use parapet_parameter_server::{ArrayId, Clock, KeyRange, Keys, Rows, Shared, Values, WorkerClock, WorkerId};
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};

use crate::ShardState;

const FORMAT: &str = "1";

/// The file's bytes.
pub(crate) fn encode(shard: &ShardState) -> Result<Vec<u8>, String> {
    let ShardState { array, width, sparse, rows, clocks } = shard;
    let (values, state) = (rows.values.to_f32(), rows.state.to_f32());
    let count = values.len() / width.max(&1);
    let slots = state.len().checked_div(values.len()).unwrap_or(0);
    let clocks: Vec<u64> =
        clocks.iter().flat_map(|c| [c.worker.0, c.range.start, c.range.end, c.clock.0]).collect();
    let mut tensors = vec![
        ("values", Dtype::F32, vec![count, *width], values.as_bytes()),
        ("state", Dtype::F32, vec![slots, count, *width], state.as_bytes()),
        ("steps", Dtype::U32, vec![rows.steps.len()], bytemuck::cast_slice(&rows.steps)),
        ("clocks", Dtype::U64, vec![clocks.len() / 4, 4], bytemuck::cast_slice(&clocks)),
    ];
    if let Keys::List(keys) = &rows.keys {
        tensors.push(("keys", Dtype::U64, vec![keys.len()], keys.as_bytes()));
    }
    let views: Vec<(&str, TensorView<'_>)> = tensors
        .into_iter()
        .map(|(name, dtype, shape, bytes)| TensorView::new(dtype, shape, bytes).map(|view| (name, view)))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let metadata: HashMap<String, String> = [
        ("format", FORMAT.to_owned()),
        ("array", array.0.to_string()),
        ("start", rows.range.start.to_string()),
        ("end", rows.range.end.to_string()),
        ("width", width.to_string()),
        ("sparse", sparse.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    serialize(views, Some(metadata)).map_err(|error| error.to_string())
}

/// The shard of a file. The error says what is wrong with it.
pub(crate) fn decode(bytes: &[u8]) -> Result<ShardState, String> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| error.to_string())?;
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
    let text = |name: &str| {
        let value = header.metadata().as_ref().and_then(|metadata| metadata.get(name));
        value.cloned().ok_or_else(|| format!("it has no `{name}`"))
    };
    let number = |name: &str| text(name)?.parse::<u64>().map_err(|_| format!("its `{name}` is no number"));
    if text("format")? != FORMAT {
        return Err(format!("it has format {}, this version reads {FORMAT}", text("format")?));
    }
    let width = usize::try_from(number("width")?).map_err(|_| "its rows are too long")?.max(1);
    let sparse = text("sparse")? == "true";
    let values: Vec<f32> = numbers(&tensors, "values", Dtype::F32)?;
    let state: Vec<f32> = numbers(&tensors, "state", Dtype::F32)?;
    let steps: Vec<u32> = numbers(&tensors, "steps", Dtype::U32)?;
    let clocks: Vec<u64> = numbers(&tensors, "clocks", Dtype::U64)?;
    let range = KeyRange::new(number("start")?, number("end")?);
    let keys = if sparse {
        Keys::List(Shared::from(numbers::<u64>(&tensors, "keys", Dtype::U64)?))
    } else {
        Keys::All
    };
    let array = u32::try_from(number("array")?).map_err(|_| "its array has too high a number")?;
    let count = keys.len(range);
    let fits = values.len() == count.saturating_mul(width)
        && (state.is_empty() || (!values.is_empty() && state.len().is_multiple_of(values.len())))
        && (steps.is_empty() || steps.len() == count)
        && keys.are_valid(range)
        && clocks.len().is_multiple_of(4);
    if !fits {
        return Err("its tensors do not fit each other".to_owned());
    }
    let clocks = clocks.chunks_exact(4).filter_map(|entry| match *entry {
        [worker, start, end, clock] => Some(WorkerClock {
            worker: WorkerId(worker),
            range: KeyRange::new(start, end),
            clock: Clock(clock),
        }),
        _ => None,
    });
    let clocks = clocks.collect();
    let rows = Rows { range, keys, values: Values::from(values), state: Values::from(state), steps };
    Ok(ShardState { array: ArrayId(array), width, sparse, rows, clocks })
}

fn numbers<T: bytemuck::AnyBitPattern>(
    tensors: &SafeTensors<'_>,
    name: &str,
    dtype: Dtype,
) -> Result<Vec<T>, String> {
    let tensor = tensors.tensor(name).map_err(|_| format!("it has no tensor `{name}`"))?;
    if tensor.dtype() != dtype {
        return Err(format!("its tensor `{name}` is not {dtype:?}"));
    }
    // Not a cast of the slice: it need not be aligned.
    Ok(tensor.data().chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
}

//! Cutting and joining rows with their optimiser state, which lies slot after slot.

use parapet_parameter_server::{KeyRange, Keys, Rows, Values};

/// Slots of optimiser state, from the counts of numbers.
fn slots(rows: &Rows) -> usize {
    rows.state.len().checked_div(rows.values.len()).unwrap_or(0)
}

/// The rows of `part`, which lies within `rows.range`.
pub(crate) fn cut(rows: &Rows, part: KeyRange, width: usize) -> Rows {
    let count = rows.values.len() / width.max(1);
    let (keys, places) = rows.keys.cut(rows.range, part);
    let (first, end) = (places.start.min(count), places.end.min(count));
    let values = rows.values.slice(first * width..end * width);
    let state = rows.state.to_f32();
    let numbers = |slot: usize| {
        let start = slot * count * width;
        state.get(start + first * width..start + end * width).unwrap_or_default()
    };
    let state: Vec<f32> = (0..slots(rows)).flat_map(numbers).copied().collect();
    let steps = rows.steps.get(first..end.min(rows.steps.len())).unwrap_or_default().to_vec();
    Rows { range: part, keys, values, state: Values::from(state), steps }
}

/// Rows of ranges that follow one another, as one.
pub(crate) fn join(parts: &[&Rows], width: usize) -> Rows {
    let range = KeyRange::new(
        parts.first().map_or(0, |rows| rows.range.start),
        parts.last().map_or(0, |rows| rows.range.end),
    );
    let lists = parts.iter().any(|rows| matches!(rows.keys, Keys::List(_)));
    let keys = if lists {
        Keys::List(parts.iter().flat_map(|rows| rows.keys.iter(rows.range)).collect::<Vec<_>>().into())
    } else {
        Keys::All
    };
    let values: Vec<f32> = parts.iter().flat_map(|rows| rows.values.to_f32().to_vec()).collect();
    let slots = parts.iter().map(|rows| slots(rows)).max().unwrap_or(0);
    let slot = |slot: usize| {
        parts.iter().flat_map(move |rows| {
            let count = rows.values.len() / width.max(1) * width;
            let state = rows.state.to_f32();
            state.get(slot * count..(slot + 1) * count).unwrap_or_default().to_vec()
        })
    };
    let state: Vec<f32> = (0..slots).flat_map(slot).collect();
    let steps = parts.iter().flat_map(|rows| rows.steps.iter().copied()).collect();
    Rows { range, keys, values: Values::from(values), state: Values::from(state), steps }
}

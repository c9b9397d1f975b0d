//! A code in which every query is coded, and that is exact for linear models, as no interpolation by Berrut is: the k queries
//! are values of a polynomial at 0, 1, .., k - 1, coded query j is its value at k + j, and any k of those determine it.

/// Coded query `row` of these queries.
pub fn encode(queries: &[f32], row: usize) -> f32 {
    let points: Vec<(f64, f64)> =
        (0u8..).map(f64::from).zip(queries.iter().map(|&value| f64::from(value))).collect();
    at(&points, (queries.len() + row) as f64)
}

/// The prediction in `slot` of k, by the first k coded outputs that are there.
pub fn decode(k: usize, outputs: &[Option<&[f32]>], slot: usize) -> f32 {
    let points: Vec<(f64, f64)> = outputs
        .iter()
        .enumerate()
        .filter_map(|(row, output)| Some(((k + row) as f64, f64::from(output.as_ref()?[0]))))
        .take(k)
        .collect();
    at(&points, slot as f64)
}

fn at(points: &[(f64, f64)], x: f64) -> f32 {
    let term = |(i, &(xi, yi)): (usize, &(f64, f64))| {
        let others = points.iter().enumerate().filter(|&(j, _)| j != i);
        others.fold(yi, |term, (_, &(xj, _))| term * (x - xj) / (xi - xj))
    };
    points.iter().enumerate().map(term).sum::<f64>() as f32
}

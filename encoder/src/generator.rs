//! The default generator, and how far any generator can be trusted.
//!
//! To decode is to solve with a square submatrix of the generator, and so to multiply the parity
//! models' errors by about its condition number. Vandermonde's rows `[1^j, 2^j, .. k^j]`, the
//! textbook's choice, are exact in finite fields and hopeless here: 27 for r = 2, k = 4, but 483
//! for k = 16, and 10^7 for r = 4, k = 16. Rows of cosines at Chebyshev's nodes are orthogonal as a
//! whole, yet have singular submatrices, because the nodes are symmetric; positive nodes avoid that
//! and are little better than Vandermonde (280 and 700,000 at k = 16); a Cauchy matrix with a first
//! row of ones is as bad. So the rows are a table, found by random search with hill-climbing: row 1
//! for the least condition numbers over all k at r = 2, then row 2 given row 1, then row 3. A
//! smaller code takes the upper left corner, so rows stay what they are as r grows.

use crate::{CodeError, K_MAX, R_MAX};

/// Largest accepted condition number of a square submatrix with rows scaled to a mean square of 1.
pub(crate) const MAX_CONDITION: f64 = 1000.0;

const ROWS: [[f32; K_MAX]; R_MAX] = [
    [1.0; K_MAX],
    [
        1.0, -0.963, 0.259, -0.249, -2.0, 1.999, -0.549, 0.579, 1.383, -1.329, -0.736, 0.768,
        0.464, -1.615, 0.357, -0.405,
    ],
    [
        1.0, -0.419, -1.54, 0.495, 1.584, 0.221, 0.845, -0.994, -0.793, -1.087, -1.812, 1.418,
        -0.683, 0.963, 1.189, -0.463,
    ],
    [
        1.0, 0.561, -0.748, -0.502, -0.634, 1.445, 1.172, -0.964, -1.131, 1.371, 0.987, -0.973,
        1.554, -0.734, 0.878, -1.141,
    ],
];

/// The default r x k generator, row-major; its first row is ones.
pub(crate) fn default_rows(k: usize, r: usize) -> Vec<f32> {
    ROWS.iter().take(r).flat_map(|row| row.iter().copied().take(k)).collect()
}

/// Every square submatrix must be well conditioned: any u missing slots, from any u parity rows (an
/// MDS code over the reals). `rows` is row-major with k columns.
pub(crate) fn check_recoverable(rows: &[f32], k: usize) -> Result<(), CodeError> {
    let scaled: Vec<Vec<f64>> = rows
        .chunks(k)
        .map(|row| {
            let square: f64 = row.iter().map(|&a| f64::from(a).powi(2)).sum();
            let scale = (square / k as f64).sqrt();
            row.iter().map(|&a| f64::from(a) / scale).collect()
        })
        .collect();
    for size in 1..=scaled.len() {
        for rows in subsets(scaled.len(), size) {
            for columns in subsets(k, size) {
                if condition(&scaled, &rows, &columns) > MAX_CONDITION {
                    let problem = format!(
                        "rows {rows:?} and columns {columns:?} form a (nearly) singular matrix, so \
                            those queries could not be recovered together"
                    );
                    let fix = "leave it out to use the default";
                    return Err(CodeError::new("generator", problem, fix));
                }
            }
        }
    }
    Ok(())
}

/// `max(|A|, 1) * |A^-1|` in Frobenius' norm for the submatrix A; infinite for a singular one.
/// An upper bound of the usual condition number; of a single coefficient, how much decoding
/// from it alone amplifies.
fn condition(generator: &[Vec<f64>], rows: &[usize], columns: &[usize]) -> f64 {
    let n = rows.len();
    // A and, beside it, the unit matrix, which elimination makes the inverse.
    let mut matrix = [[0.0f64; 2 * R_MAX]; R_MAX];
    let mut square = 0.0;
    for (i, &row) in rows.iter().enumerate() {
        for (j, &column) in columns.iter().enumerate() {
            matrix[i][j] = generator[row][column];
            square += matrix[i][j].powi(2);
        }
        matrix[i][n + i] = 1.0;
    }
    if !eliminate(&mut matrix, n) {
        return f64::INFINITY;
    }
    let inverse: f64 =
        matrix.iter().take(n).flat_map(|row| &row[n..2 * n]).map(|value| value.powi(2)).sum();
    square.sqrt().max(1.0) * inverse.sqrt()
}

/// Gauss-Jordan with partial pivoting: makes the first `n` columns of the first `n` rows the unit
/// matrix, the columns behind them what solves the system. False for a singular one.
pub fn eliminate<const COLUMNS: usize>(matrix: &mut [[f64; COLUMNS]; R_MAX], n: usize) -> bool {
    for column in 0..n {
        let pivot = (column..n)
            .max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))
            .unwrap_or(column);
        matrix.swap(pivot, column);
        let head = matrix[column][column];
        if head.abs() < 1e-12 {
            return false;
        }
        matrix[column].iter_mut().for_each(|value| *value /= head);
        let pivot_row = matrix[column];
        for (index, row) in matrix.iter_mut().enumerate().take(n) {
            if index != column {
                let factor = row[column];
                row.iter_mut().zip(pivot_row).for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }
    true
}

/// All subsets of `0..n` with `size` members.
pub fn subsets(n: usize, size: usize) -> Vec<Vec<usize>> {
    let masks = (0u32..1 << n).filter(|mask| mask.count_ones() as usize == size);
    masks.map(|mask| (0..n).filter(|i| mask & (1 << i) != 0).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(rows: &[f32], k: usize) -> f64 {
        let generator: Vec<Vec<f64>> =
            rows.chunks(k).map(|row| row.iter().map(|&a| f64::from(a)).collect()).collect();
        let sizes = 1..=generator.len();
        let pairs = sizes.flat_map(|size| {
            let columns = subsets(k, size);
            subsets(generator.len(), size).into_iter().flat_map(move |rows| {
                columns.clone().into_iter().map(move |columns| (rows.clone(), columns))
            })
        });
        pairs.map(|(rows, columns)| condition(&generator, &rows, &columns)).fold(0.0, f64::max)
    }

    fn vandermonde(k: usize, r: usize) -> Vec<f32> {
        (0..r).flat_map(|row| (1..=k).map(move |node| (node as f32).powi(row as i32))).collect()
    }

    #[test]
    fn the_first_row_is_ones_and_rows_do_not_change_as_the_code_grows() {
        for k in 2..=K_MAX {
            assert_eq!(default_rows(k, 1), vec![1.0; k]);
            for r in 2..=R_MAX.min(k) {
                let (rows, fewer) = (default_rows(k, r), default_rows(k, r - 1));
                assert_eq!(rows[..fewer.len()], fewer);
            }
        }
    }

    /// The bounds of the table in ALGORITHM.md.
    #[test]
    fn every_square_submatrix_is_well_conditioned() {
        for (r, bounds) in
            [(2, [4.5, 8.5, 25.0]), (3, [11.0, 45.0, 125.0]), (4, [16.0, 135.0, 700.0])]
        {
            for k in r..=K_MAX {
                let bound = bounds[if k <= 4 { 0 } else { usize::from(k > 8) + 1 }];
                let (table, vandermonde) =
                    (worst(&default_rows(k, r), k), worst(&vandermonde(k, r), k));
                assert!(table <= bound, "k = {k}, r = {r}: {table}");
                assert!(
                    table * 3.0 < vandermonde,
                    "k = {k}, r = {r}: {table}, Vandermonde {vandermonde}"
                );
            }
        }
    }

    #[test]
    fn condition_of_known_matrices() {
        let generator = [vec![1.0, 1.0, 2.0], vec![1.0, -1.0, 2.0]];
        assert!(
            (condition(&generator, &[0, 1], &[0, 1]) - 2.0).abs() < 1e-9,
            "orthogonal: its size"
        );
        assert!((condition(&generator, &[1], &[2]) - 1.0).abs() < 1e-9);
        assert!((condition(&[vec![0.25]], &[0], &[0]) - 4.0).abs() < 1e-9);
        assert!(condition(&generator, &[0, 1], &[0, 2]).is_infinite());
    }
}

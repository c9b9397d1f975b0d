//! Concatenation: the k images of a group, shrunk, side by side in one image (ParM section 4.2.3).
//!
//! The parity query has the shape of one image, `[channels, height, width]`. Its grid is 1 x 2
//! cells for k = 2 and `ceil(sqrt(k))` squared beyond; images fill it in slot order, row by row,
//! each shrunk to its cell by area averaging; cells without an image and rests of a size that does
//! not divide evenly stay zero. Channels are kept apart. A parity model on such a query sees every
//! image at lower resolution instead of k images on top of each other: 2 points better than the sum
//! at k = 2 and 22 at k = 4 on CIFAR-10 (ParM figure 7). Decoding is that of a code with one row of
//! ones.

use crate::resample::{AxisPlan, STRIP, Strip};
use crate::{Code, CodeError, EncodeError, Encoder, check_group};

/// The concatenation encoder for samples `[channels, height, width]`.
#[derive(Debug, Clone)]
pub(crate) struct ConcatEncoder {
    code: Code,
    channels: usize,
    height: usize,
    width: usize,
    grid_columns: usize,
    cell_height: usize,
    cell_width: usize,
    rows: AxisPlan,
    columns: AxisPlan,
    strips: Vec<Strip>,
}

impl ConcatEncoder {
    /// An encoder for samples `[channels, height, width]`, or `[height, width]` for one channel.
    ///
    /// # Errors
    /// [`CodeError`] when the shape is no image or smaller than the grid.
    pub(crate) fn new(code: Code, sample_shape: &[usize]) -> Result<Self, CodeError> {
        let k = code.k();
        let (grid_rows, grid_columns) = Self::grid(k);
        let (channels, height, width) = match *sample_shape {
            [height, width] => (1, height, width),
            [channels, height, width] => (channels, height, width),
            _ => (0, 0, 0),
        };
        let (cell_height, cell_width) = (height / grid_rows, width / grid_columns);
        if channels == 0 || cell_height == 0 || cell_width == 0 {
            let problem = format!(
                "\"concat\" needs samples [channels, height, width] of at least {grid_columns} x \
                    {grid_columns} for k = {k}, the model's input is {sample_shape:?}"
            );
            return Err(CodeError::new("encoder", problem, "use \"sum\""));
        }
        let rows = AxisPlan::new(height, cell_height);
        let columns = AxisPlan::new(width, cell_width);
        Ok(Self {
            code,
            channels,
            height,
            width,
            grid_columns,
            cell_height,
            cell_width,
            rows,
            strips: columns.strips(),
            columns,
        })
    }

    /// Rows and columns of the grid of cells for k images.
    pub(crate) fn grid(k: usize) -> (usize, usize) {
        let side = (1..=k).find(|side| side * side >= k).unwrap_or(k);
        if k <= side * (side - 1) { (side - 1, side) } else { (side, side) }
    }

    fn sample_len(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Shrinks the plane `image` into the cell of `plane` whose top left corner is at (`top`,
    /// `left`): first the rows that an output row covers are added up, which is plain arithmetic on
    /// long rows, then what is left is shrunk along them.
    fn shrink_into(&self, image: &[f32], plane: &mut [f32], top: usize, left: usize) {
        match (self.rows.integer_factor(), self.columns.integer_factor()) {
            (Some(1), Some(2)) => return self.shrink_pairs::<1>(image, plane, top, left),
            (Some(2), Some(2)) => return self.shrink_pairs::<2>(image, plane, top, left),
            _ => {}
        }
        let mut sums = [0.0f32; STRIP];
        for cell_row in 0..self.cell_height {
            let at = (top + cell_row) * self.width + left;
            let Some(out) = plane.get_mut(at..at + self.cell_width) else { return };
            let (first_row, row_weights) = self.rows.cell(cell_row);
            for strip in &self.strips {
                let (Some(sums), Some(out)) =
                    (sums.get_mut(..strip.pixels.len()), out.get_mut(strip.cells.clone()))
                else {
                    return;
                };
                let mut rows = image
                    .chunks(self.width)
                    .skip(first_row)
                    .zip(row_weights)
                    .filter(|(_, weight)| **weight != 0.0)
                    .map(|(row, weight)| {
                        (row.get(strip.pixels.clone()).unwrap_or_default(), *weight)
                    });
                match (rows.next(), rows.next()) {
                    (Some((row, _)), None) => {
                        self.columns.shrink(strip, row, out);
                        continue;
                    }
                    (Some((first, weight)), Some((second, second_weight))) => {
                        for ((sum, first), second) in sums.iter_mut().zip(first).zip(second) {
                            *sum = weight * first + second_weight * second;
                        }
                    }
                    (None, _) => return,
                }
                for (row, weight) in rows {
                    sums.iter_mut().zip(row).for_each(|(sum, pixel)| *sum += weight * pixel);
                }
                self.columns.shrink(strip, sums, out);
            }
        }
    }

    /// The same where an output pixel is the mean of two pixels of each of `ROWS` rows, as for k up
    /// to 4 and even sizes: in one pass, so that it takes about as long as a copy of the image.
    fn shrink_pairs<const ROWS: usize>(
        &self,
        image: &[f32],
        plane: &mut [f32],
        top: usize,
        left: usize,
    ) {
        let share = 0.5 / ROWS as f32;
        let cells = plane.chunks_exact_mut(self.width).skip(top).take(self.cell_height);
        for (cells, rows) in cells.zip(image.chunks_exact(ROWS * self.width)) {
            let cells = cells.get_mut(left..left + self.cell_width).unwrap_or_default();
            let (first, second) = rows.split_at(self.width);
            let (first, second) = (first.as_chunks::<2>().0, second.as_chunks::<2>().0);
            if ROWS == 1 {
                for (cell, [a, b]) in cells.iter_mut().zip(first) {
                    *cell = (a + b) * share;
                }
            } else {
                for ((cell, [a, b]), [c, d]) in cells.iter_mut().zip(first).zip(second) {
                    *cell = ((a + c) + (b + d)) * share;
                }
            }
        }
    }
}

impl Encoder for ConcatEncoder {
    fn code(&self) -> &Code {
        &self.code
    }

    fn encode(
        &self,
        row: usize,
        queries: &[&[f32]],
        parity: &mut [f32],
    ) -> Result<(), EncodeError> {
        check_group(&self.code, self.sample_len(), row, queries, parity)?;
        let plane_len = self.height * self.width;
        let cells = self.grid_columns * (self.height / self.cell_height);
        let covered =
            queries.len() == cells && cells * self.cell_height * self.cell_width == plane_len;
        if !covered {
            parity.fill(0.0);
        }
        for (plane_index, plane) in parity.chunks_exact_mut(plane_len).enumerate() {
            let at = plane_index * plane_len;
            for (slot, query) in queries.iter().enumerate() {
                let image = query.get(at..at + plane_len).unwrap_or_default();
                let top = slot / self.grid_columns * self.cell_height;
                self.shrink_into(image, plane, top, slot % self.grid_columns * self.cell_width);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeSpec, EncoderKind};
    use proptest::prelude::*;

    fn encoder(k: usize, shape: &[usize]) -> ConcatEncoder {
        let code = Code::try_from(&CodeSpec::new(EncoderKind::Concat, k, 1)).unwrap();
        ConcatEncoder::new(code, shape).unwrap()
    }

    #[test]
    fn two_images_lie_side_by_side() {
        let encoder = encoder(2, &[1, 2, 4]);
        let left = [1.0, 3.0, 5.0, 7.0, 2.0, 4.0, 6.0, 8.0];
        let right = [10.0, 30.0, 50.0, 70.0, 20.0, 40.0, 60.0, 80.0];
        let mut parity = [0.0; 8];
        encoder.encode(0, &[&left, &right], &mut parity).unwrap();
        assert_eq!(parity, [2.0, 6.0, 20.0, 60.0, 3.0, 7.0, 30.0, 70.0]);
    }

    #[test]
    fn three_images_leave_the_fourth_cell_empty() {
        let encoder = encoder(3, &[2, 2]);
        let (a, b, c) = ([1.0; 4], [2.0; 4], [3.0; 4]);
        let mut parity = [f32::NAN; 4];
        encoder.encode(0, &[&a, &b, &c], &mut parity).unwrap();
        assert_eq!(parity, [1.0, 2.0, 3.0, 0.0]);
    }

    #[test]
    fn grids() {
        assert_eq!(
            [2, 3, 4, 5, 6, 7, 9].map(ConcatEncoder::grid),
            [(1, 2), (2, 2), (2, 2), (2, 3), (2, 3), (3, 3), (3, 3)]
        );
    }

    #[test]
    fn shapes_that_are_no_images_are_refused() {
        let code = Code::try_from(&CodeSpec::new(EncoderKind::Concat, 4, 1)).unwrap();
        for shape in [&[784][..], &[1, 1, 28], &[1, 2, 3, 4], &[]] {
            let refused = ConcatEncoder::new(code.clone(), shape).unwrap_err();
            assert_eq!(refused.field, "encoder", "{shape:?}");
        }
    }

    /// The cell of `slot` by the definition: pixels weigh as the cell's pixel covers them.
    fn cell_by_definition(
        image: &[f32],
        [height, width]: [usize; 2],
        [rows, columns]: [usize; 2],
    ) -> Vec<f32> {
        let covered = |source: usize, factor: f64, cell: usize| {
            let (from, to) = (cell as f64 * factor, (cell + 1) as f64 * factor);
            (to.min(source as f64 + 1.0) - from.max(source as f64)).max(0.0)
        };
        let (down, across) = (height as f64 / rows as f64, width as f64 / columns as f64);
        let at = |row: usize, column: usize| {
            let span = |cell: usize, factor: f64, end: usize| {
                (cell as f64 * factor) as usize
                    ..(((cell + 1) as f64 * factor).ceil() as usize).min(end)
            };
            let mut sum = 0.0;
            for y in span(row, down, height) {
                for x in span(column, across, width) {
                    sum += f64::from(image[y * width + x])
                        * covered(y, down, row)
                        * covered(x, across, column);
                }
            }
            (sum / (down * across)) as f32
        };
        (0..rows)
            .flat_map(|row| (0..columns).map(move |column| (row, column)))
            .map(|(r, c)| at(r, c))
            .collect()
    }

    /// Every k with a grid of its own, on sizes that divide evenly and on sizes that do not.
    #[test]
    fn every_k_on_usual_and_odd_sizes() {
        for k in 2usize..=10 {
            for shape in [
                [1, 28, 28],
                [3, 32, 32],
                [1, 29, 31],
                [3, 27, 33],
                [3, 224, 224],
                [1, 224, 224],
                [3, 9, 224],
                [1, 6, 1501],
            ] {
                let [channels, height, width] = shape;
                let encoder = encoder(k, &shape);
                let plane = height * width;
                let queries: Vec<Vec<f32>> = (0..k)
                    .map(|slot| {
                        (0..channels * plane)
                            .map(|i| ((i * 37 + slot * 11) % 101) as f32 / 50.0 - 1.0)
                            .collect()
                    })
                    .collect();
                let views: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
                let mut parity = vec![f32::NAN; channels * plane];
                encoder.encode(0, &views, &mut parity).unwrap();
                let mut expected = vec![0.0; channels * plane];
                let cell = [encoder.cell_height, encoder.cell_width];
                for (slot, query) in queries.iter().enumerate() {
                    let (top, left) = (
                        slot / encoder.grid_columns * cell[0],
                        slot % encoder.grid_columns * cell[1],
                    );
                    for channel in 0..channels {
                        let image = &query[channel * plane..(channel + 1) * plane];
                        let shrunk = cell_by_definition(image, [height, width], cell);
                        for (row, values) in shrunk.chunks(cell[1]).enumerate() {
                            let at = channel * plane + (top + row) * width + left;
                            expected[at..at + cell[1]].copy_from_slice(values);
                        }
                    }
                }
                for (i, (value, expected)) in parity.iter().zip(&expected).enumerate() {
                    assert!(
                        (value - expected).abs() < 1e-4,
                        "k = {k}, {shape:?}, {i}: {value}, {expected}"
                    );
                }
            }
        }
    }

    proptest! {
        /// Area averaging keeps the mean: a constant image's cell is that constant.
        #[test]
        fn every_cell_holds_its_own_image(
            k in 2usize..=9,
            channels in 1usize..3,
            height in 3usize..40,
            width in 3usize..40,
            batch in 1usize..3,
        ) {
            let encoder = encoder(k, &[channels, height, width]);
            let len = batch * channels * height * width;
            let queries: Vec<Vec<f32>> = (0..k).map(|slot| vec![slot as f32 + 1.0; len]).collect();
            let views: Vec<&[f32]> = queries.iter().map(Vec::as_slice).collect();
            let mut parity = vec![f32::NAN; len];
            encoder.encode(0, &views, &mut parity).unwrap();
            for plane in parity.chunks(height * width) {
                for slot in 0..k {
                    let top = slot / encoder.grid_columns * encoder.cell_height;
                    let left = slot % encoder.grid_columns * encoder.cell_width;
                    for row in top..top + encoder.cell_height {
                        for column in left..left + encoder.cell_width {
                            let value = plane[row * width + column];
                            prop_assert!(
                                (value - (slot as f32 + 1.0)).abs() < 1e-4,
                                "slot {slot}: {value}"
                            );
                        }
                    }
                }
            }
            prop_assert!(parity.iter().all(|value| value.is_finite()));
        }
    }
}

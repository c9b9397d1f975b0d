//! Labelled rows of few features each.

/// Labelled sparse rows, one after the other in three vectors. The last feature of each row
/// is the intercept.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rows {
    /// Where each row ends.
    ends: Vec<usize>,
    features: Vec<u32>,
    values: Vec<f32>,
    labels: Vec<bool>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row<'a> {
    /// Features that are not 0, each once.
    pub(crate) features: &'a [u32],
    pub(crate) values: &'a [f32],
    pub(crate) label: bool,
}

impl Rows {
    /// Appends a row. Each feature may be named once.
    pub(crate) fn push(&mut self, label: bool, features: impl IntoIterator<Item = (u32, f32)>) {
        for (feature, value) in features {
            self.features.push(feature);
            self.values.push(value);
        }
        self.ends.push(self.features.len());
        self.labels.push(label);
    }

    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns the number of values that are not 0, in all rows.
    pub(crate) fn non_zeros(&self) -> usize {
        self.features.len()
    }

    /// The row at `place`, if there is one.
    pub(crate) fn get(&self, place: usize) -> Option<Row<'_>> {
        let start = match place.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        let range = start..*self.ends.get(place)?;
        Some(Row {
            features: self.features.get(range.clone())?,
            values: self.values.get(range)?,
            label: *self.labels.get(place)?,
        })
    }

    /// All rows in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.len()).filter_map(|place| self.get(place))
    }

    /// The classes of all rows.
    pub(crate) fn labels(&self) -> &[bool] {
        &self.labels
    }
}

//! Tables of aligned plain text.

use std::fmt::{self, Display, Formatter};

/// A table whose first column is aligned left and whose others are aligned right.
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new<'a>(header: impl IntoIterator<Item = &'a str>) -> Self {
        Self(vec![header.into_iter().map(str::to_owned).collect()])
    }

    pub(crate) fn row(&mut self, name: impl Display, cells: impl IntoIterator<Item = String>) {
        let name = std::iter::once(name.to_string());
        self.0.push(name.chain(cells).collect());
    }
}

impl Display for Table {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        for row in &self.0 {
            for (column, cell) in row.iter().enumerate() {
                let width = width(column);
                match column {
                    0 => write!(out, "{cell:<width$}")?,
                    _ => write!(out, "  {cell:>width$}")?,
                }
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A share in percent, or a dash.
pub(crate) fn percent(share: Option<f64>) -> String {
    match share.map(|share| 100.0 * share) {
        None => "-".to_owned(),
        Some(small) if small > 0.0 && small < 0.1 => format!("{small:.3} %"),
        Some(percent) => format!("{percent:.2} %"),
    }
}

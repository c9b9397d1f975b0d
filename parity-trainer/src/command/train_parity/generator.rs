//! Coefficients of a weighted sum, as `--generator` takes them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Rows of coefficients, as a flag has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Generator(pub(super) Vec<Vec<f32>>);

impl FromStr for Generator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let coefficient = |text: &str| match text.trim().parse::<f32>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(format!("{text:?} is no coefficient; write rows such as `1,1;1,-0.5`")),
        };
        let row = |row: &str| row.split(',').map(coefficient).collect();
        Ok(Self(text.split(';').map(row).collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_is_rows_of_coefficients() {
        let rows = "1,1; 1,-0.5".parse();
        assert_eq!(rows, Ok(Generator(vec![vec![1.0, 1.0], vec![1.0, -0.5]])));
        for text in ["", "1,", "1;;1", "1,nan", "a,b"] {
            let error = text.parse::<Generator>().unwrap_err();
            assert!(error.contains("is no coefficient"), "{text}");
        }
    }
}

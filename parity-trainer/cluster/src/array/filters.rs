//! The filters of an array, written down.

use std::fmt;
use std::str::FromStr;

use parapet_parameter_server::{ArrayFilters, Precision};
use serde::{Deserialize, Serialize};

/// Filters of the messages about a dense array, as `lz4`, `bf16` or `f16`, or `lz4` and one of the
/// others. By default, nothing does.
///
/// Others fit no training: all of its rows are pushed, so that there are no lists of keys; and a
/// row that is left out of a push would fall behind in its learning rate and Adam's corrections,
/// which go by how often it was updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FilterSpec {
    pub lz4: bool,
    /// The format of what is pushed. What rounding leaves is added to the next push.
    pub precision: Precision,
}

impl FilterSpec {
    /// Messages go as they are.
    pub const NONE: Self = Self {
        lz4: false,
        precision: Precision::F32,
    };

    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns true if pushes carry other numbers than they were given.
    pub fn is_lossy(self) -> bool {
        self.precision != Precision::F32
    }
}

impl From<FilterSpec> for ArrayFilters {
    fn from(FilterSpec { lz4, precision }: FilterSpec) -> Self {
        Self {
            lz4,
            precision,
            ..Self::default()
        }
    }
}

/// The ways to write filters.
const NAMES: [(&str, FilterSpec); 6] = {
    const fn spec(lz4: bool, precision: Precision) -> FilterSpec {
        FilterSpec { lz4, precision }
    }
    [
        ("none", FilterSpec::NONE),
        ("lz4", spec(true, Precision::F32)),
        ("bf16", spec(false, Precision::Bf16)),
        ("f16", spec(false, Precision::F16)),
        ("lz4,bf16", spec(true, Precision::Bf16)),
        ("lz4,f16", spec(true, Precision::F16)),
    ]
};

impl fmt::Display for FilterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMES.iter().find(|(_, spec)| spec == self);
        f.write_str(named.map_or("none", |(name, _)| name))
    }
}

impl FromStr for FilterSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // In the order of the names, in which lz4 comes first.
        let mut parts: Vec<&str> = text.split(',').map(str::trim).collect();
        parts.sort_unstable_by(|a, b| b.cmp(a));
        let parts = parts.join(",");
        let named = NAMES.iter().find(|(name, _)| *name == parts);
        let unknown = || format!("{text:?} is no filter: write none, lz4, bf16, f16 or lz4,bf16");
        named.map(|&(_, spec)| spec).ok_or_else(unknown)
    }
}

impl TryFrom<String> for FilterSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<FilterSpec> for String {
    fn from(spec: FilterSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_read_back_and_a_mistake_is_shown_how_to_mend() {
        for text in ["none", "lz4", "bf16", "f16", "lz4,bf16", "lz4,f16"] {
            let spec: Result<FilterSpec, String> = text.parse();
            assert_eq!(spec.map(|spec| spec.to_string()), Ok(text.to_owned()));
        }
        let spec = |text: &str| text.parse::<FilterSpec>();
        assert_eq!(
            spec(" bf16, lz4"),
            Ok(FilterSpec {
                lz4: true,
                precision: Precision::Bf16
            })
        );
        for text in ["", "zstd", "lz4,", "none,lz4", "bf16,f16"] {
            let error = spec(text).err();
            assert!(
                error.as_ref().is_some_and(|error| error.contains("write")),
                "{text}: {error:?}"
            );
        }
    }
}

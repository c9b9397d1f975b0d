//! Description of an array and its filters, written down.

use std::fmt;
use std::str::FromStr;

use parapet_parameter_server::{
    ArrayConfig, ArrayFilters, ArrayId, ClientArray, Consistency, Layout, Precision, RuleSpec,
};
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// An array, as its servers and workers have to know it: the description in its registry entry, as
/// TOML, whose floats read back to the last bit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ArraySpec {
    pub width: usize,
    /// True if rows are there only once they have been updated.
    #[serde(default)]
    pub sparse: bool,
    pub rule: RuleSpec,
    pub consistency: Consistency,
    #[serde(default, skip_serializing_if = "FilterSpec::is_none")]
    pub filters: FilterSpec,
}

impl ArraySpec {
    pub fn parse(array: ArrayId, description: &str) -> Result<Self, String> {
        toml::from_str(description)
            .map_err(|error| Self::unreadable(array, description, error.message()))
    }

    /// Returns the text that is kept in the registry.
    ///
    /// # Errors
    /// If it does not read back as it is: a number is none.
    pub fn describe(&self, array: ArrayId) -> Result<String, String> {
        let text = toml::to_string(self)
            .map_err(|error| Self::unreadable(array, "", &error.to_string()))?;
        match Self::parse(array, &text)? == *self {
            true => Ok(text),
            false => Err(Self::unreadable(array, &text, "a number is not finite")),
        }
    }

    /// One line, whatever the description.
    fn unreadable(array: ArrayId, description: &str, cause: &str) -> String {
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (description, cause) = (line(description), line(cause));
        format!(
            "{array} is described as `{description}`, which this version does not know ({cause}): \
                run one version on all nodes"
        )
    }

    pub fn server(&self) -> ArrayConfig {
        let layout =
            Layout { width: self.width.max(1), sparse: self.sparse, rule: self.rule.rule() };
        ArrayConfig { layout, consistency: self.consistency }
    }

    pub fn client(&self) -> ClientArray {
        ClientArray { width: self.width.max(1), consistency: self.consistency }
    }
}

/// Filters of the messages about a dense array, as `lz4`, `bf16` or `f16`, or `lz4` and one of the
/// others. By default, nothing does.
///
/// Others fit no training: all of its rows are pushed, so that there are no lists of keys; and a
/// row that is left out of a push would fall behind in its learning rate and Adam's corrections,
/// which go by how often it was updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, SerializeDisplay, DeserializeFromStr)]
pub struct FilterSpec {
    pub lz4: bool,
    /// The format of what is pushed. What rounding leaves is added to the next push.
    pub precision: Precision,
}

impl FilterSpec {
    /// Messages go as they are.
    pub const NONE: Self = Self { lz4: false, precision: Precision::F32 };

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
        Self { lz4, precision, ..Self::default() }
    }
}

const NAMES: [(&str, bool, Precision); 6] = [
    ("none", false, Precision::F32),
    ("lz4", true, Precision::F32),
    ("bf16", false, Precision::Bf16),
    ("f16", false, Precision::F16),
    ("lz4,bf16", true, Precision::Bf16),
    ("lz4,f16", true, Precision::F16),
];

impl fmt::Display for FilterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = NAMES.iter();
        let named = names.find(|&&(_, lz4, precision)| *self == Self { lz4, precision });
        f.write_str(named.map_or("none", |(name, ..)| name))
    }
}

impl FromStr for FilterSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // In the order of the names, in which lz4 comes first.
        let mut parts: Vec<&str> = text.split(',').map(str::trim).collect();
        parts.sort_unstable_by(|a, b| b.cmp(a));
        let parts = parts.join(",");
        let named = NAMES.iter().find(|(name, ..)| *name == parts);
        let spec = named.map(|&(_, lz4, precision)| Self { lz4, precision });
        let unknown = || format!("{text:?} is no filter: write none, lz4, bf16, f16 or lz4,bf16");
        spec.ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use parapet_parameter_server::Sgd;

    use super::*;

    #[test]
    fn a_description_reads_back_and_a_bad_one_says_what_is_wrong() {
        let rule = RuleSpec::Sgd(Sgd { rate: 0.1, decay: 0.5 });
        let consistency = Consistency::Ssp(2);
        let filters = FilterSpec { lz4: true, ..FilterSpec::default() };
        let spec = ArraySpec { width: 3, sparse: true, rule, consistency, filters };
        let text = spec.describe(ArrayId(4)).unwrap();
        assert_eq!(ArraySpec::parse(ArrayId(4), &text).unwrap(), spec);
        let error = ArraySpec::parse(ArrayId(4), "width = 3\n").unwrap_err();
        assert!(error.starts_with("array 4 is described as") && !error.contains('\n'), "{error}");
        let rule = RuleSpec::Sgd(Sgd { rate: f32::NAN, decay: 0.0 });
        assert!(ArraySpec { rule, ..spec }.describe(ArrayId(4)).is_err());
    }

    #[test]
    fn filters_read_back_and_a_mistake_is_shown_how_to_mend() {
        for text in ["none", "lz4", "bf16", "f16", "lz4,bf16", "lz4,f16"] {
            let spec: Result<FilterSpec, String> = text.parse();
            assert_eq!(spec.map(|spec| spec.to_string()), Ok(text.to_owned()));
        }
        let spec = |text: &str| text.parse::<FilterSpec>();
        assert_eq!(spec(" bf16, lz4"), Ok(FilterSpec { lz4: true, precision: Precision::Bf16 }));
        for text in ["", "zstd", "lz4,", "none,lz4", "bf16,f16"] {
            let error = spec(text).err();
            assert!(
                error.as_ref().is_some_and(|error| error.contains("write")),
                "{text}: {error:?}"
            );
        }
    }
}

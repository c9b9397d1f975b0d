//! Description of an array, written down.

use parapet_parameter_server::{ArrayConfig, ArrayId, ClientArray, Consistency, Layout, RuleSpec};
use serde::{Deserialize, Serialize};

mod filters;

pub use filters::FilterSpec;

/// An array, as its servers and workers have to know it: the description in its registry entry, as
/// TOML, whose floats read back to the last bit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ArraySpec {
    /// Numbers in a row.
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
    /// The description of `array` that this reads.
    ///
    /// # Errors
    /// If it is not understood.
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

    /// For a server.
    pub fn server(&self) -> ArrayConfig {
        let layout = Layout {
            width: self.width.max(1),
            sparse: self.sparse,
            rule: self.rule.rule(),
        };
        ArrayConfig {
            layout,
            consistency: self.consistency,
        }
    }

    /// For a worker.
    pub fn client(&self) -> ClientArray {
        ClientArray {
            width: self.width.max(1),
            consistency: self.consistency,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use parapet_parameter_server::Sgd;

    use super::*;

    #[test]
    fn a_description_reads_back_and_a_bad_one_says_what_is_wrong() {
        let rule = RuleSpec::Sgd(Sgd {
            rate: 0.1,
            decay: 0.5,
        });
        let consistency = Consistency::Ssp(2);
        let filters = FilterSpec {
            lz4: true,
            ..FilterSpec::default()
        };
        let spec = ArraySpec {
            width: 3,
            sparse: true,
            rule,
            consistency,
            filters,
        };
        let text = spec.describe(ArrayId(4)).unwrap();
        assert_eq!(ArraySpec::parse(ArrayId(4), &text).unwrap(), spec);
        let error = ArraySpec::parse(ArrayId(4), "width = 3\n").unwrap_err();
        assert!(
            error.starts_with("array 4 is described as") && !error.contains('\n'),
            "{error}"
        );
        let rule = RuleSpec::Sgd(Sgd {
            rate: f32::NAN,
            decay: 0.0,
        });
        assert!(ArraySpec { rule, ..spec }.describe(ArrayId(4)).is_err());
    }
}

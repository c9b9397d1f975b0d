//! Place in the configuration file, for messages.

use std::path::Path;
use std::time::Duration;

use parapet_config::repository::RepositoryError;
use parapet_frontend_core::SettingError;

use super::ConfigError;

/// Where in the file one is, for messages.
pub(super) struct At<'a> {
    pub(super) path: &'a Path,
    pub(super) prefix: String,
}

impl<'a> At<'a> {
    /// A table in this one.
    pub(super) fn inside(&self, field: &str) -> At<'a> {
        At {
            path: self.path,
            prefix: format!("{}.{field}", self.prefix),
        }
    }

    pub(super) fn field(
        &self,
        field: &str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        ConfigError::Field {
            path: self.path.to_owned(),
            field: format!("{}.{field}", self.prefix),
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    /// A setting that the engine refuses.
    pub(super) fn refused(&self, setting: SettingError) -> ConfigError {
        self.field(&setting.field, setting.problem, setting.fix)
    }

    pub(super) fn repository(&self, field: &str, source: RepositoryError) -> ConfigError {
        ConfigError::Repository {
            path: self.path.to_owned(),
            field: format!("{}.{field}", self.prefix),
            source: Box::new(source),
        }
    }

    pub(super) fn at_least_one(&self, field: &str, value: usize) -> Result<(), ConfigError> {
        if value == 0 {
            return Err(self.field(field, "0", "give at least 1"));
        }
        Ok(())
    }

    pub(super) fn share(&self, field: &str, value: f64) -> Result<(), ConfigError> {
        if !(0.0..=16.0).contains(&value) {
            return Err(self.field(
                field,
                format!("{value}"),
                "give a share of the queries, 0 to 16",
            ));
        }
        Ok(())
    }

    pub(super) fn positive(&self, field: &str, value: Duration) -> Result<(), ConfigError> {
        if value.is_zero() {
            return Err(self.field(field, "0", "give a time in milliseconds above 0"));
        }
        Ok(())
    }
}

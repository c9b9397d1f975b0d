//! Comparison of the configured code with the one that an entry was trained for.

use std::path::Path;

use parapet_config::repository::{CodeMetadata, ModelEntry};
use parapet_encoder::{CodeSpec, EncoderKind};

use crate::config::ConfigError;
use crate::config::at::At;

/// Holds what an entry's `[code]` says against the deployed model, the code asked for, and the row.
pub(super) fn check_trained_for(
    at: &At<'_>,
    toml: &Path,
    deployed: &ModelEntry,
    asked: &CodeSpec,
    row: usize,
    code: &CodeMetadata,
) -> Result<(), ConfigError> {
    let quoted = |encoder: EncoderKind| format!("\"{encoder}\"");
    let compared = [
        ("deployed", deployed.name.clone(), code.deployed.clone()),
        ("row", row.to_string(), code.row.to_string()),
        ("encoder", quoted(asked.encoder), quoted(code.spec.encoder)),
        ("k", asked.k.to_string(), code.spec.k.to_string()),
        ("r", asked.r.to_string(), code.spec.r.to_string()),
    ];
    match compared
        .into_iter()
        .find(|(_, asked, trained)| asked != trained)
    {
        None => Ok(()),
        Some((what, asked, trained)) => Err(at.field(
            "model",
            format!(
                "{what} = {asked} here, and code.{what} = {trained} in {}",
                toml.display()
            ),
            format!("set {what} = {trained}, or name a model trained for {asked}"),
        )),
    }
}

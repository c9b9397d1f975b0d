//! `[models.strategy]` and `[models.classes.strategy]` as they are written: the strategy's own
//! settings, and the models and instances that serve it here.

use parapet_encoder::EncoderKind;
use parapet_frontend_core::StrategyConfig;
use parapet_net::tls::ClientSettings;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use crate::config::instances::Instances;
use crate::config::pool::default_slots;

#[derive(Debug, Default)]
pub(in crate::config) struct Strategy {
    pub(super) settings: StrategyConfig,
    pub(super) models: Models,
}

/// Models and instances of a strategy, beside its own settings in the same table.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Models {
    pub(super) encoder: Option<EncoderKind>,
    /// The backup model, or the entry of a learned code.
    pub(super) model: Option<String>,
    pub(super) version: Option<u64>,
    pub(super) instances: Option<Instances>,
    pub(super) tls: Option<ClientSettings>,
    pub(super) slots_per_instance: Option<u32>,
    pub(super) max_queue: Option<usize>,
    /// For a learned code.
    pub(super) max_coding_queue: Option<usize>,
    /// None for a code without parity models.
    pub(super) parity: Vec<Parity>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parity {
    pub(super) model: String,
    pub(super) version: Option<u64>,
    pub(super) instances: Instances,
    pub(super) tls: Option<ClientSettings>,
    #[serde(default = "default_slots")]
    pub(super) slots_per_instance: u32,
    #[serde(default = "max_redundant_queue")]
    pub(super) max_queue: usize,
}

/// Fields of [`Models`] that a strategy of this kind may have.
fn fields_of_models(kind: &str) -> &'static [&'static str] {
    match kind {
        "approximate_backup" => &[
            "model",
            "version",
            "instances",
            "tls",
            "slots_per_instance",
            "max_queue",
        ],
        "coded" | "coded_hedged" => &["encoder", "model", "version", "max_coding_queue", "parity"],
        _ => &[],
    }
}

impl<'de> Deserialize<'de> for Strategy {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut settings = Table::deserialize(from)?;
        let kind = settings.get("kind").and_then(Value::as_str);
        let mut models = Table::new();
        for name in fields_of_models(kind.unwrap_or_default()) {
            models.extend(settings.remove_entry(*name));
        }
        // The message, and the place that a second line names.
        let custom = |error: toml::de::Error| {
            D::Error::custom(error.to_string().trim_end().replace('\n', ", "))
        };
        Ok(Self {
            settings: Value::Table(settings).try_into().map_err(custom)?,
            models: Value::Table(models).try_into().map_err(custom)?,
        })
    }
}

pub(super) const fn max_redundant_queue() -> usize {
    16
}

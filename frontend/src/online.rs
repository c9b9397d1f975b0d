//! Instances asked before a model is served: what it takes and gives, where no repository says so,
//! and whether they fit what does.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use parapet_config::repository::ModelEntry;
use parapet_frontend_core::{InstanceId, PoolId};
use tokio::time::{sleep, timeout};

use crate::config::{ModelConfig, PoolSettings};
use crate::upstream::{Instances, Transport as _, Unready};

/// Instances that are asked at the same time.
const AT_ONCE: usize = 16;
/// Time until a backend has to name instances to `--check --online`.
const FIND_WITHIN: Duration = Duration::from_secs(5);

/// The entry of a model that is in no repository, from the first of its instances that describes
/// it. Those that do not yet are asked again, for up to `wait`.
///
/// # Errors
/// One line with the fix: none of them answered, or the model cannot be served.
pub(crate) async fn describe(config: &ModelConfig, wait: Duration) -> Result<ModelEntry, String> {
    let (model, health) = (&config.entry.name, &config.settings.health);
    let listed: Vec<&str> = config.pool.instances.iter().map(|(name, _)| name.as_str()).collect();
    tracing::info!(model, instances = ?listed,
        "the model is not in the repository; its instances are asked what it takes and gives");
    let transport = Instances::new(config);
    let mut last = "no instance was found".to_owned();
    let asking = async {
        loop {
            let found = find(PoolId::DEPLOYED, model, &config.pool, &transport).await;
            let ask = async |(instance, name): (InstanceId, String)| {
                (name, within(health.timeout, transport.metadata(instance)).await)
            };
            let mut asked = stream::iter(found.into_iter().map(ask)).buffered(AT_ONCE);
            while let Some((name, asked)) = asked.next().await {
                match asked {
                    Ok(metadata) => return (name, metadata),
                    Err(unready) => last = format!("{name}: {unready}"),
                }
            }
            sleep(health.interval).await;
        }
    };
    let Ok((instance, metadata)) = timeout(wait, asking).await else {
        return Err(format!(
            "none of them answered GET /v2/models/{model} within {} s ({last}); start them, or \
             describe the model in {model}/model.toml of the repository",
            wait.as_secs()
        ));
    };
    tracing::info!(model, %instance, "the model is as this instance describes it");
    let source = format!("{instance}/v2/models/{model}");
    config.entry.clone().described(&metadata, &source).map_err(|error| error.to_string())
}

/// Instances of a pool with their names: those listed, or those of the first answer of its backend.
async fn find(
    pool: PoolId,
    label: &str,
    settings: &PoolSettings,
    transport: &Instances,
) -> Vec<(InstanceId, String)> {
    let ids = (0u32..).map(|index| InstanceId { pool, index });
    let Some(discovery) = &settings.discovery else {
        return ids.zip(settings.instances.iter().map(|(name, _)| name.clone())).collect();
    };
    let mut view = discovery.follow(label.to_owned());
    let found = view.wait_for(|view| view.is_current).await;
    let places = found.map(|view| view.addresses.clone()).unwrap_or_default();
    ids.zip(places).map(|(id, place)| (id, transport.join(id, &place))).collect()
}

async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, Unready>>,
) -> Result<T, Unready> {
    timeout(limit, asked).await.unwrap_or(Err(Unready::TooLate(limit)))
}

/// Asks every instance of a model once if it is ready and fits. Each has its name, model and pool.
pub async fn check(config: &ModelConfig) -> Vec<(String, Result<(), String>)> {
    let (transport, limit) = (Instances::new(config), config.settings.health.timeout);
    let mut checked = Vec::new();
    let pools = (0u8..).map(PoolId).zip(config.pools()).zip(config.pool_labels());
    for ((pool, settings), label) in pools {
        let label = format!("{} {label}", config.entry.name);
        let found = timeout(FIND_WITHIN, find(pool, &label, settings, &transport)).await;
        let found = found.unwrap_or_default();
        if found.is_empty() {
            checked.push((label, Err("no instance was found".to_owned())));
            continue;
        }
        let ask = async |(instance, name): (InstanceId, String)| {
            let ready = within(limit, transport.ready(instance)).await;
            (format!("{label} {name}"), ready.map_err(|unready| unready.to_string()))
        };
        let asked = stream::iter(found.into_iter().map(ask)).buffered(AT_ONCE);
        checked.extend(asked.collect::<Vec<_>>().await);
    }
    checked
}

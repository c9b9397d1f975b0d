//! A whole training: servers, workers, and what came of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parapet_cluster::node::{TaskError, TaskSpec, Worker};
use parapet_parameter_server::{
    ArrayFilters, Clock, Consistency, FilterError, Ftrl, Key, KeyRange, Keys, Kkt, Layout,
    PushFilter,
};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use crate::cluster::StartError;
use crate::data::DataSet;
use crate::worker::{Tally, WorkerRun};
use crate::{ARRAY, Batches, Cluster, ClusterSettings, Place, Score, logistic};

/// Weights that are read at once when the model is judged.
const READ: u64 = 1 << 20;

/// Bytes of a key, a number, and the digest of a list of keys with its length.
const KEY: u64 = size_of::<Key>() as u64;
const NUMBER: u64 = size_of::<f32>() as u64;
const DIGEST: u64 = 24;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TrainSettings {
    /// Workers, at least 1.
    pub(crate) workers: usize,
    /// Servers, at least 1.
    pub(crate) servers: usize,
    /// Servers that hold each range.
    pub(crate) replicas: usize,
    /// Consistency model of the workers.
    pub(crate) consistency: Consistency,
    /// Rows of a minibatch, at least 1.
    pub(crate) batch: usize,
    /// Number of passes over all rows.
    pub(crate) passes: usize,
    /// The servers' update. Its gradients are sums over minibatches, so that the penalty weighs
    /// against the sum over all rows, whatever the size of a minibatch.
    pub(crate) ftrl: Ftrl,
    pub(crate) kkt: Option<Kkt>,
    /// True if a list of keys is sent once, then its digest.
    pub(crate) key_lists: bool,
    /// The order of rows.
    pub(crate) seed: u64,
}

/// Bytes of keys and values in all messages between workers and servers, without the frames around
/// them; what goes from server to server is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Payload {
    /// Keys that workers ask for.
    pub(crate) asked: u64,
    /// Weights that they get, and the keys beside them.
    pub(crate) answered: u64,
    /// Gradients that they push, and their keys.
    pub(crate) pushed: u64,
    /// Rows of gradients before the KKT filter.
    pub(crate) rows: u64,
    /// Rows of gradients after it.
    pub(crate) rows_sent: u64,
    #[serde(skip)]
    lists: Lists,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Lists {
    /// Digests in the place of a list that the other end has: one for each server.
    digests: Option<u64>,
    /// True if the server that takes pushes is the one that was asked.
    pushes_where_it_pulls: bool,
}

impl Payload {
    fn new(settings: &TrainSettings) -> Self {
        let digests = settings
            .key_lists
            .then_some(DIGEST * settings.servers as u64);
        let lists = Lists {
            digests,
            pushes_where_it_pulls: settings.replicas <= 1,
        };
        Self {
            lists,
            ..Self::default()
        }
    }

    /// A minibatch whose pull and push name so many keys.
    pub(crate) fn count(&mut self, pulled: usize, pushed: usize) {
        let (pulled, sent) = (pulled as u64, pushed as u64);
        let list = |keys: u64, known: bool| match self.lists.digests {
            Some(digests) if known => digests.min(keys * KEY),
            _ => keys * KEY,
        };
        self.asked += list(pulled, false);
        self.answered += pulled * NUMBER + list(pulled, true);
        self.pushed +=
            sent * NUMBER + list(sent, pulled == sent && self.lists.pushes_where_it_pulls);
        self.rows += pulled;
        self.rows_sent += sent;
    }

    /// All of it.
    pub(crate) const fn total(&self) -> u64 {
        self.asked + self.answered + self.pushed
    }

    fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.answered += other.answered;
        self.pushed += other.pushed;
        self.rows += other.rows;
        self.rows_sent += other.rows_sent;
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TrainingOutcome {
    /// On the held-out rows.
    pub(crate) score: Score,
    /// Rows that were learned from, as often as they were.
    pub(crate) rows: usize,
    /// The mean loss of those rows, each before its minibatch was learned from (progressive
    /// validation).
    pub(crate) progressive_loss: f64,
    /// Weights that are not 0.
    pub(crate) non_zero: usize,
    pub(crate) weights: u64,
    /// From the first minibatch to the last acknowledgement.
    pub(crate) seconds: f64,
    /// The workers' time in which they waited for servers, as a share.
    pub(crate) idle: f64,
    pub(crate) payload: Payload,
    /// True if it was ended before its time.
    pub(crate) stopped: bool,
    /// The model: weights that are not 0, by key.
    #[serde(skip)]
    pub(crate) model: Vec<(Key, f32)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TrainError {
    /// There are no servers.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A push or a pull failed.
    #[error("{0}")]
    Task(#[from] TaskError),
    /// A gradient is none.
    #[error("{0}")]
    Filter(#[from] FilterError),
    /// A worker ended by itself.
    #[error("a worker ended in the middle of its work: {0}")]
    Worker(#[from] JoinError),
}

/// Trains until all is learned or `stop` says so. `learned` is told of each minibatch: its rows and
/// the sum of their losses before the update. To be called within a runtime of several threads.
///
/// # Errors
/// [`TrainError`].
pub(crate) async fn train<T: Place>(
    data: Arc<DataSet>,
    settings: TrainSettings,
    transport: T,
    stop: watch::Receiver<bool>,
    learned: impl Fn(usize, f64) + Clone + Send + 'static,
) -> Result<TrainingOutcome, TrainError> {
    let keys = data.keys();
    let cluster = Cluster::start(
        ClusterSettings {
            servers: settings.servers.max(1) as u64,
            replicas: settings.replicas as u64,
            workers: settings.workers.max(1) as u64,
            keys,
            layout: Layout::sparse(1, settings.ftrl),
            consistency: settings.consistency,
            key_lists: settings.key_lists,
        },
        transport,
    )
    .await?;
    let begun = Instant::now();
    let (quit, quits) = watch::channel(false);
    let mut workers = JoinSet::new();
    for number in 0..settings.workers.max(1) {
        let (worker, data) = (cluster.worker(number as u64), Arc::clone(&data));
        let (quits, learned) = (quits.clone(), learned.clone());
        let runtime = Handle::current();
        // A thread of its own: it computes for longer than others' tasks should wait.
        workers.spawn_blocking(move || {
            let run = run_of(number, worker, &data, &settings, quits);
            runtime.block_on(run.run(learned))
        });
    }
    let tallies = tallies(workers, &quit, stop).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let model = read(&cluster.reader(), keys).await?;
    Ok(outcome(&data, &tallies, model, seconds))
}

/// Waits for all workers. The others quit when one fails, as they would wait for its clock.
async fn tallies(
    mut workers: JoinSet<Result<Tally, TrainError>>,
    quit: &watch::Sender<bool>,
    mut stop: watch::Receiver<bool>,
) -> Result<Vec<Tally>, TrainError> {
    let (mut tallies, mut failed) = (Vec::new(), Ok(()));
    loop {
        let ended = tokio::select! {
            ended = workers.join_next() => ended,
            _ = stop.wait_for(|stop| *stop), if !*quit.borrow() => {
                quit.send_replace(true);
                continue;
            }
        };
        let Some(ended) = ended else {
            return failed.map(|()| tallies);
        };
        match ended.map_err(TrainError::from).flatten() {
            Ok(tally) => tallies.push(tally),
            Err(error) => {
                quit.send_replace(true);
                failed = failed.and(Err(error));
            }
        }
    }
}

fn run_of<'a>(
    number: usize,
    worker: Worker,
    data: &'a DataSet,
    settings: &TrainSettings,
    stop: watch::Receiver<bool>,
) -> WorkerRun<'a> {
    let filters = ArrayFilters {
        kkt: settings.kkt,
        ..ArrayFilters::default()
    };
    WorkerRun {
        worker,
        keys: data.keys(),
        rows: &data.train,
        batches: Batches::new(
            data.train.len(),
            settings.batch.max(1),
            settings.workers.max(1),
            number,
            settings.passes,
            settings.seed,
        ),
        filter: PushFilter::new(ARRAY, 1, filters),
        payload: Payload::new(settings),
        stop,
    }
}

/// The weights that are not 0.
async fn read(reader: &Worker, keys: KeyRange) -> Result<Vec<(Key, f32)>, TaskError> {
    let mut model = Vec::new();
    for range in keys.cut(keys.len().div_ceil(READ)) {
        let pulled = reader
            .pull(TaskSpec::new(ARRAY, range, Clock(0)).keys(Keys::All))
            .await?
            .await?;
        let weights = (range.start..range.end).zip(pulled.values.iter().copied());
        model.extend(weights.filter(|&(_, weight)| weight != 0.0));
    }
    Ok(model)
}

fn outcome(
    data: &DataSet,
    tallies: &[Tally],
    model: Vec<(Key, f32)>,
    seconds: f64,
) -> TrainingOutcome {
    let weight = |feature: u32| {
        let place = model
            .binary_search_by_key(&Key::from(feature), |&(key, _)| key)
            .ok();
        place
            .and_then(|place| model.get(place))
            .map_or(0.0, |&(_, weight)| weight)
    };
    let predicted: Vec<f32> = data
        .held_out
        .iter()
        .map(|row| logistic::probability(row, weight))
        .collect();
    let rows: usize = tallies.iter().map(|tally| tally.rows).sum();
    let loss: f64 = tallies.iter().map(|tally| tally.loss).sum();
    let (idle, busy): (Duration, Duration) = (
        tallies.iter().map(|tally| tally.idle).sum(),
        tallies.iter().map(|tally| tally.busy).sum(),
    );
    let mut payload = Payload::default();
    tallies.iter().for_each(|tally| payload.add(&tally.payload));
    TrainingOutcome {
        score: Score::new(&predicted, data.held_out.labels()),
        rows,
        progressive_loss: loss / rows.max(1) as f64,
        non_zero: model.len(),
        weights: data.keys().len(),
        seconds,
        idle: idle.as_secs_f64() / (idle + busy).as_secs_f64().max(f64::MIN_POSITIVE),
        payload,
        stopped: tallies.iter().any(|tally| tally.stopped),
        model,
    }
}

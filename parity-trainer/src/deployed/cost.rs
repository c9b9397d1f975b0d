//! Time of a parity query beside that of a query.

use std::time::{Duration, Instant};

use super::model::FileModel;
use super::{Deployed, DeployedModel, OpenOptions};
use crate::Result;
use crate::network::{INPUT, OUTPUT};

/// Queries of a measurement, at least, and the time that further ones may take.
const QUERIES: usize = 15;
const TIME: Duration = Duration::from_millis(150);

/// Compares single queries by the engine that instances serve with, on one thread.
#[derive(Debug)]
pub struct QueryTimer {
    deployed: FileModel,
    sample: Vec<f32>,
}

impl QueryTimer {
    /// Opens the deployed model once more; `sample` is a whole sample as it takes them.
    pub fn new(deployed: &Deployed, options: &OpenOptions, sample: &[f32]) -> Result<Self> {
        let shape = deployed.model.input_shape();
        let options = OpenOptions { threads: 1, ..options.clone() };
        let model = match deployed.file.extension().is_some_and(|end| end == "onnx") {
            true => FileModel::open_onnx(&deployed.file, &options, shape)?.0,
            false => FileModel::open_script(&deployed.file, shape)?,
        };
        Ok(Self { deployed: model, sample: sample.to_vec() })
    }

    /// Returns the time of a query to a parity model taking parity queries of this shape over a
    /// query's: the least of queries in turns, which other work on the machine disturbs least.
    pub fn ratio(&self, onnx: &[u8], parity_shape: &[usize]) -> Result<f64> {
        let parity_model = FileModel::of_graph(onnx, [INPUT, OUTPUT], parity_shape)?;
        let samples = parity_shape.iter().product::<usize>() / self.sample.len().max(1);
        let parity_query = self.sample.repeat(samples);
        let (mut least, mut queries) = ([f64::INFINITY; 2], 0);
        let begun = Instant::now();
        while queries < QUERIES || begun.elapsed() < TIME {
            queries += 1;
            let models = [(&parity_model, &parity_query), (&self.deployed, &self.sample)];
            for (least, (model, query)) in least.iter_mut().zip(models) {
                let sent = Instant::now();
                model.infer(query)?;
                *least = least.min(sent.elapsed().as_secs_f64());
            }
        }
        Ok(least[0] / least[1])
    }
}

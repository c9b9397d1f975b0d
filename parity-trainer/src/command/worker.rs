//! `parity-trainer worker`: computes for whatever training the cluster has.

use std::io::Read as _;
use std::sync::Arc;

use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::command::RegistryArgs;
use parapet_cluster::roles::training::Job;
use parity_trainer::backend::{
    BackendError, ClusterHandle, ParameterBackend, ParameterSet, RemoteBackend,
};
use parity_trainer::{TrainError, Trainer};

use super::interrupt::Interrupt;
use super::train_parity::{SharedTask, prepare_shared};

/// Arguments of `worker`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    registry: RegistryArgs,
    /// End when the standard input does
    #[arg(long, hide = true)]
    attached: bool,
}

/// Takes part in one training after the other until a signal ends it.
pub(crate) fn run(args: &Args, threads: usize) -> Result<(), TrainError> {
    let interrupt = Interrupt::listen()?;
    interrupt.wait_for_step();
    if args.attached {
        std::thread::spawn(|| {
            let mut rest = [0; 64];
            while !matches!(std::io::stdin().read(&mut rest), Ok(0) | Err(_)) {}
            std::process::exit(0);
        });
    }
    let cluster = ClusterHandle::connect(&args.registry.registry)?;
    let mut last = None;
    while let Some(job) = cluster.next_job(last.as_ref(), &|| interrupt.is_asked())? {
        let what = job
            .task
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("# ")
            .to_owned();
        eprintln!("worker: takes part in {what}");
        match take_part(&cluster, &job, threads, &interrupt) {
            Ok(steps) => eprintln!("worker: {what} is over; {steps} steps were made meanwhile"),
            Err(error) => {
                let text = error.to_string();
                eprintln!(
                    "warning: cannot take part in {what}: {}",
                    text.lines().next().unwrap_or_default()
                );
                // Others compute meanwhile what this process could not; then it can.
                if matches!(
                    error,
                    TrainError::Backend(BackendError::Cluster(ClusterError::Apart { .. }))
                ) && !interrupt.is_asked()
                {
                    continue;
                }
            }
        }
        if interrupt.is_asked() {
            break;
        }
        // After an error the others go on without this process; the next training may suit it
        // better.
        last = Some(job);
    }
    Ok(())
}

/// Takes part in the training and returns the number of steps made meanwhile.
fn take_part(
    cluster: &ClusterHandle,
    job: &Job,
    threads: usize,
    interrupt: &Interrupt,
) -> Result<u64, TrainError> {
    let task = SharedTask::parse(&job.task)?;
    let (mut run, train, validation) = prepare_shared(&task, threads)?;
    // The process that leads the training validates.
    run.validate_every = u64::MAX;
    run.groups /= job.executors.len().max(1);
    let mut join = |weights: ParameterSet| -> Result<Box<dyn ParameterBackend>, BackendError> {
        Ok(Box::new(RemoteBackend::join(
            cluster.clone(),
            job.clone(),
            &weights,
        )?))
    };
    let mut trainer = Trainer::parity(run, Arc::clone(&train), Arc::clone(&validation), &mut join)?;
    let mut first = None;
    while !trainer.is_done() && !interrupt.is_asked() {
        match trainer.step() {
            Ok(report) => {
                first.get_or_insert(report.step as u64 - 1);
            }
            Err(TrainError::Backend(BackendError::Cluster(ClusterError::Ended))) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(trainer.steps_done() - first.unwrap_or(trainer.steps_done()))
}

//! `parity-trainer worker`: computes for whatever training the cluster has.

use std::io::Read as _;

use parapet_cluster::roles::ClusterError;
use parapet_cluster::roles::command::RegistryArgs;
use parapet_cluster::roles::training::Job;
use parity_trainer::backend::{BackendError, ClusterHandle, Place};
use parity_trainer::{TrainError, Trainer};

use super::interrupt::Interrupt;
use super::train_parity::SharedTask;

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
        let what = job.task.lines().next().unwrap_or_default().trim_start_matches("# ");
        eprintln!("worker: takes part in {what}");
        let taken = take_part(&cluster, &job, threads, &interrupt);
        let mut is_apart = false;
        match taken {
            Ok(steps) => eprintln!("worker: {what} is over; {steps} steps were made meanwhile"),
            Err(error) => {
                let problem = error.first_line();
                eprintln!("warning: cannot take part in {what}: {problem}");
                is_apart = matches!(
                    error,
                    TrainError::Backend(BackendError::Cluster(ClusterError::Apart { .. }))
                );
            }
        }
        if interrupt.is_asked() {
            break;
        }
        // After most errors the others go on without this process; the next training may suit it
        // better. Of one that was apart for a while they compute its parts, and then it can again.
        if !is_apart {
            last = Some(job);
        }
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
    let (mut run, (train, validation)) = SharedTask::parse(&job.task)?.prepare(threads)?;
    // The process that leads the training validates.
    run.validate_every = u64::MAX;
    let place = Place::Join(cluster.clone(), job.clone());
    let mut trainer = Trainer::parity(run, train, validation, place)?;
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

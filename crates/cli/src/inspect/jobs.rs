//! Jobs of ranks that share memory, from the memory that any of their processes has open.
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use shunt_pgas::view::{self, Row, Wait};

use super::processes::{self, Target};

/// The name of a job's memory.
const MEMORY: &str = "shunt-job";

/// A job, as one host's ranks tell it.
pub struct Job {
    /// The number of its memory, which no other job of this host has.
    pub number: u64,
    /// By rank.
    pub rows: Vec<Row>,
}

/// The job whose memory a process has open, if it may be looked at.
pub fn of(pid: u32) -> Option<Job> {
    let descriptors = processes::descriptors(pid).ok()?;
    let mut memories =
        descriptors.iter().filter(|descriptor| matches!(&descriptor.target, Target::Memory(name) if name == MEMORY));
    memories.find_map(|descriptor| {
        let file = processes::open(pid, descriptor.number).ok()?;
        let number = file.metadata().ok()?.ino();
        Some(Job { number, rows: view::read(&file).ok()? })
    })
}

/// The jobs of these processes, each once.
pub fn of_processes(pids: &[u32]) -> Vec<Job> {
    let jobs: BTreeMap<u64, Job> = pids.iter().filter_map(|pid| of(*pid)).map(|job| (job.number, job)).collect();
    jobs.into_values().collect()
}

/// How long a rank has waited, in seconds; none if it does not.
pub fn waited(row: &Row) -> Option<f64> {
    (row.wait != Wait::Nothing).then(|| now().saturating_sub(row.since) as f64 / 1e9)
}

fn now() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

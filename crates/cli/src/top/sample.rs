//! One look at everything.
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use shunt_segment::reason::Reason;

use crate::inspect::connection::{self, Connection};
use crate::inspect::jobs::{self, Job};
use crate::inspect::process_state::{State, Waited};
use crate::inspect::processes;
use crate::inspect::stations::{self, Stream};

/// What was so at one moment.
pub struct Sample {
    /// When.
    pub at: Instant,
    /// The same, in seconds since 1970.
    pub time: f64,
    /// The same, by the counter that programs count their waits by.
    pub ticks: u64,
    /// Connections that live.
    pub connections: Vec<Connection>,
    /// Those to other hosts.
    pub streams: Vec<Stream>,
    /// Processes under shunt.
    pub processes: Vec<Process>,
    /// Jobs of `shunt spmd`.
    pub jobs: Vec<Job>,
}

/// A process under shunt.
pub struct Process {
    pub pid: u32,
    pub program: String,
    /// Processor time so far, in seconds.
    pub cpu: f64,
    pub waited: Waited,
    pub reasons: Vec<(Reason, u64)>,
}

impl Sample {
    /// Looks now. What ends meanwhile is left out.
    pub fn take() -> Sample {
        let pids = processes::all();
        let mut connections = connection::of_processes(&pids);
        let streams = stations::of_processes(&pids, &mut connections).streams;
        connections.retain(|connection| !connection.ended);
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let processes = pids.iter().filter_map(|pid| Process::look(*pid, per_second)).collect();
        let ticks = shunt_sys::clock::ticks();
        let jobs = jobs::of_processes(&pids);
        Sample { at: Instant::now(), time, ticks, connections, streams, processes, jobs }
    }
}

impl Process {
    fn look(pid: u32, per_second: f64) -> Option<Process> {
        let descriptors = processes::descriptors(pid).ok()?;
        let state = State::find(pid, &descriptors).filter(|state| state.own)?;
        let cpu = processor_time(&std::fs::read(processes::path(pid, "stat")).ok()?)? as f64 / per_second;
        Some(Process { pid, program: processes::program(pid)?, cpu, waited: state.waits(), reasons: state.reasons() })
    }
}

/// utime and stime of /proc/PID/stat, in clock ticks: the program's name before them may hold anything.
fn processor_time(stat: &[u8]) -> Option<u64> {
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let columns: Vec<&str> = std::str::from_utf8(&stat[behind..]).ok()?.split_ascii_whitespace().collect();
    Some(columns.get(11)?.parse::<u64>().ok()? + columns.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::processor_time;

    #[test]
    fn names_do_not_shift_columns() {
        let stat = b"7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 100 1000 10";
        assert_eq!(processor_time(stat), Some(300));
        assert_eq!(processor_time(b"7 (a"), None);
        assert_eq!(processor_time(b"7 (a) S"), None);
    }
}

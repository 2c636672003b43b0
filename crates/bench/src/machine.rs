//! The machine under the figures: a figure without it means nothing.

use std::fs;
use std::io;

use nix::sched::{sched_getaffinity, CpuSet};
use nix::unistd::Pid;
use serde::Serialize;

/// What a reader needs to judge the figures, and the two cores they are made on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Model of the processor as the kernel names it.
    pub processor: String,
    /// Cores that this process may use.
    pub usable_cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Whether the kernel says that it runs under a hypervisor.
    pub virtual_machine: bool,
    /// Core of the servers.
    pub server_core: usize,
    /// Core of the clients: another one, unless there is only one.
    pub client_core: usize,
    /// Load average over the last minute when the run began.
    pub load_average: f64,
}

impl Machine {
    /// Looks at the machine and picks two cores of it.
    pub fn here() -> Self {
        let cores = usable_cores();
        let (server_core, client_core) = two_cores(&cores, core_identity);
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            processor: cpuinfo_field(&cpuinfo, "model name").unwrap_or_else(|| "unknown processor".into()),
            usable_cores: cores.len(),
            kernel: read_trimmed("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            virtual_machine: cpuinfo_field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            server_core,
            client_core,
            load_average: read_trimmed("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0.0),
        }
    }

    /// One line for the head of the report.
    pub fn describe(&self) -> String {
        let kind = if self.virtual_machine { ", virtual machine" } else { "" };
        format!("{}, {} cores{kind}, Linux {}", self.processor, self.usable_cores, self.kernel)
    }
}

/// Puts this process and all that it starts before whatever else runs: setpriority(2).
pub(crate) fn go_first() -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As many descriptors as we may have: a cell has ten thousand connections. setrlimit(2)
pub(crate) fn allow_many_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls take a valid rlimit.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

fn usable_cores() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_else(|_| CpuSet::new());
    let cores: Vec<usize> = (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect();
    if cores.is_empty() {
        vec![0]
    } else {
        cores
    }
}

/// The first usable core and the next that is not its hyper-thread, if there is one.
///
/// Two threads of one physical core share a cache and execution units: figures made on them are
/// about neither "one core" nor "two cores".
fn two_cores(cores: &[usize], identity: impl Fn(usize) -> (usize, usize)) -> (usize, usize) {
    let first = cores[0];
    let apart = cores.iter().copied().find(|&core| identity(core) != identity(first));
    (first, apart.or(cores.get(1).copied()).unwrap_or(first))
}

/// Package and physical core of a logical one.
fn core_identity(core: usize) -> (usize, usize) {
    let read = |name: &str| {
        read_trimmed(&format!("/sys/devices/system/cpu/cpu{core}/topology/{name}"))
            .and_then(|text| text.parse().ok())
            .unwrap_or(core)
    };
    (read("physical_package_id"), read("core_id"))
}

fn cpuinfo_field(cpuinfo: &str, name: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

fn read_trimmed(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyper_threads_are_passed_over() {
        let siblings = |core: usize| (0, core / 2);
        assert_eq!(two_cores(&[0, 1, 2, 3], siblings), (0, 2));
        assert_eq!(two_cores(&[2, 3], siblings), (2, 3));
        assert_eq!(two_cores(&[5], siblings), (5, 5));
    }
}

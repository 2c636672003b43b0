//! Where a run is: its directory, and the processor and priority of a process.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;

/// A directory of this run alone, for sockets and files; nothing of it is left when its maker ends.
pub struct Place {
    directory: PathBuf,
    own: bool,
}

impl Place {
    pub fn new() -> Result<Self, Failure> {
        let directory = std::env::temp_dir().join(format!("rpc-peers-{}", std::process::id()));
        fs::create_dir(&directory)?;
        Ok(Self { directory, own: true })
    }

    /// The same in a server's process.
    pub fn at(directory: &str) -> Self {
        Self { directory: directory.into(), own: false }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A name that no other run has.
    pub fn name(&self) -> String {
        self.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.own {
            return;
        }
        let _ = fs::remove_dir_all(&self.directory);
        for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.name()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The process runs on one processor from here on, with the threads that it makes, and before everything that has no real-time
/// priority, where that is permitted (sched(7)).
pub fn settle(core: usize) {
    let priority = libc::sched_param { sched_priority: 10 };
    // SAFETY: the set and the priority are plain bits, as large as said; both concern the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &set);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &priority);
    }
}

/// The process ends after so many seconds, whatever it waits for.
pub fn end_after(seconds: u32) {
    // SAFETY: alarm(2) has no preconditions; the signal's default action ends the process.
    unsafe { libc::alarm(seconds) };
}

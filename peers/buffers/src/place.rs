//! Where a run is: its directory, its network, and the processor and priority of a process.

use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use crate::Failure;

/// A directory of this run alone, for sockets and files; nothing of it is left when its maker ends.
pub struct Place {
    directory: PathBuf,
    own: bool,
}

impl Place {
    pub fn new() -> Result<Self, Failure> {
        // In memory: what both processes say to each other there is not to be written to a disk.
        let parent = Path::new("/dev/shm");
        let parent = if parent.is_dir() { parent.to_owned() } else { std::env::temp_dir() };
        let directory = parent.join(format!("buffer-peers-{}", std::process::id()));
        fs::create_dir(&directory)?;
        Ok(Self { directory, own: true })
    }

    /// The same in a receiver's process.
    pub fn at(directory: &str) -> Self {
        Self { directory: directory.into(), own: false }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What files that others put into shared memory are to begin with: no other run's do, nor the directory's own name.
    pub fn prefix(&self) -> String {
        let name = self.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        format!("of-{name}-")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.own {
            return;
        }
        let _ = fs::remove_dir_all(&self.directory);
        for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.prefix()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// A network namespace with a loopback device whose TCP does not pace. Whether there is one: it takes privilege, or user namespaces.
pub fn own_network() -> bool {
    // SAFETY: unshare(2), socket(2), ioctl(2) with plain values; this process has one thread.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNET) != 0 && libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) != 0 {
            return false;
        }
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return false;
        }
        let socket = OwnedFd::from_raw_fd(socket);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) != 0 {
            return false;
        }
    }
    fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").is_ok()
}

/// The thread runs on one processor from here on, with the threads that it makes, and before everything that has no real-time
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

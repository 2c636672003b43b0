//! The end of a rank's process, seen by another rank: there is no launcher of ours that would be its parent. The rank that made the memory
//! watches all others of its host; the one after it watches that.

use super::meeting::{credentials, Other};
use crate::error::Ended;
use crate::launch::{end, wake_all};
use crate::layout::{rank_state, Header, Layout, RankBlock};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Acquire;

/// One process.
struct Watched {
    rank: usize,
    stream: std::os::unix::net::UnixStream,
    /// Of the process: unlike the connection, a child that was forked does not keep it.
    process: Option<OwnedFd>,
}

impl Watched {
    fn descriptor(&self) -> RawFd {
        self.process.as_ref().map_or(self.stream.as_raw_fd(), AsRawFd::as_raw_fd)
    }
}

/// Starts the thread that sleeps until one of them ends. `base` is where the job's memory is mapped for good.
///
/// # Errors
/// If there is no thread to be had.
pub fn start(base: usize, layout: Layout, others: Vec<Other>) -> io::Result<()> {
    let watched: Vec<Watched> = others.into_iter().map(of).collect();
    // SAFETY: plain data of ours. The thread inherits the mask, so that the program's signals stay with its own threads.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = std::thread::Builder::new().name("shunt-watch".into()).stack_size(64 << 10).spawn(move || {
            watch(base, layout, watched);
        });
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started.map(drop)
    }
}

fn of(other: Other) -> Watched {
    let process = credentials(&other.stream).ok().filter(|found| found.pid > 0).and_then(|found| {
        // SAFETY: takes numbers; the answer is a new descriptor, or an error (of an old kernel, or another namespace).
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, found.pid, 0) };
        // SAFETY: as above.
        (descriptor >= 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
    });
    Watched { rank: other.rank, stream: other.stream, process }
}

fn watch(base: usize, layout: Layout, mut watched: Vec<Watched>) {
    // SAFETY: the caller's mapping lives as long as the process; what changes in it is atomic.
    let header = unsafe { &*(base as *const Header) };
    while !watched.is_empty() {
        let entry = |one: &Watched| libc::pollfd { fd: one.descriptor(), events: libc::POLLIN, revents: 0 };
        let mut list: Vec<libc::pollfd> = watched.iter().map(entry).collect();
        // SAFETY: the list is ours, and as long as the kernel is told.
        if unsafe { libc::poll(list.as_mut_ptr(), list.len() as libc::nfds_t, -1) } < 0 {
            continue;
        }
        let mut ready = list.iter().map(|entry| entry.revents != 0);
        watched.retain(|one| {
            let over = ready.next() == Some(true);
            if over {
                // SAFETY: as for the header; the rank is one of the layout's.
                let block = unsafe { &*((base + layout.block(one.rank)) as *const RankBlock) };
                let needed = block.state.load(Acquire) != rank_state::FINALIZED;
                if needed && end(header, Ended::Left { rank: one.rank }) {
                    wake_all(base, &layout);
                }
            }
            !over
        });
    }
}

//! The end of a rank's process, seen by another rank: there is no launcher of ours that would be its parent. The rank that made the memory
//! watches all others of its host; the one after it watches that.

use super::meeting::{credentials, Other};
use crate::error::Ended;
use crate::launch::{end, wake_all};
use crate::layout::{rank_state, Header, Layout, RankBlock};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

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

/// In a set of descriptors: the launcher; others are places in the list of ranks.
const LAUNCHER: u64 = u64::MAX;
/// A launcher that goes ends its ranks itself; after this they do.
const GRACE: Duration = Duration::from_secs(1);
/// From then on, for ranks that wait to notice.
const LAST: Duration = Duration::from_millis(500);

/// Starts the thread that sleeps until one of them, or the launcher, ends. `job` is where the job's memory is mapped for good; none of a job of one.
///
/// # Errors
/// If there is no thread to be had.
pub fn start(job: Option<(usize, Layout)>, others: Vec<Other>) -> io::Result<()> {
    let watched: Vec<Watched> = others.into_iter().map(of).collect();
    // SAFETY: the answer is a new descriptor, or an error.
    let set = unsafe {
        match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
            set if set < 0 => return Err(io::Error::last_os_error()),
            set => OwnedFd::from_raw_fd(set),
        }
    };
    for (at, one) in watched.iter().enumerate() {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: at as u64 };
        // SAFETY: one event of ours, and descriptors.
        if unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, one.descriptor(), &mut event) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if let Some(server) = super::server() {
        server.add_to(set.as_raw_fd(), LAUNCHER)?;
    }
    // SAFETY: plain data of ours. The thread inherits the mask, so that the program's signals stay with its own threads.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = std::thread::Builder::new().name("shunt-watch".into()).stack_size(64 << 10).spawn(move || {
            watch(&set, job, &watched);
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

fn watch(set: &OwnedFd, job: Option<(usize, Layout)>, watched: &[Watched]) {
    loop {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        match unsafe { libc::epoll_wait(set.as_raw_fd(), &mut event, 1, -1) } {
            1 => {}
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => continue,
            // The program has closed all that it does not know.
            _ => return,
        }
        if { event.u64 } == LAUNCHER {
            abandoned(job);
            continue;
        }
        let Some(one) = watched.get(event.u64 as usize) else { continue };
        // SAFETY: takes descriptors. A process ends once.
        unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_DEL, one.descriptor(), std::ptr::null_mut()) };
        let Some((base, layout)) = job else { continue };
        // SAFETY: the caller's mapping lives as long as the process; what changes in it is atomic; the rank is one of the layout's.
        let (header, block) = unsafe { (&*(base as *const Header), &*((base + layout.block(one.rank)) as *const RankBlock)) };
        let needed = block.state.load(Acquire) != rank_state::FINALIZED;
        if needed && end(header, Ended::Left { rank: one.rank }) {
            wake_all(base, &layout);
        }
    }
}

/// The launcher has gone. It ends its ranks before that, unless it was killed: then they end by themselves, and the first of them says why.
fn abandoned(job: Option<(usize, Layout)>) {
    std::thread::sleep(GRACE);
    if super::has_left() {
        return;
    }
    let why = Ended::Gone;
    let first = match job {
        Some((base, layout)) => {
            // SAFETY: as in `watch`.
            let first = end(unsafe { &*(base as *const Header) }, why);
            wake_all(base, &layout);
            first
        }
        None => true,
    };
    if first {
        tell(&format!("shunt: {why}; the job is over\n"));
    }
    std::thread::sleep(LAST);
    // SAFETY: ends the process, whose program may be in the middle of anything.
    unsafe { libc::_exit(why.status()) };
}

/// On standard error, or, if that was a pipe to the launcher, on the terminal.
fn tell(sentence: &str) {
    if io::stderr().write_all(sentence.as_bytes()).is_err() {
        let terminal = OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK).open("/dev/tty");
        let _ = terminal.and_then(|mut terminal| terminal.write_all(sentence.as_bytes()));
    }
}

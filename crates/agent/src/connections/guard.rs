//! The guard: a second process that has what is needed to give connections back, and does so when the agent is gone, however it went.
//!
//! ```text
//! agent ── Hold {number} + socket, escrow ──►  guard: keeps both                     before a connection is taken
//!       ── Let {number} ────────────────────►         closes both                   behind its give-back
//!       ✕  hang-up ─────────────────────────►         gives back what it holds, and ends
//! ```
//!
//! What the agent has sent before it is killed lies in the guard's queue, so that nothing is answered and nothing waited for. The guard opens
//! nothing, listens to no other process and has nothing of the agent's but its end of the pair. If both are killed at once, the sockets are
//! closed in repair, which is silent: a peer hears of it (by a reset) when it sends.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::Duration;

use shunt_sys::calls;
use shunt_xdp::escrow::Escrow;

use super::repair::{Held, Kept};

/// What the guard is told.
#[derive(Clone, Copy)]
#[repr(C)]
struct Word {
    /// [`HOLD`] or [`LET`].
    what: u32,
    number: u32,
    kept: Kept,
}

/// So often a connection is tried whose peer cannot be reached, and so long the guard rests between: a minute.
const ATTEMPTS: u32 = 600;
const REST: Duration = Duration::from_millis(100);

/// So long the guard does not look, in ns: what it is told meanwhile has room in its queue, or the agent waits.
const LULL: i64 = 10_000_000;

const HOLD: u32 = 1;
const LET: u32 = 2;

/// The agent's end.
pub struct Guard {
    pair: Option<OwnedFd>,
    process: i32,
}

impl Guard {
    /// Starts it. To be called before anything is made that it should not inherit; it closes all that it does.
    ///
    /// # Errors
    /// What socketpair(2) and fork(2) answer.
    pub fn start() -> io::Result<Guard> {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        calls::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()).map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
        // SAFETY: made above, ours.
        let [ours, theirs] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: the child goes on with what it has, closes the rest, and never returns from here.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                stand_apart(theirs.as_raw_fd());
                keep(theirs.into_raw_fd());
                // SAFETY: ends the child; nothing of its parent's is run.
                unsafe { libc::_exit(0) }
            }
            process => Ok(Guard { pair: Some(ours), process }),
        }
    }

    /// Its process.
    pub fn process(&self) -> i32 {
        self.process
    }

    fn tell(&self, word: &Word, descriptors: &[RawFd]) -> io::Result<()> {
        let Some(pair) = &self.pair else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let mut part = libc::iovec { iov_base: (&raw const *word).cast_mut().cast(), iov_len: size_of::<Word>() };
        // `struct cmsghdr`: length, level and type; then the descriptors.
        let mut control = [16 + 4 * descriptors.len() as u64, libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32, 0];
        for (index, descriptor) in descriptors.iter().take(2).enumerate() {
            control[2] |= u64::from(*descriptor as u32) << (32 * index);
        }
        // SAFETY: integers and pointers, for which zero is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        if !descriptors.is_empty() {
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), control[0] as usize);
        }
        // Waits where the guard has not read what it was told before: it does nothing else.
        calls::sendmsg(pair.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
            .map(|_| ())
            .map_err(|errno| io::Error::from_raw_os_error(errno.0))
    }

    /// It holds these from now on.
    ///
    /// # Errors
    /// EPIPE: it is gone.
    pub fn hold(&self, number: u32, socket: RawFd, escrow: RawFd, kept: &Kept) -> io::Result<()> {
        self.tell(&Word { what: HOLD, number, kept: *kept }, &[socket, escrow])
    }

    /// It need not any longer.
    pub fn let_go(&self, number: u32, kept: &Kept) {
        let _ = self.tell(&Word { what: LET, number, kept: *kept }, &[]);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.pair = None;
        // It ends at once, but for connections whose peers cannot be reached now.
        for _ in 0..50 {
            // SAFETY: our child, which was not waited for.
            if unsafe { libc::waitpid(self.process, std::ptr::null_mut(), libc::WNOHANG) } != 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A session of its own, no signal that ends groups of processes, and nothing open but `pair`.
fn stand_apart(pair: RawFd) {
    // SAFETY: numbers, a name that ends with a zero byte, and descriptors that nothing here uses any more.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"shunt-guard".as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        let pair = pair as u32;
        if pair > 0 {
            libc::syscall(libc::SYS_close_range, 0, pair - 1, 0);
        }
        libc::syscall(libc::SYS_close_range, pair + 1, u32::MAX, 0);
        // The three that a process has, so that no socket gets their numbers.
        for _ in 0..3 {
            let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            if null > 2 {
                libc::close(null);
            }
        }
    }
}

/// Keeps what it is told to until the agent is gone, and then gives it back.
fn keep(pair: RawFd) {
    let mut held: HashMap<u32, Held> = HashMap::new();
    loop {
        let Some((word, descriptors)) = hear(pair) else { break };
        match (word.what, descriptors) {
            (HOLD, [Some(socket), Some(escrow)]) => {
                if let Ok(escrow) = Escrow::adopt(escrow.into_raw_fd()) {
                    held.insert(word.number, Held { socket, escrow, kept: word.kept });
                }
            }
            _ => drop(held.remove(&word.number)),
        }
        // What is told waits as well in the queue, and wakes no process there: the processor is the agent's and its clients'.
        let waits = calls::poll_one(pair, libc::POLLIN, 0).is_ok_and(|events| events & libc::POLLIN != 0);
        if !waits {
            let _ = calls::poll_one(pair, 0, LULL);
        }
    }
    // What the kernel refuses for good ends as a reset does; no process is left to be told. Where there is no way to the peer there may be one soon.
    for attempt in 0..=ATTEMPTS {
        held.retain(|_, held| held.restore(attempt == ATTEMPTS).is_err_and(|refused| refused.is_passing()) && attempt < ATTEMPTS);
        if held.is_empty() {
            return;
        }
        std::thread::sleep(REST);
    }
}

fn hear(pair: RawFd) -> Option<(Word, [Option<OwnedFd>; 2])> {
    let mut bytes = [0u8; size_of::<Word>()];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 4];
    // SAFETY: integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    let count = loop {
        match calls::recvmsg(pair, &mut message, libc::MSG_CMSG_CLOEXEC) {
            Err(shunt_sys::Errno(libc::EINTR)) => {}
            other => break other.ok()?,
        }
    };
    // SAFETY: the agent's end sends such structures and nothing else; integers, of which any bytes are a value.
    let word = (count == bytes.len()).then(|| unsafe { bytes.as_ptr().cast::<Word>().read_unaligned() })?;
    let carried = (control[0] as usize).saturating_sub(16) / 4;
    let given = message.msg_controllen >= 16;
    let descriptors = std::array::from_fn(|index| {
        let fd = (control[2] >> (32 * index)) as i32;
        // SAFETY: the kernel has made it for this message.
        (given && index < carried).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    });
    Some((word, descriptors))
}

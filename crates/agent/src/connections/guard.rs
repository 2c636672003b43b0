//! The guard: a second process that has what is needed to give connections back, and does so when the agent is gone, however it went.
//!
//! ```text
//! agent ── Hold {number} + socket, escrow ──►  guard: keeps both                     before a connection is taken
//!       ── Let {number} ────────────────────►         closes both                   behind its give-back
//!       ✕  hang-up ─────────────────────────►         gives back what it holds, and ends
//! ```
//!
//! What the agent has sent before it is killed lies in the guard's queue, so that nothing is answered and nothing waited for. The guard opens
//! nothing, listens to no other process and has nothing of the agent's but its end of the pair. If both are killed at once,
//! the program has its socket as it is, shut by the filter.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::Mutex;
use std::time::Duration;

use shunt_sys::calls;
use shunt_xdp::escrow::Escrow;

use super::kept::Kept;
use super::restore::Held;
use super::{lock, standby};

/// What the guard is told.
#[derive(Clone, Copy)]
#[repr(C)]
struct Word {
    /// [`HOLD`] or [`LET`].
    what: u32,
    number: u32,
    kept: Kept,
}

/// So long the guard does not look, in ns: what it is told meanwhile has room in its queue, or the agent waits.
const LULL: i64 = 10_000_000;
/// So often, in ns, it looks whether the agent is gone, if a signal that says so came in the moment before it slept.
const LOOK: i64 = 1_000_000_000;

/// So many sockets whose close(2) waits are closed together.
const MANY: usize = 64;

const HOLD: u32 = 1;
const LET: u32 = 2;

/// So long the agent waits for room in the guard's queue.
const ROOM: Duration = Duration::from_secs(1);
/// Bytes of that queue.
const QUEUE: i32 = 1 << 20;

/// The agent's end.
pub struct Guard {
    pair: Option<OwnedFd>,
    process: i32,
    /// What there was no room for: it need not hold these any longer.
    late: Mutex<Vec<Word>>,
}

impl Guard {
    /// Starts it. To be called before anything is made that it should not inherit; it closes all that it does. By a thread that lives as long as the
    /// agent does: it takes that thread's end for the agent's.
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
            process => {
                let room = libc::timeval { tv_sec: ROOM.as_secs() as i64, tv_usec: 0 };
                let (value, size) = ((&raw const room).cast(), size_of_val(&room) as u32);
                let _ = calls::setsockopt(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, value, size);
                let _ = calls::setsockopt_int(ours.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, QUEUE);
                Ok(Guard { pair: Some(ours), process, late: Mutex::default() })
            }
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
        // Waits a little where the guard has not read what it was told before.
        calls::sendmsg(pair.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
            .map(|_| ())
            .map_err(|errno| io::Error::from_raw_os_error(errno.0))
    }

    /// It holds these from now on.
    ///
    /// # Errors
    /// EPIPE: it is gone. EAGAIN: it is held up.
    pub fn hold(&self, number: u32, socket: RawFd, escrow: RawFd, kept: &Kept) -> io::Result<()> {
        self.tell(&Word { what: HOLD, number, kept: *kept }, &[socket, escrow])
    }

    /// It need not any longer.
    pub fn let_go(&self, number: u32, kept: &Kept) {
        let word = Word { what: LET, number, kept: *kept };
        if self.tell(&word, &[]).is_err_and(|error| error.raw_os_error() == Some(libc::EAGAIN)) {
            // Held for longer it does no harm: the guard sees that it was given back.
            lock(&self.late).push(word);
        }
    }

    /// Tells it what there was no room for.
    pub fn settle(&self) {
        let late = std::mem::take(&mut *lock(&self.late));
        late.into_iter().for_each(|word| self.let_go(word.number, &word.kept));
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

static DEAD: AtomicBool = AtomicBool::new(false);

extern "C" fn note_death(_: i32) {
    DEAD.store(true, SeqCst);
}

/// A session of its own, no signal that ends groups of processes, and nothing open but `pair`.
fn stand_apart(pair: RawFd) {
    // SAFETY: numbers, a name that ends with a zero byte, and descriptors that nothing here uses any more.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"shunt-guard".as_ptr());
        // The agent's end of the pair hangs up with the last of its threads, and one may wait in the kernel for as long as a client likes.
        let mut told: libc::sigaction = std::mem::zeroed();
        told.sa_sigaction = note_death as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &told, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGUSR1);
        // Its own children are not waited for.
        libc::signal(libc::SIGCHLD, libc::SIG_IGN);
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
    let mut slow = Vec::new();
    loop {
        let Some((word, descriptors)) = hear(pair) else { break };
        match (word.what, descriptors) {
            (HOLD, [Some(socket), Some(escrow)]) => {
                if let Ok(escrow) = Escrow::adopt(escrow.into_raw_fd()) {
                    held.insert(word.number, Held::new(socket, escrow, word.kept));
                }
            }
            _ => slow.extend(held.remove(&word.number).and_then(close_at_once)),
        }
        // What is told waits as well in the queue, and wakes no process there: the processor is the agent's and its clients'.
        let waits = calls::poll_one(pair, libc::POLLIN, 0).is_ok_and(|events| events & libc::POLLIN != 0);
        if !waits || slow.len() >= MANY {
            close_by_another(std::mem::take(&mut slow));
            let _ = calls::poll_one(pair, 0, LULL);
        }
    }
    close_by_another(slow);
    held.values_mut().for_each(Held::take_over);
    standby::give_back(held.into_values().collect());
}

/// Closes a socket, but for one whose last close(2) waits (SO_LINGER).
fn close_at_once(held: Held) -> Option<Held> {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut size = size_of_val(&linger) as u32;
    let value = (&raw mut linger).cast();
    let asked = calls::getsockopt(held.socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, &mut size);
    (asked.is_ok() && linger.l_onoff != 0 && linger.l_linger > 0).then_some(held)
}

/// Closes sockets by a process that ends with them, which waits for nothing.
fn close_by_another(all: Vec<Held>) {
    if all.is_empty() {
        return;
    }
    let mut ends = [-1; 2];
    if calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()).is_err() {
        return;
    }
    // SAFETY: made above, ours.
    let [ours, theirs] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: the child makes two calls, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(ours);
        // Until the others are closed, so that these are the last.
        let _ = calls::read(theirs.as_raw_fd(), [0u8; 1].as_mut_ptr().cast(), 1);
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    drop(theirs);
    drop(all);
    drop(ours);
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
        let is_over = DEAD.load(SeqCst);
        match calls::recvmsg(pair, &mut message, libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT) {
            Err(shunt_sys::Errno(libc::EINTR)) => {}
            Err(shunt_sys::Errno(libc::EAGAIN)) if !is_over => {
                let _ = calls::poll_one(pair, libc::POLLIN, LOOK);
            }
            // Nothing that it was told before is overlooked.
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

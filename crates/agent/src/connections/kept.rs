//! What a socket is given again beside its connection: options that a hand-over changes.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use super::eligible::{option, Name};
use super::repair::{get, set, set_socket};

const SO_BUF_LOCK: i32 = 72;
/// TCP_NOTSENT_LOWAT so that nothing is refused for it.
const NO_BOUND: i32 = -1;

/// What a socket is given again beside its connection.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Kept {
    /// Both addresses: ours, the peer's.
    pub names: [Name; 2],
    /// SO_KEEPALIVE, whose probes would carry old numbers meanwhile.
    keepalive: i32,
    /// SO_REUSEADDR, which repair takes away.
    reuse: i32,
    /// Both buffers' sizes, and which of them the program has set.
    buffers: [i32; 2],
    locked: i32,
    /// TCP_WINDOW_CLAMP, which a new connection has from its buffer.
    clamp: i32,
    /// TCP_NOTSENT_LOWAT, by which a socket refuses bytes that it has room for.
    low: i32,
}

impl Kept {
    /// Of a socket that is the kernel's.
    pub fn of(socket: BorrowedFd<'_>, names: [Name; 2]) -> Kept {
        let fd = socket.as_raw_fd();
        let number = |name| option(fd, libc::SOL_SOCKET, name).unwrap_or(0);
        Kept {
            names,
            keepalive: number(libc::SO_KEEPALIVE),
            reuse: number(libc::SO_REUSEADDR),
            buffers: [libc::SO_SNDBUF, libc::SO_RCVBUF].map(number),
            locked: number(SO_BUF_LOCK),
            clamp: get(fd, libc::TCP_WINDOW_CLAMP).unwrap_or(0),
            low: get(fd, libc::TCP_NOTSENT_LOWAT).unwrap_or(0),
        }
    }

    /// Bytes that the program lets the peer send ahead at most.
    pub fn clamp(&self) -> u32 {
        self.clamp.max(0) as u32
    }

    /// Whether the socket is what it was, by its ends.
    pub fn has_names(&self, fd: RawFd) -> bool {
        let [ours, theirs] = [Name::of(fd, libc::getsockname), Name::of(fd, libc::getpeername)];
        [ours, theirs].into_iter().zip(&self.names).all(|(now, was)| now.is_ok_and(|now| now == *was))
    }

    /// No probes of the kernel's meanwhile.
    pub fn silence(&self, fd: RawFd) {
        if self.keepalive != 0 {
            set_socket(fd, libc::SO_KEEPALIVE, 0);
        }
    }

    /// Repair has taken SO_REUSEADDR away.
    pub fn allow_reuse(&self, fd: RawFd) {
        if self.reuse != 0 {
            set_socket(fd, libc::SO_REUSEADDR, self.reuse);
        }
    }

    /// Room for all that is put into its buffers, whatever bounds the program has set.
    pub fn make_room(&mut self, fd: RawFd, sends: u32, receives: u32) {
        let roomy = [(libc::SO_SNDBUFFORCE, sends), (libc::SO_RCVBUFFORCE, receives)];
        for (name, bytes) in roomy.into_iter().filter(|(_, bytes)| *bytes > 0) {
            set_socket(fd, name, bytes.saturating_mul(2).clamp(256 << 10, i32::MAX as u32 / 2) as i32);
        }
        if sends > 0 {
            // Another attempt may have left it so; else it is the program's, also if it was set since.
            self.low = get(fd, libc::TCP_NOTSENT_LOWAT).ok().filter(|low| *low != NO_BOUND).unwrap_or(self.low);
            let _ = set(fd, libc::TCP_NOTSENT_LOWAT, NO_BOUND);
        }
    }

    /// Gives it all again.
    pub fn settle(&self, fd: RawFd) {
        self.allow_reuse(fd);
        if self.keepalive != 0 {
            set_socket(fd, libc::SO_KEEPALIVE, 1);
        }
        if get(fd, libc::TCP_NOTSENT_LOWAT) == Ok(NO_BOUND) {
            let _ = set(fd, libc::TCP_NOTSENT_LOWAT, self.low);
        }
        for (index, (get, force)) in
            [(libc::SO_SNDBUF, libc::SO_SNDBUFFORCE), (libc::SO_RCVBUF, libc::SO_RCVBUFFORCE)].into_iter().enumerate()
        {
            let was = self.buffers[index];
            // One that is tuned by the kernel may be as large as it has become.
            if self.locked & 1 << index != 0 && option(fd, libc::SOL_SOCKET, get) != Ok(was) {
                set_socket(fd, force, was / 2);
            }
        }
        if option(fd, libc::SOL_SOCKET, SO_BUF_LOCK) != Ok(self.locked) {
            set_socket(fd, SO_BUF_LOCK, self.locked);
        }
        if self.clamp > 0 && get(fd, libc::TCP_WINDOW_CLAMP) != Ok(self.clamp) {
            let _ = set(fd, libc::TCP_WINDOW_CLAMP, self.clamp);
        }
    }
}

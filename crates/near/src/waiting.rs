//! What a handshake waits for, and what stays beside a stream when it is over.

use crate::held::Held;
use crate::kernel::has_come;
use crate::messages::{First, Proof, PROOF, WORD};
use core::sync::atomic::Ordering;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, pollfd, MSG_DONTWAIT, MSG_PEEK};
use shunt_sys::{calls, clock, Errno, Result};
use shunt_table::private::Pending;
use shunt_table::{fd_passing, global};

/// How long a thread looks before it sleeps (ns).
const LOOKS: u64 = 60_000;

/// A wait for a word in memory, by a thread that is awake for as long as the other end of a handshake takes that is.
pub struct Patient {
    began: u64,
    rounds: u32,
}

impl Patient {
    /// How long another end takes that runs on another processor (ns): until then this one is not offered to others.
    const ALONE: u64 = 20_000;

    /// One that begins now.
    pub fn begin() -> Patient {
        Patient { began: clock::monotonic_ns(), rounds: 0 }
    }

    /// Whether the thread is to look on, rather than sleep.
    pub fn is_awake(&self) -> bool {
        self.waited() < LOOKS.min(global::options().spin_ns)
    }

    fn waited(&self) -> u64 {
        clock::monotonic_ns().saturating_sub(self.began)
    }

    /// Whether the kernel is to be asked in this round, too.
    pub fn looks(&self) -> bool {
        self.rounds.is_multiple_of(8) || !self.is_awake()
    }

    /// Between two looks.
    pub fn pause(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        (0..16).for_each(|_| core::hint::spin_loop());
        if self.waited() > Patient::ALONE {
            calls::sched_yield();
        }
    }
}

/// Another descriptor of the TCP connection, which is to stay open beside the stream. Made before either end says its last word: where there is no number
/// for it the connection is the kernel's.
pub fn beside(fd: i32) -> Result<Held> {
    Held::duplicate(fd)
}

/// The TCP connection stays open beside the stream, and ends when that does, without a time of waiting: nothing is in it. It is idle for ever, however busy the
/// stream is, so the kernel does not ask for its peer. Under the set-up lock.
pub fn keep_beside(kept: Held, socket: &Socket) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    let length = core::mem::size_of::<libc::linger>() as libc::socklen_t;
    let _ = calls::setsockopt(kept.fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const at_once).cast(), length);
    let _ = calls::setsockopt_int(kept.fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0);
    socket.private_fd.store(kept.take(), Ordering::Relaxed);
    shunt_lifeline::ends::begin(socket);
}

/// What came by the TCP connection.
pub enum Looked {
    /// The first bytes, or none.
    First(First),
    /// Less than a proof, which comes in one piece: the program's in all likelihood, but not for certain.
    Piece,
    /// The connection's end.
    End,
}

/// Looks, and takes nothing.
pub fn look_for_proof(fd: i32) -> Looked {
    match has_come(fd) {
        None => return Looked::End,
        Some(0) => return Looked::First(First::Part),
        Some(_) => {}
    }
    let mut bytes = [0u8; PROOF];
    let none = core::ptr::null_mut();
    match calls::recvfrom(fd, bytes.as_mut_ptr().cast(), PROOF, MSG_PEEK | MSG_DONTWAIT, none, core::ptr::null_mut()) {
        Ok(got @ 1..) => match Proof::begin(&bytes[..got]) {
            First::Part => Looked::Piece,
            first => Looked::First(first),
        },
        Err(Errno(libc::EAGAIN | libc::EINTR)) => Looked::First(First::Part),
        _ => Looked::End,
    }
}

/// Takes a proof off that was seen: what follows is the program's.
pub fn take_proof(fd: i32) {
    let mut bytes = [0u8; PROOF];
    let none = core::ptr::null_mut();
    let _ = calls::recvfrom(fd, bytes.as_mut_ptr().cast(), PROOF, MSG_DONTWAIT, none, core::ptr::null_mut());
}

/// Waits until one of the descriptors has something to tell, awake first; -1: none. Gives what each tells; at the deadline nothing.
pub fn await_any<const N: usize>(descriptors: [i32; N], deadline: u64) -> [i16; N] {
    let mut set = descriptors.map(|fd| pollfd { fd, events: libc::POLLIN, revents: 0 });
    let began = clock::monotonic_ns();
    loop {
        let now = clock::monotonic_ns();
        let awake = now.saturating_sub(began) < LOOKS.min(global::options().spin_ns);
        let left = if awake { 0 } else { deadline.saturating_sub(now) };
        let mut time = libc::timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let found = calls::ppoll(set.as_mut_ptr(), N, &mut time, core::ptr::null(), calls::KERNEL_SIGSET);
        if found.is_ok_and(|found| found > 0) {
            return set.map(|one| one.revents);
        }
        if now >= deadline {
            return [0; N];
        }
        if awake {
            calls::sched_yield();
        }
    }
}

/// As [`await_any`] where the first descriptor tells something that is not news: it is not waited for, and looked at again soon.
pub fn await_others<const N: usize>(mut descriptors: [i32; N], deadline: u64) -> [i16; N] {
    const SOON: u64 = 500_000;
    descriptors[0] = -1;
    let mut told = await_any(descriptors, deadline.min(clock::monotonic_ns() + SOON));
    told[0] = libc::POLLIN;
    told
}

/// What came over an AF_UNIX connection, with a descriptor if one came along; whatever comes beyond that is closed.
pub enum Heard {
    /// So many bytes. A descriptor that nobody wants is closed with this.
    Bytes(usize, Option<Pending>),
    /// Nothing yet.
    Nothing,
    /// There is no number for the descriptor.
    NoDescriptors,
    /// The connection's end.
    End,
}

/// Takes what there is.
pub fn hear(from: i32, room: &mut [u8]) -> Heard {
    match fd_passing::receive_with(from, room, MSG_DONTWAIT) {
        Ok((got, [first, second])) => {
            if second >= 0 {
                let _ = calls::close(second);
            }
            Heard::Bytes(got, (first >= 0).then_some(Pending(first)))
        }
        Err(Errno(libc::EAGAIN | libc::EINTR)) => Heard::Nothing,
        Err(Errno(libc::EMFILE | libc::ENFILE)) => Heard::NoDescriptors,
        Err(_) => Heard::End,
    }
}

/// One message, or the deadline's passing: [`Heard::Nothing`].
pub fn hear_until(from: i32, room: &mut [u8], deadline: u64) -> Heard {
    loop {
        match hear(from, room) {
            Heard::Nothing if clock::monotonic_ns() < deadline => {
                let _ = await_any([from], deadline);
            }
            heard => return heard,
        }
    }
}

/// Nothing is waited for any more: what was sent before this is there, and what is sent behind it fails at its sender. The other end and this one do not
/// disagree on which it was.
pub fn hear_no_more(from: i32, room: &mut [u8]) -> Heard {
    let _ = calls::shutdown(from, libc::SHUT_RD);
    hear(from, room)
}

/// Sends a message in one piece.
pub fn say(to: i32, bytes: &[u8]) -> bool {
    let none = core::ptr::null();
    calls::sendto(to, bytes.as_ptr().cast(), bytes.len(), MSG_DONTWAIT | libc::MSG_NOSIGNAL, none, 0) == Ok(bytes.len())
}

/// Whether a message is that word.
pub fn is_word(bytes: &[u8], word: &[u8; WORD]) -> bool {
    bytes == word
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::is_unread;

    fn pair() -> [Held; 2] {
        let mut pair = [-1; 2];
        calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()).expect("a pair");
        pair.map(|fd| Held::new(|| Ok(fd)).expect("a place"))
    }

    /// Both ends know whether a word was said in time.
    #[test]
    fn a_word_is_said_before_the_end_of_hearing_or_fails() {
        let mut room = [0u8; 4];
        let [server, client] = pair();
        assert!(say(client.fd(), b"GO"));
        assert!(matches!(hear_no_more(server.fd(), &mut room), Heard::Bytes(2, None)));
        assert!(!say(client.fd(), b"GO"));
        let [server, client] = pair();
        assert!(matches!(hear_no_more(server.fd(), &mut room), Heard::End));
        assert!(!say(client.fd(), b"GO"));
    }

    /// A reset is the program's to hear, whatever was looked for.
    #[test]
    fn a_look_takes_no_error() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (mut server, _) = listener.accept().expect("it");
        let (fd, later) = (client.as_raw_fd(), || clock::monotonic_ns() + 1_000_000_000);
        assert!(is_unread(fd) && matches!(look_for_proof(fd), Looked::First(First::Part)));
        server.write_all(b"x").expect("a byte");
        await_any([fd], later());
        assert!(!is_unread(fd) && matches!(look_for_proof(fd), Looked::First(First::Program)));
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        let length = core::mem::size_of::<libc::linger>() as libc::socklen_t;
        let at_once = (&raw const at_once).cast();
        calls::setsockopt(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, at_once, length).expect("an option");
        let mut byte = [0];
        std::io::Read::read_exact(&mut &client, &mut byte).expect("it");
        drop(server);
        await_any([fd], later());
        assert!(!is_unread(fd) && matches!(look_for_proof(fd), Looked::End));
        assert_eq!(calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(libc::ECONNRESET));
    }

    #[test]
    fn nothing_is_waited_for_beyond_the_deadline() {
        let mut room = [0u8; 4];
        let [server, _client] = pair();
        let now = clock::monotonic_ns();
        assert!(matches!(hear_until(server.fd(), &mut room, now), Heard::Nothing));
        assert_eq!(await_any([server.fd(), -1], now), [0, 0]);
    }
}

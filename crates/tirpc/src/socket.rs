//! The socket as a source and a sink of records, with poll(2), recv(2) and sendmsg(2) of the program's: libshunt's, where it is there.

use libc::{c_int, c_void};

use crate::accelerated::{accelerated, Accelerated, Signals};
use crate::record::{Ended, Sink, Source};

extern "C-unwind" {
    // Not those of the libc crate: a thread that is cancelled in one of these unwinds.
    fn poll(set: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    fn recv(fd: c_int, data: *mut c_void, length: usize, flags: c_int) -> isize;
    fn send(fd: c_int, data: *const c_void, length: usize, flags: c_int) -> isize;
}

/// What a socket's last failure was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing came in time.
    Time,
    /// The other end has closed, or receiving failed, with this error.
    Receive(i32),
    /// Sending failed, with this error.
    Send(i32),
}

/// A stream socket.
#[derive(Debug)]
pub struct Socket {
    /// Its descriptor.
    pub fd: c_int,
    /// The longest time to wait for bytes, in milliseconds; negative: for ever.
    pub patience: c_int,
    /// Whether to look for bytes before waiting for them: where the caller was told that there are some.
    pub eager: bool,
    /// Why it ended.
    pub failure: Option<Failure>,
    /// Signals that wait for the end of the call that has the socket.
    pub signals: Option<Signals>,
    library: Option<&'static Accelerated>,
    /// Waits to pass before the processor is offered again.
    pass: u8,
}

/// Waits to pass once it was offered in vain: the peer, or its answer, is not near.
const VAIN: u8 = 8;

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

impl Socket {
    /// Of a descriptor.
    pub fn new(fd: c_int, patience: c_int, eager: bool) -> Socket {
        Socket { fd, patience, eager, failure: None, signals: None, library: accelerated(), pass: 0 }
    }

    /// Whether bytes are there, or come very soon; `None`: looking is no use.
    #[inline]
    pub fn bytes_come(&self) -> Option<bool> {
        self.library?.bytes_come(self.fd)
    }

    /// Where looking is no use, for the peer waits on this processor: offers it once, as libshunt's poll(2) would, but before signals are blocked
    /// for a sleep. Whether bytes are there then.
    fn offer(&mut self) -> bool {
        if self.pass > 0 {
            self.pass -= 1;
            return false;
        }
        // SAFETY: no arguments.
        unsafe { libc::sched_yield() };
        let come = self.bytes_come() == Some(true);
        self.pass = if come { 0 } else { VAIN };
        come
    }

    fn fail(&mut self, failure: Failure) -> Result<usize, Ended> {
        self.failure = Some(failure);
        Err(Ended)
    }
}

impl Source for Socket {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Ended> {
        let mut look = self.eager
            || match self.bytes_come() {
                Some(come) => come,
                None => self.signals.is_some() && self.is_memory() && self.offer(),
            };
        loop {
            if !look {
                if let Some(signals) = &mut self.signals {
                    signals.before_sleep();
                }
                let mut entry = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one entry.
                match unsafe { poll(&mut entry, 1, self.patience) } {
                    0 => return self.fail(Failure::Time),
                    n if n < 0 && errno() == libc::EINTR => continue,
                    n if n < 0 => return self.fail(Failure::Receive(errno())),
                    _ => {}
                }
            }
            look = false;
            // SAFETY: the slice is writable.
            match unsafe { recv(self.fd, into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) } {
                0 => return self.fail(Failure::Receive(libc::ECONNRESET)),
                n if n > 0 => return Ok(n as usize),
                _ => match errno() {
                    libc::EINTR | libc::EAGAIN => {}
                    error => return self.fail(Failure::Receive(error)),
                },
            }
        }
    }
}

impl Sink for Socket {
    fn is_memory(&self) -> bool {
        self.library.is_some_and(|library| library.is_stream(self.fd))
    }

    #[inline]
    fn write(&mut self, parts: [&[u8]; 2]) -> Result<(), Ended> {
        for mut part in parts {
            while !part.is_empty() {
                // SAFETY: the slice is readable. Without flags, as write(2) would send it.
                match unsafe { send(self.fd, part.as_ptr().cast(), part.len(), 0) } {
                    n if n >= 0 => part = &part[n as usize..],
                    _ if errno() == libc::EINTR => {}
                    _ => return self.fail(Failure::Send(errno())).map(drop),
                }
            }
        }
        Ok(())
    }
}

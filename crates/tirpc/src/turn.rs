//! Whose turn it is in a server: the connection that has just been answered may go on for a while before the server's loop looks at the
//! others.
//!
//! A client that calls again at once has its call served by the loop of `svc_getreq_common`, as one that has sent several calls has: so no
//! poll(2) over all descriptors stands between two calls, whatever loop the program has. The others wait for no longer than a turn, and so
//! does what the program does between two calls of `svc_getreq_common`.

use core::arch::x86_64::_rdtsc;

use crate::socket::Socket;

/// Ticks of a turn: about 20 us, as long as a set under `libshunt.so` leaves the kernel unasked while it is busy.
const TURN: u64 = 60_000;
/// Calls after which a look is tried again at the latest.
const MOST: u32 = 64;

/// The turn of one connection.
#[derive(Debug, Default)]
pub struct Turn {
    /// When it began; 0: it has not.
    began: u64,
    /// Calls to let pass before the next look, and how many after the next one that finds nothing.
    pass: u32,
    next: u32,
}

fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter.
    unsafe { _rdtsc() }
}

impl Turn {
    /// A call is read.
    #[inline]
    pub fn begin(&mut self) {
        if self.began == 0 {
            self.began = ticks().max(1);
        }
    }

    /// A call was answered, and no bytes of another are here: whether it is to be waited for. Else the turn is over.
    #[inline]
    pub fn goes_on(&mut self, socket: &Socket) -> bool {
        if self.pass > 0 {
            self.pass -= 1;
        } else if ticks().wrapping_sub(self.began) < TURN {
            match socket.bytes_come() {
                Some(true) => {
                    self.next = 0;
                    return true;
                }
                _ => {
                    self.pass = self.next;
                    self.next = (self.next * 2 + 1).min(MOST);
                }
            }
        }
        self.began = 0;
        false
    }
}

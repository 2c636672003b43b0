//! What relays owe the other owners of a side.
//!
//! A relay (`shunt_handover::relay`) stands between a side and a program without shunt, and so holds bytes that the others
//! cannot see: what the program wrote and was not sent yet, and what was given to the program and not read by it yet. On
//! Linux all owners share one queue. So before another owner sends it asks the relays to settle, to send the one, and
//! before it receives, to take back the other as well. Then its own bytes come behind those that were written before, and it finds the bytes
//! that no owner has read.

use crate::beside;
use crate::life::{self, Event};
use crate::socket::{flag, Socket};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_link::patience::Waited;
use shunt_segment::channel::Carriage;
use shunt_segment::name;
use shunt_sys::libc::{self, timespec, AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_DGRAM};
use shunt_sys::{calls, clock, Errno, Result};

/// This process's name, if it is a relay; 0: it is none.
pub static OWN: AtomicU64 = AtomicU64::new(0);

/// How long a relay may take to settle, in ns; it never sleeps over its work, so one that takes longer is stopped. No thread
/// waits for one on the connection again.
const PATIENCE: u64 = 2_000_000_000;

/// How often it is asked meanwhile whether it still exists, in ns.
const KNOCK_AGAIN: u64 = 10_000_000;

/// Before this process takes the lock for sending of a side that others own too: what relays' programs wrote comes first.
#[inline]
pub fn before_send(socket: &Socket) {
    before(socket, false);
}

/// The same before it receives: what relays' programs were lent is taken back.
#[inline]
pub fn before_receive(socket: &Socket) {
    before(socket, true);
}

#[inline]
fn before(socket: &Socket, receives: bool) {
    let carriage = socket.carriage();
    if carriage.any() && OWN.load(Ordering::Relaxed) == 0 && !socket.has(flag::RELAY_TIMED_OUT) {
        all(socket, carriage, receives);
    }
}

/// Whether a program has been lent bytes since they were taken back. Under the lock for receiving, without which nothing is lent.
pub fn lent(socket: &Socket) -> bool {
    let carriage = socket.carriage();
    carriage.lender.load(Ordering::Acquire) != 0
        && carriage.any()
        && OWN.load(Ordering::Relaxed) == 0
        && !socket.has(flag::RELAY_TIMED_OUT)
}

/// Whether what relays' programs wrote before has found no room yet, so that there is none for this process either; or the stream is the
/// kernel's by now, where the call is to go on. Under the lock for sending.
#[inline(always)]
pub fn owed(socket: &Socket) -> bool {
    socket.has(flag::SHARED | flag::CUT)
        && (socket.has(flag::CUT) && beside::withholds(socket)
            || socket.has(flag::SHARED) && (owed_by_carriers(socket) || socket.hold.is_left()))
}

fn owed_by_carriers(socket: &Socket) -> bool {
    socket.page().head.owes[socket.side()].load(Ordering::Acquire) != 0
        && socket.carriage().any()
        && OWN.load(Ordering::Relaxed) == 0
        && !socket.has(flag::RELAY_TIMED_OUT)
}

#[cold]
#[inline(never)]
fn all(socket: &Socket, carriage: &Carriage, receives: bool) {
    let lender = carriage.lender.load(Ordering::Acquire);
    if receives && lender != 0 {
        carriage.recalled.store(lender as u32, Ordering::Release);
    }
    let ticket = carriage.asked.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
    for (place, settled) in carriage.relays.iter().zip(&carriage.settled) {
        let id = place.load(Ordering::Acquire);
        if id == 0 || id == OWN.load(Ordering::Relaxed) {
            continue;
        }
        if knock(id) == Err(Errno(libc::ECONNREFUSED)) {
            lost(socket, carriage, id);
            continue;
        }
        let mut knocked = clock::monotonic_ns();
        let mut waited = Waited::default();
        while place.load(Ordering::Acquire) == id && (settled.load(Ordering::Acquire).wrapping_sub(ticket) as i32) < 0 {
            calls::sched_yield();
            let now = clock::monotonic_ns();
            if waited.look() > PATIENCE {
                // Stopped, or no relay at all: these words lie where the peer can write.
                socket.set(flag::RELAY_TIMED_OUT);
                lost(socket, carriage, id);
                return;
            }
            if now - knocked > KNOCK_AGAIN {
                knocked = now;
                if knock(id) == Err(Errno(libc::ECONNREFUSED)) {
                    lost(socket, carriage, id);
                    break;
                }
            }
            let pause = timespec { tv_sec: 0, tv_nsec: 20_000 };
            let _ = calls::nanosleep(&pause, core::ptr::null_mut());
        }
    }
}

/// A relay asks the lender to take back what it lent, and does not wait: it is asked itself meanwhile.
pub fn ask_lender(socket: &Socket) {
    let carriage = socket.carriage();
    let lender = carriage.lender.load(Ordering::Acquire);
    carriage.recalled.store(lender as u32, Ordering::Release);
    if lender != 0 && knock(lender) == Err(Errno(libc::ECONNREFUSED)) {
        lost(socket, carriage, lender);
    }
}

/// Relay `id` ends in good order only after it has left its place; so it was killed (or is stopped), with bytes that no side can
/// find.
fn lost(socket: &Socket, carriage: &Carriage, id: u64) {
    let mut entered = carriage.lender.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    for place in &carriage.relays {
        entered |= place.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    }
    if entered {
        life::happens(socket.own(), Event::RelayLost);
    }
}

/// This process is no owner of the side any more: a relay may have become the only one.
pub fn tell(socket: &Socket) {
    for place in &socket.carriage().relays {
        let id = place.load(Ordering::Acquire);
        if id != 0 && id != OWN.load(Ordering::Relaxed) {
            let _ = knock(id);
        }
    }
}

/// Wakes the relay `id`. ECONNREFUSED: there is none.
fn knock(id: u64) -> Result<()> {
    let fd = calls::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)?;
    let (address, length) = shunt_table::sockaddr::abstract_name(name::relay(id).as_slice());
    let byte = 1u8;
    let sent = calls::sendto(
        fd,
        (&byte as *const u8).cast(),
        1,
        MSG_DONTWAIT | MSG_NOSIGNAL,
        (&address as *const libc::sockaddr_un).cast(),
        length,
    );
    let _ = calls::close(fd);
    sent.map(|_| ())
}

//! The program takes the kernel's socket: a stream's numbers become those of the connection that was given back.

use core::sync::atomic::Ordering;

use shunt_rendezvous::exchange;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{numbers_of, Socket};
use shunt_sys::{calls, clock};

use crate::line::state;
use crate::local::{driven, Local, STREAMS};

/// How long connections are waited for that are on their way back (ns), all together, where others are about to have the stream.
const PATIENCE: u64 = 2_000_000_000;

/// Before a call with data looks at a stream: leaves it, if it is the kernel's again. True: the call goes on there.
#[inline(always)]
pub fn leave(socket: &Socket, fd: i32) -> bool {
    match driven() {
        Some(local) if local.returned.load(Ordering::Relaxed) != 0 => leave_returned(local, socket, fd),
        _ => false,
    }
}

#[cold]
#[inline(never)]
fn leave_returned(local: &'static Local, socket: &Socket, fd: i32) -> bool {
    let Some(index) = local.places.line_of(socket) else { return false };
    let is_returned = || {
        local.lock().is_some_and(|driver| {
            let line = &driver.lines[index];
            // Behind an end that was shown a thread that is late would miss what stands before it.
            line.state == state::KERNEL && !(line.end_shown && driver.far(index).outgoing().unacknowledged() > 0)
        })
    };
    is_returned() && exchange::leave(fd, socket, || ask(local, socket, Reason::Unknown, 0))
}

/// Leaves the streams that are to be left at once. The caller has no lock.
#[inline(always)]
pub fn marked(local: &'static Local) {
    if local.leaving.iter().any(|row| row.load(Ordering::Relaxed) != 0) {
        leave_marked(local);
    }
}

#[cold]
#[inline(never)]
fn leave_marked(local: &'static Local) {
    for index in 0..STREAMS {
        let bit = 1 << (index % 64);
        if local.leaving[index / 64].fetch_and(!bit, Ordering::Relaxed) & bit == 0 {
            continue;
        }
        let Some(near) = local.places.near(index) else { continue };
        if let Some(fd) = numbers_of(near).next() {
            leave_returned(local, near, fd);
        }
    }
}

/// All of them become the kernel's in the program's hands: others are about to have what it has.
pub fn all(reason: Reason) {
    leave_those(reason, |_| true);
}

/// That one does: the program asks for what the kernel gives by itself.
pub fn one(socket: &Socket) {
    leave_those(Reason::GivenBackOption, |near| core::ptr::eq(near, socket));
}

fn leave_those(reason: Reason, is_one: impl Fn(&Socket) -> bool) {
    let Some(local) = driven() else { return };
    let until = clock::monotonic_ns() + PATIENCE;
    for index in 0..STREAMS {
        let Some(near) = local.places.near(index).filter(|near| is_one(near)) else { continue };
        let is_open = local.lock().is_some_and(|driver| matches!(driver.lines[index].state, state::TAKEN..=state::KERNEL));
        if let Some(fd) = numbers_of(near).next().filter(|_| is_open) {
            exchange::leave(fd, near, || ask(local, near, reason, until));
        }
    }
    if let Some(mut driver) = local.lock() {
        // What lies in the queue is the kernel's, and the agent hands it on for a moment only: a fork may take longer.
        driver.frames(clock::monotonic_ns());
    }
}

/// Where a connection finds no line: leaves some streams that are the kernel's again, and that their programs do not ask for anything.
pub fn make_room(local: &'static Local) {
    if local.used.load(Ordering::Relaxed) < STREAMS as u32 || local.returned.load(Ordering::Relaxed) == 0 {
        return;
    }
    // Others each time, as there may be some that cannot be left.
    let first = clock::monotonic_ns() as usize;
    let of_all = |step: usize| (first + step) % STREAMS;
    let mut some = [None; AT_ONCE];
    if let Some(driver) = local.lock() {
        let returned = (0..STREAMS).map(of_all).filter(|index| driver.lines[*index].state == state::KERNEL);
        some.iter_mut().zip(returned).for_each(|(place, index)| *place = local.places.near(index));
    }
    for near in some.into_iter().flatten() {
        numbers_of(near).next().into_iter().for_each(|fd| _ = leave_returned(local, near, fd));
    }
}

/// So many (each takes some ten microseconds).
const AT_ONCE: usize = 16;

/// The socket of a line, which has all of its bytes. The caller holds both of the stream's locks.
fn ask(local: &'static Local, near: &Socket, reason: Reason, until: u64) -> Option<Given> {
    let index = local.places.line_of(near)?; // asked under these: no other thread leaves it, or closes it, and its line is its own
    loop {
        let mut driver = local.lock()?;
        let now = clock::monotonic_ns();
        driver.give(index, reason, now);
        driver.pump_returned(index, now);
        let line = &driver.lines[index];
        let is_whole = || driver.far(index).incoming().look().1 == 0;
        if line.state == state::KERNEL && !line.broken && is_whole() {
            return Some(Given { local, index, reason: line.reason });
        }
        let may_come = matches!(line.state, state::GIVING | state::KERNEL) && !line.broken;
        drop(driver);
        if !may_come || now >= until {
            return None;
        }
        calls::sched_yield();
    }
}

/// The socket.
struct Given {
    local: &'static Local,
    index: usize,
    reason: Reason,
}

impl exchange::Given for Given {
    fn reason(&self) -> Reason {
        self.reason
    }

    fn take(self) -> Option<i32> {
        let mut driver = self.local.lock()?;
        if driver.lines[self.index].state != state::KERNEL {
            return None;
        }
        // The kernel's queue has these bytes: a thread that is late, and waits for the lock that the caller holds, finds none here.
        if let Some(near) = self.local.places.near(self.index) {
            near.incoming().pass(near.incoming().look().1);
        }
        Some(driver.hand_out(self.index))
    }
}

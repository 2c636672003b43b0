//! One connection that a relay carries.
//!
//! ```text
//! connection   what it knows, one look at everything, its end    pump: bytes that go on, each way
//! lend   bytes that the program sees and the ring keeps
//! ```

mod lend;
mod pump;

use super::{deferred_close, me};
use crate::kernel_pair;
use core::sync::atomic::Ordering;
use pump::Buffer;
use shunt_segment::channel::{state, RELAYS};
use shunt_segment::process::kind;
use shunt_segment::reason::Reason;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{MSG_DONTWAIT, MSG_NOSIGNAL, POLLIN, POLLOUT};
use shunt_sys::{calls, mapping, process, Result};
use shunt_table::process::helper::dies_by_reset;
use shunt_table::process::status_page;
use shunt_table::receiver;

/// What a relay is given: a stream of the giver's, and the two ends of the program's connection.
#[derive(Clone, Copy)]
pub struct RelayTask {
    /// A descriptor of the stream.
    pub stream: i32,
    /// The relay's end.
    pub relay: i32,
    /// The program's end; -1: the relay needs no copy of it, because it alone will own the stream.
    pub program: i32,
    /// The process that becomes the program; 0: not known.
    pub process: u32,
}

/// What a connection waits for.
#[derive(Clone, Copy)]
pub struct Wishes {
    pub stream: i16,
    pub program: i16,
    /// In CLOCK_MONOTONIC ns; `u64::MAX`: nothing but events.
    pub look_again: u64,
}

pub const NOTHING: Wishes = Wishes { stream: 0, program: 0, look_again: u64::MAX };

const PIECE: usize = 64 << 10;
/// How long bytes may wait for owners with shunt before the program is lent them, at first and at most, in ns.
const FIRST_DELAY: u64 = 2_000_000;
const LONGEST_DELAY: u64 = 256_000_000;
/// How often a connection beside other owners is looked at, at first and at last, in ns.
const FIRST_LOOK: u64 = 500_000;
const LAST_LOOK: u64 = 32_000_000;

/// How long after its end a program may have closed before it is asked for, in ns.
const FORGET: u64 = 60_000_000_000;

/// One connection.
pub struct RelayedConnection {
    pub socket: &'static Socket,
    pub stream: i32,
    pub program: i32,
    twin: i32,
    /// What `twin` was, until it is closed; -1: it is.
    parting: i32,
    process: u32,
    /// Readable when that process has ended; -1: not known.
    pub life: i32,
    place: usize,
    /// Requests to settle that were there when this look began.
    asked: u32,
    inbound: Buffer,
    outbound: Buffer,
    inbound_ended: bool,
    outbound_ended: bool,
    over: bool,
    /// It ends with a reset of the program's end.
    resets: bool,
    /// It is the side's only owner.
    sole: bool,
    /// When to ask whether any process has the program's end yet, which has ended; 0: not yet.
    forget_at: u64,
    /// The side is marked as one that ends with a reset, because the relay may be killed.
    marked: bool,
    /// `outbound` found no room, and the side's other owners are told.
    owing: bool,
    /// The program's end takes no more bytes: its reading was shut, or it is closed.
    deaf: bool,
    /// Bytes that were given to the program and still stand in the ring.
    lent: usize,
    delay: u64,
    /// When bytes were first seen to wait for others; 0: none wait.
    waiting_since: u64,
    look: u64,
}

/// The connections for `tasks`, in memory of their own.
pub fn all(tasks: &[RelayTask], id: u64) -> Result<&'static mut [RelayedConnection]> {
    let connections = mapping::reserve(tasks.len() * core::mem::size_of::<RelayedConnection>())?.cast::<RelayedConnection>();
    let buffers = mapping::reserve(tasks.len() * 2 * PIECE)?;
    let mut count = 0;
    for (i, item) in tasks.iter().enumerate() {
        let Some(socket) = shunt_stream::socket::stream(item.stream) else { continue };
        // Other descriptors of the giver's, and its epoll sets, are not this process's.
        socket.references.store(1, Ordering::Relaxed);
        socket.watchers.clear();
        // SAFETY: within the reserved memory.
        unsafe {
            let buffer = |k: usize| Buffer { data: buffers.add((i * 2 + k) * PIECE), start: 0, end: 0, urgent: false };
            connections.add(count).write(RelayedConnection {
                socket,
                stream: item.stream,
                program: item.relay,
                twin: item.program,
                parting: -1,
                process: item.process,
                life: -1,
                place: place_of(socket, id),
                asked: 0,
                inbound: buffer(0),
                outbound: buffer(1),
                inbound_ended: false,
                outbound_ended: false,
                over: false,
                resets: false,
                sole: false,
                marked: false,
                forget_at: 0,
                owing: false,
                deaf: false,
                lent: 0,
                delay: FIRST_DELAY,
                waiting_since: 0,
                look: FIRST_LOOK,
            });
        }
        count += 1;
        status_page::note(item.stream, kind::STREAM, Reason::Carried, Some(socket.channel()));
    }
    // SAFETY: `count` initialised connections.
    Ok(unsafe { core::slice::from_raw_parts_mut(connections, count) })
}

/// Enters relay `id` among those that owe the side's other owners; false: there are too many.
pub fn enter(socket: &Socket, id: u64) -> bool {
    let carriage = socket.carriage();
    carriage.relays.iter().zip(&carriage.settled).any(|(place, settled)| {
        let free = place.load(Ordering::Acquire) == 0;
        if free {
            settled.store(carriage.asked.load(Ordering::Acquire), Ordering::Release);
        }
        free && place.compare_exchange(0, id, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Takes relay `id` out.
pub fn take_out(socket: &Socket, id: u64) {
    let carriage = socket.carriage();
    let _ = carriage.lender.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);
    for place in &carriage.relays {
        let _ = place.compare_exchange(id, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

fn place_of(socket: &Socket, id: u64) -> usize {
    socket.carriage().relays.iter().position(|place| place.load(Ordering::Relaxed) == id).unwrap_or(RELAYS)
}

impl RelayedConnection {
    pub fn is_over(&self) -> bool {
        self.over
    }

    pub fn holds(&self, fd: i32) -> bool {
        fd == self.stream || fd == self.program || fd == self.twin
    }

    pub fn highest(&self) -> i32 {
        self.stream.max(self.program).max(self.twin)
    }

    /// Whether it has no more use for its copy of the program's end, and has not closed it.
    pub fn parts(&self) -> bool {
        self.parting >= 0
    }

    pub fn parts_at_once(&self) -> bool {
        self.parts() && !deferred_close::would_sleep(self.parting)
    }

    pub fn let_go(&mut self) {
        if self.parts() {
            let _ = calls::close(core::mem::replace(&mut self.parting, -1));
        }
    }

    pub fn memory(&self) -> usize {
        self.inbound.data as usize
    }

    /// Watches the process that becomes the program.
    pub fn watch(&mut self) {
        if self.process != 0 {
            self.life = calls::pidfd_open(self.process as i32, 0).unwrap_or(-1);
        }
    }

    /// Takes this relay out again, if the connection has not ended by itself.
    pub fn leave(&mut self, id: u64) {
        if self.over {
            return;
        }
        self.over = true;
        self.note_debt();
        self.unregister(id);
        self.socket.own().owners.fetch_sub(1, Ordering::AcqRel);
        self.socket.own().part(me());
    }

    fn unregister(&self, id: u64) {
        take_out(self.socket, id);
    }

    /// Tells the side's other owners whether bytes of the program's stand here, for which there is no room.
    fn note_debt(&mut self) {
        let owing = !self.over && !self.outbound.is_empty();
        if core::mem::replace(&mut self.owing, owing) != owing {
            let owes = &self.socket.page().head.owes[self.socket.side()];
            let _ = if owing { owes.fetch_add(1, Ordering::AcqRel) } else { owes.fetch_sub(1, Ordering::AcqRel) };
        }
    }

    /// Notes which requests this look will meet.
    pub fn note_requests(&mut self) {
        self.asked = self.socket.carriage().asked.load(Ordering::Acquire);
    }

    /// One look at everything. `begun`: the program has its descriptor.
    pub fn work(&mut self, begun: bool, id: u64, now: u64) -> Wishes {
        let carriage = self.socket.carriage();
        let asked = self.asked;
        let recalled = carriage.recalled.load(Ordering::Acquire) == id as u32;
        let mut wishes = NOTHING;
        if begun {
            // Once an end is gone no reader comes for what a killed process left counted; but where it is seen when the program
            // ends, a descriptor may as well be in flight.
            let seen = self.others();
            self.mark(seen == Others::None);
            let lost = self.process == 0 && (self.deaf || self.peer_gone()) && !self.kin_lives();
            let others = if lost { Others::None } else { seen };
            if others == Others::None || (!self.program_lives(others) && !self.follow()) {
                self.stop_lending(others == Others::None, id);
            }
            self.pump_outbound();
            // Among relays alone, bytes whose program may be anywhere go to the first one.
            let mut pumps = others == Others::None || (others == Others::Relays && self.twin < 0);
            if !self.over && recalled {
                let _ = carriage.recalled.compare_exchange(id as u32, 0, Ordering::AcqRel, Ordering::Relaxed);
                self.take_back(id);
                self.delay = (self.delay.max(FIRST_DELAY / 4) * 4).min(LONGEST_DELAY);
                self.waiting_since = 0;
            }
            if !self.over {
                if pumps && others != Others::None && !self.claim(id) {
                    // The bell stays on the companion meanwhile.
                    pumps = false;
                    self.look = FIRST_LOOK / 2;
                } else if pumps {
                    self.pump_inbound();
                    self.disclaim(id);
                } else if self.twin >= 0 {
                    wishes.look_again = self.lend(id, now);
                }
            }
            if self.inbound_ended && self.outbound_ended && self.inbound.is_empty() && self.outbound.is_empty() {
                self.over = true;
            }
            if !self.over && others == Others::None && self.twin < 0 && self.outbound_ended && self.outbound.is_empty() {
                wishes.look_again = wishes.look_again.min(self.ask_for_program(now));
            }
            self.note_debt();
            if self.over {
                self.end(id);
            } else {
                self.wishes(pumps, &mut wishes, now);
            }
        }
        if let Some(settled) = carriage.settled.get(self.place) {
            settled.store(asked, Ordering::Release);
        }
        wishes
    }

    /// The side ends with a reset if the relay is killed while it has it alone.
    fn mark(&mut self, sole: bool) {
        if core::mem::replace(&mut self.sole, sole) == sole {
            return;
        }
        let own = &self.socket.own().receive.state;
        if sole {
            self.marked = own.fetch_or(state::LINGER_RESET, Ordering::AcqRel) & state::LINGER_RESET == 0;
        } else if core::mem::replace(&mut self.marked, false) {
            own.fetch_and(!state::LINGER_RESET, Ordering::AcqRel);
        }
    }

    /// The program has sent its end: whether it has only shut its sending half shows nowhere until something comes for it. As the kernel
    /// forgets an end that no process has (tcp_fin_timeout), so does this side. When to look again.
    fn ask_for_program(&mut self, now: u64) -> u64 {
        if self.forget_at == 0 {
            self.forget_at = now + FORGET;
        } else if now >= self.forget_at {
            self.forget_at = now + FORGET;
            self.over = !kernel_pair::is_held(self.program);
        }
        self.forget_at
    }

    fn wishes(&mut self, pumps: bool, wishes: &mut Wishes, now: u64) {
        if pumps {
            if !self.inbound_ended && self.inbound.is_empty() {
                wishes.stream |= POLLIN;
            }
            if !self.outbound.is_empty() {
                wishes.stream |= POLLOUT;
            }
        } else {
            // To sleep on the companion means to take bells off it, which are another owner's: it would sleep on. So the
            // clock decides.
            shunt_stream::waiting::wake::check_peer(self.socket, self.stream);
            self.look = if self.outbound.is_empty() { (self.look * 2).min(LAST_LOOK) } else { FIRST_LOOK };
            wishes.look_again = wishes.look_again.min(now + self.look);
        }
        if self.outbound.is_empty() && !self.outbound_ended {
            wishes.program |= POLLIN;
        }
        if !self.inbound.is_empty() {
            wishes.program |= POLLOUT;
        }
    }

    /// Whether any process that is known to own the side lives. Owners that no process stands for are descriptors in
    /// flight, or were lost with a process that was killed.
    fn kin_lives(&self) -> bool {
        let mine = me();
        let lives = |pid: u32| pid != 0 && pid != mine && !process::has_ended(pid);
        self.socket.own().family.iter().any(|place| lives(place.load(Ordering::Acquire)))
    }

    /// The peer was killed: it said nothing, and its companion stays readable for ever.
    fn peer_gone(&self) -> bool {
        let state = self.socket.own().receive.state.load(Ordering::Acquire);
        self.socket.has(flag::HUNG_UP) || state & state::PEER_GONE != 0
    }

    /// The other owners of the side.
    fn others(&self) -> Others {
        let own = self.socket.own();
        let owners = own.owners.load(Ordering::Acquire);
        if owners <= 1 {
            return Others::None;
        }
        let mine = me();
        let alive = |pid: u32| pid != mine && !process::has_ended(pid);
        if own.orphaned(owners, alive) {
            return Others::None;
        }
        let living =
            own.family.iter().filter(|place| matches!(place.load(Ordering::Acquire), pid if pid != 0 && alive(pid))).count();
        let relays = self.socket.carriage().relays.iter().filter(|place| place.load(Ordering::Acquire) != 0).count();
        // Those that were killed are still counted.
        let dead = own
            .family
            .iter()
            .filter(|place| matches!(place.load(Ordering::Acquire), pid if pid != 0 && pid != mine && !alive(pid)));
        if living < relays && (owners as usize).saturating_sub(dead.count()) <= relays {
            return Others::Relays;
        }
        Others::Some
    }

    fn program_lives(&self, others: Others) -> bool {
        if self.twin < 0 {
            return true; // nothing hangs on it any more
        }
        if self.process == 0 {
            return others != Others::Relays;
        }
        let ended = match self.life {
            -1 => process::has_ended(self.process),
            life => calls::poll_one(life, POLLIN, 0).is_ok_and(|events| events != 0),
        };
        !ended
    }

    /// The program's process has ended. One that it gave its end to before is the program from now on; false: none is seen.
    fn follow(&mut self) -> bool {
        if self.process == 0 {
            return false;
        }
        let Ok(status) = calls::status_of(self.twin) else { return false };
        let Some(next) = receiver::holder(status.st_ino as u32) else { return false };
        if self.life >= 0 {
            let _ = calls::close(core::mem::replace(&mut self.life, -1));
        }
        self.process = next;
        self.watch();
        true
    }

    /// The peer reset the connection: the program's end is reset.
    fn reset_program(&mut self) {
        self.resets = true;
        self.over = true;
    }

    /// The program reset its end, or closed it with bytes unread: so does the relay.
    fn reset_peer(&mut self) {
        self.socket.set(flag::LINGER_RESET);
        self.over = true;
    }

    fn end(&mut self, id: u64) {
        if self.twin >= 0 {
            self.take_back(id);
            self.parting = core::mem::replace(&mut self.twin, -1);
        }
        self.unregister(id);
        dies_by_reset(self.program, self.resets);
        let _ = calls::close(self.program);
        // Its other end is closed: nothing lingers.
        self.let_go();
        if self.marked && !self.socket.has(flag::LINGER_RESET) {
            self.socket.own().receive.state.fetch_and(!state::LINGER_RESET, Ordering::AcqRel);
        }
        shunt_table::upcalls::operations::closing(self.stream);
        let _ = calls::close(self.stream);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// None.
    None,
    /// Relays alone.
    Relays,
    /// Processes under shunt.
    Some,
}

/// To the program's connection, as many bytes as it takes.
fn to(fd: i32, data: *const u8, length: usize, flags: i32) -> Result<usize> {
    calls::sendto(fd, data.cast(), length, flags | MSG_DONTWAIT | MSG_NOSIGNAL, core::ptr::null(), 0)
}

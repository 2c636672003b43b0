//! Whose inbox a destination is: the kernel's answer, believed for a while.

use super::cmsg_send::Wishes;
use super::{inbox_table, Datagram, COMMON};
use core::sync::atomic::Ordering;
use shunt_ring::inbox::{Inbox, Source};
use shunt_segment::address::Address;
use shunt_segment::inbox::ask;
use shunt_sys::{calls, clock};
use shunt_table::global::SETUP;
use shunt_table::sockaddr::Encoded;
use shunt_table::{diag, route};

/// Destinations that a socket remembers.
const PLACES: usize = 16;

/// Ticks for which the kernel's answer is believed: about 20 ms, and 1 ms where another socket may take the port over
/// at any time without a word to this process.
const BELIEVED: u64 = 50_000_000;
const BELIEVED_SHAREABLE: u64 = 2_500_000;
/// The same while the gate is shut: half a second.
const LONGEST_BELIEVED: u64 = 1_000_000_000;

/// Ticks between two looks whether the receiver's process still lives (about 20 us).
const LIVES_EVERY: u64 = 50_000;

/// Datagrams to one destination after which its inbox is asked for the first time; then at each doubling.
const FIRST_ASKED: u32 = 16;

/// A destination, and its inbox if it has one.
#[derive(Clone, Copy)]
pub struct Route {
    destination: Address,
    /// The source that the program chose (IP_PKTINFO), or zeros.
    chosen: [u8; 16],
    by_loopback: bool,
    /// The interface that the destination's address belongs to; 0: unknown.
    pub interface: u32,
    /// Datagrams that went there through the kernel.
    sent: u32,
    found: Option<inbox_table::Address>,
    inode: u32,
    source: Source,
    epoch: u32,
    changes: u32,
    asked: u64,
    seen_alive: u64,
}

/// The routes of one socket, by a hash of the destination.
pub struct Routes {
    places: [Route; PLACES],
}

const NO_ROUTE: Route = Route {
    destination: Address { ip: [0; 16], port: 0, scope: 0 },
    chosen: [0; 16],
    by_loopback: false,
    interface: 0,
    sent: 0,
    found: None,
    inode: 0,
    source: Source { v6: false, ip: [0; 16], port: 0, scope: 0, processor: 0 },
    epoch: 0,
    changes: 0,
    asked: 0,
    seen_alive: 0,
};

impl Routes {
    /// None yet.
    pub const fn new() -> Routes {
        Routes { places: [NO_ROUTE; PLACES] }
    }

    /// The inboxes that are known.
    pub fn inboxes(&self) -> impl Iterator<Item = Inbox> + '_ {
        self.places.iter().filter_map(|route| route.found).map(|found| found.inbox)
    }

    /// The socket's datagrams go through the kernel from now on: what lies in inboxes comes first.
    pub fn before_kernel(&self) {
        self.inboxes().for_each(|inbox| _ = inbox.before_kernel());
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        if self.places.iter().any(|route| route.found.is_some()) {
            let Some(_setup) = SETUP.lock() else { return };
            for route in &mut self.places {
                if let Some(found) = route.found.take() {
                    found.inbox.before_kernel();
                    inbox_table::give_back(found.index);
                }
            }
        }
        self.places = [NO_ROUTE; PLACES];
    }

    /// Datagrams went through the kernel, it is not known where to.
    pub fn after_kernel(&self) {
        self.inboxes().for_each(|inbox| inbox.after_kernel());
    }

    /// The place of a destination; what lay there before goes if it was another one.
    #[inline]
    pub fn place(&mut self, destination: &Address, wishes: &Wishes) -> &mut Route {
        let tail = u32::from_ne_bytes([destination.ip[12], destination.ip[13], destination.ip[14], destination.ip[15]]);
        let hash = (tail ^ (destination.port as u32) << 8).wrapping_mul(0x9e37_79b1) >> 28;
        let place = &mut self.places[hash as usize % PLACES];
        if place.destination != *destination || place.chosen != wishes.source || place.by_loopback != wishes.by_loopback {
            place.forget();
            let (chosen, by_loopback) = (wishes.source, wishes.by_loopback);
            *place = Route { destination: *destination, chosen, by_loopback, ..NO_ROUTE };
        }
        place
    }
}

impl Default for Routes {
    fn default() -> Self {
        Routes::new()
    }
}

impl Route {
    fn forget(&mut self) {
        if let Some(found) = self.found.take() {
            found.inbox.before_kernel();
            if let Some(_setup) = SETUP.lock() {
                inbox_table::give_back(found.index);
            }
        }
    }

    /// The inbox turned out to be retired.
    pub fn lose(&mut self) {
        self.forget();
    }

    /// The inbox of the destination; and the source to tell, if the gate is open and the kernel still gives datagrams to
    /// its socket.
    #[inline]
    pub fn inbox(&mut self, fd: i32, socket: &Datagram) -> Option<(Inbox, Option<Source>)> {
        let Some(found) = self.found else { return self.look_for(fd, socket) };
        let now = clock::ticks();
        let header = found.inbox.header();
        let passed = now.wrapping_sub(self.asked);
        let changed =
            header.epoch.load(Ordering::Relaxed) != self.epoch || COMMON.changes.load(Ordering::Relaxed) != self.changes;
        // Nothing can be written there now: whose it is matters less.
        if !changed && passed < LONGEST_BELIEVED && !found.inbox.may_take() && !found.inbox.is_retired() {
            return Some((found.inbox, None));
        }
        let stale =
            changed || passed > BELIEVED || (passed > BELIEVED_SHAREABLE && header.shareable.load(Ordering::Relaxed) != 0);
        if stale && self.ask_again(fd, socket).is_none() {
            return self.look_for(fd, socket); // another socket has the port now
        }
        if now.wrapping_sub(self.seen_alive) > LIVES_EVERY {
            self.seen_alive = now;
            if !inbox_table::lives(found.index) {
                found.inbox.retire();
                self.lose();
                return None;
            }
        }
        Some((found.inbox, Some(self.source)))
    }

    /// Counts a datagram through the kernel, and looks for the inbox now and then.
    #[cold]
    fn look_for(&mut self, fd: i32, socket: &Datagram) -> Option<(Inbox, Option<Source>)> {
        self.sent = self.sent.saturating_add(1);
        let due = self.sent >= FIRST_ASKED && (self.sent.is_power_of_two() || self.sent.is_multiple_of(8) && self.asked != 0);
        if !due && !socket.is_eager() {
            return None;
        }
        let _setup = SETUP.lock()?;
        let (source, owner) = resolve(fd, socket, self)?;
        // `asked` tells that there is an inbox to wait for; otherwise the next question comes at the next doubling.
        let (found, waiting) = inbox_table::find(owner, self.destination.port);
        self.asked = if waiting { 1 } else { 0 };
        let found = found?;
        self.found = Some(found);
        self.learn_interface();
        self.inode = owner.inode;
        self.source = source;
        // What went there before went through the kernel.
        if socket.through_kernel.load(Ordering::Relaxed) != 0 {
            found.inbox.after_kernel();
        }
        self.believe();
        Some((found.inbox, Some(source)))
    }

    fn believe(&mut self) {
        if let Some(found) = self.found {
            self.epoch = found.inbox.header().epoch.load(Ordering::SeqCst);
        }
        self.changes = COMMON.changes.load(Ordering::SeqCst);
        self.asked = clock::ticks();
    }

    /// The set-up lock is held.
    fn learn_interface(&mut self) {
        let asked = self.found.is_some_and(|found| found.inbox.asks() & (ask::INFO | ask::INFO6) != 0);
        self.interface = if self.destination.is_loopback() {
            1
        } else if asked {
            route::interface_of(&self.destination).unwrap_or(0)
        } else {
            0
        };
    }

    #[cold]
    fn ask_again(&mut self, fd: i32, socket: &Datagram) -> Option<()> {
        let before = *self;
        self.believe();
        let setup = SETUP.lock()?;
        match resolve(fd, socket, &before) {
            Some((source, owner)) if owner.inode == before.inode && source == before.source => {
                self.learn_interface();
                socket.outgoing.forget(); // other processes may have set them
                Some(())
            }
            _ => {
                drop(setup);
                self.lose();
                None
            }
        }
    }
}

/// The source that a datagram from `fd` to `destination` would have, and the socket that would get it. The set-up lock
/// is held.
fn resolve(fd: i32, socket: &Datagram, wanted: &Route) -> Option<(Source, diag::Owner)> {
    let destination = &wanted.destination;
    let mut own = shunt_table::sockaddr::bound_address(fd);
    if own.port == 0 && socket.is_eager() {
        // The port that the first datagram would give it: bind to nothing chooses as sending does.
        let unspecified = Address { port: 0, ..own };
        let encoded = Encoded::new(socket.family.load(Ordering::Relaxed), &unspecified);
        let _ = calls::bind(fd, encoded.pointer(), encoded.length);
        own = shunt_table::sockaddr::bound_address(fd);
    }
    let linklocal = destination.ip[0] == 0xfe && destination.ip[1] & 0xc0 == 0x80;
    if own.port == 0 || destination.port == 0 || destination.is_unspecified() || linklocal {
        return None;
    }
    let route = route::local_source(destination).ok()??;
    let chosen = Address { ip: wanted.chosen, port: 0, scope: 0 };
    let ip = if !chosen.is_unspecified() {
        // Whether an address may be a source is the kernel's to judge, but for those of this host.
        route::local_source(&chosen).ok()??;
        chosen.ip
    } else if own.is_unspecified() || chosen.as_v4().is_some() {
        route.ip
    } else {
        own.ip
    };
    if wanted.by_loopback && !(destination.is_loopback() && Address { ip, port: 0, scope: 0 }.is_loopback()) {
        return None;
    }
    let sender = Address { ip, port: own.port, scope: 0 };
    if sender.as_v4().is_some() != destination.as_v4().is_some() {
        return None;
    }
    let owner = diag::receiver(&sender, destination).ok()??;
    Some((Source { v6: sender.as_v4().is_none(), ip, port: own.port, scope: 0, processor: 0 }, owner))
}

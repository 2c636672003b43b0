//! What this process has for other hosts: its station, the links of that, and the way to its keeper.

use super::making::Making;
use super::stream_words::{self, LINKS, STREAMS};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use shunt_link as link;
use shunt_segment::address::Address;
use shunt_segment::CHANNELS;
use shunt_station::{Station, Stream};
use shunt_stream::progress::{self, Progress};
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc;
use shunt_sys::{calls, clock, mapping, Errno, Result};
use shunt_table::global::{LockedCell, SETUP};
use shunt_table::table;

/// A process's share in a station; a copy after fork is as good.
pub struct LocalStation {
    /// The station.
    pub station: Station,
    /// Its links: where they lie, and their index in this process's list.
    pub links: [(*mut u8, usize); LINKS],
    /// Over which the keeper is told things.
    pub control: AtomicI32,
    /// It is this process's user's, for sure ([`super::station_owner`]).
    pub claimed: AtomicBool,
    /// This process leaves it, or has left it ([`LocalStation::leave_if_empty`]).
    pub(super) left: AtomicBool,
    /// This process, or a thread of it, may be in another network namespace than the station.
    elsewhere: AtomicBool,
    /// The one that the process had before.
    older: AtomicPtr<LocalStation>,
    /// The pump's sockets, one for each stream, in this process.
    pub far: *mut Socket,
    /// Descriptors that the keeper may have.
    pub descriptors: u64,
    /// The near sockets that this process has, one for each stream; it may be another stream's by now.
    near: *mut AtomicPtr<Socket>,
    /// In the keeper: the far companions of streams; -1 elsewhere.
    pub far_fds: LockedCell<[i32; STREAMS as usize]>,
}

/// The stations of this process.
struct LocalStations {
    /// That in which new streams are.
    current: AtomicPtr<LocalStation>,
    /// The newest of those that it has, or had, and still has mapped ([`LocalStation::older`]).
    newest: AtomicPtr<LocalStation>,
    /// The thread that makes one at this moment.
    making: Making,
    /// Before then no listener is moved to another station (ns).
    move_next: AtomicU64,
}

static LOCAL: LocalStations = LocalStations {
    current: AtomicPtr::new(core::ptr::null_mut()),
    newest: AtomicPtr::new(core::ptr::null_mut()),
    making: Making::new(),
    move_next: AtomicU64::new(0),
};

/// Before then no listener is moved to another station (ns).
pub(super) fn move_next() -> &'static AtomicU64 {
    &LOCAL.move_next
}

/// This process's station, if it has one.
#[inline(always)]
pub fn local() -> Option<&'static LocalStation> {
    let local = LOCAL.current.load(Ordering::Acquire);
    // SAFETY: null, or a station that is never unmapped.
    (!local.is_null()).then(|| unsafe { &*local })
}

/// The process's station is this one, or none (null): streams there make progress from now on by these functions.
pub fn be_local(local: *mut LocalStation, by: Option<&'static Progress>) {
    LOCAL.current.store(local, Ordering::Release);
    progress::fill(by);
}

/// A thread makes a station.
pub fn making() -> &'static Making {
    &LOCAL.making
}

/// The process's station, if it has had streams there: what comes before, for listeners, is the keeper's, which may be another user's.
#[inline(always)]
pub fn driven() -> Option<&'static LocalStation> {
    local().filter(|local| local.claimed.load(Ordering::Relaxed))
}

/// The process's station, and those that it had before.
pub fn local_stations() -> impl Iterator<Item = &'static LocalStation> {
    // SAFETY: null, or a station that is never unmapped.
    let at = |place: &AtomicPtr<LocalStation>| unsafe { place.load(Ordering::Acquire).cast_const().as_ref() };
    core::iter::successors(at(&LOCAL.newest), move |local| at(&local.older))
}

/// The process, or a thread of it, has left its network namespace, in which its stations are.
pub fn left_namespace() {
    local_stations().for_each(|local| local.elsewhere.store(true, Ordering::Relaxed));
}

/// The process has no part in it any more.
pub fn part_with(local: &'static LocalStation) {
    let is_it = |place: &&AtomicPtr<LocalStation>| core::ptr::eq(place.load(Ordering::Acquire), local);
    if is_it(&&LOCAL.current) {
        forget();
    }
    let before = core::iter::once(&LOCAL.newest).chain(local_stations().map(|other| &other.older)).find(is_it);
    if let Some(before) = before {
        before.store(local.older.load(Ordering::Acquire), Ordering::Release);
    }
}

pub fn note_newest(made: &'static LocalStation) {
    let made_at = core::ptr::from_ref(made).cast_mut();
    let newest = |before| {
        made.older.store(before, Ordering::Release);
        Some(made_at)
    };
    let _ = LOCAL.newest.fetch_update(Ordering::AcqRel, Ordering::Acquire, newest);
}

/// In the child after fork. `strange`: in a PID namespace of its own, where numbers of processes, by which the station's lock names its
/// holder, mean others: it has no part in the family's station.
pub fn forked(strange: bool) {
    LOCAL.making.forget();
    local_stations().chain(local()).for_each(|local| local.station.forked());
    if strange {
        forget();
    }
}

/// This process, a copy of one that has a station, lets go of what it had there: like a program that was handed a stream, it tells the
/// keeper by bells on the companion.
pub fn forget() {
    be_local(core::ptr::null_mut(), None);
}

/// The end of an unused station: its descriptors are closed, and their numbers are the program's again.
pub(super) fn let_go(station: Station) {
    for fd in station.descriptors().into_iter().filter(|fd| *fd >= 0) {
        table::take(fd);
    }
}

/// Where a station lies, and the sockets and places that it has for each stream.
const LOCAL_STATION_SIZE: usize = core::mem::size_of::<LocalStation>().next_multiple_of(4096);
const FAR_SIZE: usize = STREAMS as usize * core::mem::size_of::<Socket>();
const NEAR_SIZE: usize = STREAMS as usize * core::mem::size_of::<AtomicPtr<Socket>>();
pub(super) const SIZE: usize = LOCAL_STATION_SIZE + FAR_SIZE + NEAR_SIZE;

/// The place of a station whose keeper, if there is one, is told things over `control`.
pub(super) fn lay(station: Station, control: i32) -> Result<&'static LocalStation> {
    let mut links = [(core::ptr::null_mut(), 0); LINKS];
    let memory = match make_links(&mut links).and_then(|()| mapping::reserve(SIZE)) {
        Ok(memory) => memory,
        Err(error) => {
            drop_links(&links);
            let_go(station);
            return Err(error);
        }
    };
    let local = memory.cast::<LocalStation>();
    let far = memory.wrapping_add(LOCAL_STATION_SIZE).cast();
    let near = memory.wrapping_add(LOCAL_STATION_SIZE + FAR_SIZE).cast();
    // SAFETY: fresh memory of the right size.
    unsafe {
        local.write(LocalStation {
            station,
            links,
            control: AtomicI32::new(control),
            claimed: AtomicBool::new(false),
            left: AtomicBool::new(false),
            elsewhere: AtomicBool::new(false),
            older: AtomicPtr::new(core::ptr::null_mut()),
            descriptors: limit(),
            far,
            near,
            far_fds: LockedCell::new([-1; STREAMS as usize]),
        });
        Ok(&*local)
    }
}

fn make_links(links: &mut [(*mut u8, usize); LINKS]) -> Result<()> {
    let _setup = SETUP.lock().ok_or(Errno(libc::EINTR))?;
    for place in links {
        let index = link::make_lasting(shunt_segment::link::STATIONS)?;
        *place = (link::at(index).base, index);
    }
    Ok(())
}

pub(super) fn drop_links(links: &[(*mut u8, usize); LINKS]) {
    let Some(_setup) = SETUP.lock() else { return };
    links.iter().filter(|(base, _)| !base.is_null()).for_each(|(_, index)| link::drop_lasting(*index));
}

/// Descriptors that this process may allow itself, as its keeper does.
fn limit() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    match calls::prlimit(0, libc::RLIMIT_NOFILE, core::ptr::null(), &mut limit) {
        Ok(_) => limit.rlim_max,
        Err(_) => 0,
    }
}

/// Descriptors of a keeper that belong to no stream: the station's, gates, query sockets.
const BESIDE: u64 = 96;

impl LocalStation {
    /// Another host is reached from `own`. If this is not the station's address, that may have been taken from the interface: nothing
    /// arrives there any more, and the station is over. Only a process of its own user says that, which sees the interfaces that there are.
    pub fn look_after_address(&self, own: &Address) {
        let sees = !self.elsewhere.load(Ordering::Relaxed) && !shunt_table::process::identity::namespaces_differ();
        if sees && self.station.address_is_gone(own, clock::monotonic_ns()) && self.is_own() {
            self.station.strand();
        }
    }

    /// Whether the keeper has room for one more stream: a far companion and a shadow.
    pub fn has_room(&self) -> bool {
        2 * (self.station.lent() as u64 + 1) + BESIDE <= self.descriptors
    }

    /// Whether its keeper answers for the listener with this inode.
    pub fn hears(&self, inode: u64) -> bool {
        self.station.listeners().any(|known| known == inode)
    }

    /// The words that belong to no stream.
    pub fn common(&self) -> &stream_words::Common {
        // SAFETY: in the header page of the first link, which is mapped for as long as this station.
        unsafe { &*self.links[0].0.add(stream_words::COMMON).cast::<stream_words::Common>() }
    }

    /// The link and channel of a stream: where the link lies, its index, the channel.
    pub fn place(&self, stream: Stream) -> (*mut u8, usize, usize) {
        let (base, index) = self.links[(stream as usize / CHANNELS) % LINKS];
        (base, index, stream as usize % CHANNELS)
    }

    /// The stream of a near socket.
    pub fn stream_of(&self, socket: &Socket) -> Option<Stream> {
        let base = socket.link();
        let link = self.links.iter().position(|(known, _)| *known == base)?;
        Some((link * CHANNELS + socket.channel()) as Stream)
    }

    /// The pump's socket of a stream, in this process. To be asked under the station's lock.
    pub fn far(&self, stream: Stream) -> &'static Socket {
        // SAFETY: within the slab; all-zero is a valid socket.
        let socket = unsafe { &*self.far.add((stream % STREAMS) as usize) };
        let generation = stream_words::get(&self.station, stream, stream_words::GENERATION) as u32;
        if socket.generation.load(Ordering::Relaxed) != generation {
            let (base, index, channel) = self.place(stream);
            socket.flags.store(shunt_stream::socket::flag::FAR, Ordering::Relaxed);
            socket.hold.reset();
            socket.low_water.store(1, Ordering::Relaxed);
            socket.attach(base, channel, 1);
            socket.connected.link_index.store(index as u32, Ordering::Relaxed);
            socket.generation.store(generation, Ordering::Relaxed);
        }
        socket
    }

    fn near_place(&self, stream: Stream) -> &AtomicPtr<Socket> {
        // SAFETY: within the slab; all-zero is a null pointer.
        unsafe { &*self.near.add((stream % STREAMS) as usize) }
    }

    /// The near side of a stream is this process's.
    pub fn set_near(&self, stream: Stream, socket: &'static Socket) {
        self.near_place(stream).store(core::ptr::from_ref(socket).cast_mut(), Ordering::Release);
    }

    /// The near side of a stream, if it is this process's alone.
    pub fn near(&self, stream: Stream) -> Option<&'static Socket> {
        // SAFETY: null, or a socket; these are never unmapped.
        let socket = unsafe { self.near_place(stream).load(Ordering::Acquire).as_ref() }?;
        let (base, _, channel) = self.place(stream);
        let flags = socket.flags.load(Ordering::Relaxed) & (flag::REMOTE | flag::SHARED);
        let is_it = flags == flag::REMOTE && socket.link() == base && socket.channel() == channel;
        (is_it && socket.references.load(Ordering::Relaxed) > 0).then_some(socket)
    }

    /// The far companion of a stream; -1: this process is not the keeper.
    pub fn far_fd(&self, stream: Stream) -> i32 {
        // SAFETY: only the keeper, which has one thread, ever writes here.
        unsafe { (*self.far_fds.get())[(stream % STREAMS) as usize] }
    }
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    let apart = local().filter(|local| !local_stations().any(|other| core::ptr::eq(other, *local)));
    for local in local_stations().chain(apart) {
        let place = core::ptr::from_ref(local).cast_mut();
        // SAFETY: a station that is never unmapped; descriptors are renumbered by one thread at a time, and the station keeps
        // the old number open for those that use it meanwhile.
        unsafe { (*place).station.renumber(from, to) };
        shunt_table::private::renumber(&local.control, from, to);
    }
}

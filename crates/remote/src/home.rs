//! What this process has for other hosts: its station, the links of that, and the way to its keeper.

use super::area::{self, Device};
use super::making::Making;
use super::message::Message;
use super::{fork, words};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use shunt_link as link;
use shunt_segment::address::Address;
use shunt_segment::reason::Reason;
use shunt_segment::CHANNELS;
use shunt_station::{Station, Stream};
use shunt_stream::progress;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::libc::{self, AF_UNIX, SOCK_CLOEXEC, SOCK_SEQPACKET};
use shunt_sys::{calls, clock, mapping, sleeping, Errno, Result};
use shunt_table::global::{LockedCell, SETUP};
use shunt_table::{private, table};

/// Links of a station: all are made with it, so that every process that is forked has all of them.
pub const LINKS: usize = 8;

/// A process's share in a station; a copy after fork is as good.
pub struct Home {
    /// The station.
    pub station: Station,
    /// Its links: where they lie, and their index in this process's list.
    pub links: [(*mut u8, usize); LINKS],
    /// Over which the keeper is told things.
    pub control: AtomicI32,
    /// It is this process's user's, for sure ([`super::whose`]).
    pub claimed: AtomicBool,
    /// This process leaves it, or has left it ([`Home::leave_if_empty`]).
    pub(super) left: AtomicBool,
    /// This process, or a thread of it, may be in another network namespace than the station.
    elsewhere: AtomicBool,
    /// The one that the process had before.
    older: AtomicPtr<Home>,
    /// The pump's sockets, one for each stream, in this process.
    pub far: *mut Socket,
    /// Descriptors that the keeper may have.
    pub descriptors: u64,
    /// The near sockets that this process has, one for each stream; it may be another stream's by now.
    near: *mut AtomicPtr<Socket>,
    /// In the keeper: the far companions of streams; -1 elsewhere.
    pub far_fds: LockedCell<[i32; words::STREAMS as usize]>,
}

static HOME: AtomicPtr<Home> = AtomicPtr::new(core::ptr::null_mut());

/// The newest of those that it has, or had, and still has mapped ([`Home::older`]).
static NEWEST: AtomicPtr<Home> = AtomicPtr::new(core::ptr::null_mut());

/// Who makes a home at this moment: a process has one.
static MAKING: Making = Making::new();
/// How long another one's making is waited for (ns): it takes 10 ms, and a keeper's birth.
const MADE_WITHIN: u64 = 200_000_000;
/// Between two looks whether it is made (ns).
const LOOK: i64 = 200_000;

/// This process's home, if it has one.
#[inline(always)]
pub fn home() -> Option<&'static Home> {
    let home = HOME.load(Ordering::Acquire);
    // SAFETY: null, or a home that is never unmapped.
    (!home.is_null()).then(|| unsafe { &*home })
}

/// The process's home is this one, or none (null); streams there make progress from now on.
fn be_home(home: *mut Home) {
    HOME.store(home, Ordering::Release);
    progress::fill((!home.is_null()).then_some(&super::near::PROGRESS));
}

/// In the keeper: its home, which its maker does not have yet when it forks. Without it nobody would be rung for whom the keeper finds
/// bytes or space before it has heard of the stream.
pub fn keeps(home: &'static Home) {
    home.control.store(-1, Ordering::Relaxed); // nobody wakes himself
    be_home(core::ptr::from_ref(home).cast_mut());
}

/// The process's home, and those that it had before.
pub fn homes() -> impl Iterator<Item = &'static Home> {
    // SAFETY: null, or a home that is never unmapped.
    let at = |place: &AtomicPtr<Home>| unsafe { place.load(Ordering::Acquire).cast_const().as_ref() };
    core::iter::successors(at(&NEWEST), move |home| at(&home.older))
}

/// The process, or a thread of it, has left its network namespace, in which its stations are.
pub fn left_namespace() {
    homes().for_each(|home| home.elsewhere.store(true, Ordering::Relaxed));
}

/// The process has no part in it any more.
pub fn part_with(home: &'static Home) {
    let is_it = |place: &&AtomicPtr<Home>| core::ptr::eq(place.load(Ordering::Acquire), home);
    if is_it(&&HOME) {
        forget();
    }
    let before = core::iter::once(&NEWEST).chain(homes().map(|other| &other.older)).find(is_it);
    if let Some(before) = before {
        before.store(home.older.load(Ordering::Acquire), Ordering::Release);
    }
}

/// This process's home; it is made if there is none, for the device by which the first peer is reached. `connects`: streams of this
/// process's user will be there.
pub fn settle(device: &Device, connects: bool) -> core::result::Result<&'static Home, Reason> {
    let kept = || kept().filter(|home| !connects || home.is_own());
    let mut until = 0;
    loop {
        if let Some(home) = kept() {
            return Ok(home);
        }
        let me = shunt_sys::thread::id();
        if MAKING.begin(me, clock::monotonic_ns()) {
            // Somebody else may have made it since.
            let made = kept().map_or_else(|| make(device).map_err(|_| Reason::NoStation), Ok);
            if let Ok(made) = made {
                if let Some(old) = home().filter(|old| !core::ptr::eq(*old, made) && old.station.is_over()) {
                    // Its listeners can be heard by another one. Streams that it keeps ring it by their companions.
                    for inode in old.station.listeners() {
                        let _ = Message::NoEar(inode).send(old.control.load(Ordering::Relaxed), &[]);
                    }
                }
                // If the keeper of the last one is gone, so is every stream that it kept: the next ones get another.
                be_home(core::ptr::from_ref(made).cast_mut());
                if !homes().any(|home| core::ptr::eq(home, made)) {
                    note_newest(made);
                }
                homes().filter(|home| !core::ptr::eq(*home, made)).for_each(Home::leave_if_empty);
                let _ = connects && made.is_own();
            }
            MAKING.end(me);
            return made;
        }
        let now = clock::monotonic_ns();
        until = if until == 0 { now + MADE_WITHIN } else { until };
        if now >= until {
            return Err(Reason::TooSlow);
        }
        let _ = sleeping::nap(LOOK);
    }
}

fn note_newest(made: &'static Home) {
    let made_at = core::ptr::from_ref(made).cast_mut();
    let newest = |before| {
        made.older.store(before, Ordering::Release);
        Some(made_at)
    };
    let _ = NEWEST.fetch_update(Ordering::AcqRel, Ordering::Acquire, newest);
}

/// This process's home, if its keeper lives and its device may still bring something: an agent that was started again knows nothing of
/// the endpoints that the last one had.
fn kept() -> Option<&'static Home> {
    home().filter(|home| !home.station.is_over() && Message::Wake.send(home.control.load(Ordering::Relaxed), &[]).is_ok_or_full())
}

/// In the child after fork. `strange`: in a PID namespace of its own, where numbers of processes, by which the station's lock knows who
/// holds it, mean others: it has no part in the family's station.
pub fn forked(strange: bool) {
    MAKING.forget();
    homes().chain(home()).for_each(|home| home.station.forked());
    if strange {
        forget();
    }
}

/// Whether a message has reached its queue, or finds it full.
trait Reached {
    fn is_ok_or_full(&self) -> bool;
}

impl Reached for Result<()> {
    fn is_ok_or_full(&self) -> bool {
        matches!(self, Ok(()) | Err(Errno(libc::EAGAIN)))
    }
}

/// This process, a copy of one that has a home, lets go of what it had there: like a program that was handed a stream, it tells the
/// keeper by bells on the companion.
pub fn forget() {
    be_home(core::ptr::null_mut());
}

fn make(device: &Device) -> Result<&'static Home> {
    if !device.answers() {
        return Err(Errno(libc::EAGAIN));
    }
    let mut station = Station::make(device.choice(), clock::monotonic_ns())?;
    let [control, keepers] = match out_of_the_way(&mut station).and_then(|()| control()) {
        Ok(ends) => ends,
        Err(error) => {
            let_go(station);
            return Err(error);
        }
    };
    let made = lay(station, control).and_then(|home| {
        fork::keeper(home, control, keepers).inspect_err(|_| raze(home))?;
        Ok(home)
    });
    let _ = calls::close(keepers);
    match made {
        Ok(_) => area::note_home(),
        Err(_) => private::close(control),
    }
    made
}

/// Moves the station's descriptors out of the program's way, as all that is ours.
fn out_of_the_way(station: &mut Station) -> Result<()> {
    for fd in station.descriptors().into_iter().filter(|fd| *fd >= 0) {
        let number = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, private::base() as usize)?;
        table::set_private(number);
        station.renumber(fd, number);
        let _ = calls::close(fd);
    }
    Ok(())
}

/// Over which a keeper is told things: our end, and its.
fn control() -> Result<[i32; 2]> {
    let mut pair = [-1; 2];
    calls::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.as_mut_ptr())?;
    match private::keep(pair[0]) {
        Ok(control) => Ok([control, pair[1]]),
        Err(error) => {
            let _ = calls::close(pair[1]);
            Err(error)
        }
    }
}

/// The end of a station that nobody has used: its descriptors are closed, and their numbers are the program's again.
fn let_go(station: Station) {
    for fd in station.descriptors().into_iter().filter(|fd| *fd >= 0) {
        table::take(fd);
    }
}

/// Where a home lies, and the sockets and places that it has for each stream.
const HOME_SIZE: usize = core::mem::size_of::<Home>().next_multiple_of(4096);
const FAR_SIZE: usize = words::STREAMS as usize * core::mem::size_of::<Socket>();
const NEAR_SIZE: usize = words::STREAMS as usize * core::mem::size_of::<AtomicPtr<Socket>>();
const SIZE: usize = HOME_SIZE + FAR_SIZE + NEAR_SIZE;

/// The home of a station whose keeper, if there is one, is told things over `control`.
pub(super) fn lay(station: Station, control: i32) -> Result<&'static Home> {
    let mut links = [(core::ptr::null_mut(), 0); LINKS];
    let memory = match make_links(&mut links).and_then(|()| mapping::reserve(SIZE)) {
        Ok(memory) => memory,
        Err(error) => {
            drop_links(&links);
            let_go(station);
            return Err(error);
        }
    };
    let home = memory.cast::<Home>();
    let far = memory.wrapping_add(HOME_SIZE).cast();
    let near = memory.wrapping_add(HOME_SIZE + FAR_SIZE).cast();
    // SAFETY: fresh memory of the right size.
    unsafe {
        home.write(Home {
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
            far_fds: LockedCell::new([-1; words::STREAMS as usize]),
        });
        Ok(&*home)
    }
}

fn make_links(links: &mut [(*mut u8, usize); LINKS]) -> Result<()> {
    let _setup = SETUP.lock().ok_or(Errno(libc::EINTR))?;
    for place in links {
        let index = link::make_lasting()?;
        *place = (link::at(index).base, index);
    }
    Ok(())
}

fn drop_links(links: &[(*mut u8, usize); LINKS]) {
    let Some(_setup) = SETUP.lock() else { return };
    links.iter().filter(|(base, _)| !base.is_null()).for_each(|(_, index)| link::drop_lasting(*index));
}

/// The end of a home that has no keeper, and that nobody has seen: where none can be forked that is tried again and again, and nothing is to
/// be left of it here, nor at the agent, whose endpoints are counted.
fn raze(home: &'static Home) {
    drop_links(&home.links);
    // SAFETY: nobody else has it, and nobody uses it again.
    unsafe {
        let_go(core::ptr::read(&home.station));
        let _ = calls::munmap(core::ptr::from_ref(home).cast_mut().cast(), SIZE);
    }
}

/// Descriptors that this process may allow itself, as its keeper does.
fn limit() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    match calls::prlimit(0, libc::RLIMIT_NOFILE, core::ptr::null(), &mut limit) {
        Ok(_) => limit.rlim_max,
        Err(_) => 0,
    }
}

/// Descriptors of a keeper that belong to no stream: the station's, gates, ears.
const BESIDE: u64 = 96;

impl Home {
    /// Another host is reached from `own`. If this is not the station's address, that may have been taken from the interface: nothing
    /// arrives there any more, and the station is over. Only its own user says that, who sees the interfaces that it has.
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
    pub fn common(&self) -> &words::Common {
        // SAFETY: in the header page of the first link, which is mapped for as long as this home.
        unsafe { &*self.links[0].0.add(words::COMMON).cast::<words::Common>() }
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
        let socket = unsafe { &*self.far.add((stream % words::STREAMS) as usize) };
        let generation = words::get(&self.station, stream, words::GENERATION) as u32;
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
        unsafe { &*self.near.add((stream % words::STREAMS) as usize) }
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
        unsafe { (*self.far_fds.get())[(stream % words::STREAMS) as usize] }
    }
}

/// A private descriptor got another number.
pub fn moved(from: i32, to: i32) {
    let apart = home().filter(|home| !homes().any(|other| core::ptr::eq(other, *home)));
    for home in homes().chain(apart) {
        let place = core::ptr::from_ref(home).cast_mut();
        // SAFETY: a home that is never unmapped; descriptors are renumbered by one thread at a time, and the station keeps
        // the old number open for those that use it meanwhile.
        unsafe { (*place).station.renumber(from, to) };
        shunt_table::private::renumber(&home.control, from, to);
    }
}

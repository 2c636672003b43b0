//! Progress of streams to other hosts (UCX's word): what the rooms below ask of the room that moves such streams' bytes.
//!
//! A thread that waits drives while it is awake, and polls the endpoint beside what it waits for while it sleeps. The table is empty until
//! the process has streams to other hosts, so that all of this costs a look at one word where there are none.

use crate::beside;
use crate::deadlines::NEVER;
use crate::socket::{flag, Socket};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};
use shunt_segment::channel::Wait;

/// What is asked.
pub struct Progress {
    /// See [`inside`]; where there is none all that sleep hear of frames, for whatever they wait.
    pub inside: Option<fn() -> Option<Inside>>,
    /// Whether calls that wait are to drive.
    pub is_driven: fn() -> bool,
    /// A thread that waits awake drives; what comes next goes into the posted buffer, if there is one.
    pub drive: fn(Option<&mut Posting>),
    /// The stream's program sent, or took, or ended. False: another process's station has the stream, and its keeper is to be rung.
    pub kick: fn(&Socket) -> bool,
    /// The program holds bytes of the stream back until then (ns) at most. False: as for `kick`.
    pub hold_back: fn(&Socket, u64) -> bool,
    /// A sleeper on the stream's near side is to be woken, which the keeper alone can; by an urgent byte if that is asked for.
    pub ring: fn(&Socket, bool),
    /// See [`watch_into`].
    pub watch: for<'p> fn(Option<&'p mut Posting>, Sleeper) -> Option<Watch<'p>>,
    /// See [`Watch::for_stream`].
    pub watch_stream: fn(&mut Watch<'_>, &Socket, u32),
    /// The thread is awake again.
    pub unwatch: fn(&mut Watch<'_>),
    /// See [`leave`].
    pub leave: fn(&Socket, i32) -> bool,
    /// See [`for_kernel`].
    pub for_kernel: fn(&Socket),
}

static PROGRESS: AtomicPtr<Progress> = AtomicPtr::new(core::ptr::null_mut());

/// The process has streams to other hosts from now on, or none any more.
pub fn fill(progress: Option<&'static Progress>) {
    let place = progress.map_or(core::ptr::null_mut(), |progress| core::ptr::from_ref(progress).cast_mut());
    PROGRESS.store(place, Ordering::Release);
}

#[inline(always)]
fn progress() -> Option<&'static Progress> {
    let progress = PROGRESS.load(Ordering::Acquire);
    // SAFETY: null, or the static that `fill` was given.
    (!progress.is_null()).then(|| unsafe { &*progress })
}

/// Whether calls that wait are to drive.
#[inline(always)]
pub fn is_driven() -> bool {
    progress().is_some_and(|progress| (progress.is_driven)())
}

/// A thread of the program that waits awake.
#[inline(always)]
pub fn drive() {
    drive_into(None);
}

/// As [`drive`], by a call whose buffer takes what comes next.
#[inline(always)]
pub fn drive_into(posting: Option<&mut Posting>) {
    if let Some(progress) = progress() {
        (progress.drive)(posting);
    }
}

/// The stream's program sent, or took, or ended: what that leaves to do is done, at once or with the turn that follows. False: another
/// process's station has the stream, and its keeper is to be rung.
#[inline]
pub fn kick(socket: &Socket) -> bool {
    progress().is_some_and(|progress| (progress.kick)(socket))
}

/// The program holds bytes back until `until` (ns) at most ([`crate::corked`]): by then the keeper is to look. False: as for [`kick`].
#[cold]
pub fn hold_back(socket: &Socket, until: u64) -> bool {
    progress().is_some_and(|progress| (progress.hold_back)(socket, until))
}

/// A sleeper of the near side is to be woken, by the keeper, which alone can.
#[cold]
pub fn ring(far: &Socket, urgent: bool) {
    _ = progress().map(|progress| (progress.ring)(far, urgent));
}

/// Before a call looks at a stream to another host, or one that is to go back to the TCP connection beside it: leaves it to TCP, if that is due and
/// can be done now. True: it has become the kernel's, where the call goes on.
#[inline(always)]
pub fn leave(socket: &Socket, fd: i32) -> bool {
    if socket.has(flag::CUT) {
        return beside::leave(socket, fd, false);
    }
    progress().is_some_and(|progress| (progress.leave)(socket, fd))
}

/// The program is about to ask for what one carrier alone can give, as signals are: a stream at `fd` that may be given back is the kernel's from now on.
pub fn for_kernel(fd: i32) {
    if let (Some(progress), Some(socket)) = (progress(), crate::socket::stream(fd).filter(|socket| socket.has(flag::REMOTE))) {
        (progress.for_kernel)(socket);
    }
}

/// As [`leave`], before a call sends.
pub fn leave_to_send(socket: &Socket, fd: i32) -> bool {
    match socket.has(flag::CUT) {
        true => beside::leave(socket, fd, true),
        false => leave(socket, fd),
    }
}

/// What a thread of the program that sleeps polls beside what it waits for: frames wake it without a detour through the
/// keeper. That one takes the watch over from threads that sleep long, or were killed.
pub struct Watch<'p> {
    /// To be polled for POLLIN; -1: there are no other hosts.
    pub descriptor: i32,
    /// The local station; null: there are no other hosts.
    pub station: *const (),
    /// The buffer of a call that waits in it.
    pub posting: Option<&'p mut Posting>,
    /// What the thread has announced to be waiting for, and on which stream.
    pub armed: Option<(u32, &'static Wait, u32)>,
    /// When the thread is to ask again (CLOCK_MONOTONIC, ns), whatever wakes it: here and not among the process's deadlines, as a look by another thread
    /// would find no stream that asks for this one.
    pub due: u64,
    /// What it has heard of is told to no other thread ([`inside`]): the frames are taken, whatever holds the station.
    pub heard: bool,
    progress: Option<&'static Progress>,
    _life: PhantomData<&'p ()>,
}

impl Default for Watch<'_> {
    fn default() -> Self {
        Watch::of(None, core::ptr::null(), -1, None)
    }
}

/// A thread of the program is about to announce that it sleeps, and to look once more: it drives if that is due, and looks once
/// more at once if it gets nothing from here.
#[inline(always)]
pub fn watch(sleeper: Sleeper) -> Option<Watch<'static>> {
    match progress() {
        Some(progress) if sleeper != Sleeper::Elsewhere || progress.inside.is_none() => (progress.watch)(None, sleeper),
        _ => Some(Watch::default()),
    }
}

/// How a thread sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sleeper {
    /// Beside a descriptor that it polls.
    Beside,
    /// In a set that has [`inside`].
    Inside,
    /// As `Inside`, by a thread that does not sleep: it takes what it has heard of.
    Awake,
    /// It waits for no stream to another host.
    Elsewhere,
}

/// What a set takes in for EPOLLIN, in which threads wait for such streams.
#[derive(Clone, Copy)]
pub struct Inside {
    /// What wakes one of them by an edge; -1: there is none now, and they sleep beside.
    pub queue: i32,
    /// What wakes each, always the same.
    pub rest: i32,
    /// Which queue that is, as another may get its number.
    pub generation: i32,
}

/// See [`Inside`].
pub fn inside() -> Option<Inside> {
    progress().and_then(|progress| progress.inside?())
}

/// The same, by a call on such a stream whose buffer takes what comes next.
#[inline(always)]
pub fn watch_into(posting: Option<&mut Posting>) -> Option<Watch<'_>> {
    progress().map_or(Some(Watch::default()), |progress| (progress.watch)(posting, Sleeper::Beside))
}

impl<'p> Watch<'p> {
    /// Of the station at `station`, which is never unmapped; ended by [`Progress::unwatch`] of `progress`.
    pub fn new(progress: &'static Progress, station: *const (), descriptor: i32, posting: Option<&'p mut Posting>) -> Self {
        Watch::of(Some(progress), station, descriptor, posting)
    }

    fn of(progress: Option<&'static Progress>, station: *const (), descriptor: i32, posting: Option<&'p mut Posting>) -> Self {
        Watch { descriptor, station, posting, armed: None, due: NEVER, heard: false, progress, _life: PhantomData }
    }

    /// Whether the thread drives when it wakes.
    pub fn drives(&self) -> bool {
        self.progress.is_some()
    }

    /// The thread has announced that it sleeps on that stream for `conditions`: when it wakes up, what it brings itself needs
    /// no bell.
    #[inline(always)]
    pub fn for_stream(&mut self, socket: &Socket, conditions: u32) {
        if let Some(progress) = self.progress {
            (progress.watch_stream)(self, socket, conditions);
        }
    }
}

impl Drop for Watch<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(progress) = self.progress {
            (progress.unwatch)(self);
        }
    }
}

/// The buffer of a call that takes whatever comes next.
pub struct Posting {
    /// The receiving socket.
    pub socket: *const Socket,
    /// Which life of the socket's the call is about.
    pub generation: u32,
    /// The buffer, which may be any address that is not ours.
    pub data: *mut u8,
    /// Its bytes.
    pub room: usize,
    /// Bytes of this turn, of which the ring knows nothing yet; for which stream.
    pub held: usize,
    /// See `held`.
    pub stream: u32,
    /// Bytes that the call has received.
    pub taken: usize,
    /// What came last was short.
    pub short: bool,
}

impl Posting {
    /// `room` bytes at `data`, which may be any address that is not ours.
    pub fn new(socket: &Socket, generation: u32, data: *mut u8, room: usize) -> Posting {
        Posting { socket, generation, data, room, held: 0, stream: 0, taken: 0, short: false }
    }
}

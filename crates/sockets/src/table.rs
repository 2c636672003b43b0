//! The descriptor table: one atomic word per descriptor number.
//!
//! The word holds the address of the private object and what it is. Objects are never unmapped, so a thread that races
//! with close(2) reads an object that may have been reused, never memory that is gone; the object's lock and
//! generation tell.

use crate::datagram::Datagram;
use crate::epoll::Set;
use crate::process::report;
use crate::socket::Socket;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Descriptors from here on are left to the kernel.
pub const LIMIT: usize = 1 << 20;

static TABLE: [AtomicU64; LIMIT] = [const { AtomicU64::new(0) }; LIMIT];

/// What a descriptor is to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Nothing of ours, or unknown: the kernel's.
    Foreign = 0,
    /// A TCP socket, not connected yet: may become a listener or a stream.
    Tcp = 1,
    /// A listener with a rendezvous beside it.
    Listener = 2,
    /// An accelerated connection.
    Stream = 3,
    /// An epoll set.
    Epoll = 4,
    /// A descriptor that we keep for ourselves; the program must not see it.
    Private = 5,
    /// A UDP socket.
    Datagram = 6,
}

const KIND_SHIFT: u32 = 56;

/// A table word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// What the descriptor is.
    #[inline(always)]
    pub fn kind(self) -> Kind {
        match (self.0 >> KIND_SHIFT) as u8 {
            1 => Kind::Tcp,
            2 => Kind::Listener,
            3 => Kind::Stream,
            4 => Kind::Epoll,
            5 => Kind::Private,
            6 => Kind::Datagram,
            _ => Kind::Foreign,
        }
    }

    fn address(self) -> usize {
        (self.0 & ((1 << KIND_SHIFT) - 1)) as usize
    }

    /// The socket, if it is one of ours.
    #[inline(always)]
    pub fn socket(self) -> Option<&'static Socket> {
        match self.kind() {
            // SAFETY: words of these kinds hold the address of a slab object, and slabs are never unmapped.
            Kind::Tcp | Kind::Listener | Kind::Stream => Some(unsafe { &*(self.address() as *const Socket) }),
            _ => None,
        }
    }

    /// The epoll set, if it is one.
    #[inline(always)]
    pub fn set(self) -> Option<&'static Set> {
        match self.kind() {
            // SAFETY: as above.
            Kind::Epoll => Some(unsafe { &*(self.address() as *const Set) }),
            _ => None,
        }
    }

    /// What a private descriptor keeps open for calls that wait, if it does.
    pub fn lingerer(self) -> Option<Lingerer> {
        match self.kind() {
            Kind::Private => Lingerer::from_word(self.address()),
            _ => None,
        }
    }

    /// The datagram socket, if it is one.
    #[inline(always)]
    pub fn datagram(self) -> Option<&'static Datagram> {
        match self.kind() {
            // SAFETY: as above.
            Kind::Datagram => Some(unsafe { &*(self.address() as *const Datagram) }),
            _ => None,
        }
    }

    fn new(kind: Kind, address: usize) -> Word {
        Word(address as u64 | (kind as u64) << KIND_SHIFT)
    }
}

/// A socket or a set without descriptors of the program's, for which calls still wait ([`crate::waiting::holding`]).
#[derive(Clone, Copy)]
pub enum Lingerer {
    /// A stream or a listener.
    Socket(&'static Socket),
    /// An epoll set.
    Set(&'static Set),
}

impl Lingerer {
    /// As one word, which is not 0: the address, odd for sets.
    pub fn word(self) -> usize {
        match self {
            Lingerer::Socket(socket) => socket as *const Socket as usize,
            Lingerer::Set(set) => set as *const Set as usize | 1,
        }
    }

    /// From such a word.
    pub fn from_word(word: usize) -> Option<Lingerer> {
        match word {
            0 => None,
            // SAFETY: words hold addresses of slab objects, and slabs are never unmapped.
            word if word & 1 == 0 => Some(Lingerer::Socket(unsafe { &*(word as *const Socket) })),
            // SAFETY: as above.
            word => Some(Lingerer::Set(unsafe { &*((word & !1) as *const Set) })),
        }
    }
}

/// The word of `fd`; any number may be asked for.
#[inline(always)]
pub fn get(fd: i32) -> Word {
    match TABLE.get(fd as u32 as usize) {
        Some(word) => Word(word.load(Ordering::Acquire)),
        None => Word(0),
    }
}

/// The accelerated stream behind `fd`: the question of every data call.
#[inline(always)]
pub fn stream(fd: i32) -> Option<&'static Socket> {
    let word = get(fd);
    if word.0 >> KIND_SHIFT == Kind::Stream as u64 {
        // SAFETY: as in Word::socket.
        Some(unsafe { &*(word.address() as *const Socket) })
    } else {
        None
    }
}

/// Whether `fd` is a descriptor of the stream `socket`.
pub fn is_of(fd: i32, socket: &Socket) -> bool {
    stream(fd).is_some_and(|there| core::ptr::eq(there, socket))
}

/// The program's descriptors of the stream `socket`.
pub fn numbers_of(socket: &Socket) -> impl Iterator<Item = i32> + '_ {
    programs().filter(move |fd| is_of(*fd, socket))
}

/// The datagram socket behind `fd`.
#[inline(always)]
pub fn datagram(fd: i32) -> Option<&'static Datagram> {
    get(fd).datagram()
}

fn put(fd: i32, word: Word) -> Word {
    match TABLE.get(fd as u32 as usize) {
        Some(slot) => {
            raise(&HIGH_WATER, fd);
            if word.kind() != Kind::Private {
                raise(&REACH, fd);
            }
            // Sequentially consistent for the look behind it: see `apart`.
            Word(slot.swap(word.0, Ordering::SeqCst))
        }
        None => Word(0),
    }
}

/// What is to be done when a socket is entered; null: nothing.
static ENTERING: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has `entering` called before each socket that is entered from here on.
pub fn before_each(entering: fn()) {
    ENTERING.store(entering as *mut (), Ordering::Release);
}

fn entering() {
    let function = ENTERING.load(Ordering::Acquire);
    if !function.is_null() {
        // SAFETY: stored by `before_each` alone.
        unsafe { core::mem::transmute::<*mut (), fn()>(function)() };
    }
}

/// Enters a socket under `kind`.
pub fn set_socket(fd: i32, kind: Kind, socket: &'static Socket) {
    entering();
    put(fd, Word::new(kind, socket as *const Socket as usize));
}

/// The number of one socket has become another's, which has one more. False: the program has closed it meanwhile.
pub fn replace(fd: i32, socket: &Socket, kind: Kind, next: &'static Socket) -> bool {
    let Some(slot) = TABLE.get(fd as u32 as usize) else { return false };
    let word = Word(slot.load(Ordering::Relaxed));
    next.references.fetch_add(1, Ordering::SeqCst);
    let new = Word::new(kind, next as *const Socket as usize);
    let replaced = word.socket().is_some_and(|there| core::ptr::eq(there, socket))
        && slot.compare_exchange(word.0, new.0, Ordering::SeqCst, Ordering::Relaxed).is_ok();
    if !replaced {
        next.references.fetch_sub(1, Ordering::SeqCst);
    }
    replaced
}

/// Enters an epoll set.
pub fn set_epoll(fd: i32, set: &'static Set) {
    put(fd, Word::new(Kind::Epoll, set as *const Set as usize));
}

/// Enters a datagram socket.
pub fn set_datagram(fd: i32, socket: &'static Datagram) {
    entering();
    put(fd, Word::new(Kind::Datagram, socket as *const Datagram as usize));
}

/// Marks a descriptor as ours alone.
pub fn set_private(fd: i32) {
    put(fd, Word::new(Kind::Private, 0));
    report::keep(fd);
}

/// Marks a descriptor as ours alone, which keeps something open.
pub fn set_lingering(fd: i32, what: Lingerer) {
    put(fd, Word::new(Kind::Private, what.word()));
}

/// Removes the entry and gives what it was: one of several racing closers gets it.
pub fn take(fd: i32) -> Word {
    match TABLE.get(fd as u32 as usize) {
        Some(slot) if slot.load(Ordering::Relaxed) != 0 => {
            let word = Word(slot.swap(0, Ordering::AcqRel));
            if word.kind() == Kind::Private {
                report::forget(fd);
            }
            word
        }
        _ => Word(0),
    }
}

/// Whether any number is that of a socket or a set of ours.
pub fn any_ours() -> bool {
    programs().any(|fd| !matches!(get(fd).kind(), Kind::Foreign | Kind::Private))
}

static HIGH_WATER: AtomicU64 = AtomicU64::new(0);
static REACH: AtomicU64 = AtomicU64::new(0);

fn raise(mark: &AtomicU64, fd: i32) {
    let above = fd as u64 + 1;
    if mark.load(Ordering::Relaxed) < above {
        mark.fetch_max(above, Ordering::Relaxed);
    }
}

/// All descriptors that ever had an entry lie below this number.
pub fn high_water() -> i32 {
    HIGH_WATER.load(Ordering::Relaxed) as i32
}

/// All that ever were the program's: sockets and sets. Private numbers lie high, so that there are far fewer of these, and a fork looks at
/// them a dozen times.
pub fn programs() -> core::ops::Range<i32> {
    0..REACH.load(Ordering::Relaxed) as i32
}

/// Where the table lies.
pub(crate) fn address() -> usize {
    &raw const TABLE as usize
}

/// Whether `fd` can have an entry.
pub fn fits(fd: i32) -> bool {
    (fd as u32 as usize) < LIMIT
}

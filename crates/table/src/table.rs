//! The descriptor table: one atomic word per descriptor number.
//!
//! The word holds the address of the private object and what it is. Objects are never unmapped, so a thread that races
//! with close(2) reads an object that may have been reused, never memory that is gone; the object's lock and
//! generation tell.

use crate::status_rows;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Descriptors from here on are left to the kernel.
pub const LIMIT: usize = 1 << 20;

/// Words, and what is known of them all.
struct Table {
    /// One a descriptor number.
    words: [AtomicU64; LIMIT],
    /// Above all numbers that ever had an entry.
    high_water: AtomicU64,
    /// Above all that ever were the program's.
    reach: AtomicU64,
    /// What is to be done when a socket is entered; null: nothing.
    entering: AtomicPtr<()>,
    /// Pipes that are kept in memory; null: none was yet.
    pipes: AtomicPtr<()>,
    /// What makes one of them the kernel's.
    settling: AtomicPtr<()>,
}

static TABLE: Table = Table {
    words: [const { AtomicU64::new(0) }; LIMIT],
    high_water: AtomicU64::new(0),
    reach: AtomicU64::new(0),
    entering: AtomicPtr::new(core::ptr::null_mut()),
    pipes: AtomicPtr::new(core::ptr::null_mut()),
    settling: AtomicPtr::new(core::ptr::null_mut()),
};

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

/// What a descriptor's word may hold the address of.
///
/// # Safety
/// Objects live in slabs that are never unmapped, and are entered ([`enter`]) under kinds of their type alone; no kind is two types'.
pub unsafe trait Object: 'static {
    /// Whether a word of this kind is about such an object.
    fn is(kind: Kind) -> bool;
}

const KIND_SHIFT: u32 = 56;

/// In the place of a kind: of a foreign descriptor something is known.
const NOTED: u8 = 7;

/// Of a word: an end of a pipe whose bytes lie in this process's memory. It is no [`Kind`], as a look at the kind makes it the kernel's.
const KEPT_PIPE: u64 = 8;

/// Of a word: a TCP socket that a thread is making a stream of, outside the set-up lock ([`introduce`]). For all who ask its kind it is [`Kind::Tcp`].
const INTRODUCED: u64 = 9;

/// A table word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Word(u64);

impl Word {
    /// What the descriptor is. An end of a pipe that was kept in memory is the kernel's, with its bytes, when this returns: so no call
    /// that asks what it has to do with can see such a pipe.
    #[inline(always)]
    pub fn kind(self) -> Kind {
        match (self.0 >> KIND_SHIFT) as u8 {
            1 | 9 => Kind::Tcp,
            2 => Kind::Listener,
            3 => Kind::Stream,
            4 => Kind::Epoll,
            5 => Kind::Private,
            6 => Kind::Datagram,
            8 => settle(self),
            _ => Kind::Foreign,
        }
    }

    /// Whether [`Word::kind`] is certain to say that only the kernel knows what the descriptor is ready for. Sets of which this is true of
    /// each entry are asked about again and again.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        const PLAIN: u64 =
            1 << Kind::Foreign as u8 | 1 << Kind::Tcp as u8 | 1 << Kind::Private as u8 | 1 << NOTED | 1 << INTRODUCED;
        PLAIN >> (self.0 >> KIND_SHIFT & 63) & 1 != 0
    }

    /// Makes a pipe that is kept in memory the kernel's, for a call that asks no kind.
    #[inline(always)]
    pub fn settle_pipe(self) {
        let _ = self.kind();
    }

    /// Whether what the descriptor is may be another thing in a moment: a call with data looks again ([`Word::settle_pipe`], [`Word::is_introduced`]).
    #[inline(always)]
    pub fn is_unsettled(self) -> bool {
        self.0 >> KIND_SHIFT >= KEPT_PIPE
    }

    /// Whether a thread is making a stream of this socket.
    #[inline]
    pub fn is_introduced(self) -> bool {
        self.0 >> KIND_SHIFT == INTRODUCED
    }

    /// The address of a pipe that is kept in memory.
    #[inline]
    pub fn kept_pipe(self) -> Option<usize> {
        (self.0 >> KIND_SHIFT == KEPT_PIPE).then(|| self.address())
    }

    /// Whether the kind is `kind`. (A pipe that is kept in memory stays so.)
    #[inline(always)]
    pub fn is(self, kind: Kind) -> bool {
        (self.0 >> KIND_SHIFT) as u8 == kind as u8
    }

    /// The object, which the caller knows to be a `T`.
    ///
    /// # Safety
    /// The word's kind is one of a `T`.
    #[inline(always)]
    pub unsafe fn known<T: Object>(self) -> &'static T {
        // SAFETY: promised by the caller; see `Object`.
        unsafe { &*(self.address() as *const T) }
    }

    fn address(self) -> usize {
        (self.0 & ((1 << KIND_SHIFT) - 1)) as usize
    }

    /// The object, if it is a `T`.
    #[inline(always)]
    pub fn object<T: Object>(self) -> Option<&'static T> {
        // SAFETY: words of a type's kinds hold the address of such an object, which is never unmapped: see `Object`.
        T::is(self.kind()).then(|| unsafe { &*(self.address() as *const T) })
    }

    /// What is known of a socket that only the kernel has ([`note`]); 0: nothing, or it is another thing.
    #[inline(always)]
    pub fn noted(self) -> u64 {
        match (self.0 >> KIND_SHIFT) as u8 {
            NOTED => self.0 & ((1 << KIND_SHIFT) - 1),
            _ => 0,
        }
    }

    /// What [`set_lingering`] noted of a private descriptor; 0: nothing.
    pub fn lingering(self) -> usize {
        match self.kind() {
            Kind::Private => self.address(),
            _ => 0,
        }
    }

    fn new(kind: Kind, address: usize) -> Word {
        Word(address as u64 | (kind as u64) << KIND_SHIFT)
    }
}

/// The word of `fd`; any number may be asked for.
#[inline(always)]
pub fn get(fd: i32) -> Word {
    match TABLE.words.get(fd as u32 as usize) {
        Some(word) => Word(word.load(Ordering::Acquire)),
        None => Word(0),
    }
}

/// The object behind `fd`, if it is a `T`.
#[inline(always)]
pub fn find<T: Object>(fd: i32) -> Option<&'static T> {
    get(fd).object()
}

fn put(fd: i32, word: Word) -> Word {
    match TABLE.words.get(fd as u32 as usize) {
        Some(slot) => {
            raise(&TABLE.high_water, fd);
            if word.kind() != Kind::Private {
                raise(&TABLE.reach, fd);
            }
            // Sequentially consistent for the look behind it: see `apart`.
            Word(slot.swap(word.0, Ordering::SeqCst))
        }
        None => Word(0),
    }
}

/// Has `entering` called before each socket that is entered from here on.
pub fn before_each(entering: fn()) {
    TABLE.entering.store(entering as *mut (), Ordering::Release);
}

fn entering() {
    let function = TABLE.entering.load(Ordering::Acquire);
    if !function.is_null() {
        // SAFETY: stored by `before_each` alone.
        unsafe { core::mem::transmute::<*mut (), fn()>(function)() };
    }
}

/// Enters an object under `kind`, which is one of its type's.
pub fn enter<T: Object>(fd: i32, kind: Kind, object: &'static T) {
    debug_assert!(T::is(kind));
    if kind != Kind::Epoll {
        entering();
    }
    put(fd, Word::new(kind, core::ptr::from_ref(object) as usize));
}

/// The number of one object has become another's, under `kind`. False: the program has closed it meanwhile.
pub fn replace<T: Object>(fd: i32, object: &T, kind: Kind, next: &'static T) -> bool {
    debug_assert!(T::is(kind));
    let Some(slot) = TABLE.words.get(fd as u32 as usize) else { return false };
    let word = Word(slot.load(Ordering::Relaxed));
    let new = Word::new(kind, core::ptr::from_ref(next) as usize);
    word.object::<T>().is_some_and(|there| core::ptr::eq(there, object))
        && slot.compare_exchange(word.0, new.0, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// A thread is about to make a stream of `object` at `fd`; calls of others with data wait for what comes of it. False: it is no TCP socket any more.
pub fn introduce<T: Object>(fd: i32, object: &T) -> bool {
    exchange(fd, Word::new(Kind::Tcp, core::ptr::from_ref(object) as usize), introduced(object))
}

/// Nothing came of it, if it is not a stream by now.
pub fn introduced_no_more<T: Object>(fd: i32, object: &T) {
    let _ = exchange(fd, introduced(object), Word::new(Kind::Tcp, core::ptr::from_ref(object) as usize));
}

fn introduced<T: Object>(object: &T) -> Word {
    debug_assert!(T::is(Kind::Tcp));
    Word(core::ptr::from_ref(object) as u64 | INTRODUCED << KIND_SHIFT)
}

fn exchange(fd: i32, from: Word, to: Word) -> bool {
    let slot = TABLE.words.get(fd as u32 as usize);
    slot.is_some_and(|slot| slot.compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Relaxed).is_ok())
}

#[cold]
#[inline(never)]
fn settle(word: Word) -> Kind {
    let function = TABLE.settling.load(Ordering::Acquire);
    if !function.is_null() {
        // SAFETY: stored by `settle_pipes_by` alone.
        unsafe { core::mem::transmute::<*mut (), fn(usize)>(function)(word.address()) };
    }
    Kind::Foreign
}

/// Has `settling` called with the address of a pipe that is kept in memory, whenever one of its ends is looked at.
pub fn settle_pipes_by(settling: fn(usize)) {
    TABLE.settling.store(settling as *mut (), Ordering::Release);
}

/// Where the room that keeps pipes has them.
pub fn pipes() -> &'static AtomicPtr<()> {
    &TABLE.pipes
}

/// Enters an end of a pipe that is kept in memory, at `address`. False: the number has no entry, or is known for something else.
pub fn enter_pipe(fd: i32, address: usize) -> bool {
    let Some(slot) = TABLE.words.get(fd as u32 as usize) else { return false };
    raise(&TABLE.high_water, fd);
    raise(&TABLE.reach, fd);
    slot.compare_exchange(0, address as u64 | KEPT_PIPE << KIND_SHIFT, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// The end at `fd` of the pipe at `address` is the kernel's.
pub fn leave_pipe(fd: i32, address: usize) {
    if let Some(slot) = TABLE.words.get(fd as u32 as usize) {
        let _ = slot.compare_exchange(address as u64 | KEPT_PIPE << KIND_SHIFT, 0, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// Marks a descriptor as ours alone.
pub fn set_private(fd: i32) {
    put(fd, Word::new(Kind::Private, 0));
    status_rows::keep(fd);
}

/// Marks a descriptor as ours alone, which keeps something open for calls that wait: the word of it, which is an address or one more.
pub fn set_lingering(fd: i32, what: usize) {
    put(fd, Word::new(Kind::Private, what));
}

/// Removes the entry and gives what it was: one of several racing closers gets it.
pub fn take(fd: i32) -> Word {
    match TABLE.words.get(fd as u32 as usize) {
        Some(slot) if slot.load(Ordering::Relaxed) != 0 => {
            let word = Word(slot.swap(0, Ordering::AcqRel));
            if word.kind() == Kind::Private {
                status_rows::forget(fd);
            }
            word
        }
        _ => Word(0),
    }
}

/// Notes what is known of `fd`, which is the kernel's and stays so: less than 2^56, not 0. `before`: the word that this follows from;
/// nothing is noted if it is another by now. Such a number needs no look at a fork.
pub fn note(fd: i32, before: Word, what: u64) {
    debug_assert!(before.kind() == Kind::Foreign && what >> KIND_SHIFT == 0 && what != 0);
    if let Some(slot) = TABLE.words.get(fd as u32 as usize) {
        let new = what | (NOTED as u64) << KIND_SHIFT;
        let _ = slot.compare_exchange(before.0, new, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Whether any number is that of a socket or a set of ours.
pub fn any_ours() -> bool {
    programs().any(|fd| !matches!(get(fd).kind(), Kind::Foreign | Kind::Private))
}

fn raise(mark: &AtomicU64, fd: i32) {
    let above = fd as u64 + 1;
    if mark.load(Ordering::Relaxed) < above {
        mark.fetch_max(above, Ordering::Relaxed);
    }
}

/// All descriptors that ever had an entry lie below this number.
pub fn high_water() -> i32 {
    TABLE.high_water.load(Ordering::Relaxed) as i32
}

/// All that ever were the program's: sockets and sets. Private numbers lie high, so that there are far fewer of these, and a fork looks at
/// them a dozen times. Without pipes that are kept in memory, which a walk over the table leaves as they are.
pub fn programs() -> impl Iterator<Item = i32> {
    without_pipes(TABLE.reach.load(Ordering::Relaxed) as i32)
}

/// All numbers that ever had an entry, but for pipes that are kept in memory.
pub fn numbers() -> impl Iterator<Item = i32> {
    without_pipes(high_water())
}

fn without_pipes(end: i32) -> impl Iterator<Item = i32> {
    (0..end).filter(|fd| get(*fd).kept_pipe().is_none())
}

/// Where the table lies.
pub fn address() -> usize {
    &raw const TABLE.words as usize
}

/// Whether `fd` can have an entry.
pub fn fits(fd: i32) -> bool {
    (fd as u32 as usize) < LIMIT
}

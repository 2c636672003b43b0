//! Pipes whose bytes lie in this process's memory, because nothing but splice(2) between them and streams has seen them.
//!
//! A forwarder splices from one stream into a pipe and out of it into another. The kernel gives a pipe a fresh page for every 4 KiB and
//! copies twice: 9 us for 64 KiB, where receiving and sending take 3. So a pipe that the program has just made is *kept*: what it holds
//! lies in a buffer here, and the kernel's pipe is empty. The word of each end says so. Whatever looks at an end's kind
//! ([`table::Word::kind`]), which every intercepted call does first, makes the pipe the kernel's for good: its bytes
//! are written there before the look ends. So do a fork, a spawn and an exec. Splice and tee, which ask [`reading`] and [`writing`], do not,
//! nor do questions and changes of the pipe's size and flags ([`control`]).
//!
//! Holders of a pipe's lock are in a section, and do not sleep.

mod controls;

pub use controls::{control, set_nonblocking, tee};

use crate::mapped_files::Files;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use shunt_ring::lock;
use shunt_sys::section::Section;
use shunt_sys::{action, calls, libc, mapping, syscall, thread, Errno, Result};
use shunt_table::{global, table};

/// Pipes that can be kept at a time.
const MOST: usize = 1024;

/// Bytes of a buffer: what a pipe holds that its program has not made larger.
const BUFFER: usize = 64 << 10;

/// The same of larger pipes, up to what a program without privilege may have (`pipe-max-size`).
const LARGE_BUFFER: usize = 1 << 20;

/// Buffers that are kept for the next pipe. The last one that was given back is the next one, and in the caches.
const SPARES: usize = 16;
/// The same of large ones, whose pages stay.
const LARGE_SPARES: usize = 2;

/// A pipe.
pub struct Pipe {
    lock: AtomicU32,
    live: AtomicBool,
    /// How many pipes have had this place.
    incarnation: AtomicU32,
    /// O_NONBLOCK of the reading and of the writing end.
    nonblocking: [AtomicBool; 2],
    /// The reading and the writing end.
    ends: [AtomicI32; 2],
    /// 0: not asked yet.
    capacity: AtomicUsize,
    /// The kernel's number of it.
    inode: AtomicU64,
    buffer: AtomicPtr<u8>,
    /// Of so many bytes.
    size: AtomicUsize,
    start: AtomicUsize,
    length: AtomicUsize,
    /// Calls that sleep for room in a stream, for which these bytes are.
    senders: AtomicU32,
    /// What the pipe held when it became the kernel's beside such a call: on Linux that goes on with a pipe that has been closed.
    left: AtomicPtr<u8>,
    left_length: AtomicUsize,
}

/// All of them.
struct Pool {
    pipes: [Pipe; MOST],
    /// Where to look for a free one.
    next: AtomicUsize,
    /// Above all that were ever used.
    reach: AtomicUsize,
    lock: AtomicU32,
    /// Of usual and of large buffers.
    spares: [Spares; 2],
    files: Files,
}

/// Buffers of one size that no pipe has.
struct Spares {
    buffers: [AtomicPtr<u8>; SPARES],
    count: AtomicUsize,
}

impl Pool {
    fn get() -> Option<&'static Pool> {
        // SAFETY: null, or a pool that is never unmapped; all-zero bytes are one.
        unsafe { table::pipes().load(Ordering::Acquire).cast::<Pool>().as_ref() }
    }

    fn make() -> Option<&'static Pool> {
        if let Some(pool) = Pool::get() {
            return Some(pool);
        }
        let size = core::mem::size_of::<Pool>();
        let made = mapping::reserve(size).ok()?;
        table::settle_pipes_by(settle);
        if table::pipes().compare_exchange(core::ptr::null_mut(), made.cast(), Ordering::AcqRel, Ordering::Acquire).is_err() {
            let _ = calls::munmap(made, size);
        }
        Pool::get()
    }

    fn used(&self) -> &[Pipe] {
        &self.pipes[..self.reach.load(Ordering::Acquire).min(MOST)]
    }

    /// The spares of buffers of `size` bytes, and how many there may be.
    fn spares_of(&self, size: usize) -> (&Spares, usize) {
        match size <= BUFFER {
            true => (&self.spares[0], SPARES),
            false => (&self.spares[1], LARGE_SPARES),
        }
    }

    /// A buffer of `size` bytes, which is one of the two sizes.
    fn take_buffer(&self, size: usize) -> Option<*mut u8> {
        let held = lock::acquire(&self.lock, thread::id(), false, |_| calls::sched_yield());
        let (spares, _) = self.spares_of(size);
        let count = spares.count.load(Ordering::Relaxed);
        if held.is_some() && count > 0 {
            spares.count.store(count - 1, Ordering::Relaxed);
            return Some(spares.buffers[count - 1].load(Ordering::Relaxed));
        }
        drop(held);
        mapping::reserve(size).ok()
    }

    fn give_buffer(&self, buffer: *mut u8, size: usize) {
        let held = lock::acquire(&self.lock, thread::id(), false, |_| calls::sched_yield());
        let (spares, most) = self.spares_of(size);
        let count = spares.count.load(Ordering::Relaxed);
        if held.is_some() && count < most {
            spares.buffers[count].store(buffer, Ordering::Relaxed);
            spares.count.store(count + 1, Ordering::Relaxed);
        } else {
            drop(held);
            let _ = calls::munmap(buffer, size);
        }
    }
}

/// What is known of files in memory; it has its place beside the pipes.
pub(crate) fn files() -> Option<&'static Files> {
    Pool::get().map(|pool| &pool.files)
}

/// The same, with a place if there was none. `None`: memory is short.
pub(crate) fn place_files() -> Option<&'static Files> {
    let _section = Section::begin();
    Pool::make().map(|pool| &pool.files)
}

/// A buffer for bytes on their way, taken when it is first asked for: stacks of threads may be as small as 16 KiB.
pub struct Scratch(*mut u8);

impl Default for Scratch {
    /// No memory yet.
    fn default() -> Scratch {
        Scratch(core::ptr::null_mut())
    }
}

impl Scratch {
    /// Bytes that it has room for, in whole pages.
    pub const SIZE: usize = BUFFER;

    /// Its memory, which stays where it is. Errors: ENOMEM.
    pub fn get(&mut self) -> Result<*mut u8> {
        if self.0.is_null() {
            let _section = Section::begin();
            self.0 = Pool::make().and_then(|pool| pool.take_buffer(BUFFER)).ok_or(Errno(libc::ENOMEM))?;
        }
        Ok(self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let (false, Some(pool)) = (self.0.is_null(), Pool::get()) {
            let _section = Section::begin();
            pool.give_buffer(self.0, BUFFER);
        }
    }
}

/// The program has made a pipe. It is kept, if its flags are usual ones and there is a place for it.
pub fn enter(ends: [i32; 2], flags: i32) {
    let options = global::options();
    if flags & !(libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 || options.io_uring_allowed || !options.accelerate {
        return;
    }
    let Some(pool) = Pool::make() else { return };
    let _section = Section::begin();
    let first = pool.next.load(Ordering::Relaxed);
    for turn in 0..8 {
        let index = (first + turn) % MOST;
        let pipe = &pool.pipes[index];
        if !pipe.is_free() {
            continue;
        }
        let Some(held) = lock::try_acquire(&pipe.lock, thread::id()) else { continue };
        if !pipe.is_free() {
            continue;
        }
        pool.next.store(index, Ordering::Relaxed);
        pool.reach.fetch_max(index + 1, Ordering::AcqRel);
        pipe.incarnation.fetch_add(1, Ordering::Relaxed);
        pipe.nonblocking.iter().for_each(|end| end.store(flags & libc::O_NONBLOCK != 0, Ordering::Relaxed));
        for (place, end) in pipe.ends.iter().zip(ends) {
            place.store(end, Ordering::Relaxed);
        }
        for place in [&pipe.capacity, &pipe.start, &pipe.length] {
            place.store(0, Ordering::Relaxed);
        }
        pipe.drop_left();
        pipe.live.store(true, Ordering::Release);
        let address = core::ptr::from_ref(pipe).addr();
        if !ends.iter().all(|end| table::enter_pipe(*end, address)) {
            pipe.leave(pool);
        }
        drop(held);
        return;
    }
    pool.next.store((first + 8) % MOST, Ordering::Relaxed);
}

/// The pipe at `address` becomes the kernel's, with its bytes.
fn settle(address: usize) {
    let Some(pool) = Pool::get() else { return };
    let index = address.wrapping_sub(pool.pipes.as_ptr().addr()) / core::mem::size_of::<Pipe>();
    if let Some(pipe) = pool.pipes.get(index) {
        pipe.settle(pool);
    }
}

/// All pipes become the kernel's: something may look at them that asks no table.
pub fn settle_all() {
    if let Some(pool) = Pool::get() {
        pool.used().iter().filter(|pipe| pipe.live.load(Ordering::Acquire)).for_each(|pipe| pipe.settle(pool));
    }
}

/// Whether there are any.
#[inline]
pub fn are_any() -> bool {
    Pool::get().is_some_and(|pool| pool.used().iter().any(|pipe| pipe.live.load(Ordering::Acquire)))
}

/// The program has opened `fd` by a name. That may be the name of a pipe in /proc, and then it is the kernel's, which is empty.
pub fn opened(fd: i32) {
    let is_pipe = || calls::status_of(fd).is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFIFO);
    if are_any() && is_pipe() {
        settle_all();
    }
}

/// In a child: its parent has settled what was there, and what came in between is the parent's to settle.
pub fn forked() {
    let Some(pool) = Pool::get() else { return };
    pool.lock.store(0, Ordering::Relaxed);
    pool.files.forked();
    for pipe in pool.used() {
        pipe.lock.store(0, Ordering::Relaxed);
        pipe.length.store(0, Ordering::Relaxed);
        pipe.senders.store(0, Ordering::Relaxed);
        if pipe.live.load(Ordering::Relaxed) {
            pipe.leave(pool);
        }
    }
}

/// The kept pipe whose reading end is `fd`.
pub fn reading(fd: i32) -> Option<Kept> {
    kept(fd, 0)
}

/// The kept pipe whose writing end is `fd`.
pub fn writing(fd: i32) -> Option<Kept> {
    kept(fd, 1)
}

/// The kept pipe of which `fd` is an end.
fn either(fd: i32) -> Option<Kept> {
    let pipe = of(fd)?;
    let end = pipe.ends.iter().position(|end| end.load(Ordering::Relaxed) == fd)?;
    kept(fd, end)
}

fn of(fd: i32) -> Option<&'static Pipe> {
    // SAFETY: words hold addresses of pipes of the pool alone, which is never unmapped.
    table::get(fd).kept_pipe().map(|address| unsafe { &*(address as *const Pipe) })
}

fn kept(fd: i32, end: usize) -> Option<Kept> {
    let pipe = of(fd)?;
    let kept = Kept { pipe, fd, end, incarnation: pipe.incarnation.load(Ordering::Relaxed) };
    if kept.with(|_| ()).is_none() {
        kept.settle();
        return None;
    }
    Some(kept)
}

/// One end of a kept pipe.
#[derive(Clone, Copy)]
pub struct Kept {
    pipe: &'static Pipe,
    fd: i32,
    end: usize,
    incarnation: u32,
}

impl Kept {
    /// Calls `part` with what the pipe holds, in a section and against other threads. `None`: the pipe is the kernel's by now.
    pub fn with<R>(&self, part: impl FnOnce(&mut Bytes) -> R) -> Option<R> {
        let pool = Pool::get()?;
        let _section = Section::begin();
        let pipe = self.pipe;
        let held = lock::acquire(&pipe.lock, thread::id(), false, |_| calls::sched_yield())?;
        if !pipe.live.load(Ordering::Relaxed)
            || pipe.ends[self.end].load(Ordering::Relaxed) != self.fd
            || pipe.incarnation.load(Ordering::Relaxed) != self.incarnation
        {
            return None;
        }
        if pipe.capacity.load(Ordering::Relaxed) == 0 {
            let capacity = calls::fcntl(self.fd, libc::F_GETPIPE_SZ, 0).unwrap_or(0) as usize;
            let status = calls::status_of(self.fd).ok()?;
            if !(1..=LARGE_BUFFER).contains(&capacity) || status.st_mode & libc::S_IFMT != libc::S_IFIFO {
                return None;
            }
            pipe.inode.store(status.st_ino, Ordering::Relaxed);
            pipe.capacity.store(capacity, Ordering::Relaxed);
        }
        let mut bytes = Bytes { pipe, pool };
        let result = part(&mut bytes);
        if pipe.length.load(Ordering::Relaxed) == 0 {
            pipe.empty(pool);
        }
        drop(held);
        Some(result)
    }

    /// Makes it the kernel's.
    pub fn settle(&self) {
        settle(core::ptr::from_ref(self.pipe).addr());
    }

    /// Calls `wait`, in which a call sleeps that sends what is in the pipe. Where the pipe has been closed meanwhile, what it held then is
    /// given beside the result: those bytes are still this call's to send.
    pub fn beside_sender<R>(&self, wait: impl FnOnce() -> R) -> (R, Option<Left>) {
        let pipe = self.pipe;
        pipe.senders.fetch_add(1, Ordering::Relaxed);
        let result = wait();
        let _section = Section::begin();
        let Some(_held) = lock::acquire(&pipe.lock, thread::id(), false, |_| calls::sched_yield()) else { return (result, None) };
        pipe.senders.fetch_sub(1, Ordering::Relaxed);
        if pipe.incarnation.load(Ordering::Relaxed) != self.incarnation || pipe.left.load(Ordering::Relaxed).is_null() {
            return (result, None);
        }
        let left = Left(pipe.left.swap(core::ptr::null_mut(), Ordering::Relaxed), pipe.left_length.load(Ordering::Relaxed));
        (result, (!pipe.is_at(self.fd)).then_some(left))
    }

    /// Whether this end has O_NONBLOCK.
    pub fn is_nonblocking(&self) -> bool {
        self.pipe.nonblocking[self.end].load(Ordering::Relaxed)
    }

    fn note_nonblocking(&self, is: bool) {
        self.pipe.nonblocking[self.end].store(is, Ordering::Relaxed);
    }
}

/// Bytes of a pipe that is closed.
pub struct Left(*mut u8, usize);

impl Left {
    /// Them.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: a mapping of that size, which is this value's.
        unsafe { core::slice::from_raw_parts(self.0, self.1) }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = calls::munmap(self.0, self.1);
    }
}

/// What a kept pipe holds.
pub struct Bytes {
    pipe: &'static Pipe,
    pool: &'static Pool,
}

impl Bytes {
    /// How many there are.
    pub fn length(&self) -> usize {
        self.pipe.length.load(Ordering::Relaxed)
    }

    /// How many more fit.
    pub fn room(&self) -> usize {
        self.pipe.capacity.load(Ordering::Relaxed) - self.length()
    }

    /// The first of them.
    pub fn front(&self) -> *mut u8 {
        self.pipe.buffer.load(Ordering::Relaxed).wrapping_add(self.pipe.start.load(Ordering::Relaxed))
    }

    /// Where [`Bytes::room`] bytes may be written; null: memory is short.
    pub fn back(&mut self) -> *mut u8 {
        let pipe = self.pipe;
        let (capacity, length) = (pipe.capacity.load(Ordering::Relaxed), self.length());
        let fits = pipe.size.load(Ordering::Relaxed) >= capacity;
        if fits && pipe.start.load(Ordering::Relaxed) == 0 && !pipe.buffer.load(Ordering::Relaxed).is_null() {
            return pipe.buffer.load(Ordering::Relaxed).wrapping_add(length);
        }
        self.make_room(capacity, length)
    }

    /// Moves what there is to the front of a buffer of `capacity` bytes.
    #[cold]
    fn make_room(&mut self, capacity: usize, length: usize) -> *mut u8 {
        let pipe = self.pipe;
        let (old, old_size) = (pipe.buffer.load(Ordering::Relaxed), pipe.size.load(Ordering::Relaxed));
        let size = if capacity <= BUFFER { BUFFER } else { LARGE_BUFFER };
        let buffer = if old.is_null() || old_size < size { self.pool.take_buffer(size) } else { Some(old) };
        let Some(buffer) = buffer else { return core::ptr::null_mut() };
        if !old.is_null() && length > 0 {
            // SAFETY: both lie in buffers of at least so many bytes, which may be one.
            unsafe { core::ptr::copy(self.front(), buffer, length) };
        }
        if buffer != old {
            pipe.buffer.store(buffer, Ordering::Relaxed);
            pipe.size.store(size, Ordering::Relaxed);
            if !old.is_null() {
                self.pool.give_buffer(old, old_size);
            }
        }
        pipe.start.store(0, Ordering::Relaxed);
        buffer.wrapping_add(length)
    }

    /// The kernel's pipe is empty: `ask` has it made larger or smaller, and so is what fits here.
    fn resize(&mut self, ask: impl FnOnce(&mut Bytes) -> Result<i32>) -> Result<i32> {
        let capacity = ask(self)?;
        self.pipe.capacity.store(capacity as usize, Ordering::Relaxed);
        Ok(capacity)
    }

    /// `count` bytes, at most the room, were written behind the others.
    pub fn put(&mut self, count: usize) {
        self.pipe.length.store(self.length() + count.min(self.room()), Ordering::Relaxed);
    }

    /// The first `count` bytes are taken.
    pub fn take(&mut self, count: usize) {
        let count = count.min(self.length());
        self.pipe.start.fetch_add(count, Ordering::Relaxed);
        self.pipe.length.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Pipe {
    fn settle(&self, pool: &Pool) {
        let _section = Section::begin();
        // This very thread has it: a part of its call looks at the table, and needs no more than the kernel's answer.
        let Some(held) = lock::acquire(&self.lock, thread::id(), false, |_| calls::sched_yield()) else { return };
        if self.live.load(Ordering::Relaxed) {
            self.hand_over();
            self.leave(pool);
        }
        drop(held);
    }

    /// Writes what there is into the kernel's pipe, which is empty, and as large.
    fn hand_over(&self) {
        let (fd, mut left) = (self.ends[1].load(Ordering::Relaxed), self.length.load(Ordering::Relaxed));
        if left == 0 {
            return;
        }
        // A number that was closed past the library may be another file's.
        if !self.is_at(fd) {
            return;
        }
        let mut data = self.buffer.load(Ordering::Relaxed).wrapping_add(self.start.load(Ordering::Relaxed));
        without_signal(|| loop {
            match calls::write(fd, data.cast(), left) {
                Ok(written) if written < left => {
                    data = data.wrapping_add(written);
                    left -= written;
                }
                Err(Errno(libc::EINTR | libc::ENOMEM | libc::EAGAIN)) => calls::sched_yield(),
                other => break other.map(|_| ()),
            }
        });
    }

    /// It is the kernel's; the caller has the lock.
    fn leave(&self, pool: &Pool) {
        let address = core::ptr::from_ref(self).addr();
        self.leave_to_senders();
        self.ends.iter().for_each(|end| table::leave_pipe(end.load(Ordering::Relaxed), address));
        self.length.store(0, Ordering::Relaxed);
        self.empty(pool);
        self.live.store(false, Ordering::Release);
    }

    /// Whether another pipe may have its place.
    fn is_free(&self) -> bool {
        !self.live.load(Ordering::Relaxed) && self.senders.load(Ordering::Relaxed) == 0
    }

    fn leave_to_senders(&self) {
        let length = self.length.load(Ordering::Relaxed);
        if self.senders.load(Ordering::Relaxed) == 0 || length == 0 {
            return;
        }
        self.drop_left();
        let Ok(copy) = mapping::reserve(length) else { return };
        let front = self.buffer.load(Ordering::Relaxed).wrapping_add(self.start.load(Ordering::Relaxed));
        // SAFETY: so many bytes lie there, and have room here.
        unsafe { core::ptr::copy_nonoverlapping(front, copy, length) };
        self.left.store(copy, Ordering::Relaxed);
        self.left_length.store(length, Ordering::Relaxed);
    }

    fn drop_left(&self) {
        let left = self.left.swap(core::ptr::null_mut(), Ordering::Relaxed);
        if !left.is_null() {
            let _ = calls::munmap(left, self.left_length.load(Ordering::Relaxed));
        }
    }

    /// Whether `fd` still is an end of it.
    fn is_at(&self, fd: i32) -> bool {
        calls::status_of(fd).is_ok_and(|status| {
            status.st_ino == self.inode.load(Ordering::Relaxed) && status.st_mode & libc::S_IFMT == libc::S_IFIFO
        })
    }

    fn empty(&self, pool: &Pool) {
        self.start.store(0, Ordering::Relaxed);
        let buffer = self.buffer.swap(core::ptr::null_mut(), Ordering::Relaxed);
        if !buffer.is_null() {
            pool.give_buffer(buffer, self.size.load(Ordering::Relaxed));
        }
    }
}

/// Calls `write`. The program has called no such thing: a SIGPIPE that comes of it, as a reading end was closed past the library, is taken
/// away.
fn without_signal(write: impl FnOnce() -> Result<()>) {
    let only = action::bit(libc::SIGPIPE);
    let (mut mask, mut before) = (0u64, 0u64);
    let _ = calls::sigprocmask(libc::SIG_BLOCK, &only, &mut mask, calls::KERNEL_SIGSET);
    // SAFETY: room for the answer.
    let _ = unsafe { syscall!(libc::SYS_rt_sigpending, &raw mut before, calls::KERNEL_SIGSET) };
    if write() == Err(Errno(libc::EPIPE)) && before & only == 0 {
        let no_time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let nothing = core::ptr::null_mut::<libc::siginfo_t>();
        // SAFETY: a set and a time, of which the call keeps nothing.
        let _ =
            unsafe { syscall!(libc::SYS_rt_sigtimedwait, &raw const only, nothing, &raw const no_time, calls::KERNEL_SIGSET) };
    }
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &mask, core::ptr::null_mut(), calls::KERNEL_SIGSET);
}

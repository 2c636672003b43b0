//! Operations on memory of ranks of other hosts: what [`World::remote`] finds no address for.

use crate::atomic::Word;
use crate::error::{Error, Result};
use crate::remote::client::Remote;
pub use crate::remote::wire::{Operation, Signal};
use crate::world::World;

/// A place of another host's, and the way there.
type Far<'w> = (&'w Remote, usize, u64);

impl World {
    /// Whether a rank exists and lives on another host.
    #[inline]
    pub fn is_far(&self, rank: usize) -> bool {
        rank < self.ranks() && !self.is_near(rank)
    }

    fn far(&self, address: usize, length: usize, rank: usize) -> Result<Far<'_>> {
        let way = self.other_hosts().filter(|_| self.is_far(rank));
        let place = self.place_of(rank, address, length);
        match (way, place) {
            (Some(way), Some(place)) => Ok((way, way.hosts().of(rank), place)),
            _ => Err(self.wrong(address, length, rank as i64)),
        }
    }

    /// Puts bytes of this process to the rank's copy of what is at `to`. They may be reused when it returns.
    ///
    /// # Errors
    /// If the address is wrong, or if the job ends.
    ///
    /// # Safety
    /// So many bytes can be read there.
    pub unsafe fn far_put(&self, to: usize, from: *const u8, bytes: usize, rank: usize) -> Result<()> {
        let (way, host, place) = self.far(to, bytes, rank)?;
        // SAFETY: by the caller.
        unsafe { way.put(self, host, place, from, bytes) }
    }

    /// The same, and then a signal to the same rank, which is never seen before the bytes.
    ///
    /// # Errors
    /// As [`World::far_put`]; if the signal's address is wrong, or not aligned.
    ///
    /// # Safety
    /// As [`World::far_put`].
    pub unsafe fn far_put_signal(
        &self,
        to: usize,
        (from, bytes): (*const u8, usize),
        (word, value, adds): (usize, u64, bool),
        rank: usize,
    ) -> Result<()> {
        let (way, host, place) = self.far(to, bytes, rank)?;
        let (_, _, word) = self.far_word(word, 8, rank)?;
        // SAFETY: by the caller.
        unsafe { way.put_signal(self, host, place, (from, bytes), Signal { place: word, adds, value }) }
    }

    /// Gets the rank's copy of what is at `from`: when it returns if `now`, else when [`World::complete`] does.
    ///
    /// # Errors
    /// As [`World::far_put`].
    ///
    /// # Safety
    /// So many bytes can be written there until then.
    pub unsafe fn far_get(&self, to: *mut u8, from: usize, bytes: usize, rank: usize, now: bool) -> Result<()> {
        let (way, host, place) = self.far(from, bytes, rank)?;
        // SAFETY: by the caller.
        unsafe { way.get(self, host, place, to, bytes, now) }
    }

    /// Puts `count` elements of `size` bytes; `to_step` and `from_step` are the bytes from each to the next.
    ///
    /// # Errors
    /// As [`World::far_put`].
    ///
    /// # Safety
    /// All can be read.
    pub unsafe fn far_scatter(
        &self,
        (to, to_step): (usize, usize),
        (from, from_step): (*const u8, isize),
        (size, count): (usize, usize),
        rank: usize,
    ) -> Result<()> {
        let (way, host, place) = self.far(to, reach(size, count, to_step), rank)?;
        // SAFETY: by the caller.
        unsafe { way.scatter(self, (host, place, to_step), (from, from_step), (size, count)) }
    }

    /// Gets `count` elements of `size` bytes.
    ///
    /// # Errors
    /// As [`World::far_put`].
    ///
    /// # Safety
    /// All can be written.
    pub unsafe fn far_gather(
        &self,
        (to, to_step): (*mut u8, isize),
        (from, from_step): (usize, usize),
        (size, count): (usize, usize),
        rank: usize,
    ) -> Result<()> {
        let (way, host, place) = self.far(from, reach(size, count, from_step), rank)?;
        // SAFETY: by the caller.
        unsafe { way.gather(self, (host, place, from_step), (to, to_step), (size, count)) }
    }

    fn far_word(&self, address: usize, size: usize, rank: usize) -> Result<Far<'_>> {
        let found = self.far(address, size, rank)?;
        if !found.2.is_multiple_of(size as u64) {
            return Err(Error::Alignment { rank, address, size });
        }
        Ok(found)
    }

    /// An atomic operation on the rank's copy of the word at `at`, by a processor of the rank's host; the value before. `expected` counts for
    /// [`Operation::CompareSwap`].
    ///
    /// # Errors
    /// As [`World::far_put`]; if the address is not aligned.
    pub fn far_atomic<T: Word>(&self, at: usize, operation: Operation, value: T, expected: T, rank: usize) -> Result<T> {
        self.far_operation(at, operation, (value, expected), rank, true)
    }

    /// The same where the value before is not wanted: it returns when the operation is under way, and keeps its order as a put does.
    ///
    /// # Errors
    /// As [`World::far_atomic`].
    pub fn far_update<T: Word>(&self, at: usize, operation: Operation, value: T, rank: usize) -> Result<()> {
        self.far_operation(at, operation, (value, value), rank, false).map(|_| ())
    }

    fn far_operation<T: Word>(
        &self,
        at: usize,
        operation: Operation,
        (value, expected): (T, T),
        rank: usize,
        wanted: bool,
    ) -> Result<T> {
        let (way, host, place) = self.far_word(at, size_of::<T>(), rank)?;
        let operands = (value.bits(), expected.bits());
        way.atomic(self, (host, place, size_of::<T>() == 8), operation, operands, wanted).map(T::from_bits)
    }
}

/// Bytes from the first element's beginning to the last one's end.
fn reach(size: usize, count: usize, step: usize) -> usize {
    match count {
        0 => 0,
        _ => (count - 1).saturating_mul(step).saturating_add(size),
    }
}

/// How long the thread of [`progress_by_thread`] sleeps between two looks.
const NAP: std::time::Duration = std::time::Duration::from_micros(200);

/// What a program has put and not waited for may stay here: what is more than the way takes at once, and what was lost. A program that computes for
/// long before its next call asks for this thread, which looks after it meanwhile.
pub(crate) fn progress_by_thread(world: &'static World) -> std::io::Result<()> {
    // SAFETY: plain data of ours. The thread inherits the mask, so that the program's signals stay with its own threads.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = std::thread::Builder::new().name("shunt-progress".into()).stack_size(256 << 10).spawn(move || loop {
            std::thread::sleep(NAP);
            world.progress();
        });
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started.map(drop)
    }
}

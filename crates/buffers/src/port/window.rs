//! A buffer that stays at its place while its pages change: the application's, whose pages are those of regions. What a message came into is
//! swapped into it, page by page, and what it had before goes back to where that belongs (section 5.2): an overlay of a network's port to
//! the pool, a region that the peer on this host has moved to the peer, by its ticket.
//!
//! What is filled in part is reverse copyout's: see [`crate::align`].

use super::setup;
use crate::align::{steps, Step};
use core::ops::Range;
use shunt_region::{Attached, Audience, Limit, Located, Pool, Region};
use shunt_sys::{calls, mapping};
use std::sync::{Arc, Mutex, PoisonError};

const MADV_DONTFORK: i32 = 10;
const MADV_POPULATE_WRITE: i32 = 23;

/// Tickets of what windows have let go of, for the port that it came by.
#[derive(Default)]
pub(super) struct Returns(Mutex<Vec<u64>>);

impl Returns {
    pub(super) fn take(&self) -> Vec<u64> {
        core::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, ticket: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(ticket);
    }
}

/// A region of the peer's, which it moved: given back, by its ticket, when this is dropped.
pub(super) struct Loan {
    pub(super) attached: Arc<Attached>,
    /// From the start of the pool's units.
    pub(super) offset: usize,
    pub(super) ticket: Option<u64>,
    pub(super) returns: Arc<Returns>,
}

impl Loan {
    /// It is given back otherwise.
    pub(super) fn forget(mut self) {
        self.ticket = None;
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.returns.put(ticket);
        }
    }
}

/// Whose pages are: kept as long as they are mapped here.
enum Owner {
    Own(Region),
    Lent(Loan),
}

impl Owner {
    /// The file, and where in it the window's first byte would be.
    fn place(&self) -> (i32, usize) {
        match self {
            Owner::Own(region) => (region.pool().descriptor(), region.pool().shape().front() + region.located().offset),
            Owner::Lent(loan) => (loan.attached.descriptor(), loan.attached.shape().front() + loan.offset),
        }
    }
}

/// Pages of a window.
struct Backing {
    pages: Range<usize>,
    owner: Owner,
}

/// A buffer of the application's into which pages are swapped. A child of fork has none: there it is empty.
pub struct Window {
    reserved: (*mut u8, usize),
    base: *mut u8,
    length: usize,
    page: usize,
    pool: Pool,
    forks: u32,
    /// Something else may be in its place.
    lost: bool,
    backing: Vec<Backing>,
}

// SAFETY: the mapping is this window's alone; whose pages they are is kept beside them, and may be dropped by any thread.
unsafe impl Send for Window {}

/// The pages that are swapped between a window and regions of this pool.
pub(super) fn page(pool: &Pool) -> usize {
    match pool.is_huge() {
        true => pool.shape().unit,
        false => 4096,
    }
}

impl Window {
    /// Of at least `length` bytes, zeros or what the pool's memory held. A network's port gives one of its own pool
    /// ([`super::network::NetworkPort::window`]); for a port in shared memory any pool will do ([`super::Port::receive_into`]).
    ///
    /// # Errors
    /// [`Limit::Untrusted`]: the pool is not for [`Audience::Trusted`]. [`Limit::PoolFull`], [`Limit::TooLarge`], [`Limit::Memory`],
    /// [`Limit::Protection`].
    pub fn new(pool: &Pool, length: usize) -> Result<Window, Limit> {
        if pool.audience() != Audience::Trusted {
            // Sealed: not even its owner can map it to be written a second time.
            return Err(Limit::Untrusted);
        }
        let page = page(pool);
        let length = length.max(1).checked_next_multiple_of(page).ok_or(Limit::TooLarge)?;
        let region = pool.allocate(length)?;
        let size = length + page;
        setup::hear_of_forks();
        let start = mapping::range(size).map_err(Limit::of)?;
        // SAFETY: less than a page, which is reserved behind the length.
        let base = unsafe { start.add(start.align_offset(page)) };
        let (pool, forks) = (pool.clone(), setup::forks());
        // Until it is mapped: a mapping that fails may leave a hole, which any other may take.
        let mut window = Window { reserved: (start, size), base, length, page, pool, forks, lost: true, backing: Vec::new() };
        let owner = Owner::Own(region);
        window.map(owner.place(), 0..length / page)?;
        window.lost = false;
        window.backing.push(Backing { pages: 0..length / page, owner });
        Ok(window)
    }

    /// Gives pages those of a region at the same places.
    fn map(&self, (file, first): (i32, usize), pages: Range<usize>) -> Result<(), Limit> {
        let (start, size) = (pages.start * self.page, pages.len() * self.page);
        let offset = first + start;
        // SAFETY: inside the window.
        let place = unsafe { self.base.add(start) };
        // SAFETY: the window's own range; this process has no other reference to its bytes while it is borrowed to be changed, nor before it is made.
        unsafe { mapping::shared_part_over(place, file, offset, size) }.map_err(|_| Limit::Protection)?;
        // A kernel that cannot do either: a child's window is its parent's; pages are entered as they are touched.
        let _ = calls::madvise(place, size, MADV_DONTFORK);
        let _ = calls::madvise(place, size, MADV_POPULATE_WRITE);
        Ok(())
    }

    /// Gives all pages those that they had: a mapping that fails half-way has taken away what was in its place. Where that fails, too, the
    /// window is empty from then on, and its place is left alone, which may be another's.
    fn restore(&mut self) {
        self.lost = !self.backing.iter().all(|backing| self.map(backing.owner.place(), backing.pages.clone()).is_ok());
    }

    /// Whether its pages are this pool's.
    ///
    /// # Errors
    /// [`Limit::OtherPeer`].
    pub(super) fn is_of(&self, pool: &Pool) -> Result<(), Limit> {
        match self.pool.is(pool) {
            true => Ok(()),
            false => Err(Limit::OtherPeer),
        }
    }

    /// As long as it is; where it is lost, and in a child of fork, where something else may be in its place, nothing.
    fn here(&self) -> usize {
        match self.forks == setup::forks() && !self.lost {
            true => self.length,
            false => 0,
        }
    }

    /// Its bytes. Those that are lent ([`Window::is_lent`]) can be seen and written by all that can write the sender's pool ([`super::Port::trust`]).
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as this, in this process, which writes there only by what borrows this to be changed. Pages that are lent are in
        // other processes too, which are trusted not to write what was moved.
        unsafe { core::slice::from_raw_parts(self.base, self.here()) }
    }

    /// Its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed to be changed: no other reference of this process's is there.
        unsafe { core::slice::from_raw_parts_mut(self.base, self.here()) }
    }

    /// What is swapped is a multiple of this.
    pub(super) fn page(&self) -> usize {
        self.page
    }

    /// Swaps in the first `length` bytes of an overlay, which is the window's from then on.
    ///
    /// # Errors
    /// [`Limit::Protection`]: the kernel refused; the overlay is as it was but for what is behind the message.
    pub(super) fn swap(&mut self, overlay: Located, length: usize) -> Result<(), Limit> {
        assert!(length <= overlay.count * self.pool.shape().unit);
        let place = (self.pool.descriptor(), self.pool.shape().front() + overlay.offset);
        // SAFETY: whole units, of at least a page; nobody else's.
        let pages = unsafe { self.exchange(self.pool.pointer(&overlay), place, length)? };
        self.put(pages, Owner::Own(Region::regain(self.pool.clone(), overlay)?));
        Ok(())
    }

    /// Swaps in the first `length` bytes of a region that the peer has moved, which are mapped at `system`. It is given back when other messages
    /// have taken the place of all its pages, at once where all was copied, or with the window.
    ///
    /// # Errors
    /// As [`Window::swap`], with the loan.
    ///
    /// # Safety
    /// There are whole pages at `system`, of the loan's region, to be read and written.
    pub(super) unsafe fn swap_lent(&mut self, system: *mut u8, loan: Loan, length: usize) -> Result<(), (Limit, Loan)> {
        let owner = Owner::Lent(loan);
        // SAFETY: promised.
        match unsafe { self.exchange(system, owner.place(), length) } {
            Ok(pages) => {
                self.put(pages, owner);
                Ok(())
            }
            Err(limit) => match owner {
                Owner::Lent(loan) => Err((limit, loan)),
                Owner::Own(_) => unreachable!("made above"),
            },
        }
    }

    /// Gives how many pages are mapped over the window's.
    ///
    /// # Safety
    /// There are whole pages at `system`, whose file and place in it are `place`.
    unsafe fn exchange(&mut self, system: *mut u8, place: (i32, usize), length: usize) -> Result<usize, Limit> {
        assert!(length <= self.here());
        let mut pages = 0;
        for step in steps(0, 0, length, self.page, self.page / 2 + 1) {
            // SAFETY: promised of the system's; the window is whole pages, and borrowed.
            unsafe {
                match step {
                    Step::Copyout { from, length } => {
                        core::ptr::copy_nonoverlapping(system.add(from), self.base.add(from), length);
                    }
                    Step::Swap { back, .. } => {
                        pages += 1;
                        let from = pages * self.page - back;
                        core::ptr::copy_nonoverlapping(self.base.add(from), system.add(from), back);
                    }
                }
            }
        }
        if pages > 0 {
            if let Err(limit) = self.map(place, 0..pages) {
                self.restore();
                return Err(limit);
            }
            self.backing.retain_mut(|backing| {
                backing.pages.start = backing.pages.start.max(pages);
                !backing.pages.is_empty()
            });
        }
        Ok(pages)
    }

    fn put(&mut self, pages: usize, owner: Owner) {
        if pages > 0 {
            self.backing.push(Backing { pages: 0..pages, owner });
        }
    }

    /// Whether pages of it are a peer's, which it gets back when they are swapped out ([`super::Port::receive_into`]).
    pub fn is_lent(&self) -> bool {
        self.backing.iter().any(|backing| matches!(backing.owner, Owner::Lent(_)))
    }

    /// Whether pages of it are a peer's, and came by a port that gives back otherwise.
    pub(super) fn is_lent_besides(&self, returns: Option<&Arc<Returns>>) -> bool {
        self.backing.iter().any(
            |backing| matches!(&backing.owner, Owner::Lent(loan) if !returns.is_some_and(|own| Arc::ptr_eq(own, &loan.returns))),
        )
    }

    /// Copies what lies in a peer's pages into pages of the window's pool: the peer gets its own back, and the port can end.
    ///
    /// # Errors
    /// [`Limit::PoolFull`], [`Limit::Protection`]: some are the peer's still. So they are where the window is lost, and in a child of fork.
    pub fn keep(&mut self) -> Result<(), Limit> {
        let is_lent = |backing: &Backing| matches!(backing.owner, Owner::Lent(_));
        while let Some(number) = self.backing.iter().position(is_lent).filter(|_| self.here() > 0) {
            let pages = self.backing[number].pages.clone();
            let (start, end) = (pages.start * self.page, pages.end * self.page);
            let mut region = self.pool.allocate(end)?;
            region.bytes_mut()[start..end].copy_from_slice(&self.bytes()[start..end]);
            let owner = Owner::Own(region);
            if let Err(limit) = self.map(owner.place(), pages) {
                self.restore();
                return Err(limit);
            }
            self.backing[number].owner = owner;
        }
        match self.is_lent() {
            true => Err(Limit::Protection),
            false => Ok(()),
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if self.here() > 0 {
            let _ = calls::munmap(self.reserved.0, self.reserved.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shunt_region::{Pages, Shape};

    const UNIT: usize = 16 << 10;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// Whatever is swapped in, the window has it in front and what it had behind, at the same place, and the pool is whole at the end.
        #[test]
        fn what_is_swapped_in_is_there_and_the_rest_stays(lengths in prop::collection::vec(0usize..4 * UNIT, 1..12)) {
            let pool = Pool::create(Shape { unit: UNIT, units: 32 }, Pages::Small, Audience::Trusted).unwrap();
            let mut window = Window::new(&pool, 4 * UNIT).unwrap();
            window.bytes_mut().fill(0xff);
            let (place, mut model) = (window.bytes().as_ptr(), vec![0xffu8; 4 * UNIT]);
            for (number, length) in lengths.into_iter().enumerate() {
                let mut region = pool.allocate(length).unwrap();
                region.bytes_mut().fill(0xaa);
                region.bytes_mut()[..length].fill(number as u8);
                model[..length].fill(number as u8);
                window.swap(region.leave().1, length).unwrap();
                prop_assert!(window.bytes() == &model[..] && window.bytes().as_ptr() == place);
                let used: usize = window.backing.iter().map(|backing| match &backing.owner {
                    Owner::Own(region) => region.size() / UNIT,
                    Owner::Lent(_) => unreachable!(),
                }).sum();
                prop_assert_eq!(pool.free(), 32 - used);
            }
            drop(window);
            prop_assert_eq!(pool.free(), 32);
        }
    }

    /// What a mapping that failed half-way took away is there again.
    #[test]
    fn a_hole_is_mended() {
        let pool = Pool::create(Shape { unit: UNIT, units: 16 }, Pages::Small, Audience::Trusted).unwrap();
        let mut window = Window::new(&pool, 4 * UNIT).unwrap();
        window.bytes_mut().fill(1);
        let mut region = pool.allocate(UNIT).unwrap();
        region.bytes_mut().fill(2);
        window.swap(region.leave().1, UNIT).unwrap();
        let model = window.bytes().to_vec();
        calls::munmap(window.base, 2 * UNIT).unwrap();
        window.restore();
        assert!(window.bytes() == &model[..] && model[UNIT - 1] == 2 && model[UNIT] == 1);
        window.bytes_mut().fill(3);
        drop(window);
        assert_eq!(pool.free(), 16);
    }

    /// What could not be kept is not said to be.
    #[test]
    fn a_lost_window_keeps_nothing() {
        let pool = Pool::create(Shape { unit: UNIT, units: 16 }, Pages::Small, Audience::Trusted).unwrap();
        let mut window = Window::new(&pool, UNIT).unwrap();
        let attached = Arc::new(Attached::map(pool.descriptor(), Audience::Trusted).unwrap());
        let (_, at) = pool.allocate(UNIT).unwrap().leave();
        let loan = Loan { attached, offset: at.offset, ticket: Some(1), returns: Arc::default() };
        // SAFETY: a region of the pool's.
        assert!(unsafe { window.swap_lent(pool.pointer(&at), loan, UNIT) }.is_ok());
        window.lost = true;
        assert_eq!((window.keep(), window.is_lent()), (Err(Limit::Protection), true));
        window.lost = false;
        assert_eq!((window.keep(), window.is_lent()), (Ok(()), false));
    }

    #[test]
    fn a_sealed_pool_has_none_and_no_pool_one_that_is_longer() {
        let pool = Pool::create(Shape { unit: UNIT, units: 8 }, Pages::Small, Audience::Anyone).unwrap();
        assert_eq!(Window::new(&pool, UNIT).err(), Some(Limit::Untrusted));
        let trusted = Pool::create(Shape { unit: UNIT, units: 8 }, Pages::Small, Audience::Trusted).unwrap();
        for length in [8 * UNIT + 1, usize::MAX] {
            assert_eq!(Window::new(&trusted, length).err(), Some(Limit::TooLarge));
        }
        assert_eq!(pool.free(), 8);
    }
}

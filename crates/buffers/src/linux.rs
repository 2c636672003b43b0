//! The operations on Linux: what is a page table's change in the paper is mprotect(2), mlock(2), or a copy.
//!
//! | paper | here |
//! |---|---|
//! | system buffer, overlay buffer | a region of the pool |
//! | page reference | the region's word; the file's own page count keeps pages (I/O-deferred deallocation) |
//! | wire | mlock(2): the basic forms alone |
//! | input-disabled pageout | nothing: a page of the file that is paged out is read again, and no device holds its address; the basic forms wire |
//! | input-disabled COW | a region with an input under way is not moved out (a comparison in its word); fork shares its pages, and copies none |
//! | read-only, invalidate, reinstate | mprotect(2) |
//! | swap pages | what pays is a handle changing hands: the region that came is the application's; below a unit, a copy |
//! | remove region, create region | its units are free; a free run is taken |

use crate::memory::{Memory, Work};
use crate::tables::Operation;
use shunt_region::state::Event;
use shunt_region::word::Use;
use shunt_region::{Access, Limit, Located, Pool};

/// How many regions are kept for inputs to come.
const KEPT: usize = 32;

/// One process's memory: a pool, and the regions that were moved out and wait for an input.
pub struct Host {
    pool: Pool,
    moved_out: Queue,
    weakly: Queue,
}

/// A short queue of regions, the oldest first.
struct Queue {
    regions: [Option<Located>; KEPT],
    first: usize,
    count: usize,
}

impl Queue {
    const fn new() -> Queue {
        Queue { regions: [None; KEPT], first: 0, count: 0 }
    }
    /// Keeps it, if so many units are few enough with those that are kept already.
    fn put(&mut self, at: Located, most: usize) -> bool {
        let kept: usize = self.regions.iter().flatten().map(|at| at.count).sum();
        if self.count == KEPT || kept + at.count > most {
            return false;
        }
        self.regions[(self.first + self.count) % KEPT] = Some(at);
        self.count += 1;
        true
    }
    /// The oldest that fits. Those in front of it stay, one place further on.
    fn take(&mut self, fits: impl Fn(&Located) -> bool) -> Option<Located> {
        let place = |number: usize| (self.first + number) % KEPT;
        let found = (0..self.count).find(|number| self.regions[place(*number)].as_ref().is_some_and(&fits))?;
        let at = self.regions[place(found)].take();
        for number in (0..found).rev() {
            self.regions.swap((self.first + number) % KEPT, (self.first + number + 1) % KEPT);
        }
        self.first = (self.first + 1) % KEPT;
        self.count -= 1;
        at
    }
}

impl Host {
    /// The host of regions of `pool`.
    pub fn new(pool: Pool) -> Host {
        Host { pool, moved_out: Queue::new(), weakly: Queue::new() }
    }

    /// Its pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A message's buffers: `length` bytes at `address`, in a region of the pool or not.
    pub fn work(&self, address: usize, length: usize) -> Work {
        Work { address, length, region: self.pool.locate(address, length).ok(), ..Work::default() }
    }

    fn region(work: &Work) -> Result<Located, Limit> {
        work.region.ok_or(Limit::Private)
    }

    fn whole(&self, at: &Located) -> (*mut u8, usize) {
        let unit = self.pool.shape().unit;
        let start = Located { offset: at.first * unit, ..*at };
        (self.pool.pointer(&start), at.count * unit)
    }

    fn allocate(&self, length: usize) -> Result<Located, Limit> {
        Ok(self.pool.allocate(length)?.leave().1)
    }

    fn remove(&self, at: &Located) {
        if self.pool.apply(at, Event::Remove) == Err(Limit::State) {
            let _ = self.pool.apply(at, Event::Abandon);
            let _ = self.pool.apply(at, Event::Remove);
        }
    }

    fn enqueue(&mut self, at: Located, event: Event) -> Result<(), Limit> {
        self.pool.apply(&at, event)?;
        let queue = if event == Event::MarkMovedOut { &mut self.moved_out } else { &mut self.weakly };
        // An eighth of the pool for each of the two: the rest is for what the application allocates.
        if !queue.put(at, self.pool.shape().units / 8) {
            self.remove(&at);
        }
        Ok(())
    }

    /// A kept region that is large enough and that no reader has, or a new one.
    fn dequeue(&mut self, hidden: bool, work: &mut Work) {
        let (pool, unit) = (self.pool.clone(), self.pool.shape().unit);
        let queue = if hidden { &mut self.moved_out } else { &mut self.weakly };
        work.region = queue.take(|at| {
            at.count * unit >= work.length && at.count * unit <= 4 * work.length.max(unit) && pool.value(at.first).outputs() == 0
        });
    }
}

impl Drop for Host {
    /// Regions that are kept for inputs go back to the pool, which others may have, too.
    fn drop(&mut self) {
        for queue in [core::mem::replace(&mut self.moved_out, Queue::new()), core::mem::replace(&mut self.weakly, Queue::new())] {
            queue.regions.iter().flatten().for_each(|at| self.remove(at));
        }
    }
}

impl Memory for Host {
    fn perform(&mut self, operation: Operation, work: &mut Work) -> Result<(), Limit> {
        match operation {
            Operation::AllocateSystem | Operation::AllocateAligned | Operation::AllocateOverlay => {
                // What lies in a region has been put there by the device already.
                if work.system.is_none() {
                    work.system = Some(self.allocate(work.offset + work.length)?);
                }
            }
            Operation::DeallocateSystem | Operation::DeallocateAligned | Operation::DeallocateOverlay => {
                if let Some(at) = work.system.take() {
                    self.remove(&at);
                }
            }
            Operation::Copyin => {
                let system = work.system.ok_or(Limit::Private)?;
                // SAFETY: the buffer is the caller's, the region as long and of no other owner.
                unsafe {
                    let to = self.whole(&system).0.add(work.offset);
                    core::ptr::copy_nonoverlapping(work.address as *const u8, to, work.length);
                }
            }
            Operation::Copyout | Operation::SwapOrCopyout => self.copy_out(work)?,
            Operation::SwapPages | Operation::FillRegion => self.swap(work)?,
            Operation::Reference => {
                let at = Host::region(work)?;
                let kind = if work.input { Use::Input } else { Use::Output };
                self.pool.reference(&at, kind)?;
            }
            Operation::Unreference => {
                let at = Host::region(work)?;
                let kind = if work.input { Use::Input } else { Use::Output };
                self.pool.unreference(&at, kind)?;
            }
            Operation::ReadOnly => self.pool.arm(&Host::region(work)?)?,
            Operation::Wire => self.pool.wire(&Host::region(work)?)?,
            Operation::Unwire => self.pool.unwire(&Host::region(work)?),
            Operation::MarkMovingOut => drop(self.pool.apply(&Host::region(work)?, Event::MarkMovingOut)?),
            Operation::Invalidate => self.pool.access(&Host::region(work)?, Access::None)?,
            Operation::Reinstate => self.pool.access(&Host::region(work)?, Access::Write)?,
            Operation::MarkMovedOut => self.enqueue(Host::region(work)?, Event::MarkMovedOut)?,
            Operation::MarkWeaklyMovedOut => self.enqueue(Host::region(work)?, Event::MarkWeaklyMovedOut)?,
            Operation::RemoveRegion => self.remove(&Host::region(work)?),
            Operation::DequeueMovedOut => self.dequeue(true, work),
            Operation::DequeueWeaklyMovedOut => self.dequeue(false, work),
            Operation::MarkMovingIn | Operation::CreateRegion => match work.region {
                Some(at) => drop(self.pool.apply(&at, Event::MarkMovingIn)?),
                None => work.region = Some(self.pool.allocate_for_input(work.length)?.leave().1),
            },
            Operation::CheckRegion => {
                let at = Host::region(work)?;
                if self.pool.value(at.first).generation() != at.generation {
                    // The application has freed it: another one takes its place.
                    work.region = Some(self.pool.allocate_for_input(work.length)?.leave().1);
                    self.pool.reference(&Host::region(work)?, Use::Input)?;
                }
                work.address = self.whole(&Host::region(work)?).0 as usize;
            }
            Operation::ZeroComplete => {
                // Of the region that will be the application's.
                let at = work.system.filter(|_| self.is_exchanged(work)).map_or_else(|| Host::region(work), Ok)?;
                let (start, size) = self.whole(&at);
                // SAFETY: behind the message, inside a region that no process has yet.
                unsafe { start.add(work.length).write_bytes(0, size - work.length) };
            }
            Operation::MarkMovedIn => {
                let at = Host::region(work)?;
                self.pool.apply(&at, Event::MarkMovedIn)?;
                work.address = self.whole(&at).0 as usize;
            }
            // Everything is mapped, the pool is refilled by its free units, and the device's part is the transport's.
            Operation::MapRegion
            | Operation::RefillOverlay
            | Operation::Overlay
            | Operation::TransferOutboard
            | Operation::DeallocateOutboard => {}
        }
        Ok(())
    }

    fn undo(&mut self, operation: Operation, work: &mut Work) {
        let inverse = match operation {
            Operation::AllocateSystem | Operation::AllocateAligned | Operation::AllocateOverlay => Operation::DeallocateSystem,
            Operation::Reference => Operation::Unreference,
            Operation::Wire => Operation::Unwire,
            Operation::Invalidate => Operation::Reinstate,
            Operation::MarkMovingOut => {
                if let Some(at) = work.region {
                    let _ = self.pool.apply(&at, Event::Recover);
                }
                return;
            }
            Operation::MarkMovingIn | Operation::CreateRegion => {
                // Kept regions are many, and made again; one of unknown contents is not kept.
                if let Some(at) = work.region.take() {
                    self.pool.poison(&at);
                    self.remove(&at);
                }
                return;
            }
            Operation::ReadOnly => return,
            _ => return,
        };
        let _ = self.perform(inverse, work);
    }
}

impl Host {
    fn is_moving_in(&self, at: &Located) -> bool {
        self.pool.value(at.first).state() == shunt_region::state::State::MovingIn
    }

    fn copy_out(&mut self, work: &mut Work) -> Result<(), Limit> {
        let Some(system) = work.system else { return Ok(()) };
        let to = match work.region.filter(|at| self.is_moving_in(at)) {
            Some(at) => self.whole(&at).0,
            None => work.address as *mut u8,
        };
        shunt_region::before_kernel_writes(to as usize, work.length);
        // SAFETY: the application's buffer, or a region that is its own soon; the system's is as long.
        unsafe { core::ptr::copy_nonoverlapping(self.whole(&system).0.add(work.offset), to, work.length) };
        Ok(())
    }

    /// Whether the region that bytes came in can take the place of the one that was prepared.
    fn is_exchanged(&self, work: &Work) -> bool {
        let prepared = work.region.is_some_and(|at| self.is_moving_in(&at));
        prepared && work.offset == 0 && work.system.is_some_and(|at| self.pool.value(at.first).outputs() == 0)
    }

    /// A region that comes in place of another costs nothing; the application's own buffer is where it is.
    fn swap(&mut self, work: &mut Work) -> Result<(), Limit> {
        match (work.region, work.system) {
            (Some(mine), Some(system)) if self.is_exchanged(work) => {
                // The region that was prepared goes back to the system; the one with the bytes is the application's.
                let _ = self.pool.unreference(&mine, Use::Input);
                self.pool.access(&mine, Access::Write)?;
                self.remove(&mine);
                self.pool.apply(&system, Event::MarkMovingOut)?;
                self.pool.apply(&system, Event::MarkWeaklyMovedOut)?;
                self.pool.apply(&system, Event::MarkMovingIn)?;
                work.region = work.system.take();
                Ok(())
            }
            _ => self.copy_out(work),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_region_that_does_not_fit_hides_no_other() {
        let mut queue = Queue::new();
        let at = |count: usize| Located { first: count, count, generation: 1, offset: 0 };
        for turn in 0..3 * KEPT {
            assert!(queue.put(at(1), 100) && queue.put(at(2), 100) && queue.put(at(3), 100), "{turn}");
            let counts = [2, 1, 3].map(|wanted| queue.take(|at| at.count == wanted).map(|at| at.count));
            assert_eq!((counts, queue.count), ([Some(2), Some(1), Some(3)], 0));
            assert!(queue.put(at(4), 100) && queue.put(at(5), 100));
            assert_eq!(queue.take(|at| at.count > 4).map(|at| at.count), Some(5));
            assert_eq!(queue.take(|at| at.count > 4).map(|at| at.count), None);
            assert_eq!(queue.take(|_| true).map(|at| at.count), Some(4));
        }
    }
}

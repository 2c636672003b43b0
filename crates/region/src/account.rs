//! What one peer holds of this process's pools: counted here, bounded, and taken back when the peer is gone.

use crate::limit::Limit;
use crate::pool::{Located, Pool, Region};
use crate::reference::{Reference, Violation};
use crate::word::{Use, Value};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_sys::{calls, mapping};

/// Regions that a peer can hold at a time.
pub const LOANS: usize = 1024;

/// A loan's serial has so many bits: the highest of a ticket is not an account's (`shunt-buffers` marks what is passed on by it).
const SERIALS: u32 = u32::MAX >> 1;

struct Loan {
    pool: Option<Pool>,
    at: Located,
    bytes: usize,
    serial: u32,
}

/// The peers of this process have numbers.
static PEERS: AtomicU64 = AtomicU64::new(1);

/// One peer's account. One thread at a time.
pub struct Account {
    loans: *mut Loan,
    next: usize,
    held: usize,
    lent: usize,
    quota: usize,
    peer: u64,
}

// SAFETY: the loans are this account's own.
unsafe impl Send for Account {}

/// What came back.
#[derive(Debug)]
pub struct Returned {
    /// Of which pool.
    pub pool: Pool,
    /// Which region.
    pub at: Located,
    /// Its word after that.
    pub value: Value,
}

impl Account {
    /// An account of a peer that may hold `quota` bytes.
    ///
    /// # Errors
    /// [`Limit::Memory`].
    pub fn new(quota: usize) -> Result<Account, Limit> {
        let loans = mapping::reserve(LOANS * size_of::<Loan>()).map_err(Limit::of)?.cast::<Loan>();
        let nothing = Located { first: 0, count: 0, generation: 0, offset: 0 };
        for slot in 0..LOANS {
            // SAFETY: fresh memory, as large.
            unsafe { loans.add(slot).write(Loan { pool: None, at: nothing, bytes: 0, serial: 0 }) };
        }
        Ok(Account { loans, next: 0, held: 0, lent: 0, quota, peer: PEERS.fetch_add(1, Ordering::Relaxed) })
    }

    fn loan(&mut self, slot: usize) -> &mut Loan {
        debug_assert!(slot < LOANS);
        // SAFETY: inside the table; `self` is borrowed.
        unsafe { &mut *self.loans.add(slot) }
    }

    /// Lends `length` bytes of a region, from `offset` on.
    ///
    /// # Errors
    /// [`Limit::Quota`], [`Limit::Loans`], [`Limit::OtherPeer`], [`Limit::Outside`], and those of [`crate::word::Word::reference`] and
    /// [`Pool::touch`].
    pub fn lend(&mut self, pool: &Pool, region: &Region, offset: usize, length: usize) -> Result<Reference, Limit> {
        let mut at = region.located();
        if offset > region.size() || length > region.size() - offset {
            return Err(Limit::Outside);
        }
        at.offset += offset;
        self.lend_located(pool, &at, length)
    }

    /// The same, of bytes by where they lie.
    ///
    /// # Errors
    /// As [`Account::lend`].
    pub fn lend_located(&mut self, pool: &Pool, at: &Located, length: usize) -> Result<Reference, Limit> {
        self.room(pool, length)?;
        pool.touch(at, length)?;
        pool.reference(at, Use::Output)?;
        if let Err(limit) = pool.settled(at) {
            let _ = pool.unreference(at, Use::Output);
            return Err(limit);
        }
        Ok(self.enter(pool, at, length))
    }

    /// Whether a loan of `length` bytes is possible now.
    ///
    /// # Errors
    /// [`Limit::Quota`], [`Limit::Loans`], [`Limit::OtherPeer`].
    pub fn room(&mut self, pool: &Pool, length: usize) -> Result<(), Limit> {
        if self.held == LOANS {
            return Err(Limit::Loans);
        }
        if length > self.quota - self.lent.min(self.quota) {
            return Err(Limit::Quota);
        }
        pool.admit(self.peer)
    }

    /// Notes a loan that [`Account::room`] was found for, of bytes that were touched ([`Pool::touch`]), and whose reference has been taken.
    ///
    /// # Panics
    /// When there was no room.
    pub fn enter(&mut self, pool: &Pool, at: &Located, length: usize) -> Reference {
        assert!(self.held < LOANS);
        while self.loan(self.next).pool.is_some() {
            self.next = (self.next + 1) % LOANS;
        }
        let slot = self.next;
        self.next = (slot + 1) % LOANS;
        let (pool, at) = (pool.clone(), *at);
        let loan = self.loan(slot);
        let serial = loan.serial.wrapping_add(1) & SERIALS;
        *loan = Loan { pool: Some(pool), at, bytes: length, serial };
        self.held += 1;
        self.lent += length;
        Reference {
            offset: at.offset as u64,
            length: length as u64,
            generation: at.generation,
            pool: 0,
            ticket: (serial as u64) << 32 | slot as u64,
        }
    }

    /// The peer says that it has finished with a reference.
    ///
    /// # Errors
    /// [`Violation::Ticket`]: it holds nothing under this ticket.
    pub fn give_back(&mut self, ticket: u64) -> Result<Returned, Violation> {
        let (slot, serial) = (ticket as u32 as usize, (ticket >> 32) as u32);
        if slot >= LOANS || self.loan(slot).serial != serial {
            return Err(Violation::Ticket);
        }
        let pool = self.loan(slot).pool.take().ok_or(Violation::Ticket)?;
        let (at, bytes) = (self.loan(slot).at, self.loan(slot).bytes);
        self.held -= 1;
        self.lent -= bytes;
        let value = pool.unreference(&at, Use::Output).map_err(|_| Violation::Ticket)?;
        Ok(Returned { pool, at, value })
    }

    /// Whether the peer still holds what `ticket` stands for.
    pub fn holds(&mut self, ticket: u64) -> bool {
        let (slot, serial) = (ticket as u32 as usize, (ticket >> 32) as u32);
        slot < LOANS && self.loan(slot).serial == serial && self.loan(slot).pool.is_some()
    }

    /// The peer is gone: all that it held comes back, to `each`.
    pub fn forfeit(&mut self, mut each: impl FnMut(Returned)) {
        for slot in 0..LOANS {
            if self.loan(slot).pool.is_some() {
                let ticket = (self.loan(slot).serial as u64) << 32 | slot as u64;
                if let Ok(returned) = self.give_back(ticket) {
                    each(returned);
                }
            }
        }
    }

    /// For tests: each slot as it is after so many loans.
    #[doc(hidden)]
    pub fn as_after(&mut self, loans: u32) {
        (0..LOANS).for_each(|slot| self.loan(slot).serial = loans & SERIALS);
    }

    /// Bytes that the peer holds.
    pub fn lent(&self) -> usize {
        self.lent
    }

    /// References that the peer holds.
    pub fn held(&self) -> usize {
        self.held
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.forfeit(|_| {});
        let _ = calls::munmap(self.loans.cast(), LOANS * size_of::<Loan>());
    }
}

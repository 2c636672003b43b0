//! The locks of a socket, one for each direction: of the sender, of the receiver.
//!
//! Threads of one process exclude each other by a private word. A side that several processes own has a word in shared memory as
//! well.

use crate::socket::{flag, Socket};
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_link::patience::Patience;
use shunt_ring::lock;
use shunt_segment::channel::state;
use shunt_sys::section::Section;
use shunt_sys::{calls, thread, Errno};
use shunt_table::global;

impl Socket {
    /// Whether no other thread or process can use this side at the same time.
    #[inline(always)]
    pub fn alone(&self) -> bool {
        !self.has(flag::SHARED) && global::single_threaded()
    }

    /// The word of the private lock for sending; see [`Socket::lock_send`].
    #[inline(always)]
    pub fn sending(&self) -> &AtomicU32 {
        &self.sending
    }

    /// The word of the private lock for receiving.
    #[inline(always)]
    pub fn receiving(&self) -> &AtomicU32 {
        &self.receiving
    }

    /// The lock for sending on this side.
    #[inline(always)]
    pub fn lock_send(&self) -> Result<Locked, Errno> {
        if self.has(flag::SHARED) {
            crate::flush_relays::before_send(self);
        }
        self.lock(&self.sending, &self.own().transmit.lock)
    }

    /// The lock for receiving on this side.
    #[inline(always)]
    pub fn lock_receive(&self) -> Result<Locked, Errno> {
        if self.has(flag::SHARED) {
            return self.lock_receive_shared();
        }
        self.lock_receive_settled()
    }

    fn lock_receive_shared(&self) -> Result<Locked, Errno> {
        // A relay lends again after a while, each time a longer one: between its answer and the lock we may have slept.
        const TURNS: u32 = 16;
        let mut turn = 0;
        loop {
            crate::flush_relays::before_receive(self);
            crate::options::owners::catch_up(self);
            let held = self.lock_receive_settled()?;
            turn += 1;
            if turn == TURNS || !crate::flush_relays::lent(self) {
                return Ok(held);
            }
        }
    }

    /// As [`Socket::lock_receive`], without asking relays to settle: for relays.
    pub fn lock_receive_settled(&self) -> Result<Locked, Errno> {
        self.lock(&self.receiving, &self.own().receive.lock)
    }

    /// Both locks, for a thread that ends or shares the socket.
    pub fn lock_both(&self) -> (Result<Locked, Errno>, Result<Locked, Errno>) {
        let receiving = self.lock_receive();
        // Relays have settled; asked now, they might wait for the lock that we hold.
        (receiving, self.lock(&self.sending, &self.own().transmit.lock))
    }

    /// As [`Socket::lock_both`], without asking relays to settle: for a fork, which may be that of a relay.
    pub fn lock_both_settled(&self) -> (Result<Locked, Errno>, Result<Locked, Errno>) {
        (self.lock_receive_settled(), self.lock(&self.sending, &self.own().transmit.lock))
    }

    /// Both locks against threads for a process that ends, waited for until `deadline` (CLOCK_MONOTONIC, ns); those among
    /// processes too, where there are others. `None`: a thread keeps one of them, or this very thread holds one.
    pub fn lock_both_until(&self, deadline: u64) -> Option<(Locked, Locked)> {
        let receiving = self.lock_until(&self.receiving, &self.own().receive.lock, deadline)?;
        Some((receiving, self.lock_until(&self.sending, &self.own().transmit.lock, deadline)?))
    }

    /// The lock for sending, without asking relays to settle, if no thread holds it.
    pub fn try_lock_send(&self) -> Option<Locked> {
        self.try_lock(&self.sending, &self.own().transmit.lock)
    }

    /// The lock for receiving, without asking relays to settle, if no thread holds it.
    pub fn try_lock_receive(&self) -> Option<Locked> {
        self.try_lock(&self.receiving, &self.own().receive.lock)
    }

    fn try_lock(&self, private: &AtomicU32, shared: &'static AtomicU32) -> Option<Locked> {
        // SAFETY: sockets live in slabs that are never unmapped.
        let private = unsafe { &*(private as *const AtomicU32) };
        let section = Section::begin();
        let held = lock::try_acquire(private, thread::id())?;
        let family = match self.has(flag::SHARED) {
            true => Some(lock::try_acquire(shared, thread::id())?),
            false => None,
        };
        Some(Locked { _shared: family, _private: held, _section: section })
    }

    fn lock_until(&self, private: &AtomicU32, shared: &'static AtomicU32, deadline: u64) -> Option<Locked> {
        // SAFETY: sockets live in slabs that are never unmapped.
        let private = unsafe { &*(private as *const AtomicU32) };
        let section = Section::begin();
        let me = thread::id();
        let held = loop {
            if let Some(held) = lock::try_acquire(private, me) {
                break held;
            }
            if private.load(Ordering::Relaxed) == me || shunt_sys::clock::monotonic_ns() > deadline {
                return None;
            }
            calls::sched_yield();
        };
        let mut patience = Patience::default();
        let family = match self.has(flag::SHARED) {
            true => Some(lock::acquire(shared, me, false, |owner| patience.outlive(shared, owner, self.own()))?),
            false => None,
        };
        Some(Locked { _shared: family, _private: held, _section: section })
    }

    /// Other processes are about to have the side, too. Threads in the middle of a copy hold the private locks only, as does one
    /// that takes bells: they are waited for.
    pub fn share(&self) {
        if !self.has(flag::SHARED) {
            let held = self.lock_both_settled();
            self.set(flag::SHARED);
            crate::beside::shared(self);
            self.own().receive.state.fetch_or(state::SHARED, Ordering::SeqCst);
            drop(held);
        }
    }

    /// In the child after fork: threads that held a private lock do not exist here. (Those in shared memory are held by
    /// threads of the parent, which go on.)
    pub fn forget_holders(&self) {
        self.sending.store(0, Ordering::Relaxed);
        self.receiving.store(0, Ordering::Relaxed);
        self.connected.loans.forked();
    }

    /// Threads of this process exclude each other by a private word. Only a side that several processes own needs the
    /// word in shared memory as well, which the peer could scribble on.
    #[inline(always)]
    fn lock(&self, private: &AtomicU32, shared: &'static AtomicU32) -> Result<Locked, Errno> {
        // SAFETY: sockets live in slabs that are never unmapped.
        let private = unsafe { &*(private as *const AtomicU32) };
        let interrupted = Errno(shunt_sys::libc::EINTR);
        let section = Section::begin();
        let held = lock::acquire(private, thread::id(), self.alone(), |_| calls::sched_yield()).ok_or(interrupted)?;
        if !self.has(flag::SHARED) {
            return Ok(Locked { _shared: None, _private: held, _section: section });
        }
        let mut patience = Patience::default();
        let family =
            lock::acquire(shared, thread::id(), false, |owner| patience.outlive(shared, owner, self.own())).ok_or(interrupted)?;
        Ok(Locked { _shared: Some(family), _private: held, _section: section })
    }
}

/// One direction of one side, held: against threads, and against other processes where they share the side; and against
/// handlers of the program, which wait for the end. Fields are dropped in their order.
pub struct Locked {
    _shared: Option<lock::Held<'static>>,
    _private: lock::Held<'static>,
    _section: Section,
}

impl Locked {
    /// Other processes may go on; threads of this one, which ends, never shall.
    pub fn keep_from_threads(self) {
        let Locked { _shared: family, _private: held, _section: section } = self;
        drop(family);
        core::mem::forget(held);
        drop(section);
    }
}

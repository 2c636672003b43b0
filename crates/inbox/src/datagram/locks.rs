//! The lock for sending.

use super::Datagram;
use shunt_ring::lock;
use shunt_sys::section::Section;
use shunt_sys::{calls, thread};
use shunt_table::global;

impl Datagram {
    /// The lock for sending, in a section; `None` in a handler that was installed past us and interrupted its holder.
    pub fn lock_send(&self) -> Option<Sending<'_>> {
        let section = Section::begin();
        let held = lock::acquire(&self.sending, thread::id(), global::single_threaded(), |_| calls::sched_yield())?;
        Some(Sending { _held: held, _section: section })
    }

    /// The lock for sending, if it is free.
    pub fn try_lock_send(&self) -> Option<Sending<'_>> {
        let section = Section::begin();
        let held = lock::try_acquire(&self.sending, thread::id())?;
        Some(Sending { _held: held, _section: section })
    }
}

/// The lock for sending, held. Nothing under it sleeps.
pub struct Sending<'a> {
    // Released first: fields are dropped in their order.
    _held: lock::Held<'a>,
    _section: Section,
}

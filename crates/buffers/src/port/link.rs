//! What carries a port: shared memory, or a connection that copies.

use super::setup::{Foreign, Shared};
use super::stream::Stream;
use super::Error;
use shunt_region::{Limit, Pool, Violation};

pub(super) enum Link {
    Shared(Shared),
    Stream(Stream),
}

impl Link {
    /// The shared memory, for what only that can do.
    pub(super) fn shared(&mut self) -> Result<&mut Shared, Limit> {
        match self {
            Link::Shared(shared) => Ok(shared),
            Link::Stream(_) => Err(Limit::Apart),
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Link::Shared(_))
    }

    /// Whether pools for trusted peers can come.
    pub(super) fn trusts(&self) -> bool {
        matches!(self, Link::Shared(shared) if shared.trusts)
    }

    /// Whether the peer has ended, of what lends memory.
    pub(super) fn has_hung_up(&self) -> bool {
        matches!(self, Link::Shared(shared) if shared.hung_up(0))
    }

    pub(super) fn fd(&self) -> i32 {
        match self {
            Link::Shared(shared) => shared.fd,
            Link::Stream(stream) => stream.fd(),
        }
    }

    /// A record, and the bytes that follow it.
    pub(super) fn message(&mut self, record: &[u8], bytes: &[u8]) -> Result<(), Error> {
        match self {
            Link::Shared(shared) => {
                shared.put(0, record)?;
                shared.put(0, bytes)
            }
            Link::Stream(stream) => stream.put(&[record, bytes]),
        }
    }

    /// Tickets that go back, on channel 1, and records on channel 0. A connection has none but those of [`Link::message`].
    pub(super) fn put(&mut self, channel: usize, bytes: &[u8]) -> Result<(), Error> {
        self.shared()?.put(channel, bytes)
    }

    /// What comes on channel 0.
    pub(super) fn take(&mut self, target: &mut [u8]) -> Result<(), Error> {
        match self {
            Link::Shared(shared) => shared.take(0, target),
            Link::Stream(stream) => stream.take(target),
        }
    }

    pub(super) fn waits(&self) -> bool {
        match self {
            Link::Shared(shared) => shared.waits(),
            Link::Stream(stream) => stream.waits(),
        }
    }

    /// One look in vain for what an honest peer does at once.
    pub(super) fn idle_longer(&self, looks: &mut u32) -> Result<(), Error> {
        match self {
            Link::Shared(shared) => shared.idle_longer(looks),
            Link::Stream(_) => Ok(()),
        }
    }

    pub(super) fn ticket(&mut self, lent: bool) -> Result<Option<u64>, Error> {
        match self {
            Link::Shared(shared) => shared.ticket(lent),
            // Nothing is lent.
            Link::Stream(_) => Ok(None),
        }
    }

    pub(super) fn pass_pool(&mut self, pool: &Pool) -> Result<(), Error> {
        match self {
            Link::Shared(shared) => shared.pass_pool(pool),
            // It stays here: what is sent of it is copied.
            Link::Stream(_) => Ok(()),
        }
    }

    pub(super) fn pass_foreign(&mut self, pool: &Foreign) -> Result<(), Error> {
        self.shared()?.pass_foreign(pool)
    }

    pub(super) fn next_pool(&mut self) -> Result<Foreign, Error> {
        match self {
            Link::Shared(shared) => shared.next_pool(),
            Link::Stream(_) => Err(Violation::Pool.into()),
        }
    }
}

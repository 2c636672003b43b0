//! The wait of a call that found nothing at first.

use super::foreign::Part;
use super::Query;
use shunt_epoll as epoll;
use shunt_epoll::Set;
use shunt_inbox::datagram;
use shunt_rendezvous::reconnect::shared_server;
use shunt_stream::waiting::spin::{self, Spin};
use shunt_stream::waiting::until::{Look, Source};
use shunt_sys::Result;
use shunt_table::table;

/// The wait of a call that found nothing at first.
pub(super) struct Waiting<'q, 'a> {
    pub(super) query: &'q mut Query<'a>,
    pub(super) began: u64,
    /// Where the peer of a stream among the entries waits.
    pub(super) peer_processor: u32,
    /// Connections that the kernel has are among them, and no streams.
    pub(super) only_kernel_tells: bool,
}

impl Waiting<'_, '_> {
    /// A look that may find something, or fail.
    fn try_look(&mut self, spin: &Spin) -> Result<Option<isize>> {
        let every = if self.only_kernel_tells { 0x3 } else { 0x3f };
        let query = &mut *self.query;
        if query.any_stream_ready() || (query.foreign && spin.rounds() & every == every && query.look_foreign(Part::All)? > 0) {
            return query.look().map(Some);
        }
        if query.any_bid() {
            let ready = query.look()?;
            if ready > 0 {
                return Ok(Some(ready));
            }
        }
        if spin.rounds() & 0xfff == 0xfff {
            query.check_peers();
        }
        Ok(None)
    }

    fn try_woken(&mut self, slept: Result<bool>) -> Result<Option<isize>> {
        let query = &mut *self.query;
        let expired = slept?;
        let ready = query.look()?;
        if ready > 0 || expired {
            return Ok(Some(ready));
        }
        for set in query.entries.iter().filter_map(|entry| table::get(entry.fd).object::<Set>()) {
            epoll::rest_if_noisy(set, query.deadline, query.mask, self.began)?;
        }
        Ok(None)
    }
}

impl Source for Waiting<'_, '_> {
    type Outcome = Result<isize>;
    /// Whether the deadline passed.
    type Slept = Result<bool>;

    fn begin(&mut self) -> Spin {
        let query = &mut *self.query;
        let soon = query.foreign && shared_server::bid_is_near();
        let spin = spin::begin_expecting(self.peer_processor, soon).among(query.entries.len());
        if spin.begins() {
            query.datagrams(|fd, socket, _| datagram::before_spin(fd, socket));
        }
        spin
    }

    #[inline(always)]
    fn look(&mut self, spin: &Spin) -> Look<Result<isize>> {
        shunt_stream::progress::drive();
        match self.try_look(spin).transpose() {
            Some(found) => Look::Found(found),
            None => Look::Nothing,
        }
    }

    fn sleep(&mut self, _: &Spin) -> Result<bool> {
        let query = &mut *self.query;
        // What was shut for an entry is kept where its events will come.
        query.datagrams(|_, socket, revents| *revents = datagram::before_sleep(socket).pack(socket));
        let slept = query.sleep(self.began);
        query.datagrams(|_, socket, revents| {
            // By number: another thread may have closed the socket, or put another one there.
            if let Some(sleeper) = datagram::Sleeper::unpack(socket, *revents) {
                datagram::after_sleep(socket, sleeper);
            }
        });
        slept
    }

    fn woken(&mut self, slept: Result<bool>) -> Option<Result<isize>> {
        self.try_woken(slept).transpose()
    }
}

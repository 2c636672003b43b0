//! What the entries are ready for, as far as memory tells; and whether the kernel is asked beside.

use super::foreign::Part;
use super::{Query, ALWAYS};
use shunt_inbox::datagram::Datagram;
use shunt_inbox::{datagram, local};
use shunt_rendezvous::accept::deferred;
use shunt_rendezvous::reconnect::shared_server;
use shunt_stream::events;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, pollfd, POLLIN};
use shunt_sys::Result;
use shunt_table::table;
use shunt_table::table::Kind;

/// What a datagram socket or an AF_UNIX end says only of what comes to it.
const INPUT: i16 = POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLPRI;

/// Whether the kernel is asked about `entry` now and then only, while memory has an answer: a listener whose clients need no looking after,
/// or a socket that may have an inbox, of which nothing but input is asked.
pub(super) fn is_ours(entry: &pollfd) -> bool {
    is_kept(entry) && !is_unsettled(entry)
}

/// The same, before it is known whether memory has an answer.
pub(super) fn is_kept(entry: &pollfd) -> bool {
    let word = table::get(entry.fd);
    match word.kind() {
        Kind::Listener => word.object::<Socket>().is_some_and(|listener| !deferred::concern(listener)),
        Kind::Datagram => entry.events & !INPUT == 0,
        _ => false,
    }
}

/// Whether the kernel may know something of an AF_UNIX end that no inbox tells.
fn is_unsettled(entry: &pollfd) -> bool {
    table::get(entry.fd).object::<Datagram>().is_some_and(|socket| socket.is_local() && !local::is_settled(socket))
}

impl Query<'_> {
    /// Fills in what holds now.
    pub(super) fn look(&mut self) -> Result<isize> {
        let ready = self.look_at_streams();
        self.ask_beside(ready)
    }

    /// The same, before a wait. Where the kernel had nothing to say a moment ago, the question is left to the wait: it asks after some
    /// looks, and before it sleeps. Not where a signal may end the call, which comes behind all that is ready, nor in select where one of
    /// the kernel's numbers may have been closed before, which is another thing than during the call.
    pub(super) fn first_look(&mut self) -> Result<isize> {
        let ready = self.look_at_streams();
        let leaves = self.foreign && self.deadline != 0 && self.mask.is_null() && !(self.forgiving && self.strange);
        if ready == 0 && leaves && !self.is_due() {
            return Ok(if self.is_strange() { 0 } else { self.look_at_inboxes() });
        }
        self.ask_beside(ready)
    }

    fn look_at_streams(&mut self) -> isize {
        let mut ready = 0;
        for entry in self.entries.iter_mut() {
            entry.revents = match shunt_stream::socket::stream(entry.fd) {
                Some(s) => events::events(s, entry.events | ALWAYS),
                None => 0,
            };
            ready += (entry.revents != 0) as isize;
        }
        ready
    }

    /// The number of entries that are ready, of which `ready` are streams.
    fn ask_beside(&mut self, ready: isize) -> Result<isize> {
        if !self.foreign {
            return Ok(ready);
        }
        if self.is_due() {
            return Ok(ready + self.look_foreign(Part::All)?);
        }
        match (ready + self.look_at_inboxes(), self.is_strange()) {
            (0, _) => self.look_foreign(Part::All),
            // Which counts what lies in inboxes once more.
            (_, true) => Ok(ready + self.look_foreign(Part::Strange)?),
            (all, false) => Ok(all),
        }
    }

    /// Whether the kernel is to be asked about some in each answer.
    fn is_strange(&self) -> bool {
        self.strange || (self.foreign && self.entries.iter().any(is_unsettled))
    }

    /// Fills in what lies in inboxes; the number of sockets.
    fn look_at_inboxes(&mut self) -> isize {
        let mut ready = 0;
        for entry in self.entries.iter_mut() {
            if let Some(socket) = shunt_table::table::find::<Datagram>(entry.fd) {
                entry.revents = datagram::events(socket) & entry.events;
                ready += (entry.revents != 0) as isize;
            }
        }
        ready
    }

    /// Whether an answer is given only after the kernel was asked about all that are not streams.
    fn is_due(&self) -> bool {
        self.deadline == 0 || self.told || self.slept || !self.question.is_quiet() || self.any_bid()
    }

    /// Whether some client bids in memory for one of the listeners.
    pub(super) fn any_bid(&self) -> bool {
        let waits = |entry: &pollfd| {
            let word = table::get(entry.fd);
            word.kind() == Kind::Listener && word.object::<Socket>().is_some_and(shared_server::any)
        };
        self.foreign && shared_server::expects() && self.entries.iter().any(waits)
    }

    pub(super) fn any_stream_ready(&self) -> bool {
        self.entries.iter().any(|e| match shunt_stream::socket::stream(e.fd) {
            Some(s) => events::events(s, e.events | ALWAYS) != 0,
            None => shunt_table::table::find::<Datagram>(e.fd).is_some_and(|d| datagram::events(d) & e.events != 0),
        })
    }
}

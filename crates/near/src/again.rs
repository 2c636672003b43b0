//! The client's half of a connection that is announced in memory: its server is a process that has proved itself in an earlier one, and the pair of that one,
//! which both ends have kept, serves it.

use crate::connect::Attempt;
use crate::kernel::is_unwritten;
use crate::known::servers;
use crate::messages::{First, Token};
use crate::pair::{put, Pair};
use crate::waiting::{await_any, await_others, beside, look_for_proof, take_proof, Looked, Patient};
use shunt_link::companion_cache;
use shunt_rendezvous::carriers::Outcome;
use shunt_ring::claim as offered;
use shunt_segment::address::Address;
use shunt_segment::channel::announced;
use shunt_segment::reason::Reason;
use shunt_stream::socket::introduced::Introduction;
use shunt_sys::{clock, libc, Errno};
use shunt_table::global::SETUP;
use shunt_table::sockaddr;

/// How long the proof of a server is waited for that has said that it writes one (ns).
const PROOF: u64 = 200_000_000;

/// What came of an announcement.
pub enum Came {
    /// The server's secret, from its proof, which was taken off.
    Proof(Token),
    /// Nothing, nor will.
    Nothing,
    /// The server takes it not.
    Refused,
    /// A proof may come yet, or one came for another process.
    Unclear,
}

impl Attempt<'_> {
    /// Makes the connection, and announces it.
    pub fn make_again(&mut self, pair: Pair) -> Outcome {
        if let Err(error) = self.connect_with_mark() {
            if !matches!(error, Errno(libc::EINPROGRESS | libc::EINTR | libc::EAGAIN)) {
                return Outcome::Done(Err(error), Reason::NearUnclaimed);
            }
            servers(|servers| servers.is_far(self.server, clock::monotonic_ns()));
            // Its SYN shows a mark, by which another process of the address could announce it when nobody looks for a proof any more.
            drop(pair);
            return self.start_over(Err(error), Reason::NearUnclaimed);
        }
        // From here on bytes come that are not the program's.
        let introduction = Introduction::begin(self.fd, self.socket);
        self.client = Address { scope: 0, ..sockaddr::bound_address(self.fd) };
        if introduction.is_none() {
            return Outcome::Done(Ok(0), Reason::NearRefused);
        }
        let came = self.announce(&pair);
        // A process that refuses one accepts there, and had no time.
        if matches!(came, Came::Nothing | Came::Unclear) {
            servers(|servers| servers.missed(self.server));
        }
        match came {
            Came::Proof(secret) => {
                if let Some(outcome) = self.settle_again(pair, &secret) {
                    return outcome;
                }
            }
            Came::Nothing => return Outcome::Done(Ok(0), Reason::NearUnclaimed),
            Came::Refused => return Outcome::Done(Ok(0), Reason::NearRefused),
            Came::Unclear => drop(pair),
        }
        self.start_over(Ok(()), Reason::NearRefused)
    }

    /// Announces the connection, and waits for its server. One that has refused it already may have written a proof, as another process has announced it, too.
    pub fn announce(&self, pair: &Pair) -> Came {
        pair.announce(self.client.port, self.socket);
        self.await_server(pair)
    }

    /// Waits for the server's proof.
    pub fn await_server(&self, pair: &Pair) -> Came {
        let mut patient = Patient::begin();
        let mut deadline = clock::monotonic_ns() + self.patience;
        let (mut is_late, mut has_a_piece) = (false, false);
        loop {
            // In a child of fork what comes is its parent's.
            if !pair.is_own() {
                return Came::Nothing;
            }
            // The server claims it before it writes, and gives up behind that.
            let is_refused = pair.is(announced::REFUSED);
            let looks = is_refused || pair.is(announced::CLAIMED) || patient.looks();
            let looked = looks.then(|| look_for_proof(self.fd));
            match looked {
                Some(Looked::First(First::Proof(proof))) => {
                    take_proof(self.fd);
                    return match pair.is(announced::CLAIMED) && proof.token == pair.token {
                        true => Came::Proof(proof.secret),
                        // Another process's, which was taken for this one.
                        false => Came::Unclear,
                    };
                }
                None | Some(Looked::First(First::Part)) => {}
                Some(Looked::Piece) => has_a_piece = true,
                // The program's bytes come from no server that has claimed it, whose proof comes first; nor does one behind the connection's end.
                Some(Looked::First(First::Program) | Looked::End) => return Came::Nothing,
            }
            if is_refused {
                return Came::Refused;
            }
            if clock::monotonic_ns() >= deadline {
                if is_late {
                    return Came::Unclear;
                }
                if pair.recall() {
                    return Came::Nothing;
                }
                (is_late, deadline) = (true, clock::monotonic_ns() + PROOF);
            }
            if patient.is_awake() {
                patient.pause();
            } else if has_a_piece {
                let _ = await_others([self.fd], deadline);
            } else {
                let _ = await_any([self.fd], deadline);
            }
        }
    }

    /// The server holds the connection. What it has kept of the pair is the other end of what takes the socket's numbers. `None`: it waits no longer, and ends the
    /// connection.
    pub(crate) fn settle_again(&self, pair: Pair, secret: &Token) -> Option<Outcome> {
        if !pair.is_own() {
            return Some(Outcome::Done(Ok(0), Reason::NearRefused));
        }
        let head = &pair.page().head;
        // Whatever comes of it: the server sees that it is this end that has read the proof.
        put(&head.secret, secret);
        let refuses = |reason| pair.answer(announced::LEFT).then_some(Outcome::Done(Ok(0), reason));
        let Ok(beside) = beside(self.fd) else { return refuses(Reason::NoDescriptors) };
        let Some(_setup) = SETUP.lock() else { return refuses(Reason::Unknown) };
        let Some(kept) = companion_cache::get(pair.index, pair.channel) else { return refuses(Reason::NearRefused) };
        kept.set_nonblocking(self.nonblocking);
        kept.client = self.client;
        let unix = kept.descriptor();
        // What was written into the TCP connection is there to be read.
        if !is_unwritten(self.fd) || !offered::accept(head, pair.generation) {
            return refuses(Reason::NearRefused);
        }
        if !pair.answer(announced::TAKEN) {
            return None;
        }
        let (place, base) = pair.give();
        self.take_up(place, base, unix, beside);
        Some(Outcome::Connected)
    }
}

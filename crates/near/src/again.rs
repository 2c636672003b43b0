//! The client's half of a connection that is announced in memory: its server is a process that has proved itself in an earlier one, and the pair of that one,
//! which both ends have kept, serves it.

use crate::connect::{way, Attempt};
use crate::known::servers;
use crate::messages::{First, Token};
use crate::own::token;
use crate::waiting::{await_any, await_others, beside, is_unwritten, look_for_proof, take_proof, Looked, Patient};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_link as link;
use shunt_link::{companion_cache, peers};
use shunt_rendezvous::attach;
use shunt_rendezvous::carriers::Outcome;
use shunt_rendezvous::reconnect::client::alive;
use shunt_ring::claim as offered;
use shunt_segment::address::Address;
use shunt_segment::channel::{announced, life, release, ChannelPage};
use shunt_segment::reason::Reason;
use shunt_stream::socket::introduced::Introduction;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::{clock, libc, Errno};
use shunt_table::global::SETUP;
use shunt_table::sockaddr;

/// How long the proof of a server is waited for that has said that it writes one (ns).
const PROOF: u64 = 200_000_000;
/// Pairs that are looked at: the server may not have closed its ends of the last ones.
const LOOKED_AT: usize = 4;

/// The kept pair of an ended connection, and its channel, until it is given away or dropped.
pub struct Pair {
    index: usize,
    channel: usize,
    base: *mut u8,
    /// What the connection's SYN shows.
    pub mark: u16,
    token: Token,
}

impl Pair {
    /// One that leads to the process that serves this address. `None`: there is none, or the program has chosen its address.
    pub fn take(socket: &Socket, server: &Address, now: u64) -> Option<Pair> {
        if socket.has(flag::BOUND) || socket.listening.at_address.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let process = servers(|servers| servers.process(server))?;
        let way = way(server, now)?;
        let (mark, token) = (way.mark()?, token()?);
        let _setup = SETUP.lock()?;
        Pair::choose(process, &way.source, (mark, token))
    }

    /// One that leads to this process, and has been used from this address. Under the set-up lock.
    pub fn choose(process: u64, source: &Address, (mark, token): (u16, Token)) -> Option<Pair> {
        for (index, channel) in peers::pairs(process).take(LOOKED_AT) {
            let Some(kept) = companion_cache::get(index, channel).filter(|kept| kept.client.ip == source.ip) else { continue };
            let base = link::at(index).base;
            if alive(kept.descriptor(), link::page(base, channel), 0) != Ok(true) {
                companion_cache::forget(index, channel);
            } else if peers::take_pair(index, channel) {
                let pair = Pair { index, channel, base, mark, token };
                pair.page().head.state.store(life::FREE, Ordering::Relaxed);
                pair.page().head.announced.store(announced::COMING, Ordering::Release);
                pair.bits().fetch_or(1 << channel, Ordering::Release);
                return Some(pair);
            }
        }
        None
    }

    fn page(&self) -> &'static ChannelPage {
        link::page(self.base, self.channel)
    }

    fn bits(&self) -> &'static AtomicU32 {
        &link::header(self.base).announced
    }

    /// The connection is there, and has these addresses. Gives the generation that is offered.
    pub fn announce(&self, client: &Address, server: &Address, socket: &Socket) -> u32 {
        let page = self.page();
        attach::describe(page, client, server);
        attach::introduce(page, socket);
        page.sides[1].owners.store(0, Ordering::Relaxed); // the server enters itself, once
        put(&page.head.token, &self.token);
        page.head.state.store(life::OFFERED, Ordering::Release);
        page.head.announced.store(announced::ANNOUNCED, Ordering::Release);
        page.head.generation.load(Ordering::Relaxed)
    }

    /// Nothing is announced any more. False: the server has claimed it, or refused.
    fn recall(&self) -> bool {
        let word = &self.page().head.announced;
        let change = |from: u32| word.compare_exchange(from, announced::NONE, Ordering::AcqRel, Ordering::Acquire).is_ok();
        change(announced::COMING) || change(announced::ANNOUNCED)
    }

    /// Whether the word says this.
    pub fn is(&self, state: u32) -> bool {
        self.page().head.announced.load(Ordering::Acquire) == state
    }

    /// Nothing is to be read in the channel.
    fn is_over(&self) {
        self.bits().fetch_and(!(1 << self.channel), Ordering::AcqRel);
        self.page().head.announced.store(announced::NONE, Ordering::Release);
    }
}

/// Nothing came of it. Where no server has had a part in it, another connection may have the pair; else nobody has it any more.
impl Drop for Pair {
    fn drop(&mut self) {
        let Some(_setup) = SETUP.lock() else { return };
        let is_whole = self.is(announced::NONE) || self.recall();
        self.is_over();
        let page = self.page();
        offered::take_back(&page.head);
        page.head.state.store(life::FREE, Ordering::Release);
        if is_whole {
            return peers::put_pair_back(self.index, self.channel);
        }
        page.sides.iter().for_each(|side| side.released.store(release::CLOSED, Ordering::Release));
        link::leave(self.index, self.channel, false, false);
    }
}

/// Writes a token into memory.
pub fn put(words: &[AtomicU64; 2], token: &Token) {
    for (word, half) in words.iter().zip(token.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*half), Ordering::Relaxed);
    }
}

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
            if matches!(error, Errno(libc::EINPROGRESS | libc::EINTR | libc::EAGAIN)) {
                servers(|servers| servers.is_far(self.server, clock::monotonic_ns()));
            }
            return Outcome::Done(Err(error), Reason::NearUnclaimed);
        }
        // From here on bytes come that are not the program's.
        let introduction = Introduction::begin(self.fd, self.socket);
        self.client = Address { scope: 0, ..sockaddr::bound_address(self.fd) };
        if introduction.is_none() {
            return Outcome::Done(Ok(0), Reason::NearRefused);
        }
        let generation = pair.announce(&self.client, self.server, self.socket);
        match self.await_server(&pair) {
            Came::Proof(secret) => self.settle_again(pair, generation, &secret),
            Came::Nothing => Outcome::Done(Ok(0), Reason::NearUnclaimed),
            Came::Refused => Outcome::Done(Ok(0), Reason::NearRefused),
            Came::Unclear => {
                drop((pair, introduction));
                self.start_over(Ok(()), Reason::NearRefused)
            }
        }
    }

    /// Waits for the server's proof.
    pub fn await_server(&self, pair: &Pair) -> Came {
        let mut patient = Patient::begin();
        let mut deadline = clock::monotonic_ns() + self.patience;
        let (mut is_late, mut has_a_piece) = (false, false);
        loop {
            // The server claims it before it writes.
            let looked = (pair.is(announced::CLAIMED) || patient.looks()).then(|| look_for_proof(self.fd));
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
            if pair.is(announced::REFUSED) {
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

    /// The server holds the connection. What it has kept of the pair is the other end of what takes the socket's numbers.
    fn settle_again(&self, pair: Pair, generation: u32, secret: &Token) -> Outcome {
        let Ok(beside) = beside(self.fd) else { return Outcome::Done(Ok(0), Reason::NoDescriptors) };
        let Some(_setup) = SETUP.lock() else { return Outcome::Done(Ok(0), Reason::Unknown) };
        let Some(kept) = companion_cache::get(pair.index, pair.channel) else {
            return Outcome::Done(Ok(0), Reason::NearRefused);
        };
        kept.set_nonblocking(self.nonblocking);
        kept.client = self.client;
        let unix = kept.descriptor();
        put(&pair.page().head.secret, secret);
        // What was written into the TCP connection is there to be read; the server takes the offer back when it waits no longer.
        if !is_unwritten(self.fd) || !offered::accept(&pair.page().head, generation) {
            return Outcome::Done(Ok(0), Reason::NearRefused);
        }
        pair.is_over();
        let Pair { index, channel, base, .. } = pair;
        core::mem::forget(pair);
        self.take_up((index, channel), base, unix, beside);
        Outcome::Connected
    }
}

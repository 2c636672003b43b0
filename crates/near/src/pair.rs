//! What an ended connection has left at the client: a channel, and this end of an AF_UNIX pair, whose other end the server has kept. And the word in the channel's
//! page by which the next connection is announced.

use crate::known::{servers, Seen};
use crate::mark::Kind;
use crate::messages::Token;
use crate::own::token_and_more;
use crate::way::way;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_link as link;
use shunt_link::companion_cache::{self, Kept};
use shunt_link::peers;
use shunt_rendezvous::attach;
use shunt_rendezvous::reconnect::client::alive;
use shunt_ring::claim as offered;
use shunt_segment::address::Address;
use shunt_segment::channel::{announced, life, release, ChannelPage};
use shunt_stream::socket::{self, flag, Socket};
use shunt_sys::thread;
use shunt_table::global::SETUP;

/// Pairs that are looked at: the server may not have closed its ends of the last ones.
const LOOKED_AT: usize = 4;

/// The kept pair of an ended connection, and its channel, until it is given away or dropped.
pub struct Pair {
    /// The link.
    pub index: usize,
    /// The channel in it.
    pub channel: usize,
    /// The channel's generation.
    pub generation: u32,
    base: *mut u8,
    seen: Seen,
    /// What the connection's SYN shows.
    pub mark: u16,
    /// What the server's proof is to hold.
    pub token: Token,
    /// The process that has it: a child that is forked by a handler meanwhile has not.
    process: u32,
}

impl Pair {
    /// One that leads to the process that serves this address. `None`: there is none, or the program has chosen its address.
    pub fn take(socket: &Socket, server: &Address, now: u64) -> Option<Pair> {
        if socket.has(flag::BOUND) || socket.listening.at_address.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let (process, seen) = servers(|servers| servers.process(server))?;
        let way = way(server, now)?;
        let (token, random) = token_and_more()?;
        let mark = way.mark(Kind::Announced, random)?;
        let _setup = SETUP.lock()?;
        Pair::choose(process, &way.source, seen, (mark, token))
    }

    /// One that leads to this process, and has been used from this address, for a connection that looks so to it. Under the set-up lock.
    pub fn choose(process: u64, source: &Address, seen: Seen, (mark, token): (u16, Token)) -> Option<Pair> {
        for (index, channel) in peers::pairs(process).take(LOOKED_AT) {
            let base = link::at(index).base;
            // The server looks among the links of clients at the address that it sees: one by another way, translated or not, is none of those.
            let is_that_way = socket::of_channel(link::page(base, channel)).0.ip == seen.0.ip;
            let is_usable = |kept: &&mut Kept| is_that_way && kept.client.ip == source.ip;
            let Some(kept) = companion_cache::get(index, channel).filter(is_usable) else { continue };
            if alive(kept.descriptor(), link::page(base, channel), 0) != Ok(true) {
                companion_cache::forget(index, channel);
            } else if peers::take_pair(index, channel) {
                let page = link::page(base, channel);
                let generation = page.head.generation.load(Ordering::Relaxed);
                let pair = Pair { index, channel, generation, base, seen, mark, token, process: thread::process() };
                page.head.state.store(life::FREE, Ordering::Relaxed);
                page.head.mark.store(mark.into(), Ordering::Relaxed);
                // A server looks at those alone that come to it.
                attach::describe(page, &seen.0, &seen.1);
                page.head.announced.store(pair.word(announced::COMING), Ordering::Release);
                pair.bits().fetch_or(1 << channel, Ordering::Release);
                return Some(pair);
            }
        }
        None
    }

    /// The channel's page.
    pub fn page(&self) -> &'static ChannelPage {
        link::page(self.base, self.channel)
    }

    fn bits(&self) -> &'static AtomicU32 {
        &link::header(self.base).announced
    }

    /// Whether it is this process's, and not its parent's.
    pub fn is_own(&self) -> bool {
        self.process == thread::process()
    }

    fn word(&self, state: u32) -> u32 {
        announced::word(state, self.generation)
    }

    fn change(&self, from: u32, to: u32) -> bool {
        let word = &self.page().head.announced;
        word.compare_exchange(self.word(from), self.word(to), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The connection is there, and comes from this port. False: the server waits for it no longer.
    pub fn announce(&self, port: u16, socket: &Socket) -> bool {
        if !self.is_own() {
            return false;
        }
        let page = self.page();
        attach::describe(page, &Address { port, ..self.seen.0 }, &self.seen.1);
        attach::introduce(page, socket);
        page.sides[1].owners.store(0, Ordering::Relaxed); // the server enters itself, once
        put(&page.head.token, &self.token);
        page.head.state.store(life::OFFERED, Ordering::Release);
        self.change(announced::COMING, announced::ANNOUNCED)
    }

    /// Nothing is announced any more. False: the server has claimed it, or refused.
    pub fn recall(&self) -> bool {
        !self.is_own() || [announced::COMING, announced::ANNOUNCED].into_iter().any(|from| self.change(from, announced::NONE))
    }

    /// The proof was read: the connection is left to TCP, or is a stream. False: the server waits no longer.
    pub fn answer(&self, to: u32) -> bool {
        self.change(announced::CLAIMED, to)
    }

    /// Whether the word says this.
    pub fn is(&self, state: u32) -> bool {
        self.page().head.announced.load(Ordering::Acquire) == self.word(state)
    }

    /// The connection is a stream of link and channel; gives these, and where the link lies. The word stays, which the server has perhaps not read. Under the set-up
    /// lock.
    pub fn give(self) -> ((usize, usize), *mut u8) {
        self.is_over();
        let place = ((self.index, self.channel), self.base);
        core::mem::forget(self);
        place
    }

    /// Nothing is to be looked for in the channel.
    fn is_over(&self) {
        self.bits().fetch_and(!(1 << self.channel), Ordering::AcqRel);
    }
}

/// Nothing came of it. Where no server has had a part in it, another connection may have the pair; else nobody has it any more.
impl Drop for Pair {
    fn drop(&mut self) {
        let Some(_setup) = SETUP.lock() else { return };
        if !self.is_own() {
            return link::let_go(self.index);
        }
        let is_whole = self.is(announced::NONE) || self.recall();
        let _ = self.answer(announced::LEFT); // a server that has claimed it hears that nobody answers
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

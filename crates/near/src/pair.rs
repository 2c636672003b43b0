//! What an ended connection has left at the client: a channel, and this end of an AF_UNIX pair, whose other end the server has kept. And the word in the channel's
//! page by which the next connection is announced.

use crate::known::servers;
use crate::messages::Token;
use crate::own::token;
use crate::way::way;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_link as link;
use shunt_link::{companion_cache, peers};
use shunt_rendezvous::attach;
use shunt_rendezvous::reconnect::client::alive;
use shunt_ring::claim as offered;
use shunt_segment::address::Address;
use shunt_segment::channel::{announced, life, release, ChannelPage};
use shunt_stream::socket::{flag, Socket};
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
    base: *mut u8,
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
                let pair = Pair { index, channel, base, mark, token, process: thread::process() };
                pair.page().head.state.store(life::FREE, Ordering::Relaxed);
                pair.page().head.announced.store(announced::COMING, Ordering::Release);
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

    fn is_own(&self) -> bool {
        self.process == thread::process()
    }

    /// The connection is there, and has these addresses. Gives the generation that is offered; `None`: the server waits for it no longer.
    pub fn announce(&self, client: &Address, server: &Address, socket: &Socket) -> Option<u32> {
        if !self.is_own() {
            return None;
        }
        let page = self.page();
        attach::describe(page, client, server);
        attach::introduce(page, socket);
        page.sides[1].owners.store(0, Ordering::Relaxed); // the server enters itself, once
        put(&page.head.token, &self.token);
        page.head.state.store(life::OFFERED, Ordering::Release);
        let (word, coming) = (&page.head.announced, announced::COMING);
        word.compare_exchange(coming, announced::ANNOUNCED, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(page.head.generation.load(Ordering::Relaxed))
    }

    /// Nothing is announced any more. False: the server has claimed it, or refused.
    pub fn recall(&self) -> bool {
        let word = &self.page().head.announced;
        let change = |from: u32| word.compare_exchange(from, announced::NONE, Ordering::AcqRel, Ordering::Acquire).is_ok();
        !self.is_own() || change(announced::COMING) || change(announced::ANNOUNCED)
    }

    /// Whether the word says this.
    pub fn is(&self, state: u32) -> bool {
        self.page().head.announced.load(Ordering::Acquire) == state
    }

    /// The connection is a stream of link and channel; gives these, and where the link lies. Under the set-up lock.
    pub fn give(self) -> ((usize, usize), *mut u8) {
        self.is_over();
        let place = ((self.index, self.channel), self.base);
        core::mem::forget(self);
        place
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
        let Some(_setup) = SETUP.lock().filter(|_| self.is_own()) else { return };
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

//! The server's half of a connection that its client announces in memory: the pair of an earlier one serves it.

use crate::messages::{Proof, Token};
use crate::own::token;
use crate::waiting::{is_unread, say, Patient};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_link as link;
use shunt_link::{companion_cache, peers};
use shunt_rendezvous::reconnect::client::alive;
use shunt_ring::claim as offered;
use shunt_segment::address::Address;
use shunt_segment::channel::{announced, life, ChannelPage};
use shunt_segment::reason::Reason;
use shunt_segment::CHANNELS;
use shunt_stream::socket;
use shunt_sys::{calls, clock, libc, thread};
use shunt_table::global::SETUP;

/// How long an announcement is waited for that is coming (ns): its client has the connection, and says so at once if it is awake.
const COMING: u64 = 2_000_000;
/// How long a thread sleeps between two looks into memory (ns), where it has waited awake for long enough.
const NAP: i64 = 200_000;

/// What a client announces, until this is dropped. Nobody has its pair any more if nothing came of it, and it is told so if it was not claimed.
pub struct Announced {
    /// The link, which is not dropped meanwhile.
    pub index: usize,
    /// The channel in it.
    pub channel: usize,
    /// The channel's generation.
    pub generation: u32,
    /// The client's user.
    pub user: u32,
    page: &'static ChannelPage,
    is_taken: bool,
    /// The process that has it: a child that is forked by a handler meanwhile has not.
    process: u32,
}

/// What memory says of a connection.
enum Found {
    This(Announced),
    /// A client of that address is about to announce one.
    Coming,
    Nothing,
}

/// The announcement of the connection from `client` to `server`; one that comes is waited for.
pub fn find(client: &Address, server: &Address, deadline: u64) -> Option<Announced> {
    let mut patient = Patient::begin();
    let until = deadline.min(clock::monotonic_ns() + COMING);
    loop {
        match look(client, server) {
            Found::This(announced) => return Some(announced),
            Found::Nothing => return None,
            Found::Coming if clock::monotonic_ns() >= until => {
                refuse_coming(client);
                return None;
            }
            Found::Coming if patient.is_awake() => patient.pause(),
            Found::Coming => _ = nap(-1),
        }
    }
}

/// What has not come by now is not waited for again, whatever connection it is for: a handler may have left it by a jump.
fn refuse_coming(client: &Address) {
    let Some(_setup) = SETUP.lock() else { return };
    for (index, _) in peers::of_clients_at(client) {
        let base = link::at(index).base;
        for channel in 0..CHANNELS {
            let word = &link::page(base, channel).head.announced;
            let (coming, refused) = (announced::COMING, announced::REFUSED);
            let is_kept = companion_cache::get(index, channel).is_some();
            if is_kept && word.compare_exchange(coming, refused, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                companion_cache::forget(index, channel);
            }
        }
    }
}

/// Sleeps a moment, or until the descriptor hangs up. True: it has.
fn nap(fd: i32) -> bool {
    calls::poll_one(fd, 0, NAP).is_ok_and(|told| told & (libc::POLLHUP | libc::POLLNVAL) != 0)
}

fn look(client: &Address, server: &Address) -> Found {
    let Some(_setup) = SETUP.lock() else { return Found::Nothing };
    let mut found = Found::Nothing;
    for (index, user) in peers::of_clients_at(client) {
        let base = link::at(index).base;
        let bits = link::header(base).announced.load(Ordering::Acquire);
        for channel in (0..CHANNELS).filter(|channel| bits & 1 << channel != 0) {
            let page = link::page(base, channel);
            let Some(kept) = companion_cache::get(index, channel) else { continue };
            match page.head.announced.load(Ordering::Acquire) {
                announced::ANNOUNCED if socket::of_channel(page) == (*client, *server) => {
                    let generation = page.head.generation.load(Ordering::Acquire);
                    link::enter(index);
                    return Found::This(Announced {
                        index,
                        channel,
                        generation,
                        user,
                        page,
                        is_taken: false,
                        process: thread::process(),
                    });
                }
                // That of a client that was killed comes never.
                announced::COMING if alive(kept.descriptor(), page, 1) == Ok(true) => found = Found::Coming,
                announced::COMING => companion_cache::forget(index, channel),
                _ => {}
            }
        }
    }
    found
}

impl Drop for Announced {
    fn drop(&mut self) {
        let _setup = SETUP.lock();
        if !self.is_taken && self.is_own() {
            let _ = self.change(announced::REFUSED);
            companion_cache::forget(self.index, self.channel);
        }
        link::let_go(self.index);
    }
}

impl Announced {
    fn is_own(&self) -> bool {
        self.process == thread::process()
    }

    fn change(&self, to: u32) -> bool {
        let word = &self.page.head.announced;
        word.compare_exchange(announced::ANNOUNCED, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Claims the connection, and writes the proof into it; the client's answer is waited for. What fails behind the claim fails at the client, too.
    pub fn prove(&self, fd: i32, deadline: u64) -> Result<(), Reason> {
        let secret = token().ok_or(Reason::NearRefused)?;
        let unix = self.other_end().ok_or(Reason::ClientLeft)?;
        // Bytes that the client's program has written are to be read, so they leave the connection where it is.
        if !is_unread(fd) || !self.change(announced::CLAIMED) {
            return Err(Reason::ClientLeft);
        }
        let proof = Proof { token: taken(&self.page.head.token), secret, peer: 0 };
        if !say(fd, &proof.encode()) {
            return Err(Reason::ClientLeft);
        }
        self.await_answer(unix, deadline)?;
        match taken(&self.page.head.secret) == secret {
            true => Ok(()),
            false => Err(Reason::NearRefused),
        }
    }

    /// What is kept of the pair, if the client lives.
    fn other_end(&self) -> Option<i32> {
        let _setup = SETUP.lock()?;
        let unix = companion_cache::get(self.index, self.channel)?.descriptor();
        (alive(unix, self.page, 1) == Ok(true)).then_some(unix)
    }

    /// The client goes on and takes it back in one and the same word.
    fn await_answer(&self, unix: i32, deadline: u64) -> Result<(), Reason> {
        let mut patient = Patient::begin();
        loop {
            match self.page.head.state.load(Ordering::Acquire) {
                _ if !self.is_own() => return Err(Reason::ClientLeft),
                life::ACCEPTED => return Ok(()),
                life::OFFERED => {}
                _ => return Err(Reason::ClientLeft),
            }
            let has_hung_up = if patient.is_awake() {
                patient.pause();
                false
            } else {
                nap(unix)
            };
            // What it has accepted it meant, though it may have ended since.
            if (has_hung_up || clock::monotonic_ns() >= deadline) && offered::take_back(&self.page.head) {
                return Err(if has_hung_up { Reason::ClientLeft } else { Reason::NearRefused });
            }
        }
    }

    /// The kept end of the pair, for a connection from this address. Under the set-up lock.
    pub fn unix(&self, nonblocking: bool, client: &Address) -> Option<i32> {
        let kept = companion_cache::get(self.index, self.channel)?;
        kept.set_nonblocking(nonblocking);
        kept.client = *client;
        Some(kept.descriptor())
    }

    /// The connection is a stream.
    pub fn is_taken(&mut self) {
        self.is_taken = true;
    }
}

/// A token that was written into memory.
fn taken(words: &[AtomicU64; 2]) -> Token {
    let mut token = Token::default();
    for (half, word) in token.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *half = word.load(Ordering::Relaxed).to_le_bytes();
    }
    token
}

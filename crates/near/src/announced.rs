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
/// How long it is believed that one is coming (ns): connect(2) may take minutes, or may have been left by a jump.
const BELIEVED: u64 = 50_000_000;
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
    is_claimed: bool,
    is_taken: bool,
    /// The process that has it: a child that is forked by a handler meanwhile has not.
    process: u32,
}

/// What came of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proved {
    /// The client has read the proof, and takes the stream.
    Taken,
    /// No proof was written, or the client has read it and leaves the connection to TCP.
    Left(Reason),
    /// The proof is in the connection, and may be another client's than has announced it: its program would read it.
    Doubtful(Reason),
}

/// What a connection shows.
pub struct Shown {
    /// Where it comes from.
    pub client: Address,
    /// Where it was accepted.
    pub server: Address,
    /// Its mark.
    pub mark: u16,
}

impl Shown {
    /// Whether an announcement may be its own, as far as is known before there is a connection.
    fn is_in(&self, page: &ChannelPage) -> bool {
        page.head.mark.load(Ordering::Relaxed) == u32::from(self.mark) && socket::of_channel(page).1 == self.server
    }
}

/// What memory says of a connection.
enum Found {
    This(Announced),
    /// A client of that address is about to announce one.
    Coming,
    Nothing,
}

/// The announcement of a connection; one that comes is waited for.
pub fn find(shown: &Shown, deadline: u64) -> Option<Announced> {
    let mut patient = Patient::begin();
    let until = deadline.min(clock::monotonic_ns() + COMING);
    loop {
        match look(shown) {
            Found::This(announced) => return Some(announced),
            Found::Nothing => return None,
            Found::Coming if clock::monotonic_ns() >= until => {
                refuse_coming(shown);
                return None;
            }
            Found::Coming if patient.is_awake() => patient.pause(),
            Found::Coming => _ = nap(-1),
        }
    }
}

/// What has not come by now is not waited for again, from whatever port it is: a handler may have left it by a jump.
fn refuse_coming(shown: &Shown) {
    let Some(_setup) = SETUP.lock() else { return };
    for (index, _) in peers::of_clients_at(&shown.client) {
        let base = link::at(index).base;
        for channel in 0..CHANNELS {
            let page = link::page(base, channel);
            let word = page.head.announced.load(Ordering::Acquire);
            let is_it = announced::state(word) == announced::COMING && shown.is_in(page);
            if is_it && companion_cache::get(index, channel).is_some() && change(page, word, announced::REFUSED) {
                companion_cache::forget(index, channel);
            }
        }
    }
}

/// Sleeps a moment, or until the descriptor hangs up. True: it has.
fn nap(fd: i32) -> bool {
    calls::poll_one(fd, 0, NAP).is_ok_and(|told| told & (libc::POLLHUP | libc::POLLNVAL) != 0)
}

/// The word that was found changes, if the client has not changed it.
fn change(page: &ChannelPage, found: u32, to: u32) -> bool {
    let word = &page.head.announced;
    word.compare_exchange(found, announced::with(found, to), Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

fn is_young(page: &ChannelPage) -> bool {
    clock::ticks().wrapping_sub(page.head.began.load(Ordering::Relaxed)) < clock::ticks_for_ns(BELIEVED)
}

fn look(shown: &Shown) -> Found {
    let Some(_setup) = SETUP.lock() else { return Found::Nothing };
    let mut found = Found::Nothing;
    for (index, user) in peers::of_clients_at(&shown.client) {
        let base = link::at(index).base;
        let bits = link::header(base).announced.load(Ordering::Acquire);
        for channel in (0..CHANNELS).filter(|channel| bits & 1 << channel != 0) {
            let page = link::page(base, channel);
            let Some(kept) = companion_cache::get(index, channel) else { continue };
            let word = page.head.announced.load(Ordering::Acquire);
            if !shown.is_in(page) {
                continue;
            }
            match announced::state(word) {
                announced::ANNOUNCED if socket::of_channel(page).0 == shown.client => {
                    let generation = page.head.generation.load(Ordering::Acquire);
                    link::enter(index);
                    return Found::This(Announced {
                        index,
                        channel,
                        generation,
                        user,
                        page,
                        is_claimed: false,
                        is_taken: false,
                        process: thread::process(),
                    });
                }
                // One is enough, and asked for.
                announced::COMING if matches!(found, Found::Coming) || !is_young(page) => {}
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
        // What the client has recalled is its own again, and may be announced for another connection by now.
        let is_this_one_s = self.page.head.generation.load(Ordering::Acquire) == self.generation;
        if !self.is_taken && self.is_own() && is_this_one_s && (self.is_claimed || self.change(announced::REFUSED)) {
            companion_cache::forget(self.index, self.channel);
        }
        link::let_go(self.index);
    }
}

impl Announced {
    fn is_own(&self) -> bool {
        self.process == thread::process()
    }

    /// False: the client has recalled it, though it may have announced another connection since.
    fn change(&self, to: u32) -> bool {
        change(self.page, announced::word(announced::ANNOUNCED, self.generation), to)
    }

    /// Claims the connection, and writes the proof into it; the client's answer is waited for. What fails behind the claim fails at the client, too.
    pub fn prove(&mut self, fd: i32, deadline: u64) -> Proved {
        let Some(secret) = token() else { return Proved::Left(Reason::NearRefused) };
        let Some(unix) = self.other_end() else { return Proved::Left(Reason::ClientLeft) };
        // Bytes that the client's program has written are to be read, so they leave the connection where it is.
        self.is_claimed = is_unread(fd) && self.change(announced::CLAIMED);
        if !self.is_claimed {
            return Proved::Left(Reason::ClientLeft);
        }
        let proof = Proof { token: taken(&self.page.head.token), secret, peer: 0 };
        if !say(fd, &proof.encode()) {
            return Proved::Doubtful(Reason::ClientLeft);
        }
        let answered = self.await_answer(unix, deadline);
        match answered {
            // It is the parent's, and so is the connection.
            _ if !self.is_own() => Proved::Left(Reason::ClientLeft),
            Answered::Nothing(reason) => Proved::Doubtful(reason),
            // Said by one that has not read it.
            _ if taken(&self.page.head.secret) != secret => Proved::Doubtful(Reason::NearRefused),
            Answered::Takes => Proved::Taken,
            Answered::Leaves => Proved::Left(Reason::ClientLeft),
        }
    }

    /// What is kept of the pair, if the client lives, and its link is to have connections still.
    fn other_end(&self) -> Option<i32> {
        let _setup = SETUP.lock()?;
        let unix = companion_cache::get(self.index, self.channel)?.descriptor();
        (!link::at(self.index).is_retired() && alive(unix, self.page, 1) == Ok(true)).then_some(unix)
    }

    /// The client goes on, it leaves the connection to TCP, and this end takes the offer back in one and the same word.
    fn await_answer(&self, unix: i32, deadline: u64) -> Answered {
        let mut patient = Patient::begin();
        loop {
            let state = self.page.head.state.load(Ordering::Acquire);
            let is_this_one_s = self.page.head.generation.load(Ordering::Acquire) == self.generation;
            match state {
                life::ACCEPTED if is_this_one_s => return Answered::Takes,
                life::OFFERED if is_this_one_s && self.is_own() => {}
                _ => return Answered::Leaves,
            }
            let has_hung_up = if patient.is_awake() {
                patient.pause();
                false
            } else {
                nap(unix)
            };
            // What it has accepted it meant, though it may have ended since.
            if (has_hung_up || clock::monotonic_ns() >= deadline) && self.is_own() && offered::take_back(&self.page.head) {
                return Answered::Nothing(if has_hung_up { Reason::ClientLeft } else { Reason::NearRefused });
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

/// What a client has answered to the proof; of which only the secret says that it was this client.
enum Answered {
    /// It takes the stream.
    Takes,
    /// It has taken its offer back.
    Leaves,
    /// Why not.
    Nothing(Reason),
}

/// A token that was written into memory.
fn taken(words: &[AtomicU64; 2]) -> Token {
    let mut token = Token::default();
    for (half, word) in token.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *half = word.load(Ordering::Relaxed).to_le_bytes();
    }
    token
}

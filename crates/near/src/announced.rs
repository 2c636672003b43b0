//! The server's half of a connection that its client announces in memory: the pair of an earlier one serves it.

use crate::kernel::is_unread;
use crate::messages::{Proof, Token};
use crate::own::token;
use crate::waiting::{say, Patient};
use core::sync::atomic::{AtomicU64, Ordering};
use shunt_link as link;
use shunt_link::{companion_cache, peers};
use shunt_rendezvous::reconnect::client::alive;
use shunt_segment::address::Address;
use shunt_segment::channel::{announced, ChannelPage};
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
    /// What was found: of its generation, and no other, this end changes the word.
    word: u32,
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
            Found::Coming => _ = nap([-1, -1]),
        }
    }
}

/// What has not come by now is not waited for again: its client hears that at once.
fn refuse_coming(shown: &Shown) {
    let Some(_setup) = SETUP.lock() else { return };
    for place in kept_by_clients(shown) {
        let word = place.page.head.announced.load(Ordering::Acquire);
        if announced::state(word) == announced::COMING && is_young(place.page) && change(place.page, word, announced::REFUSED) {
            companion_cache::forget(place.index, place.channel);
        }
    }
}

/// A channel in which a client may announce the connection, and this end of its pair.
struct Place {
    index: usize,
    user: u32,
    channel: usize,
    page: &'static ChannelPage,
    unix: i32,
}

/// Those of clients at the connection's address. Under the set-up lock.
fn kept_by_clients(shown: &Shown) -> impl Iterator<Item = Place> + '_ {
    peers::of_clients_at(&shown.client).flat_map(move |(index, user)| {
        let base = link::at(index).base;
        let bits = link::header(base).announced.load(Ordering::Acquire);
        (0..CHANNELS).filter(move |channel| bits & 1 << channel != 0).filter_map(move |channel| {
            let unix = companion_cache::get(index, channel)?.descriptor();
            let page = link::page(base, channel);
            shown.is_in(page).then_some(Place { index, user, channel, page, unix })
        })
    })
}

/// Sleeps a moment, or until one of the descriptors hangs up. True: it has.
fn nap(descriptors: [i32; 2]) -> bool {
    let mut set = descriptors.map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: NAP };
    let found = calls::ppoll(set.as_mut_ptr(), set.len(), &mut time, core::ptr::null(), calls::KERNEL_SIGSET);
    found.is_ok_and(|found| found > 0)
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
    for Place { index, user, channel, page, unix } in kept_by_clients(shown) {
        let word = page.head.announced.load(Ordering::Acquire);
        match announced::state(word) {
            announced::ANNOUNCED if socket::of_channel(page) == (shown.client, shown.server) => {
                let generation = page.head.generation.load(Ordering::Acquire);
                if announced::word(announced::ANNOUNCED, generation) != word {
                    continue;
                }
                link::enter(index);
                let process = thread::process();
                let (is_claimed, is_taken) = (false, false);
                return Found::This(Announced { index, channel, generation, user, word, page, is_claimed, is_taken, process });
            }
            // One is enough, and asked for.
            announced::COMING if matches!(found, Found::Coming) || !is_young(page) => {}
            // That of a client that was killed comes never.
            announced::COMING if alive(unix, page, 1) == Ok(true) => found = Found::Coming,
            announced::COMING => companion_cache::forget(index, channel),
            _ => {}
        }
    }
    found
}

impl Drop for Announced {
    fn drop(&mut self) {
        let _setup = SETUP.lock();
        // What the client has recalled is its own again, and may be announced for another connection by now.
        let is_this_one_s = self.page.head.generation.load(Ordering::Acquire) == self.generation;
        if !self.is_taken && self.is_own() && is_this_one_s && (self.is_claimed || self.change(self.word, announced::REFUSED)) {
            companion_cache::forget(self.index, self.channel);
        }
        link::let_go(self.index);
    }
}

impl Announced {
    fn is_own(&self) -> bool {
        self.process == thread::process()
    }

    /// False: the client has changed it, and may have announced another connection since.
    fn change(&self, from: u32, to: u32) -> bool {
        change(self.page, from, to)
    }

    fn claimed(&self) -> u32 {
        announced::with(self.word, announced::CLAIMED)
    }

    /// Claims the connection, and writes the proof into it; the client's answer is waited for. What fails behind the claim fails at the client, too.
    pub fn prove(&mut self, fd: i32, deadline: u64) -> Proved {
        let Some(secret) = token() else { return Proved::Left(Reason::NearRefused) };
        if !self.is_to_be_had() {
            return Proved::Left(Reason::ClientLeft);
        }
        // Bytes that the client's program has written are to be read, so they leave the connection where it is.
        self.is_claimed = is_unread(fd) && self.is_own() && self.change(self.word, announced::CLAIMED);
        if !self.is_claimed {
            return Proved::Left(Reason::ClientLeft);
        }
        let proof = Proof { token: taken(&self.page.head.token), secret, peer: 0 };
        if !say(fd, &proof.encode()) {
            return Proved::Doubtful(Reason::ClientLeft);
        }
        let answered = self.await_answer(fd, deadline);
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

    /// Whether the client lives, and its link is to have connections still.
    fn is_to_be_had(&self) -> bool {
        let Some(_setup) = SETUP.lock() else { return false };
        let Some(kept) = companion_cache::get(self.index, self.channel) else { return false };
        !link::at(self.index).is_retired() && alive(kept.descriptor(), self.page, 1) == Ok(true)
    }

    /// Sleeps a moment. True: the client's end of the pair has hung up, or this one is kept no longer; or the connection was reset, by one that has read a proof that is not
    /// its own, and tells nobody else of it.
    fn naps_until_it_has_gone(&self, fd: i32) -> bool {
        let kept = SETUP.lock().and_then(|_setup| companion_cache::get(self.index, self.channel).map(|kept| kept.descriptor()));
        kept.is_none_or(|kept| nap([kept, fd]))
    }

    /// The client takes the stream, it leaves the connection to TCP, and this end gives it up in one and the same word, which holds the generation.
    fn await_answer(&self, fd: i32, deadline: u64) -> Answered {
        let mut patient = Patient::begin();
        let taken = announced::with(self.word, announced::TAKEN);
        loop {
            match self.page.head.announced.load(Ordering::Acquire) {
                word if word == taken => return Answered::Takes,
                word if word == self.claimed() && self.is_own() => {}
                _ => return Answered::Leaves,
            }
            let has_hung_up = if patient.is_awake() {
                patient.pause();
                false
            } else {
                self.naps_until_it_has_gone(fd)
            };
            // What it has taken it meant, though it may have ended since.
            let gives_up = (has_hung_up || clock::monotonic_ns() >= deadline) && self.is_own();
            if gives_up && self.change(self.claimed(), announced::REFUSED) {
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
    /// It leaves the connection to TCP.
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

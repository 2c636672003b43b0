//! A caller's table of calls: what is known of each place, and what an answer does to it. Sans I/O.
//!
//! | state | answer | the caller drops it | the connection ends |
//! |---|---|---|---|
//! | `Free` | a stranger: counted, dropped | - | - |
//! | `Waiting` | `Done`, or `Fetching` where results lie elsewhere | `Abandoned`, a cancel is sent | `Lost` |
//! | `Fetching` | (the last byte) `Done` | `Abandoned` | `Lost` |
//! | `Abandoned` | `Free`: pieces of the window come back | - | `Free` |
//! | `Done`, `Lost` | a stranger | `Free` | - |
//!
//! So a place is given to another call only when no answer to the last one can come any more: a late answer meets no call.

use crate::clock::now;
use crate::rendezvous::Socket;
use crate::window::{Pieces, Window, PLACES};
use crate::wire::{flag, handler, status, Call, Head, Name, Piece, LINE};
use shunt_am::{Dispatch, Event, Message, Reason, Replier};
use std::task::Waker;

/// Pieces of a window that a call may have: its arguments, the room for its results, and its parameters by reference.
pub(crate) const PIECES: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum State {
    #[default]
    Free,
    Waiting,
    Fetching,
    Done,
    Lost,
    Abandoned,
}

/// A piece that a call holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    pub number: u32,
    /// Its bytes come back after the call, where memory is not shared.
    pub back: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub state: State,
    pub generation: u16,
    /// The answer's, as the wire has it.
    pub status: u16,
    /// Bytes of results in `line`; those in `bytes` otherwise.
    pub length: u8,
    pub line: [u64; LINE / 8],
    pub bytes: Vec<u8>,
    /// Where long results lie.
    pub large: Option<Piece>,
    pub held: [Held; PIECES],
    pub count: u8,
    /// Gets under way.
    pub fetching: u8,
    /// The room that was set aside: what else would be named as results is a lie.
    pub room: Piece,
    pub waker: Option<Waker>,
}

/// All calls of a caller to its server.
pub(crate) struct Calls {
    pub slots: Vec<Slot>,
    free: Vec<u16>,
    pub pieces: Pieces,
    pub window: Window,
    /// Both sides have the window.
    pub direct: bool,
    /// Places whose pieces are to be fetched.
    pub fetches: Vec<u16>,
    /// Futures to wake when the table is not borrowed any more.
    pub wakers: Vec<Waker>,
    /// Those that nobody wakes: to be dropped when the table is not borrowed, as tasks may go with them.
    pub gone: Vec<Waker>,
    /// Answers to calls that were not made.
    pub strangers: u64,
    /// The engine's word.
    pub lost: Option<Reason>,
    /// What tells of the server's end, and between hosts that it is busy.
    pub socket: Option<Socket>,
    /// When it last said so.
    busy_at: Option<u64>,
}

/// A server says each second that it is busy; once it has not for so long, it is not known to be.
const BUSY_FOR: u64 = 3_000_000_000;

impl Calls {
    pub fn new(window: Window, direct: bool) -> Self {
        let slots = (0..PLACES).map(|_| Slot::default()).collect();
        let free = (0..PLACES as u16).rev().collect();
        let pieces = Pieces::new(window.size());
        let (fetches, wakers) = (vec![], vec![]);
        Self {
            slots,
            free,
            pieces,
            window,
            direct,
            fetches,
            wakers,
            gone: vec![],
            strangers: 0,
            lost: None,
            socket: None,
            busy_at: None,
        }
    }

    /// Hears what the server says beside its answers. True: it has ended.
    pub fn hear(&mut self) -> bool {
        let busy_at = &mut self.busy_at;
        let mut take = |_| *busy_at = Some(now());
        self.socket.as_ref().is_some_and(|socket| socket.listen(&mut take))
    }

    /// A place for a call.
    #[inline(always)]
    pub fn take(&mut self) -> Option<Name> {
        let slot = self.free.pop()?;
        let place = &mut self.slots[usize::from(slot)];
        place.generation = place.generation.wrapping_add(1);
        place.state = State::Waiting;
        Some(Name { slot, generation: place.generation })
    }

    /// The call was not sent, or its results were taken: the place is free.
    #[inline(always)]
    pub fn give_back(&mut self, slot: u16) {
        let place = &mut self.slots[usize::from(slot)];
        place.state = State::Free;
        if place.count > 0 || place.waker.is_some() || place.large.is_some() {
            self.give_back_pieces(slot);
        }
        self.free.push(slot);
    }

    #[inline(never)]
    fn give_back_pieces(&mut self, slot: u16) {
        let place = &mut self.slots[usize::from(slot)];
        for held in &place.held[..usize::from(place.count)] {
            self.pieces.release(held.number);
        }
        place.count = 0;
        place.room = Piece::default();
        place.large = None;
        place.waker = None;
    }

    /// Counts a piece to a call, which holds it until its place is free. False: it has as many as it can.
    pub fn hold(&mut self, slot: u16, number: u32, back: bool) -> bool {
        let place = &mut self.slots[usize::from(slot)];
        let Some(free) = place.held.get_mut(usize::from(place.count)) else { return false };
        *free = Held { number, back };
        place.count += 1;
        true
    }

    #[inline(always)]
    pub fn place(&mut self, name: Name) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(name.slot)).filter(|place| place.generation == name.generation)
    }

    pub fn outstanding(&self) -> usize {
        PLACES - self.free.len()
    }

    /// Takes an answer.
    #[inline(always)]
    fn answer(&mut self, words: &[u64], data: &[u8]) {
        // What almost all are: results in a line, to a call that is waited for.
        if let (&[first, ref rest @ ..], []) = (words, data) {
            let head = Head::from_word(first);
            let half = (head.flags & flag::HALF) as u8 * 4;
            if let Some(place) = self.slots.get_mut(usize::from(head.name.slot)) {
                let waiting = place.generation == head.name.generation && place.state == State::Waiting;
                let usual = head.flags & !flag::HALF == 0 && rest.len() <= LINE / 8 && rest.len() as u8 * 8 >= half;
                if waiting && usual && place.count == 0 && place.waker.is_none() {
                    place.status = head.code;
                    place.length = rest.len() as u8 * 8 - half;
                    for (to, &from) in place.line.iter_mut().zip(rest) {
                        *to = from;
                    }
                    place.state = State::Done;
                    return;
                }
            }
        }
        self.answer_as_any(words, data);
    }

    #[inline(never)]
    fn answer_as_any(&mut self, words: &[u64], data: &[u8]) {
        let Some(call) = Call::parse(words, data) else { return self.stranger() };
        let Some(place) = self.slots.get_mut(usize::from(call.head.name.slot)) else { return self.stranger() };
        if place.generation != call.head.name.generation || place.state != State::Waiting {
            return self.late(call.head.name);
        }
        place.status = call.head.code;
        let length = call.inline.len();
        if length <= LINE {
            place.length = length as u8;
            let line: &mut [u8] = bytemuck::cast_slice_mut(&mut place.line);
            line[..length].copy_from_slice(call.inline);
        } else {
            place.length = u8::MAX;
            place.bytes.clear();
            place.bytes.extend_from_slice(call.inline);
        }
        place.state = State::Done;
        if call.large.is_some() || place.count > 0 || place.waker.is_some() {
            self.answer_in_general(call.head, call.large);
        }
    }

    /// What of an answer is not usual.
    #[inline(never)]
    fn answer_in_general(&mut self, head: Head, large: Option<Piece>) {
        let slot = head.name.slot;
        let place = &mut self.slots[usize::from(slot)];
        if let Some(piece) = large {
            if piece.offset == place.room.offset && piece.length <= place.room.length && place.room.length > 0 {
                place.large = Some(piece);
            } else {
                // Results where no room was set aside for them.
                place.status = status::PROTOCOL;
            }
        }
        let fetch = place.large.is_some() || place.held[..usize::from(place.count)].iter().any(|held| held.back);
        if !self.direct && head.code == status::OK && fetch {
            place.state = State::Fetching;
            place.fetching = 0;
            self.fetches.push(slot);
            return;
        }
        self.wakers.extend(place.waker.take());
    }

    /// An answer to a call that was taken back, or to none.
    #[cold]
    fn late(&mut self, name: Name) {
        match self.place(name) {
            Some(place) if place.state == State::Abandoned => {
                if self.direct {
                    // The place will have a call of this number again.
                    self.window.set_wanted(name.slot);
                }
                self.give_back(name.slot);
            }
            _ => self.stranger(),
        }
    }

    #[cold]
    fn stranger(&mut self) {
        self.strangers += 1;
    }

    fn fetched(&mut self, words: &[u64]) {
        let Some(&word) = words.first() else { return };
        let name = Head::from_word(word).name;
        let Some(place) = self.place(name) else { return };
        place.fetching = place.fetching.saturating_sub(1);
        match place.state {
            State::Fetching if place.fetching == 0 => {
                place.state = State::Done;
                let waker = place.waker.take();
                self.wakers.extend(waker);
            }
            State::Abandoned if place.fetching == 0 => self.give_back(name.slot),
            _ => {}
        }
    }

    /// The caller does not want the answer any more. True: the server is to be told.
    pub fn abandon(&mut self, name: Name) -> bool {
        let Some(place) = self.place(name) else { return false };
        match place.state {
            State::Done | State::Lost => {
                self.give_back(name.slot);
                false
            }
            State::Waiting | State::Fetching => {
                let was = std::mem::replace(&mut place.state, State::Abandoned);
                let waker = place.waker.take();
                self.gone.extend(waker);
                was == State::Waiting
            }
            State::Free | State::Abandoned => false,
        }
    }

    /// No answer will come any more.
    pub fn end(&mut self) {
        self.fetches.clear();
        for slot in 0..self.slots.len() as u16 {
            let place = &mut self.slots[usize::from(slot)];
            match place.state {
                State::Waiting | State::Fetching => {
                    place.state = State::Lost;
                    let waker = place.waker.take();
                    self.wakers.extend(waker);
                }
                State::Abandoned => self.give_back(slot),
                State::Free | State::Done | State::Lost => {}
            }
        }
    }
}

impl Dispatch for Calls {
    /// Servers do not call.
    fn request(&mut self, _: Message<'_>, replier: Replier<'_>) {
        self.strangers += 1;
        replier.refuse();
    }

    #[inline(always)]
    fn reply(&mut self, message: Message<'_>) {
        if message.handler == handler::ANSWER {
            self.answer(message.words, message.data);
        } else if message.handler == handler::FETCHED {
            self.fetched(message.words);
        } else {
            self.strangers += 1;
        }
    }

    /// The server's engine refused it: its call ends.
    fn returned(&mut self, message: Message<'_>) {
        let Some(&word) = message.words.first() else { return };
        let name = Head::from_word(word).name;
        match self.place(name) {
            Some(place) if matches!(place.state, State::Waiting | State::Fetching) => {
                place.status = status::PROTOCOL;
                place.length = 0;
                place.state = State::Done;
                let waker = place.waker.take();
                self.wakers.extend(waker);
            }
            _ => {}
        }
    }

    fn segment(&mut self, _: u32) -> &mut [u8] {
        if self.direct {
            return &mut [];
        }
        // SAFETY: where memory is not shared, the window is this process's alone; the engine has it while it copies.
        unsafe { self.window.bytes() }
    }

    /// A thread that runs a procedure answers nothing; another one of its process says that it lives.
    fn vouches(&mut self, _: u32) -> bool {
        !self.hear() && self.busy_at.is_some_and(|at| now() < at + BUSY_FOR)
    }

    fn event(&mut self, _: u32, event: Event) {
        if let Event::Lost(reason) = event {
            self.lost = Some(reason);
        }
    }
}

/// The words of a call or an answer that fills a line at most, and how many count.
#[inline(always)]
pub(crate) fn one_line(head: Head, [a, b, c]: [u64; LINE / 8], length: usize) -> ([u64; 1 + LINE / 8], usize) {
    let half = if length.is_multiple_of(8) { 0 } else { flag::HALF };
    let head = Head { flags: head.flags | half, ..head };
    ([head.word(), a, b, c], 1 + length.div_ceil(8).min(LINE / 8))
}

/// The words of a call or an answer before its arguments or results.
pub(crate) struct Words {
    pub words: [u64; 8],
    pub count: usize,
}

impl Words {
    #[inline(always)]
    pub fn new() -> Self {
        Self { words: [0; 8], count: 1 }
    }

    #[inline(always)]
    pub fn push(&mut self, word: u64) {
        self.words[self.count] = word;
        self.count += 1;
    }

    /// Puts `bytes`, if they fit the line: four words in all. Gives the flag that their length asks for.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) -> Option<u16> {
        let more = bytes.len().div_ceil(8);
        if self.count + more > 1 + LINE / 8 {
            return None;
        }
        for eight in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..eight.len()].copy_from_slice(eight);
            self.push(u64::from_ne_bytes(word));
        }
        Some(if bytes.len().is_multiple_of(8) { 0 } else { flag::HALF })
    }

    #[inline(always)]
    pub fn as_slice(&self) -> &[u64] {
        &self.words[..self.count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn calls() -> Calls {
        Calls::new(Window::create(1 << 16).unwrap(), true)
    }

    #[test]
    fn a_server_is_busy_for_as_long_as_it_says_so() {
        let mut calls = calls();
        assert!(!calls.vouches(0), "it never said so");
        calls.busy_at = Some(now());
        assert!(calls.vouches(0));
        // Three of its words are missing.
        calls.busy_at = Some(now().saturating_sub(3_500_000_000));
        assert!(!calls.vouches(0));
    }

    fn answer(calls: &mut Calls, name: Name) {
        calls.answer(&[Head { name, code: 0, flags: 0 }.word()], &[]);
    }

    #[test]
    fn a_late_answer_meets_nobody() {
        let mut calls = calls();
        let name = calls.take().unwrap();
        assert!(calls.abandon(name));
        // However many calls follow, none has this place.
        for _ in 0..70_000 {
            let other = calls.take().unwrap();
            assert_ne!(other.slot, name.slot);
            answer(&mut calls, other);
            calls.give_back(other.slot);
        }
        answer(&mut calls, name);
        assert_eq!((calls.outstanding(), calls.strangers), (0, 0));
        answer(&mut calls, name);
        assert_eq!((calls.outstanding(), calls.strangers), (0, 1));
    }

    /// Numbers of a place's calls come again after 65,536 of them.
    #[test]
    fn what_was_taken_back_is_forgotten_with_its_answer() {
        let mut calls = calls();
        let name = calls.take().unwrap();
        calls.window.set_cancelled(name.slot, name.generation);
        assert!(calls.abandon(name));
        answer(&mut calls, name);
        for _ in 0..=u32::from(u16::MAX) {
            let next = calls.take().unwrap();
            assert_eq!(next.slot, name.slot);
            assert!(!calls.window.is_cancelled(next.slot, next.generation));
            answer(&mut calls, next);
            calls.give_back(next.slot);
        }
    }

    #[test]
    fn results_lie_where_room_was_made() {
        let mut calls = calls();
        let name = calls.take().unwrap();
        let piece = calls.pieces.take(100).unwrap();
        calls.slots[usize::from(name.slot)].room = calls.pieces.get(piece);
        assert!(calls.hold(name.slot, piece, false));
        let head = Head { name, code: 0, flags: flag::LARGE };
        calls.answer(&[head.word(), Piece { offset: 8000, length: 9 }.word()], &[]);
        assert_eq!(calls.place(name).unwrap().status, status::PROTOCOL);
        calls.give_back(name.slot);
        assert_eq!(calls.pieces.holders(piece), 0);
    }

    proptest! {
        /// Whatever a server answers: each place is free or is a call's, and none is lost.
        #[test]
        fn no_answer_breaks_the_table(acts in proptest::collection::vec((0u8..4, any::<u64>(), 0u16..6), 1..200)) {
            let mut calls = calls();
            let mut mine: Vec<Name> = vec![];
            for (act, word, pick) in acts {
                match act {
                    0 => mine.extend(calls.take()),
                    1 => {
                        let head = Head::from_word(word);
                        let name = Name { slot: PLACES as u16 - 1 - pick, generation: head.name.generation % 4 };
                        calls.answer(&[Head { name, ..head }.word(), word], &[]);
                    }
                    2 if !mine.is_empty() => {
                        let name = mine.swap_remove(usize::from(pick) % mine.len());
                        calls.abandon(name);
                    }
                    _ => calls.answer(&[word], &[1, 2, 3, 4]),
                }
            }
            for name in mine {
                prop_assert!(calls.place(name).is_some_and(|place| place.state != State::Free));
                calls.abandon(name);
            }
            calls.end();
            prop_assert_eq!(calls.outstanding(), 0);
        }
    }
}

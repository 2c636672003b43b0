//! Beginning a call, and sending it.

use super::place::Placed;
use super::wait::{Stop, Waiting};
use super::Binding;
use crate::calls::{one_line, State, Words};
use crate::clock::{nanos, now};
use crate::device::PEER;
use crate::error::{Error, Kind, Ran, Side};
use crate::reference::How;
use crate::wire::{flag, handler, Head, Name, Piece, LINE};
use crate::xdr::{Encoder, Xdr};
use shunt_am::{Refused, Store};

impl Binding {
    /// Sends one request. `Busy`: the server has as many as it takes, or the device is full.
    #[inline(always)]
    fn send(&mut self, words: &[u64], data: &[u8]) -> Result<(), Refused> {
        self.end.try_request(PEER, handler::CALL, words, data)
    }

    /// Begins a call.
    #[inline(always)]
    pub(in crate::client) fn begin<A: Xdr, R: Xdr>(
        &mut self,
        procedure: u16,
        arguments: &A,
        how: &How<'_>,
        flags: u16,
    ) -> Result<Name, Error> {
        let plain = A::MOST <= LINE && R::MOST <= self.medium && how.lent.is_empty();
        let timed = how.deadline.is_some() || self.deadline.is_some();
        if plain && !timed && self.dead.is_none() && !self.is_parents() {
            let Some(name) = self.calls.take() else { return Err(self.full()) };
            let mut line = [0; LINE / 8];
            let mut encoder = Encoder::new(bytemuck::cast_slice_mut(&mut line));
            arguments.encode(&mut encoder);
            let length = encoder.needed();
            if encoder.is_over() {
                self.calls.give_back(name.slot);
                return Err(self.over());
            }
            let (line, count) = one_line(Head { name, code: procedure, flags }, line, length);
            if self.send(&line[..count], &[]).is_ok() {
                return Ok(name);
            }
            let mut words = Words { words: [0; 8], count };
            words.words[..count].copy_from_slice(&line[..count]);
            return self.send_again(name, &words, 0, None);
        }
        self.begin_in_general(procedure, &|to| arguments.encode(to), (A::MOST, R::MOST), how, flags)
    }

    #[cold]
    pub(super) fn over(&self) -> Error {
        self.fail(
            Kind::TooLong,
            Side::Caller,
            Ran::No,
            "an argument has more elements than its definition allows, or is nested too deeply",
        )
    }

    #[cold]
    fn full(&self) -> Error {
        self.fail(Kind::Busy, Side::Caller, Ran::No, format_args!("{} calls are outstanding", self.calls.outstanding()))
    }

    /// Begins a call that is unusual in any way, with arguments and results of so many bytes at most.
    #[inline(never)]
    pub(in crate::client) fn begin_in_general(
        &mut self,
        procedure: u16,
        encode: &dyn Fn(&mut Encoder<'_>),
        most: (usize, usize),
        how: &How<'_>,
        flags: u16,
    ) -> Result<Name, Error> {
        if self.is_parents() {
            return Err(self.forked());
        }
        if self.dead.is_some() {
            return Err(self.gone(Ran::No));
        }
        let Some(name) = self.calls.take() else { return Err(self.full()) };
        match self.prepare(name, procedure, encode, most, how, flags) {
            Ok((words, data, until)) => self.send_again(name, &words, data, until),
            Err(error) => {
                self.calls.give_back(name.slot);
                Err(error)
            }
        }
    }

    /// Puts arguments where they belong: into words, into data (so many bytes of the scratch), into the window.
    fn prepare(
        &mut self,
        name: Name,
        procedure: u16,
        encode: &dyn Fn(&mut Encoder<'_>),
        (arguments, results): (usize, usize),
        how: &How<'_>,
        mut flags: u16,
    ) -> Result<(Words, usize, Option<u64>), Error> {
        let mut words = Words::new();
        let mut until = None;
        if let Some(limit) = how.deadline.map(nanos).or(self.deadline) {
            let end = now().saturating_add(limit);
            until = Some(end);
            flags |= flag::DEADLINE;
            words.push(if self.calls.direct { end } else { limit });
        }
        for lent in how.lent {
            if !self.calls.pieces.lend(lent.number, lent.piece) {
                return Err(self.fail(
                    Kind::Busy,
                    Side::Caller,
                    Ran::No,
                    "a buffer that is lent already, or is none of this client's",
                ));
            }
            if !self.calls.hold(name.slot, lent.number, lent.from_server && !self.calls.direct) {
                self.calls.pieces.release(lent.number);
                return Err(self.fail(Kind::TooLong, Side::Caller, Ran::No, "too many parameters by reference"));
            }
        }
        // Where memory is not shared, pieces travel as a store, and the call behind the last of them.
        let stores = !self.calls.direct && how.lent.iter().any(|lent| lent.to_server);
        let near = match flags & flag::ONE_WAY {
            _ if stores => LINE,
            0 => self.near,
            // The window's piece would come back with an answer.
            _ => self.medium,
        };
        // Results for which a message has no room come before arguments, for which it may have.
        let answers = flags & flag::ONE_WAY == 0;
        let room = if answers && results > self.medium { self.room_for(name, results)? } else { None };
        let placed = self.place(name, encode, arguments, near)?;
        if let Placed::Window(piece) = placed {
            words.push(piece.word());
            flags = flags & !flag::ONE_WAY | flag::LARGE;
        }
        let room = match room {
            None if answers && results > self.near => self.room_for(name, results)?,
            room => room,
        };
        if let Some(room) = room {
            self.calls.slots[usize::from(name.slot)].room = room;
            words.push(room.word());
            flags |= flag::ROOM;
        }
        let mut data = 0;
        if let Placed::Scratch(length) = placed {
            match words.put(&self.scratch[..length]) {
                Some(half) => flags |= half,
                None if stores => {
                    // Eight words go with a store.
                    for eight in self.scratch[..length].chunks(8) {
                        let mut word = [0; 8];
                        word[..eight.len()].copy_from_slice(eight);
                        words.push(u64::from_ne_bytes(word));
                    }
                    flags |= if length.is_multiple_of(8) { 0 } else { flag::HALF };
                }
                None => data = length,
            }
        }
        words.words[0] = Head { name, code: procedure, flags }.word();
        let piece = match placed {
            Placed::Window(piece) => Some(piece),
            Placed::Scratch(_) => None,
        };
        if !self.calls.direct && (stores || piece.is_some()) {
            let mut parts: Vec<Piece> = how.lent.iter().filter(|lent| lent.to_server).map(|lent| lent.piece).collect();
            parts.extend(piece);
            self.store(&parts, &words)?;
            words.count = 0;
        }
        Ok((words, data, until))
    }

    /// Brings pieces to the server, and the call with the last.
    fn store(&mut self, parts: &[Piece], words: &Words) -> Result<(), Error> {
        for (at, part) in parts.iter().enumerate() {
            let last = at + 1 == parts.len();
            let from = self.calls.window.pointer(*part).expect("a piece of the window");
            // SAFETY: the window is this process's, and nothing writes to a piece that is lent: gets of this call come later.
            let bytes = unsafe { std::slice::from_raw_parts(from, part.length as usize) };
            let (handler, words) = if last { (handler::CALL, words.as_slice()) } else { (handler::PART, &[][..]) };
            let store = Store { offset: u64::from(part.offset), handler, words };
            if let Err(trouble) = self.end.store(PEER, &store, bytes, &mut self.calls) {
                self.die(format!("it takes no arguments: {trouble}"));
                return Err(self.gone(Ran::No));
            }
        }
        Ok(())
    }

    /// Sends what was refused at first, when the server takes it: back-pressure is waiting here.
    #[inline(never)]
    fn send_again(&mut self, name: Name, words: &Words, data: usize, until: Option<u64>) -> Result<Name, Error> {
        if words.count == 0 {
            return Ok(name);
        }
        let mut waiting = Waiting::new();
        loop {
            let refused = match self.end.try_request(PEER, handler::CALL, words.as_slice(), &self.scratch[..data]) {
                Ok(()) => return Ok(name),
                Err(refused) => refused,
            };
            let error = match refused {
                Refused::NoCredit | Refused::NoRoom => match self.step(&mut waiting, until) {
                    Ok(()) => continue,
                    Err(Stop::TimedOut) => {
                        self.fail(Kind::TimedOut, Side::Server, Ran::No, "it took no more calls until the deadline")
                    }
                    Err(Stop::Dead) => self.gone(Ran::No),
                },
                Refused::NotConnected => {
                    self.look_after();
                    if self.dead.is_none() {
                        self.die("its end was closed".into());
                    }
                    self.gone(Ran::No)
                }
                Refused::TooLong | Refused::Argument => {
                    self.fail(Kind::TooLong, Side::Caller, Ran::No, format_args!("{data} bytes: {refused}"))
                }
            };
            self.calls.give_back(name.slot);
            return Err(error);
        }
    }

    /// Sends a call of which the caller does not want to hear any more.
    #[inline(always)]
    pub(in crate::client) fn tell<A: Xdr>(&mut self, procedure: u16, arguments: &A) -> Result<(), Error> {
        let name = self.begin::<A, ()>(procedure, arguments, &How::default(), flag::ONE_WAY)?;
        let place = &mut self.calls.slots[usize::from(name.slot)];
        if place.count == 0 {
            self.calls.give_back(name.slot);
        } else if place.state == State::Waiting {
            // Arguments in the window stay there until the server says that it has read them.
            place.state = State::Abandoned;
        } else {
            self.calls.give_back(name.slot);
        }
        Ok(())
    }
}

//! Where the arguments of a call go, and where its results may: near at hand, to go as the message's words or data, or in the window.
//!
//! Where memory is shared, what is longer than a message of two lines lies in the window, where the caller writes it and the server decodes it: as
//! the message's data it would be copied four times on its way.

use super::Binding;
use crate::error::{Error, Kind, Ran, Side};
use crate::wire::{Name, Piece};
use crate::xdr::Encoder;

/// Bytes that a value is expected to have at most whose definition has no lower bound: it is written before its length is known, to where
/// so many are free.
const GUESS: usize = 64 << 10;

/// Where arguments are.
#[derive(Clone, Copy)]
pub(super) enum Placed {
    /// So many bytes of the scratch.
    Scratch(usize),
    Window(Piece),
}

impl Binding {
    /// A piece of the window for a call.
    fn piece(&mut self, name: Name, length: usize, what: &str) -> Result<Piece, Error> {
        let Some(number) = self.calls.pieces.take_in_turn(length) else {
            let (free, size) = (self.calls.pieces.longest(), self.calls.window.size());
            let kind = if length > size - crate::window::CANCELS { Kind::TooLong } else { Kind::Busy };
            let detail = format_args!(
                "{what} of {length} bytes; {free} of the window's {size} are free in one piece: Options::window makes it larger"
            );
            return Err(self.fail(kind, Side::Caller, Ran::No, detail));
        };
        self.hold(name, number)
    }

    /// The piece is the call's until its place is free.
    fn hold(&mut self, name: Name, number: u32) -> Result<Piece, Error> {
        let piece = self.calls.pieces.get(number);
        if self.calls.hold(name.slot, number, false) {
            return Ok(piece);
        }
        self.calls.pieces.release(number);
        Err(self.fail(Kind::TooLong, Side::Caller, Ran::No, "too many parameters by reference"))
    }

    /// Encodes arguments of `most` bytes at most: `near` bytes into the scratch, or all of them into the window.
    pub(super) fn place(
        &mut self,
        name: Name,
        encode: &dyn Fn(&mut Encoder<'_>),
        most: usize,
        near: usize,
    ) -> Result<Placed, Error> {
        // The window's lines are those that the server read last: none is asked for if none is needed.
        let run = if most > near { self.calls.pieces.run(most.min(GUESS)) } else { Piece::default() };
        let mut encoder = match self.calls.window.sink(run).filter(|_| run.length > 0) {
            None => Encoder::new(&mut self.scratch[..near]),
            Some(larger) => Encoder::spilling(&mut self.scratch[..near], larger),
        };
        encode(&mut encoder);
        let (length, fits, over) = (encoder.needed(), encoder.fits(), encoder.is_over());
        if over {
            return Err(self.over());
        }
        if length <= near {
            return Ok(Placed::Scratch(length));
        }
        if fits {
            if let Some(number) = self.calls.pieces.take_front(run, length) {
                return self.hold(name, number).map(Placed::Window);
            }
        }
        if length <= self.medium && near == self.near {
            // The window is in use: the message has room.
            encode(&mut Encoder::new(&mut self.scratch));
            return Ok(Placed::Scratch(length));
        }
        let piece = self.piece(name, length, "arguments")?;
        encode(&mut Encoder::to(self.calls.window.sink(piece).expect("a piece of the window")));
        Ok(Placed::Window(piece))
    }

    /// Room for results of so many bytes at most; `None`: there is none, and the message has room.
    pub(super) fn room_for(&mut self, name: Name, results: usize) -> Result<Option<Piece>, Error> {
        // All that the definition allows, if there is room for it and for others'.
        let all = if results <= self.calls.window.size() / 3 { self.calls.pieces.take_in_turn(results) } else { None };
        match all {
            Some(number) => self.hold(name, number).map(Some),
            None if results <= self.medium => Ok(None),
            None => self.piece(name, results.min(self.room), "room for results").map(Some),
        }
    }
}

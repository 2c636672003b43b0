//! The results of a call that is done.

use super::Binding;
use crate::calls::State;
use crate::error::{Error, Fault, Kind, Ran, Side};
use crate::wire::{status, Name, Piece, LINE};
use crate::xdr::{Decoder, Xdr};
use std::fmt;

impl Binding {
    /// The results of a call that is done; its place is free then.
    #[inline(always)]
    pub(in crate::client) fn take<R: Xdr>(&mut self, name: Name) -> Result<R, Error> {
        let place = &mut self.calls.slots[usize::from(name.slot)];
        if place.state == State::Done && place.status == status::OK && place.large.is_none() {
            let line: &[u8] = bytemuck::cast_slice(&place.line);
            let bytes = if usize::from(place.length) <= LINE { &line[..usize::from(place.length)] } else { &place.bytes[..] };
            let mut decoder = Decoder::new(bytes);
            let result = R::decode(&mut decoder).and_then(|value| decoder.end().map(|()| value));
            self.calls.give_back(name.slot);
            return result.map_err(|error| self.bad(error));
        }
        self.take_in_general(name)
    }

    /// The same of results that lie in the window.
    #[inline(never)]
    fn take_of_window<R: Xdr>(&mut self, name: Name, piece: Piece) -> Result<R, Error> {
        let mut decoder = self.calls.window.decoder(piece, &self.copies).expect("room of the window");
        let result = R::decode(&mut decoder).and_then(|value| decoder.end().map(|()| value));
        self.copies.reuse();
        self.calls.give_back(name.slot);
        result.map_err(|error| self.bad(error))
    }

    #[cold]
    fn bad(&self, error: crate::xdr::Error) -> Error {
        self.fail(Kind::BadResults, Side::Server, Ran::Yes, error)
    }

    #[inline(never)]
    fn take_in_general<R: Xdr>(&mut self, name: Name) -> Result<R, Error> {
        let place = &mut self.calls.slots[usize::from(name.slot)];
        let (state, code, large) = (place.state, place.status, place.large);
        if let (State::Done, status::OK, Some(piece)) = (state, code, large) {
            return self.take_of_window(name, piece);
        }
        let mut bytes = std::mem::take(&mut place.bytes);
        if usize::from(place.length) <= LINE {
            bytes.clear();
            bytes.extend_from_slice(&bytemuck::cast_slice::<u64, u8>(&place.line)[..usize::from(place.length)]);
        }
        if let Some(piece) = large {
            self.calls.window.copy_out(piece, &mut bytes);
        }
        self.calls.give_back(name.slot);
        let fail = |kind, ran, detail: &dyn fmt::Display| Err(self.fail(kind, Side::Server, ran, detail));
        let text = || crate::xdr::from_bytes::<crate::xdr::Bytes<4096>>(&bytes).unwrap_or_default();
        let said = || String::from_utf8_lossy(&text().0).into_owned();
        let result = match (state, code) {
            (State::Done, status::OK) => crate::xdr::from_bytes(&bytes).map_err(|error| self.bad(error)),
            (State::Lost, _) => Err(self.gone(Ran::Maybe)),
            (_, status::NO_PROCEDURE) => fail(Kind::NoProcedure, Ran::No, &said()),
            (_, status::BAD_ARGUMENTS) => fail(Kind::BadArguments, Ran::No, &said()),
            (_, status::DEADLINE) => fail(Kind::TimedOut, Ran::No, &"the deadline passed before its turn came"),
            (_, status::CANCELLED) => fail(Kind::Cancelled, Ran::No, &""),
            (_, status::TOO_LONG) => fail(Kind::TooLong, Ran::Yes, &said()),
            (_, status::PANICKED) => fail(Kind::Panicked, Ran::Maybe, &said()),
            (_, status::APPLICATION) => match crate::xdr::from_bytes::<(i32, crate::xdr::Bytes<4096>)>(&bytes) {
                Ok((code, text)) => {
                    let fault = Fault { code, text: String::from_utf8_lossy(&text.0).into_owned() };
                    Err(self.fail(Kind::Application, Side::Server, Ran::Yes, &fault).with_fault(fault))
                }
                Err(error) => Err(self.bad(error)),
            },
            (_, other) => fail(Kind::Protocol, Ran::Maybe, &format_args!("status {other}")),
        };
        if let Some(place) = self.calls.place(name) {
            place.bytes = bytes;
        }
        result
    }
}

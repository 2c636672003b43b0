//! Parameters by reference where there is no memory of both sides: they go as arrays among the arguments and the results.
//!
//! | parameter | argument, in its place | before the results, in the parameters' order |
//! |---|---|---|
//! | `IN T p<N>` | `T p<N>` | - |
//! | `INOUT T p<N>` | `T p<N>` | `T p<N>` |
//! | `OUT T p<N>` | `unsigned p`: elements that there is room for | `T p<N>` |

use crate::reference::Lent;
use crate::window::{Window, CANCELS};
use crate::wire::Piece;
use crate::xdr::{Decoder, Encoder, Error, Reason};
use std::cell::{Cell, RefCell};

/// How an element goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Bytes of an opaque.
    Opaque,
    /// A signed byte, in a unit.
    Tiny,
    /// Two bytes, in a unit.
    Short,
    /// Two bytes with a sign, in a unit.
    SignedShort,
    /// A unit.
    Four,
    /// Two units.
    Eight,
}

impl Form {
    fn size(self) -> usize {
        match self {
            Self::Opaque | Self::Tiny => 1,
            Self::Short | Self::SignedShort => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// Bytes of elements that have so many bytes here, with their count.
    fn encoded(self, bytes: usize) -> usize {
        4 + match self {
            Self::Opaque => bytes.next_multiple_of(4),
            _ => bytes / self.size() * self.size().max(4),
        }
    }

    /// Writes elements that lie here as this machine has them.
    pub fn encode(self, bytes: &[u8], to: &mut Encoder<'_>) {
        if self == Self::Opaque {
            return to.variable(bytes);
        }
        to.unsigned((bytes.len() / self.size()) as u32);
        for element in bytes.chunks_exact(self.size()) {
            match (self, element) {
                (Self::Tiny, &[a]) => to.unsigned(i32::from(a as i8) as u32),
                (Self::Short, &[a, b]) => to.unsigned(u16::from_ne_bytes([a, b]).into()),
                (Self::SignedShort, &[a, b]) => to.unsigned(i32::from(i16::from_ne_bytes([a, b])) as u32),
                (Self::Four, &[a, b, c, d]) => to.unsigned(u32::from_ne_bytes([a, b, c, d])),
                _ => to.unsigned_hyper(u64::from_ne_bytes(element.try_into().unwrap_or_default())),
            }
        }
    }

    /// Reads elements, at most so many bytes of them.
    pub fn decode(self, from: &mut Decoder<'_>, most: usize) -> Result<Vec<u8>, Error> {
        let most = u32::try_from(most / self.size()).unwrap_or(u32::MAX);
        if self == Self::Opaque {
            return from.variable_vec(most);
        }
        let count = from.count(most, self.size().max(4))?;
        let mut bytes = Vec::with_capacity(count * self.size());
        for _ in 0..count {
            match self {
                Self::Opaque | Self::Tiny => bytes.push(from.unsigned()? as u8),
                Self::Short | Self::SignedShort => bytes.extend((from.unsigned()? as u16).to_ne_bytes()),
                Self::Four => bytes.extend(from.unsigned()?.to_ne_bytes()),
                Self::Eight => bytes.extend(from.unsigned_hyper()?.to_ne_bytes()),
            }
        }
        Ok(bytes)
    }
}

/// What the references of a call's arguments refer to.
#[derive(Debug)]
pub(crate) struct ByValue<'a> {
    pub window: &'a Window,
    pub lent: &'a [Lent],
}

impl ByValue<'_> {
    pub fn encode(&self, piece: Piece, form: Form, to: &mut Encoder<'_>) {
        let lent = self.lent.iter().find(|lent| lent.piece == piece);
        if lent.is_some_and(|lent| !lent.to_server) {
            return to.unsigned(piece.length / form.size() as u32);
        }
        let mut bytes = vec![];
        self.window.copy_out(piece, &mut bytes);
        form.encode(&bytes, to);
    }
}

/// The way of a parameter by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
    InOut,
}

/// The ways of those parameters that go by reference, in the definition's order.
pub(crate) fn ways(definition: &str) -> Vec<Way> {
    let parameters = definition.split_once('(').map_or("", |(_, rest)| rest.rsplit_once(')').map_or(rest, |(list, _)| list));
    let way = |parameter: &str| match parameter.split_whitespace().next() {
        Some("IN") => Some(Way::In),
        Some("OUT") => Some(Way::Out),
        Some("INOUT") => Some(Way::InOut),
        _ => None,
    };
    parameters.split(',').filter_map(way).collect()
}

/// Memory of a server into which arguments by reference are decoded, and from which they return.
#[derive(Debug)]
pub(crate) struct Inlet<'a> {
    window: &'a Window,
    ways: Vec<Way>,
    /// Bytes that may go back.
    most: usize,
    end: Cell<usize>,
    places: RefCell<Vec<(Piece, Form)>>,
}

impl<'a> Inlet<'a> {
    pub fn new(window: &'a Window, ways: Vec<Way>, most: usize) -> Self {
        Self { window, ways, most, end: Cell::new(CANCELS), places: RefCell::default() }
    }

    /// The next parameter by reference.
    pub fn decode(&self, form: Form, from: &mut Decoder<'_>) -> Result<Piece, Error> {
        let mut places = self.places.borrow_mut();
        let Some(&way) = self.ways.get(places.len()) else { return Err(from.error(Reason::Window)) };
        let free = self.window.size().saturating_sub(self.end.get());
        let (length, bytes) = match way {
            Way::Out => ((from.unsigned()? as usize).saturating_mul(form.size()), vec![]),
            Way::In | Way::InOut => {
                let bytes = form.decode(from, free)?;
                (bytes.len(), bytes)
            }
        };
        // What could not be answered is not begun.
        let back = if way == Way::In { 0 } else { form.encoded(length) };
        if length > free || back > self.most {
            return Err(from.error(Reason::Window));
        }
        let piece = Piece { offset: self.end.get() as u32, length: length as u32 };
        let at = self.window.pointer(piece).ok_or_else(|| from.error(Reason::Window))?;
        // SAFETY: within the window, which is this thread's alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        self.end.set((self.end.get() + length).next_multiple_of(64).min(self.window.size()));
        places.push((piece, form));
        Ok(piece)
    }

    /// Bytes of what goes back before the results.
    pub fn bytes(&self) -> usize {
        let places = self.places.borrow();
        let back = places.iter().zip(&self.ways).filter(|(_, way)| **way != Way::In);
        back.map(|((piece, form), _)| form.encoded(piece.length as usize)).sum()
    }

    /// Writes what goes back before the results.
    pub fn encode(&self, to: &mut Encoder<'_>) {
        let mut bytes = vec![];
        for (&(piece, form), &way) in self.places.borrow().iter().zip(&self.ways) {
            if way != Way::In {
                self.window.copy_out(piece, &mut bytes);
                form.encode(&bytes, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_tell_the_ways() {
        assert_eq!(ways("void SORT(INOUT unsigned keys<1048576>) = 3"), [Way::InOut]);
        assert_eq!(ways("int F(IN opaque a<>, int, OUT hyper b<9>) = 1"), [Way::In, Way::Out]);
        assert_eq!(ways("int F(INNER a) = 1"), []);
    }

    #[test]
    fn elements_return_as_they_went() {
        let bytes: Vec<u8> = (0..48).map(|byte| byte * 5 + 3).collect();
        for form in [Form::Opaque, Form::Tiny, Form::Short, Form::SignedShort, Form::Four, Form::Eight] {
            let mut room = [0; 256];
            let mut to = Encoder::new(&mut room);
            form.encode(&bytes, &mut to);
            let length = to.needed();
            let mut from = Decoder::new(&room[..length]);
            assert_eq!(form.decode(&mut from, 48).unwrap(), bytes);
            assert!(from.end().is_ok());
            assert_eq!(form.encoded(bytes.len()), length);
            assert!(form.decode(&mut Decoder::new(&room[..length]), 47).is_err());
        }
    }

    #[test]
    fn what_finds_no_room_is_refused() {
        let window = Window::mirror(8192).unwrap();
        let inlet = Inlet::new(&window, vec![Way::Out, Way::Out], usize::MAX);
        let words = [1025u32, 512, 513].map(u32::to_be_bytes).concat();
        let mut from = Decoder::by_value(&words, &inlet);
        assert!(inlet.decode(Form::Four, &mut from).is_err());
        assert_eq!(inlet.decode(Form::Four, &mut from), Ok(Piece { offset: 4096, length: 2048 }));
        assert!(inlet.decode(Form::Four, &mut from).is_err());
    }
}

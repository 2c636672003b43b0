//! Memory that calls lend to the server.

use super::Client;
use crate::error::{Error, Kind, Ran};
use crate::reference::{Lent, Reference, Scalar, Shared};
use crate::wire::Piece;

/// Memory of a client's window. Its server can write there whenever it likes, so there is no slice of it: elements are read and
/// written one by one, or copied.
pub struct Buffer<'c, T: Scalar> {
    pub(super) client: &'c Client,
    pub(super) number: u32,
    pub(super) piece: Piece,
    pub(super) at: *mut T,
    pub(super) count: usize,
}

impl<T: Scalar> Buffer<'_, T> {
    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The elements, for reading and writing.
    #[must_use]
    pub fn view(&mut self) -> Shared<'_, T> {
        // SAFETY: the piece is the buffer's, in the mapping that lives as long as its client.
        unsafe { Shared::new(self.at, self.count) }
    }

    /// What a call is lent: a server that reads it (IN), writes it (OUT), or both (INOUT).
    ///
    /// # Errors
    /// `Busy`: a call that was given up may still write there.
    pub fn lend(&self, to_server: bool, from_server: bool) -> Result<Lent, Error> {
        let mut route = self.client.route();
        if route.memory()?.1.holders(self.number) > 1 {
            return Err(route.fail(Kind::Busy, Ran::No, "the buffer is lent to a call that has not ended"));
        }
        Ok(Lent { number: self.number, piece: self.piece, form: T::FORM, to_server, from_server })
    }

    /// Offset and bytes, as arguments have them.
    #[must_use]
    pub fn name(&self) -> [u32; 2] {
        [self.piece.offset, self.piece.length]
    }

    /// How arguments name it.
    #[must_use]
    pub fn reference(&self) -> Reference<T> {
        Reference::to(self.piece)
    }
}

impl<T: Scalar> Drop for Buffer<'_, T> {
    fn drop(&mut self) {
        if let Ok((_, pieces)) = self.client.route().memory() {
            pieces.release(self.number);
        }
    }
}

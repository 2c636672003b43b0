//! What the two sides of a network's port tell each other, as words of active messages. Any words are read safely; what they ask for is
//! judged by who keeps the state.
//!
//! ```text
//! a message's bytes   a store at    63: 1 | 62 .. 32: the message's length | 31 .. 0: where the bytes belong in it
//! Whole               with its end  number, semantics
//! Announce            a request     number, length: this message waits for room
//! Room                a request     messages below this number may go, if they have so many bytes at most; this one may, if it has so many
//! ```
//!
//! Stores of a connection arrive in order, each byte once, so a message's number is needed at its end only.

use crate::semantics::Semantics;

/// Bytes of the longest message.
pub const LONGEST: usize = (1 << 31) - 1;

/// The number of no message.
pub(super) const NOBODY: u64 = u64::MAX;

const MARK: u64 = 1 << 63;
const LENGTH_SHIFT: u32 = 32;

const WHOLE: u8 = 1;
const ROOM: u8 = 2;
const ANNOUNCE: u8 = 3;

/// Where bytes belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The message's bytes.
    pub(super) length: usize,
    /// Those in front of these.
    pub(super) offset: usize,
}

impl Place {
    /// As the address of a store. The offset of later bytes is added to it.
    pub(super) fn address(self) -> u64 {
        MARK | (self.length as u64) << LENGTH_SHIFT | self.offset as u64
    }

    /// Of an address that a peer names.
    pub(super) fn of(address: u64) -> Option<Place> {
        let (length, offset) = ((address & !MARK) >> LENGTH_SHIFT, address & u64::from(u32::MAX));
        (address & MARK != 0 && offset <= length).then_some(Place { length: length as usize, offset: offset as usize })
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    /// All bytes of a message have been stored.
    Whole {
        /// Messages in front of it since the connection began.
        number: u64,
        /// Its sender's.
        semantics: Semantics,
    },
    /// A message is longer than may go unasked.
    Announce {
        /// As above.
        number: u64,
        /// Its bytes.
        length: usize,
    },
    /// What may go.
    Room {
        /// Messages below this number ...
        below: u64,
        /// ... of so many bytes at most.
        each: usize,
        /// And this one, or [`NOBODY`] ...
        number: u64,
        /// ... if it has no more than so many.
        bytes: usize,
    },
}

impl Notice {
    /// The handler, the words, and how many.
    pub(super) fn words(self) -> (u8, [u64; 4], usize) {
        match self {
            Notice::Whole { number, semantics } => (WHOLE, [number, semantics.index() as u64, 0, 0], 2),
            Notice::Announce { number, length } => (ANNOUNCE, [number, length as u64, 0, 0], 2),
            Notice::Room { below, each, number, bytes } => (ROOM, [below, each as u64, number, bytes as u64], 4),
        }
    }

    /// What a peer says; `None`: nothing.
    pub(super) fn of(handler: u8, words: &[u64]) -> Option<Notice> {
        let length = |word: u64| (word <= LONGEST as u64).then_some(word as usize);
        match (handler, words) {
            (WHOLE, &[number, semantics]) => {
                let index = usize::try_from(semantics).ok()?;
                Some(Notice::Whole { number, semantics: Semantics::of_index(index)? })
            }
            (ANNOUNCE, &[number, bytes]) => Some(Notice::Announce { number, length: length(bytes)? }),
            (ROOM, &[below, each, number, bytes]) => {
                Some(Notice::Room { below, each: length(each)?, number, bytes: length(bytes)? })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_address_is_refused_or_the_same_one_again(address: u64, marked: bool) {
            let address = if marked { address | MARK } else { address };
            match Place::of(address) {
                Some(place) => {
                    prop_assert!(place.offset <= place.length && place.length <= LONGEST);
                    prop_assert_eq!(place.address(), address);
                }
                None => prop_assert!(address & MARK == 0 || address as u32 as u64 > (address & !MARK) >> 32),
            }
        }

        #[test]
        fn any_words_are_refused_or_the_same_notice_again(
            handler in 0u8..5, words in prop::collection::vec(prop_oneof![0u64..9, 1u64 << 30..1 << 32, any::<u64>()], 0..6),
        ) {
            if let Some(notice) = Notice::of(handler, &words) {
                let (again, all, count) = notice.words();
                prop_assert_eq!((again, &all[..count]), (handler, &words[..]));
                if let Notice::Announce { length, .. } = notice {
                    prop_assert!(length <= LONGEST);
                }
            }
        }
    }
}

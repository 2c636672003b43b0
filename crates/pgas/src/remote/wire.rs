//! What a rank asks of a keeper: a handler's number and words of an active message.
//!
//! A *place* is a number of symmetric memory that all hosts have for it ([`crate::World::place_of`]). A *token* is the asker's own, and comes
//! back in the answer; 0 wants none.

/// The handler of an answer: token, value; data of a get.
pub(crate) const DONE: u8 = 1;
/// The handler of an answer to what was not done: token.
pub(crate) const REFUSED: u8 = 2;

/// An atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Operation {
    /// The value there.
    Load = 0,
    /// Writes.
    Swap,
    /// Adds.
    Add,
    /// And of bits.
    And,
    /// Or of bits.
    Or,
    /// Exclusive or of bits.
    Xor,
    /// Writes if the expected value is there.
    CompareSwap,
}

impl Operation {
    /// All, in order of their numbers.
    const ALL: [Operation; 7] = {
        use Operation::*;
        [Load, Swap, Add, And, Or, Xor, CompareSwap]
    };
}

/// What a signal does to its word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// The word.
    pub place: u64,
    /// Added to it; else written.
    pub adds: bool,
    /// What.
    pub value: u64,
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// The message's data is to lie there.
    Put { place: u64 },
    /// Put, then the signal.
    PutSignal { place: u64, signal: Signal },
    /// The data is elements of `size` bytes, to lie `step` bytes apart.
    Scatter { place: u64, step: u64, size: u64 },
    /// So many bytes, as the answer's data.
    Get { place: u64, length: u64, token: u64 },
    /// The same of `count` elements of `size` bytes that lie `step` bytes apart.
    Gather { place: u64, step: u64, size: u64, count: u64, token: u64 },
    /// On a word of four or eight bytes.
    Atomic { place: u64, operation: Operation, wide: bool, value: u64, expected: u64, token: u64 },
    /// An answer when all before it on the channel is done.
    Fence { token: u64 },
    /// The message that ends a store in bulk: an answer, after the signal if there is one.
    Stored { signal: Option<Signal>, token: u64 },
    /// A host's members have arrived in a barrier of a group.
    Arrive { key: u64, round: u64, number: u64, token: u64 },
    /// A word that a member tells the others.
    Tell { key: u64, index: u64, at: u64, word: u64 },
    /// The lock goes to the next.
    Unlock { place: u64, token: u64 },
    /// So many bytes were stored at the rank, and are counted.
    Count { rank: u64, bytes: u64 },
}

/// Words of a request at most.
pub(crate) const WORDS: usize = 6;

impl Request {
    /// Handler, words, and how many of them count.
    pub fn encode(&self) -> (u8, [u64; WORDS], usize) {
        let mut words = [0; WORDS];
        let mut put = |given: &[u64]| {
            words[..given.len()].copy_from_slice(given);
            given.len()
        };
        let (handler, count) = match *self {
            Request::Put { place } => (1, put(&[place])),
            Request::PutSignal { place, signal } => (2, put(&[place, signal.place, u64::from(signal.adds), signal.value])),
            Request::Scatter { place, step, size } => (3, put(&[place, step, size])),
            Request::Get { place, length, token } => (4, put(&[place, length, token])),
            Request::Gather { place, step, size, count, token } => (5, put(&[place, step, size, count, token])),
            Request::Atomic { place, operation, wide, value, expected, token } => {
                (6, put(&[place, operation as u64 | u64::from(wide) << 8, value, expected, token]))
            }
            Request::Fence { token } => (7, put(&[token])),
            Request::Stored { signal: None, token } => (8, put(&[token])),
            Request::Stored { signal: Some(signal), token } => {
                (9, put(&[signal.place, u64::from(signal.adds), signal.value, token]))
            }
            Request::Arrive { key, round, number, token } => (10, put(&[key, round, number, token])),
            Request::Tell { key, index, at, word } => (11, put(&[key, index, at, word])),
            Request::Unlock { place, token } => (12, put(&[place, token])),
            Request::Count { rank, bytes } => (13, put(&[rank, bytes])),
        };
        (handler, words, count)
    }

    /// What a message asks for; none if it is no request.
    pub fn decode(handler: u8, words: &[u64]) -> Option<Request> {
        let flag = |word: u64| (word < 2).then_some(word == 1);
        Some(match (handler, words) {
            (1, &[place]) => Request::Put { place },
            (2, &[place, word, adds, value]) => {
                Request::PutSignal { place, signal: Signal { place: word, adds: flag(adds)?, value } }
            }
            (3, &[place, step, size]) => Request::Scatter { place, step, size },
            (4, &[place, length, token]) => Request::Get { place, length, token },
            (5, &[place, step, size, count, token]) => Request::Gather { place, step, size, count, token },
            (6, &[place, what, value, expected, token]) => {
                let operation = *Operation::ALL.get((what & 0xff) as usize)?;
                Request::Atomic { place, operation, wide: flag(what >> 8)?, value, expected, token }
            }
            (7, &[token]) => Request::Fence { token },
            (8, &[token]) => Request::Stored { signal: None, token },
            (9, &[place, adds, value, token]) => {
                Request::Stored { signal: Some(Signal { place, adds: flag(adds)?, value }), token }
            }
            (10, &[key, round, number, token]) => Request::Arrive { key, round, number, token },
            (11, &[key, index, at, word]) => Request::Tell { key, index, at, word },
            (12, &[place, token]) => Request::Unlock { place, token },
            (13, &[rank, bytes]) => Request::Count { rank, bytes },
            _ => return None,
        })
    }

    /// What an answer names; 0 if none is wanted.
    pub fn token(&self) -> u64 {
        match *self {
            Request::Get { token, .. }
            | Request::Gather { token, .. }
            | Request::Atomic { token, .. }
            | Request::Fence { token }
            | Request::Stored { token, .. }
            | Request::Arrive { token, .. }
            | Request::Unlock { token, .. } => token,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever a message says: it is refused, or it is what the writer writes of it.
        #[test]
        fn each_request_has_one_spelling(handler in 0u8..16, words in prop::collection::vec(prop_oneof![0u64..9, any::<u64>(), (0u64..9).prop_map(|low| low | 256)], 0..8)) {
            if let Some(request) = Request::decode(handler, &words) {
                let (again, written, count) = request.encode();
                prop_assert_eq!((again, &written[..count]), (handler, &words[..]));
            }
        }
    }

    #[test]
    fn each_operation_is_read() {
        for operation in Operation::ALL {
            let request = Request::Atomic { place: 8, operation, wide: true, value: 1, expected: 2, token: 3 };
            let (handler, words, count) = request.encode();
            assert_eq!(Request::decode(handler, &words[..count]), Some(request));
        }
    }
}

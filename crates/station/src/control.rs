//! What stations say to each other about streams: requests on the stream's own channel, and their replies.
//!
//! All are in the order of the stream's bytes, except replies. `generation` names the use of the channel: what belongs to an
//! older one changes nothing.
//!
//! ```text
//! OPEN    generation, token (2), client's and server's address (2 each), ports and mark    reply OPENED or REFUSED
//! FIN     generation                                       no more bytes
//! RESET   generation                                       both directions end
//! URGENT  generation, position, byte
//! CLOSE   generation [, 1]                                 nothing more of the stream is wanted or sent; 1: nobody claimed it
//! CANCEL  generation                                       reply CANCELLED: 1 unless somebody had claimed it
//! BEGIN   generation, position                             the client's bytes before it came by TCP, the others come here
//! LEAVE   generation                                      behind all that its sender says here: both go on by TCP. Who does not know it returns it
//! BEGUN   generation                                       the server has all of those, and expects the others
//! ```

use shunt_segment::address::Address;

use crate::{FourTuple, Mark, Refusal, Token};

/// Handlers.
pub(crate) mod handler {
    pub const OPEN: u8 = 1;
    pub const OPENED: u8 = 2;
    pub const REFUSED: u8 = 3;
    pub const FIN: u8 = 4;
    pub const RESET: u8 = 5;
    pub const URGENT: u8 = 6;
    pub const CLOSE: u8 = 7;
    pub const CANCEL: u8 = 8;
    pub const CANCELLED: u8 = 9;
    pub const BEGIN: u8 = 10;
    pub const BEGUN: u8 = 11;
    pub const LEAVE: u8 = 12;
}

/// The second word of a server's CLOSE: no process has claimed the reservation, or the connection did not show its mark.
pub(crate) const UNCLAIMED: u64 = 1;

/// An OPEN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Open {
    pub generation: u32,
    pub token: Token,
    pub four: FourTuple,
    pub mark: Mark,
}

impl Open {
    pub(crate) fn words(&self) -> [u64; 8] {
        let ([a, b], [c, d]) = (self.four.client.words(), self.four.server.words());
        let ports = u64::from(self.four.client.port) | u64::from(self.four.server.port) << 16;
        let ports = ports | u64::from(self.mark.0) << 32;
        [self.generation.into(), self.token[0], self.token[1], a, b, c, d, ports]
    }

    pub(crate) fn of(words: &[u64]) -> Option<Open> {
        let [generation, t, u, a, b, c, d, ports] = *<&[u64; 8]>::try_from(words).ok()?;
        let (client, server) = (ports as u16, (ports >> 16) as u16);
        let mark = Mark((ports >> 32) as u16);
        let sane = generation != 0 && generation >> 32 == 0 && ports >> 48 == 0 && client != 0 && server != 0;
        (sane && mark.is_one()).then(|| Open {
            generation: generation as u32,
            token: [t, u],
            mark,
            four: FourTuple { client: Address::from_words([a, b], client, 0), server: Address::from_words([c, d], server, 0) },
        })
    }
}

/// The first word of a reply: which use of which channel it is about.
pub(crate) fn name(channel: u16, generation: u32) -> u64 {
    u64::from(channel) | u64::from(generation) << 32
}

/// Channel and generation of a reply's first word.
pub(crate) fn named(word: u64) -> (u16, u32) {
    (word as u16, (word >> 32) as u32)
}

impl Refusal {
    /// Of a number from memory or from a peer.
    pub(crate) fn of(number: u32) -> Option<Refusal> {
        use Refusal::*;
        [NoStation, Full, Elsewhere, Source, Lost, Device, Cancelled, Unclaimed]
            .into_iter()
            .find(|refusal| *refusal as u32 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a peer says as OPEN is refused, or is exactly what a station would have said.
    #[test]
    fn an_open_is_whole_or_none() {
        let mut dice = 88172645463325252u64;
        let mut draw = move || {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            dice
        };
        let mut taken = 0;
        for _ in 0..100_000 {
            // Mostly words of the size that belongs there.
            let mut words: Vec<u64> = (0..7 + draw() % 3).map(|_| draw()).collect();
            for (at, bits) in [(0, 32), (7, 48)] {
                if let Some(word) = words.get_mut(at).filter(|_| draw() % 8 != 0) {
                    *word >>= 64 - bits;
                }
            }
            if let Some(open) = Open::of(&words) {
                taken += 1;
                assert_eq!(open.words()[..], words);
                assert!(open.generation != 0 && open.mark.is_one() && open.four.client.port != 0 && open.four.server.port != 0);
            }
        }
        assert!(taken > 1_000, "{taken}");
        let sane = [1, 2, 3, 4, 5, 6, 7, 999 << 32 | 80 << 16 | 40_000];
        assert!(Open::of(&sane).is_some());
        // No generation, or a long one; no ports; an even mark; more than there is; words too few and too many.
        for (at, word) in [
            (0, 0),
            (0, 1 << 32),
            (7, 999 << 32 | 80 << 16),
            (7, 999 << 32 | 40_000),
            (7, 998 << 32 | 80 << 16 | 1),
            (7, 1 << 48 | sane[7]),
        ] {
            let mut words = sane;
            words[at] = word;
            assert_eq!(Open::of(&words), None, "{words:?}");
        }
        assert_eq!((Open::of(&sane[..7]), Open::of(&[sane.as_slice(), &[0]].concat())), (None, None));
    }
}

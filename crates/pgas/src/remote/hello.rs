//! How a rank and a keeper meet: over TCP, once, each says where its endpoint is. The rank shows the job's secret first.

use shunt_am::Offer;
use shunt_endpoint::{Address, Tag};
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// The first word of what a rank says.
const MAGIC: u64 = u64::from_le_bytes(*b"shuntpgk");
/// Of these records.
const VERSION: u64 = 1;

/// What the other side needs to reach an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Card {
    pub address: Address,
    pub tag: Tag,
    pub offer: Offer,
}

const CARD: usize = 12;

impl Card {
    /// Of an answer that refuses.
    const NONE: Card = Card { address: Address::NONE, tag: Tag(0), offer: Offer([0; 40]) };

    fn words(&self) -> [u64; CARD] {
        let mut words = [0; CARD];
        words[..6].copy_from_slice(&self.address.to_words());
        words[6] = self.tag.0;
        for (word, bytes) in words[7..].iter_mut().zip(self.offer.0.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight"));
        }
        words
    }

    fn from_words(words: &[u64; CARD]) -> Card {
        let mut offer = [0; 40];
        for (bytes, word) in offer.chunks_exact_mut(8).zip(&words[7..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let address = words.first_chunk().expect("twelve");
        Card { address: Address::from_words(*address), tag: Tag(words[6]), offer: Offer(offer) }
    }
}

/// A rank's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hello {
    pub secret: [u64; 2],
    pub rank: u64,
    /// Bytes of the program's static data: ranks of one job run one program.
    pub data_bytes: u64,
    pub card: Card,
}

/// A keeper's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Welcome(Card),
    /// The keeper's ranks run another program: bytes of its static data.
    Program(u64),
    /// The keeper has no room for another peer.
    Full,
}

fn read<const N: usize>(from: &mut TcpStream) -> io::Result<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        *word = u64::from_le_bytes(bytes);
    }
    Ok(words)
}

fn write(to: &mut TcpStream, words: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    to.write_all(&bytes)
}

const HELLO: usize = 6 + CARD;

impl Hello {
    fn words(&self) -> [u64; HELLO] {
        let mut words = [0; HELLO];
        words[..6].copy_from_slice(&[MAGIC, VERSION, self.secret[0], self.secret[1], self.rank, self.data_bytes]);
        words[6..].copy_from_slice(&self.card.words());
        words
    }

    fn from_words(words: &[u64; HELLO]) -> Option<Hello> {
        let (&[magic, version, high, low, rank, data_bytes], card) = words.split_first_chunk::<6>()?;
        let card = Card::from_words(card.first_chunk()?);
        (magic == MAGIC && version == VERSION).then_some(Hello { secret: [high, low], rank, data_bytes, card })
    }

    pub fn write(&self, to: &mut TcpStream) -> io::Result<()> {
        write(to, &self.words())
    }

    /// What a stranger may say, too.
    pub fn read(from: &mut TcpStream) -> io::Result<Hello> {
        Hello::from_words(&read(from)?).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Whether the stranger knows the secret; in a time that does not tell how much of it.
    pub fn knows(&self, secret: [u64; 2]) -> bool {
        (self.secret[0] ^ secret[0]) | (self.secret[1] ^ secret[1]) == 0
    }
}

impl Answer {
    pub fn write(&self, to: &mut TcpStream) -> io::Result<()> {
        let (kind, value, card) = match self {
            Answer::Welcome(card) => (0, 0, *card),
            Answer::Program(bytes) => (1, *bytes, Card::NONE),
            Answer::Full => (2, 0, Card::NONE),
        };
        write(to, &[kind, value])?;
        write(to, &card.words())
    }

    pub fn read(from: &mut TcpStream) -> io::Result<Answer> {
        let [kind, value] = read(from)?;
        let card = Card::from_words(&read(from)?);
        match kind {
            0 => Ok(Answer::Welcome(card)),
            1 => Ok(Answer::Program(value)),
            2 => Ok(Answer::Full),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hello_has_one_spelling(words: [u64; HELLO], right: bool) {
            let mut words = words;
            if right {
                words[..2].copy_from_slice(&[MAGIC, VERSION]);
            }
            match Hello::from_words(&words) {
                Some(hello) => prop_assert_eq!(hello.words()[..6].to_vec(), words[..6].to_vec()),
                None => prop_assert!(!right),
            }
        }
    }

    #[test]
    fn a_secret_is_compared_as_a_whole() {
        let hello = Hello { secret: [1, 2], rank: 0, data_bytes: 0, card: Card::NONE };
        assert!(hello.knows([1, 2]) && !hello.knows([1, 3]) && !hello.knows([0, 2]));
    }
}

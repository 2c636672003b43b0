//! A client's abstract name is whatever another process bound: any bytes give a valid hello or none, and a hello that was
//! read says the same when it is written again, but for a way of its link that is not known.

use shunt_segment::name::{Hello, LONGEST};

/// Where a name says by which way the link follows: behind the prefix, the version, the nonce, the sequence and the channel.
const FOLLOWS: usize = 14 + 4 + 8 + 4 + 2;

pub fn run(name: &[u8]) {
    if let Some(hello) = Hello::decode(name) {
        assert!((hello.channel as usize) < shunt_segment::CHANNELS);
        let again = hello.encode();
        assert!(again.length <= LONGEST);
        let mut known = name.to_vec();
        known[FOLLOWS..][..2].copy_from_slice(&hello.link_follows.to_le_bytes());
        assert_eq!(again.as_slice(), known);
    }
}

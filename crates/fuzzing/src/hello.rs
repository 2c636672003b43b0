//! A client's abstract name is whatever another process bound: any bytes give a valid hello or none, and a hello that was
//! read says the same when it is written again.

use shunt_segment::name::{Hello, LONGEST};

pub fn run(name: &[u8]) {
    if let Some(hello) = Hello::decode(name) {
        assert!((hello.channel as usize) < shunt_segment::CHANNELS);
        let again = hello.encode();
        assert!(again.length <= LONGEST);
        assert_eq!(again.as_slice(), name);
    }
}

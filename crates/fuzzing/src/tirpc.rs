//! What a peer sends to a program of libtirpc whose layers are collapsed: records are what RFC 5531 says they are, however the stream was cut; heads of
//! answers are read or refused.

use shunt_tirpc::record::{Ended, Input, Source};
use shunt_tirpc::reply::{Reply, LONGEST};

/// A stream that gives at most so many bytes at once.
struct Cut<'a>(&'a [u8], usize);

impl Source for Cut<'_> {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Ended> {
        let length = self.1.min(into.len()).min(self.0.len());
        let (now, later) = self.0.split_at(length);
        into[..length].copy_from_slice(now);
        self.0 = later;
        if length == 0 {
            Err(Ended)
        } else {
            Ok(length)
        }
    }
}

/// The bytes of the next record and whether it is whole, by the definition; `None` behind the last one.
fn record(stream: &mut &[u8]) -> Option<(Vec<u8>, bool)> {
    let mut bytes = vec![];
    loop {
        let Some((mark, rest)) = stream.split_first_chunk::<4>() else {
            *stream = &[];
            return (!bytes.is_empty()).then_some((bytes, false));
        };
        let mark = u32::from_be_bytes(*mark);
        let length = (mark & 0x7fff_ffff) as usize;
        bytes.extend_from_slice(&rest[..length.min(rest.len())]);
        if length > rest.len() || mark == 0 {
            *stream = &[];
            return Some((bytes, false));
        }
        *stream = &rest[length..];
        if mark >> 31 == 1 {
            return Some((bytes, true));
        }
    }
}

pub fn run(data: &[u8]) {
    let [size, most, stream @ ..] = data else { return };
    let (size, most) = (usize::from(*size) * 16, usize::from(*most) + 1);

    let (mut input, mut source) = (Input::new(size), Cut(stream, most));
    let mut rest = stream;
    while let Some((bytes, whole)) = record(&mut rest) {
        if input.next_record(&mut source).is_err() {
            return;
        }
        let mut words = bytes.chunks_exact(4);
        for word in words.by_ref() {
            // A record that the stream breaks off may be seen to end before its last bytes.
            match input.word(&mut source) {
                Ok(read) => assert_eq!(read.to_be_bytes(), word),
                Err(Ended) => return assert!(!whole, "a whole record has all its words"),
            }
        }
        assert!(input.word(&mut source).is_err(), "a record has no more than its words");
        if !whole {
            return;
        }
    }

    let (mut input, mut source) = (Input::new(size), Cut(stream, most));
    while input.next_record(&mut source).is_ok() {
        if let Ok(reply) = Reply::read(&mut input, &mut source) {
            assert!(reply.verifier.len() <= LONGEST);
            let (_, _, _) = reply.verdict.parts();
            let (_, _) = reply.verdict.error();
        }
    }
}

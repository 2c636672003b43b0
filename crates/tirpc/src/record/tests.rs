use super::{Ended, Input, Output, Sink, Source};
use proptest::prelude::*;

/// A stream that gives at most so many bytes at once, in turns.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    sizes: Vec<usize>,
    turn: usize,
}

impl Source for Pieces {
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Ended> {
        assert!(!into.is_empty());
        let most = self.sizes[self.turn % self.sizes.len()];
        self.turn += 1;
        let n = most.min(into.len()).min(self.bytes.len() - self.at);
        into[..n].copy_from_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        (n > 0).then_some(n).ok_or(Ended)
    }
}

#[derive(Default)]
struct Sent(Vec<u8>);

impl Sink for Sent {
    fn write(&mut self, parts: [&[u8]; 2]) -> Result<(), Ended> {
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        Ok(())
    }
}

fn pieces(bytes: Vec<u8>, sizes: Vec<usize>) -> Pieces {
    Pieces { bytes, at: 0, sizes, turn: 0 }
}

proptest! {
    #[test]
    fn records_come_back_whole_however_they_were_cut(
        records in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 1..9000), 1..6), 1..5),
        now in prop::collection::vec(any::<bool>(), 5),
        sizes in prop::collection::vec(1usize..20_000, 1..9),
        (out, into) in (64usize..6000, 64usize..6000),
    ) {
        let mut sent = Sent::default();
        let mut output = Output::new(out);
        for (at, record) in records.iter().enumerate() {
            for part in record {
                output.bytes(part, &mut sent).unwrap();
            }
            output.end_record(now[at] || at + 1 == records.len(), &mut sent).unwrap();
        }
        let mut source = pieces(sent.0, sizes);
        let mut input = Input::new(into);
        for record in &records {
            input.next_record(&mut source).unwrap();
            let whole = record.concat();
            let mut taken = vec![0; whole.len()];
            input.bytes(&mut taken, &mut source).unwrap();
            prop_assert_eq!(&taken, &whole);
            prop_assert_eq!(input.bytes(&mut [0], &mut source), Err(Ended));
        }
        prop_assert_eq!(input.has_more(&mut source), Ok(false));
    }

    #[test]
    fn any_bytes_end(
        bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(0x80), any::<u8>()], 0..400),
        sizes in prop::collection::vec(1usize..30, 1..4),
    ) {
        let length = bytes.len();
        let mut source = pieces(bytes, sizes);
        let mut input = Input::new(64);
        let (mut taken, mut records) = (0, 0);
        while input.next_record(&mut source).is_ok() && source.at < length {
            records += 1;
            while input.word(&mut source).is_ok() {
                taken += 4;
            }
            prop_assert!(records <= length / 4 + 1 && taken <= length);
        }
    }
}

#[test]
fn a_fragment_of_nothing_that_is_not_the_last_ends_the_stream() {
    let mut source = pieces(vec![0; 64], vec![64]);
    let mut input = Input::new(64);
    assert_eq!(input.next_record(&mut source), Ok(()));
    assert_eq!(input.word(&mut source), Err(Ended));
}

#[test]
fn positions_of_a_fragment_are_found_again() {
    let mut sent = Sent::default();
    let mut output = Output::new(64);
    assert!(output.set_position(4));
    output.word(7, &mut sent).unwrap();
    let end = output.position();
    assert!(output.set_position(0) && !output.set_position(61));
    output.word(1, &mut sent).unwrap();
    assert!(output.set_position(end));
    output.end_record(true, &mut sent).unwrap();
    assert_eq!(sent.0, [0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 7]);
    let mut source = pieces(sent.0, vec![64]);
    let mut input = Input::new(64);
    input.next_record(&mut source).unwrap();
    assert_eq!(input.word(&mut source), Ok(1));
    assert!(input.seek(-4) && !input.seek(16));
    assert_eq!((input.word(&mut source), input.word(&mut source)), (Ok(1), Ok(7)));
}

#[test]
fn a_record_that_is_kept_whole_can_be_gone_back_in() {
    let (mut sent, mut output) = (Sent::default(), Output::new(64));
    output.word(9, &mut sent).unwrap();
    output.end_record(false, &mut sent).unwrap();
    output.keep_whole();
    output.word(1, &mut sent).unwrap();
    output.bytes(&[7; 1000], &mut sent).unwrap();
    let end = output.position();
    assert!(output.set_position(4));
    assert_eq!(output.room(1000).unwrap(), [7; 1000]);
    assert!(output.set_position(0));
    output.word(2, &mut sent).unwrap();
    assert!(output.set_position(end));
    assert_eq!(output.room(2000).unwrap().len(), 2000);
    assert!(sent.0.is_empty());
    output.end_record(false, &mut sent).unwrap();
    assert_eq!(sent.0.len(), 8 + 4 + 4 + 3000);
    assert_eq!(sent.0[8..16], [0x80, 0, 0x0b, 0xbc, 0, 0, 0, 2]);
    // The next one is as before.
    output.bytes(&[3; 100], &mut sent).unwrap();
    output.end_record(true, &mut sent).unwrap();
    assert_eq!(sent.0.len(), 8 + 4 + 4 + 3000 + 4 + 100 + 4);
}

#[test]
fn a_stream_that_ends_within_a_record_is_no_idle_one() {
    let mut source = pieces(vec![0x80, 0, 0, 8, 1, 2, 3, 4], vec![64]);
    let mut input = Input::new(64);
    input.next_record(&mut source).unwrap();
    assert_eq!(input.word(&mut source), Ok(0x0102_0304));
    assert_eq!(input.has_more(&mut source), Err(Ended));
}

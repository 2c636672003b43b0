//! Frames from an Ethernet: the packet around an endpoint's frame, and the frame's header.

use shunt_wire::endpoint::{Frame, Kind, Repr, Update, HEADER};
use shunt_xdp::own::reason_of;
use shunt_xdp::packet::{Envelope, Path, Sum, LONGEST};
use shunt_xdp::runs::each;

pub fn run(data: &[u8]) {
    header(data);
    match Envelope::parse(&data[..data.len().min(LONGEST)], data.len()) {
        Err(malformed) => drop(reason_of(malformed).name()),
        Ok(envelope) => {
            assert!(envelope.at <= LONGEST && envelope.at + envelope.length <= data.len(), "a datagram outside its frame");
            let datagram = &data[envelope.at..][..envelope.length];
            header(datagram);
            run_of(datagram);
            // Made anew between the same ends, it is the same datagram, and whole.
            let path = Path { from: [2; 6], to: [4; 6], source: envelope.source, destination: envelope.destination };
            let mut frame = path.headers(datagram.len(), Some(Sum::default().add(datagram)))[..path.header()].to_vec();
            frame.extend(datagram);
            let again = Envelope::parse(&frame[..frame.len().min(LONGEST)], frame.len()).expect("what is written is read");
            assert!(again.is_intact(|| Sum::default().add(&frame[again.at..])));
            assert_eq!((again.source, again.destination, again.length), (envelope.source, envelope.destination, envelope.length));
        }
    }
}

/// A run's frames are all inside it, and the last one is whole.
fn run_of(datagram: &[u8]) {
    let each = each(datagram.len(), |at| datagram[at..at + HEADER].try_into().expect("as long as a header"));
    if each == datagram.len() {
        return;
    }
    assert!((HEADER..datagram.len()).contains(&each), "a frame outside its run");
    let frames: Vec<&[u8]> = datagram.chunks(each).collect();
    assert!(Repr::parse(&Frame::new(frames[frames.len() - 1])).is_ok());
    assert_eq!(Frame::new(frames[0]).length() as usize + HEADER, each);
}

/// All ways of reading a header agree, and what is read is what is written.
fn header(bytes: &[u8]) {
    let frame = Frame::new(bytes);
    let (whole, start) = (Repr::parse(&frame), Frame::new(&bytes[..bytes.len().min(HEADER + 5)]));
    assert_eq!(whole, Repr::parse_start(&start, bytes.len()));
    let Ok(repr) = whole else { return };
    assert_eq!(repr.length as usize, bytes.len() - HEADER);
    assert_eq!(Repr::parse_padded(&frame), whole);
    let mut written = [0; HEADER];
    repr.emit(&mut written);
    assert_eq!(written, bytes[..HEADER]);
    if repr.kind != Kind::Message {
        if let Some(update) = Update::parse(frame.payload()) {
            let mut written = [0; Update::HEADER];
            update.emit(&mut written);
            assert_eq!(written, frame.payload()[..Update::HEADER]);
        }
    }
}

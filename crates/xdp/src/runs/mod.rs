//! Runs: frames of one channel in one packet, which the kernel cuts where a wire comes (UDP segmentation offload).
//!
//! ```text
//! Ethernet, IP, UDP │ header, message │ header, message │ ... │ header, message (no longer than the others)
//! ```
//!
//! A veth has no wire, so the packet arrives as it left: one way through the kernel for 44 frames of 1,500 bytes. An interface
//! with a wire, or its driver, makes packets of one frame each of it. So on a wire there is nothing new, and a receiver knows a
//! run by its first header, whose length is not the whole datagram's.
//!
//! Both runs lie in the endpoint's memory: the thread that holds its lock goes on with them.

mod incoming;
mod outgoing;

pub use incoming::Cut;
pub(crate) use incoming::Run;
pub(crate) use outgoing::Limits;
pub use outgoing::{Collected, Cutter, ROOM};

use shunt_wire::endpoint::{Frame, Repr, HEADER};

/// Bytes of each frame but the last in a datagram of `length` bytes; as many as it has if it is one frame, or none. `header` copies
/// the header at an offset that is far enough from the end.
pub fn each(length: usize, header: impl Fn(usize) -> [u8; HEADER]) -> usize {
    if length < 2 * HEADER {
        return length;
    }
    let each = Frame::new(&header(0)).length() as usize + HEADER;
    if each >= length {
        return length;
    }
    let last = (length - 1) / each * each;
    let ends = length - last >= HEADER && Repr::parse_start(&Frame::new(&header(last)), length - last).is_ok();
    if ends {
        each
    } else {
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_wire::endpoint::Kind;

    fn datagram(lengths: &[usize]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for length in lengths {
            let mut frame = vec![7; HEADER + length];
            Repr { kind: Kind::Message, tag: 5, length: *length as u32 }.emit(&mut frame);
            bytes.extend(frame);
        }
        bytes
    }

    fn each_of(bytes: &[u8]) -> usize {
        each(bytes.len(), |at| bytes[at..at + HEADER].try_into().unwrap())
    }

    #[test]
    fn runs_are_known_by_their_first_and_last_header() {
        assert_eq!(each_of(&datagram(&[100])), 116);
        assert_eq!(each_of(&datagram(&[100, 100])), 116);
        assert_eq!(each_of(&datagram(&[100, 100, 1])), 116);
        assert_eq!(each_of(&datagram(&[0, 0, 0])), 16);
        // No run: what is said to be shorter than it is, and a last one that is longer than the others.
        let mut more = datagram(&[100]);
        more.extend([0; 30]);
        assert_eq!(each_of(&more), 146);
        assert_eq!(each_of(&datagram(&[100, 101])), 233);
        for length in 0..300 {
            let cut = &datagram(&[100, 100, 100])[..length];
            assert_eq!(each_of(cut), if length == 232 { 116 } else { length }, "{length}");
        }
    }
}

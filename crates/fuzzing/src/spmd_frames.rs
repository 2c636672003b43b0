//! What a launcher reads from an agent, or an agent from a launcher: any bytes are frames, each in the one spelling that its writer has,
//! or are refused.

use shunt_pgas::launch::frames::Frame;

pub fn run(data: &[u8]) {
    if let Some(frame) = Frame::decode(data) {
        assert_eq!(&frame.encode()[4..], data, "one spelling");
    }
    let mut rest = data;
    while let Ok(Some(_)) = Frame::read(&mut rest) {}
}

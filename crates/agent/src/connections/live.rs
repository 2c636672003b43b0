//! Frames that were steered to a queue, handed to the kernel as if its interface had just received them.

use std::io;

use shunt_xdp::tcp::{Envelope, LONGEST_FRAME};

use crate::ebpf::kernel::Program;

/// Bytes of payload in one frame: what is longer was never cut, and is cut now, since only a page goes through.
const PAYLOAD: usize = 1400;

/// A program that passes each frame, from the first on.
#[derive(Default)]
pub struct Live {
    program: Option<Program>,
    buffer: Vec<u8>,
}

impl Live {
    /// Hands a frame on to the interface with this index. Its sums are made, where that was left to others. One that was damaged is lost, here or in the kernel.
    ///
    /// # Errors
    /// As for [`Program::that_passes`] and [`Program::run_on`].
    pub fn pass(&mut self, interface: u32, envelope: &Envelope, frame: &[u8]) -> io::Result<()> {
        if envelope.length > PAYLOAD && !envelope.is_intact(frame) {
            // Its pieces would have sums that are right, of bytes that are not.
            return Ok(());
        }
        if self.program.is_none() {
            self.program = Some(Program::that_passes("shunt_pass")?);
        }
        self.buffer.resize(LONGEST_FRAME, 0);
        let Some(program) = &self.program else { return Ok(()) };
        let mut passed = Ok(());
        envelope.cut(frame, PAYLOAD, &mut self.buffer, |piece| {
            let now = program.run_on(interface, piece);
            if passed.is_ok() {
                passed = now;
            }
        });
        passed
    }
}

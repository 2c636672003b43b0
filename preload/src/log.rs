//! Lines on stderr: what the option `log` asks for, and bugs.

use core::ffi::c_int;
use core::fmt::Write;
use shunt_sys as sys;

/// A line for stderr, written at once.
pub struct Line {
    bytes: [u8; 512],
    length: usize,
}

impl Line {
    /// An empty line.
    pub fn new() -> Line {
        Line { bytes: [0; 512], length: 0 }
    }
    /// Writes it.
    pub fn flush(&self) {
        let _ = sys::calls::write(2, self.bytes.as_ptr().cast(), self.length);
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.len() - self.length;
        let part = text.len().min(room);
        self.bytes[self.length..self.length + part].copy_from_slice(&text.as_bytes()[..part]);
        self.length += part;
        Ok(())
    }
}

/// Says why a connection goes through the kernel, if the option `log` asks for it.
pub fn explain(fd: c_int, reason: shunt_segment::reason::Reason) {
    if shunt_table::global::options().log == shunt_config::Log::Off {
        return;
    }
    let mut line = Line::new();
    let _ = writeln!(line, "shunt: descriptor {fd} goes through the kernel: {}: {}", reason.word(), reason.text());
    line.flush();
}

/// Says that a connection is accelerated, if the option `log` asks for all of them.
pub fn announce(fd: c_int) {
    if shunt_table::global::options().log == shunt_config::Log::All {
        let mut line = Line::new();
        let _ = writeln!(line, "shunt: descriptor {fd} is accelerated");
        line.flush();
    }
}

/// A bug of ours: says where before the program ends.
pub fn complain(info: &core::panic::PanicInfo) {
    let mut line = Line::new();
    let _ = writeln!(line, "shunt: bug: {info}");
    line.flush();
}

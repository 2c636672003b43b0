//! Constructor, and fork handlers.

use core::ffi::{c_char, c_int, c_void};
use core::fmt::Write;
use shunt_config::Options;
use shunt_sockets::process;
use shunt_sys as sys;

extern "C" {
    static environ: *const *const c_char;
    fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        handle: *mut c_void,
    ) -> c_int;
}

#[used]
#[link_section = ".init_array"]
static CONSTRUCTOR: extern "C" fn() = start;

extern "C" fn start() {
    crate::memory::start();
    crate::real::resolve();
    let options = match Options::from_environment(variable) {
        Ok(options) => options,
        Err(error) => {
            let mut line = Line::new();
            let _ = writeln!(line, "shunt: {error}; this program runs without shunt");
            line.flush();
            return;
        }
    };
    // SAFETY: a constructor runs before the program's own threads; the symbol is libc's flag or absent.
    unsafe {
        let single = crate::real::find(b"__libc_single_threaded\0").cast::<u8>();
        shunt_sockets::start(options, single, variable(shunt_handover::inherit::VARIABLE));
        crate::exec::start(variable("LD_PRELOAD").unwrap_or(b""));
        crate::stdio::start();
        crate::signals::start();
        crate::trap::start();
        crate::cancel::start();
        crate::end::start();
        __register_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child), core::ptr::null_mut());
    }
}

extern "C" fn before_fork() {
    crate::trap::before_fork();
    process::before_fork();
}
extern "C" fn after_fork_parent() {
    process::after_fork_parent();
}
extern "C" fn after_fork_child() {
    process::after_fork_child();
    crate::trap::after_fork_child();
}

/// An environment variable, without libc's getenv (which another thread may be changing).
pub fn variable(name: &str) -> Option<&'static [u8]> {
    // SAFETY: the environment block is an array of C strings that ends with null.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let text = core::ffi::CStr::from_ptr(*at).to_bytes();
            if let Some(value) = text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

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

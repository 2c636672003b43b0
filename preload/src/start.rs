//! Constructor, and fork handlers.

use crate::environment::variable;
use crate::log::Line;
use core::ffi::{c_int, c_void};
use core::fmt::Write;
use shunt_config::Options;
use shunt_sockets::process;

extern "C" {
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
        let single = crate::loader::find(b"__libc_single_threaded\0").cast::<u8>();
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
    crate::raw_calls::code::before_fork();
    process::before_fork();
}
extern "C" fn after_fork_parent() {
    process::after_fork_parent();
}
extern "C" fn after_fork_child() {
    process::after_fork_child();
    crate::raw_calls::code::after_fork_child();
}

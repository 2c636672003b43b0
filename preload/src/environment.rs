//! The variables of the process's environment.

use core::ffi::c_char;
use shunt_conventions::environment;

extern "C" {
    static environ: *const *const c_char;
}

/// An environment variable, without libc's getenv (which another thread may be changing).
pub fn variable(name: &str) -> Option<&'static [u8]> {
    // SAFETY: the environment block is an array of C strings that ends with null.
    unsafe { environment::variable(environ, name) }
}

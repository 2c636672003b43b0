//! The variables of the process's environment.

use core::ffi::c_char;

extern "C" {
    static environ: *const *const c_char;
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

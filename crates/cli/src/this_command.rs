//! Where this command's own file is, also where /proc is not mounted.
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The absolute path of the file that this process executes.
///
/// # Errors
/// If neither /proc nor the auxiliary vector tells a path that exists.
pub fn path() -> std::io::Result<PathBuf> {
    std::env::current_exe().or_else(|error| executed_name().ok_or(error)?.canonicalize())
}

/// The name given to execve(2), see getauxval(3): relative if that was.
fn executed_name() -> Option<PathBuf> {
    // SAFETY: the kernel puts a C string there, or nothing, and it stays where it is.
    let name = unsafe {
        let address = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        (!address.is_null()).then(|| CStr::from_ptr(address))
    }?;
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_ways_lead_to_the_same_file() {
        let executed = super::executed_name().unwrap().canonicalize().unwrap();
        assert_eq!(executed, super::path().unwrap().canonicalize().unwrap());
    }
}

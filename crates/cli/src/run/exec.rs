//! Becoming the program: execve(2), and what its errors mean.
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::image::Image;
use crate::failure::Failure;

/// Replaces this process by the program at `path`, with `words` as its arguments (the first is its name).
///
/// `std::process::Command::exec` is not used: it resets the signal mask and SIGPIPE, which the program must inherit.
/// Returns the reason if it cannot be done.
pub fn replace_this_process<'a>(
    path: &Path,
    words: &[&OsStr],
    environment: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
) -> Failure {
    let variables: Vec<CString> =
        environment.map(|(name, value)| c_string(&[name.as_bytes(), b"=", value.as_bytes()].concat())).collect();
    let mut arguments: Vec<CString> = words.iter().map(|word| c_string(word.as_bytes())).collect();
    let path_string = c_string(path.as_os_str().as_bytes());

    let mut error = execve(&path_string, &arguments, &variables);
    if error.raw_os_error() == Some(libc::ENOEXEC) && is_shell_text(path) {
        // A script without a first line that names its interpreter belongs to the shell, says execvp(3).
        arguments.splice(0..1, [c"/bin/sh".into(), path_string]);
        error = execve(c"/bin/sh", &arguments, &variables);
    }
    explain(path, &error)
}

/// Words and variables came in as C strings, and paths without an inner zero were looked up before.
fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("arguments and variables of a process hold no zero bytes")
}

fn execve(path: &CStr, arguments: &[CString], variables: &[CString]) -> std::io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, variables) = (pointers(arguments), pointers(variables));
    // SAFETY: both arrays end with a null pointer, and they and the strings they point to outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
    std::io::Error::last_os_error()
}

/// Text, as bash tells it: no zero byte in the first line.
fn is_shell_text(path: &Path) -> bool {
    matches!(Image::read(path), Ok(Image::Other { first_line_is_text: true }))
}

fn explain(path: &Path, error: &std::io::Error) -> Failure {
    let name = path.display();
    match (error.raw_os_error(), Image::read(path)) {
        (Some(libc::ENOENT), Ok(Image::Script { interpreter, .. })) => {
            Failure::not_found(format_args!("{name}: its interpreter {} is not there", interpreter.display()))
        }
        (Some(libc::ENOENT), Ok(Image::Elf(elf))) if elf.interpreter.is_some() => Failure::not_found(format_args!(
            "{name}: the dynamic loader it asks for, {}, is not there",
            elf.interpreter.unwrap_or_default().display()
        )),
        (Some(libc::ENOENT), _) => Failure::not_found(format_args!("{name}: not found: {error}")),
        (Some(libc::ENOEXEC), Ok(Image::Elf(elf))) if !elf.is_native() => Failure::not_executable(format_args!(
            "{name}: is a program for {}, which this machine cannot run",
            elf.architecture()
        )),
        (Some(libc::ENOEXEC), _) => Failure::not_executable(format_args!("{name}: is not a program")),
        _ => Failure::not_executable(format_args!("{name}: cannot be executed: {error}")),
    }
}

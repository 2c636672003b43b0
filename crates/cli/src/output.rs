//! Standard output: a closed pipe ends the command quietly, anything else is said.
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Serialize;

use crate::failure::Failure;

/// Writes `text` to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    // Flushed here: there is no Rust main whose end would do it.
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|error| Failure::of_environment(format_args!("cannot write to standard output: {error}")))
}

/// Writes `value` as JSON, indented, with a newline at the end.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::of_environment(format_args!("cannot make JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Puts `text` in the place of the file, by the rename of another one: a reader never gets a part. That one is made anew under a name that cannot be
/// known before, and what stands at `path` is not followed: others may write in the directory.
///
/// # Errors
/// If it cannot be written.
pub fn replace(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    replace_in(directory, path, text, mode)
}

/// The same of the file that is called so in `directory`, by which path ever that is reached; `path` is what is told.
///
/// # Errors
/// If it cannot be written.
pub fn replace_in(directory: &Path, path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let told = |error: std::io::Error| Failure::of_environment(format_args!("{}: cannot be written: {error}", path.display()));
    let name = path.file_name().ok_or_else(|| told(std::io::ErrorKind::InvalidInput.into()))?;
    let mut beside = tempfile::Builder::new()
        .prefix(".shunt-")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory)
        .map_err(told)?;
    beside.write_all(text.as_bytes()).map_err(told)?;
    beside.persist(directory.join(name)).map(drop).map_err(|error| told(error.error))
}

//! Programs of libtirpc's: compiled where they run, as few machines have its headers.

use std::path::{Path, PathBuf};
use std::process::Command;

const COMMON: &str = include_str!("../programs/sunrpc.h");

/// The program of this name and source, compiled once in a run.
///
/// # Errors
/// A sentence.
pub fn compiled(scratch: &Path, name: &str, source: &str) -> Result<PathBuf, String> {
    let (file, program) = (scratch.join(name).with_extension("c"), scratch.join(name));
    if program.exists() {
        return Ok(program);
    }
    let written = std::fs::write(scratch.join("sunrpc.h"), COMMON).and_then(|()| std::fs::write(&file, source));
    written.map_err(|error| error.to_string())?;
    let done = Command::new("cc").args(["-O2", "-I/usr/include/tirpc", "-o"]).args([&program, &file]).arg("-ltirpc").output();
    match done {
        Ok(done) if done.status.success() => Ok(program),
        _ => Err("its program cannot be compiled here (Debian packages gcc, libtirpc-dev)".into()),
    }
}

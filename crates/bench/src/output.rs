//! Standard output. A reader that stops reading (`shunt bench list | head`) has what it wanted: the run goes on and writes its
//! files.

use std::io::{self, ErrorKind, Write};

/// Writes a text and a newline; what is wrong with standard output, but for a closed pipe, is said on standard error.
pub(crate) fn say(text: &str) {
    let mut output = io::stdout().lock();
    match writeln!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "shunt bench: cannot write to standard output: {error}");
        }
        _ => {}
    }
}

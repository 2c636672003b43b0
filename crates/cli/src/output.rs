//! Standard output: a closed pipe ends the command quietly, anything else is said.
use std::io::Write;

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

//! A sequence of operations as text: a line for each, the actor's number first.
//!
//! ```text
//! # what it shows
//! 1 socket 0 4
//! 1 bind 0 127.0.0.1 20000
//! 1 listen 0 8
//! 0 socket 0 4
//! 0 connect 0 127.0.0.1 20000
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

/// One operation of one actor; `scenarios/actor.c` says what the words mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The actor.
    pub actor: usize,
    /// The operation and its arguments.
    pub words: String,
}

impl Operation {
    /// The operation `words` of `actor`.
    pub fn new(actor: usize, words: impl Into<String>) -> Operation {
        Operation { actor, words: words.into() }
    }

    /// The first word.
    pub fn verb(&self) -> &str {
        self.words.split(' ').next().unwrap_or("")
    }

    /// The word at `place`, the verb being at 0, as a number; 0 if there is none.
    pub fn number(&self, place: usize) -> usize {
        self.words.split(' ').nth(place).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// The word at `place`, or nothing.
    pub fn word(&self, place: usize) -> &str {
        self.words.split(' ').nth(place).unwrap_or("")
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.actor, self.words)
    }
}

/// Reads a sequence; lines that are empty or begin with `#` say nothing.
///
/// # Errors
/// The line that has no actor.
pub fn parse(text: &str) -> Result<Vec<Operation>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (actor, words) = line.split_once(' ').ok_or_else(|| format!("no actor and operation: {line}"))?;
            let actor = actor.parse().ok().filter(|&actor| actor < super::stage::ACTORS);
            Ok(Operation::new(actor.ok_or_else(|| format!("no such actor: {line}"))?, words))
        })
        .collect()
}

/// The directory of sequences that once showed a difference.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sequences")
}

/// All of them, by name.
///
/// # Errors
/// A sentence about the file that cannot be read.
pub fn stored() -> Result<Vec<(String, Vec<Operation>)>, String> {
    let entries = std::fs::read_dir(directory()).map_err(|error| format!("sequences/: {error}"))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, parse(&text).map_err(|error| format!("{}: {error}", path.display()))?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_operations_are_the_same() {
        let operations = parse("# why\n\n0 socket 3 4\n1 close 2\n").expect("parses");
        assert_eq!(operations, [Operation::new(0, "socket 3 4"), Operation::new(1, "close 2")]);
        assert_eq!(operations[0].to_string(), "0 socket 3 4");
        assert_eq!((operations[0].verb(), operations[0].number(2), operations[0].number(9)), ("socket", 4, 0));
    }

    #[test]
    fn an_actor_that_cannot_be_is_refused() {
        parse("9 close 1").expect_err("there are eight");
        parse("close").expect_err("nobody acts");
    }

    #[test]
    fn every_stored_sequence_parses() {
        stored().expect("all parse");
    }
}

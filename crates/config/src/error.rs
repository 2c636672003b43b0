//! What is wrong with a value, where it was found, and a value that would have been right.
use core::fmt;

use crate::hosts::SUBNETS;
use crate::ports::PORT_RANGES;
use crate::problem::Problem;
use crate::table::Entry;

/// Where a value was found: it decides the name by which the error calls the option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A command-line flag, such as `--ring`.
    Flag,
    /// An environment variable, such as `SHUNT_RING`.
    Variable,
    /// A configuration file, in which an option has its bare name, such as `ring`.
    File,
}

/// A refused value. Its [`fmt::Display`] is one line that says where, what, and an example:
/// `SHUNT_RING: "12q" is not a size; example: 256K`.
#[derive(Clone, Copy, Debug)]
pub struct OptionError<'a> {
    /// The option that was given.
    pub entry: &'static Entry,
    /// Where it was given.
    pub source: Source,
    /// The value as it was given; any bytes.
    pub value: &'a [u8],
    /// What is wrong with it.
    pub problem: Problem,
}

/// Longer values are cut in the message; the rest is not needed to find the mistake.
const SHOWN_BYTES: usize = 80;

impl fmt::Display for OptionError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.source {
            Source::Flag => self.entry.flag,
            Source::Variable => self.entry.variable,
            Source::File => self.entry.name,
        };
        write!(f, "{name}: \"")?;
        write_escaped(f, self.value)?;
        f.write_str("\" ")?;
        match self.problem {
            Problem::Malformed => write!(f, "is not {}", self.entry.form)?,
            Problem::OutOfRange => write!(f, "is out of range ({})", self.entry.range)?,
            Problem::TooManyRanges => write!(f, "has more than {} ranges", PORT_RANGES)?,
            Problem::TooManySubnets => write!(f, "has more than {} subnets", SUBNETS)?,
            Problem::BeyondPrefix => f.write_str("has an address with bits behind its prefix")?,
            Problem::Backwards => f.write_str("has a range that runs backwards")?,
        }
        write!(f, "; example: {}", self.entry.example)
    }
}

impl core::error::Error for OptionError<'_> {}

/// Text stays text; control characters and bytes that are not UTF-8 are escaped, so a value cannot garble a terminal.
fn write_escaped(f: &mut fmt::Formatter<'_>, value: &[u8]) -> fmt::Result {
    let shown = &value[..value.len().min(SHOWN_BYTES)];
    for chunk in shown.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                _ if character.is_control() => write!(f, "{}", character.escape_default())?,
                _ => write!(f, "{character}")?,
            }
        }
        for byte in chunk.invalid() {
            write!(f, "\\x{byte:02x}")?;
        }
    }
    if shown.len() < value.len() {
        f.write_str("...")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Entry, Options, Source};

    fn refused(flag: &str, source: Source, value: &[u8]) -> String {
        let entry = Entry::by_flag(flag).unwrap();
        Options::default_const().set(entry, source, value).unwrap_err().to_string()
    }

    #[test]
    fn a_refusal_says_where_what_and_an_example() {
        assert_eq!(refused("--ring", Source::Variable, b"12q"), "SHUNT_RING: \"12q\" is not a size; example: 256K");
        assert_eq!(refused("--ring", Source::Flag, b"8M"), "--ring: \"8M\" is out of range (4K..4M); example: 256K");
        assert_eq!(refused("--spin", Source::Flag, b"11ms"), "--spin: \"11ms\" is out of range (0..10ms); example: 100us");
        assert_eq!(
            refused("--ports", Source::Flag, b"0"),
            "--ports: \"0\" is out of range (all, or up to 16 ports and ranges in 1..65535); example: 6379,8000-8999"
        );
        assert_eq!(
            refused("--log", Source::Flag, b"loud"),
            "--log: \"loud\" is not one of off, fallbacks, all; example: fallbacks"
        );
        assert_eq!(
            refused("--ports", Source::Flag, b"9-8"),
            "--ports: \"9-8\" has a range that runs backwards; example: 6379,8000-8999"
        );
    }

    #[test]
    fn hostile_values_are_escaped_and_cut() {
        assert_eq!(
            refused("--ring", Source::Flag, b"\x1b[2J\xff\""),
            "--ring: \"\\u{1b}[2J\\xff\\\"\" is not a size; example: 256K"
        );
        let long = refused("--ring", Source::Flag, &[b'x'; 5000]);
        assert!(long.len() < 200 && long.contains("xxx...\""));
    }
}

//! How a conversation ends, and how that is written in a line of text.

use std::fmt;
use std::io::{self, ErrorKind};
use std::str::FromStr;

/// How a conversation ended for the side that tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A read returned zero.
    EndOfStream,
    /// ECONNRESET.
    Reset,
    /// EPIPE.
    BrokenPipe,
    /// A byte was not the one that was sent. Never allowed.
    Corrupt,
    /// Another errno. Never allowed.
    Errno(i32),
}

impl End {
    pub(super) fn of(error: &io::Error) -> End {
        match error.kind() {
            ErrorKind::ConnectionReset => End::Reset,
            ErrorKind::BrokenPipe => End::BrokenPipe,
            ErrorKind::InvalidData => End::Corrupt,
            _ => End::Errno(error.raw_os_error().unwrap_or(0)),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::EndOfStream => write!(formatter, "end-of-stream"),
            End::Reset => write!(formatter, "reset"),
            End::BrokenPipe => write!(formatter, "broken-pipe"),
            End::Corrupt => write!(formatter, "corrupt"),
            End::Errno(number) => write!(formatter, "errno-{number}"),
        }
    }
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<End, String> {
        match text {
            "end-of-stream" => Ok(End::EndOfStream),
            "reset" => Ok(End::Reset),
            "broken-pipe" => Ok(End::BrokenPipe),
            "corrupt" => Ok(End::Corrupt),
            other => other
                .strip_prefix("errno-")
                .and_then(|number| number.parse().ok())
                .map(End::Errno)
                .ok_or_else(|| format!("{other:?} is no end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_way_through_text() {
        for end in [End::EndOfStream, End::Reset, End::BrokenPipe, End::Corrupt, End::Errno(110)] {
            assert_eq!(end.to_string().parse(), Ok(end));
        }
    }
}

//! The directory in which programs of one host meet that are in different network namespaces.
use crate::problem::Problem;

/// The longest path: the names in the directory are those of AF_UNIX sockets, which have 108 bytes.
pub const NEAR_LONGEST: usize = 48;

/// The place of `auto`: used where it is a directory.
const DEFAULT: &[u8] = b"/run/shunt";

/// Where such programs meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    path: [u8; NEAR_LONGEST],
    length: u8,
}

impl Near {
    /// At the usual directory.
    pub const AUTO: Near = Near::at(DEFAULT);
    /// Nowhere.
    pub const OFF: Near = Near::at(b"");

    const fn at(text: &[u8]) -> Near {
        let mut path = [0; NEAR_LONGEST];
        let (mut i, length) = (0, text.len());
        while i < length {
            path[i] = text[i];
            i += 1;
        }
        Near { path, length: length as u8 }
    }

    /// Reads `auto`, `off`, or an absolute path.
    pub fn parse(text: &[u8]) -> Result<Near, Problem> {
        match text {
            b"auto" => Ok(Near::AUTO),
            b"off" => Ok(Near::OFF),
            [b'/', rest @ ..] if rest.is_empty() || rest.contains(&0) => Err(Problem::Malformed),
            [b'/', ..] if text.len() > NEAR_LONGEST => Err(Problem::OutOfRange),
            [b'/', ..] => Ok(Near::at(text)),
            _ => Err(Problem::Malformed),
        }
    }

    /// The directory's path; `None`: they do not meet.
    #[must_use]
    pub fn directory(&self) -> Option<&[u8]> {
        self.path.get(..usize::from(self.length)).filter(|path| !path.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_paths() {
        assert_eq!(Near::parse(b"auto").unwrap().directory(), Some(&b"/run/shunt"[..]));
        assert_eq!(Near::parse(b"off").unwrap().directory(), None);
        assert_eq!(Near::parse(b"/srv/a").unwrap().directory(), Some(&b"/srv/a"[..]));
        let longest = [&b"/"[..], &[b'x'; NEAR_LONGEST - 1]].concat();
        assert_eq!(Near::parse(&longest).unwrap().directory(), Some(&longest[..]));
        assert_eq!(Near::parse(&[&longest[..], b"x"].concat()), Err(Problem::OutOfRange));
        for text in ["", "/", "on", "run/shunt", "./x", "/a\0b"] {
            assert_eq!(Near::parse(text.as_bytes()), Err(Problem::Malformed), "{text:?}");
        }
    }
}

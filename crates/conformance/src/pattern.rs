//! Names with `*` for any characters, as in the suites' lists of cases.

/// Whether `name` is `pattern`, in which each `*` stands for any characters, or none.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or("");
    for piece in pieces {
        let Some(at) = name.find(piece) else { return false };
        name = &name[at + piece.len()..];
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stand_for_anything() {
        assert!(matches("socket-*", "socket-2.1"));
        assert!(matches("*VSOCK*", "test.test_socket.BasicVSOCKTest.testFamily"));
        assert!(matches("a*b*c", "abc"));
        assert!(!matches("a*b*c", "acb"));
        assert!(!matches("socket-2", "socket-2.1"));
        assert!(!matches("ab*ba", "aba"));
    }
}

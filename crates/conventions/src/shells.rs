//! How system(3) and popen(3) call the shell.

/// Since 2.38 the C library's shells take a command that begins with a minus sign for a command: `--` stands before it. `version` is as
/// gnu_get_libc_version(3) tells it.
pub fn marks_end_of_options(version: &[u8]) -> bool {
    let minor = version.strip_prefix(b"2.").unwrap_or(b"99");
    minor.iter().take_while(|byte| byte.is_ascii_digit()).fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0')) >= 38
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_came_with_version_2_38() {
        assert!(!marks_end_of_options(b"2.37"));
        assert!(marks_end_of_options(b"2.38"));
        assert!(marks_end_of_options(b"2.41-12.fc42"));
    }

    #[test]
    fn a_minor_version_of_one_digit_is_an_old_one() {
        assert!(!marks_end_of_options(b"2.4"));
    }

    #[test]
    fn words_behind_the_minor_version_do_not_count() {
        assert!(!marks_end_of_options(b"2.36.9000"));
    }

    #[test]
    fn a_later_major_version_has_the_marker() {
        assert!(marks_end_of_options(b"3.0"));
    }
}

//! Users as the kernel tells them to this process.

use std::sync::OnceLock;

/// Whether a number is one user's. In a user namespace all users that it does not map have the same number: equality proves nothing then.
pub(crate) fn is_known(uid: u32) -> bool {
    static UNMAPPED: OnceLock<Option<u32>> = OnceLock::new();
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    *UNMAPPED.get_or_init(|| unmapped(&read("/proc/sys/kernel/overflowuid"), &read("/proc/self/uid_map"))) != Some(uid)
}

/// The number of all users that a map does not have, where it is not a user's own.
fn unmapped(overflow: &str, map: &str) -> Option<u32> {
    let overflow = overflow.trim().parse().unwrap_or(65534);
    let mapped = map.lines().any(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (first, count) = (words.next().unwrap_or(0), words.nth(1).unwrap_or(0));
        (first..first.saturating_add(count)).contains(&u64::from(overflow))
    });
    (!mapped).then_some(overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_many_users_is_nobodys() {
        assert_eq!(unmapped("65534\n", "         0          0 4294967295\n"), None);
        assert_eq!(unmapped("65534\n", "         0       1000          1\n"), Some(65534));
        assert_eq!(unmapped("65534\n", "0 1000 1\n1 100000 65536\n"), None);
        assert_eq!(unmapped("", ""), Some(65534));
        assert_eq!(unmapped("99\n", "0 0 99\n"), Some(99));
    }
}

//! Which host has which ranks.

use crate::layout::RANKS;

/// A host, as the command that reaches it knows it, and its ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name or address.
    pub name: String,
    /// Its first rank.
    pub first: usize,
    /// How many it has.
    pub ranks: usize,
}

/// Reads `a:4,b:2`, or `a,b` for equal shares of `ranks` (the first hosts have one more, if need be).
///
/// # Errors
/// A sentence, if the numbers are none, or if they do not add up to `ranks`.
pub fn hosts(text: &str, ranks: Option<usize>) -> Result<Vec<Host>, String> {
    let mut hosts = Vec::new();
    let entries: Vec<&str> = text.split(',').map(str::trim).collect();
    let counted = entries.iter().filter(|entry| entry.contains(':')).count();
    if counted != 0 && counted != entries.len() {
        return Err(format!("--hosts {text}: give a number of ranks for each host or for none, as a:4,b:4 or a,b"));
    }
    let mut first = 0;
    for (number, entry) in entries.iter().enumerate() {
        let (name, count) = match entry.rsplit_once(':') {
            Some((name, count)) => (name, count.parse().ok()),
            None => {
                let all = ranks.unwrap_or(entries.len());
                (*entry, Some(all / entries.len() + usize::from(number < all % entries.len())))
            }
        };
        // A host that looks like an option would be one to the command that reaches it.
        if name.is_empty() || name.starts_with('-') {
            return Err(format!("--hosts {text}: {name:?} is no host's name"));
        }
        let count = count.filter(|count| (1..=RANKS).contains(count));
        let count = count.ok_or_else(|| format!("--hosts {text}: {name} has no rank; a host has 1 to {RANKS}, as {name}:4"))?;
        if hosts.iter().any(|host: &Host| host.name == name) {
            return Err(format!("--hosts {text}: {name} is there twice"));
        }
        hosts.push(Host { name: name.to_string(), first, ranks: count });
        first += count;
    }
    match ranks {
        _ if first > RANKS => Err(format!("--hosts {text}: {first} ranks; a job has at most {RANKS}")),
        Some(ranks) if ranks != first => Err(format!("--hosts {text} has {first} ranks, and -n says {ranks}")),
        _ => Ok(hosts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_shares() {
        let shares = |text, ranks| {
            hosts(text, ranks).map(|hosts| hosts.into_iter().map(|host| (host.name, host.first, host.ranks)).collect::<Vec<_>>())
        };
        let of = |list: &[(&str, usize, usize)]| {
            Ok(list.iter().map(|(name, first, count)| (name.to_string(), *first, *count)).collect())
        };
        assert_eq!(shares("a:4,b:2", None), of(&[("a", 0, 4), ("b", 4, 2)]));
        assert_eq!(shares("a:4,b:2", Some(6)), of(&[("a", 0, 4), ("b", 4, 2)]));
        assert_eq!(shares("a, b,c", Some(7)), of(&[("a", 0, 3), ("b", 3, 2), ("c", 5, 2)]));
        assert_eq!(shares("a,b", None), of(&[("a", 0, 1), ("b", 1, 1)]));
        for (text, ranks) in [
            ("a:4,b:2", Some(7)),
            ("a:4,b", None),
            ("a:0,b:1", None),
            ("a:x", None),
            ("", None),
            ("-oProxyCommand=x:1", None),
            ("a,a", None),
            ("a,b,c", Some(2)),
            ("a:1024,b:1", None),
        ] {
            assert!(shares(text, ranks).is_err(), "{text}");
        }
    }
}

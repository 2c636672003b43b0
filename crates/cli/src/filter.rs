//! What `shunt ss` shows: an expression as ss(8) takes it, over both ends of a connection.
//!
//! ```text
//! expression   term [and|or] term ...    and binds closer; two terms beside each other are joined by and
//! term         not term | ( expression ) | KEY [=|==|!=] VALUE
//! ```

use std::net::IpAddr;

use crate::failure::Failure;

/// One end, as far as expressions speak of it.
pub struct End<'a> {
    pub address: &'a str,
    pub port: u16,
    pub program: &'a str,
    /// The one that is shown, and all that have a descriptor.
    pub pid: Option<u32>,
    pub pids: &'a [u32],
}

/// A row of the table.
pub struct Row<'a> {
    pub state: &'a str,
    pub carrier: &'a str,
    /// The short name of the reason why that carries it.
    pub reason: &'a str,
    /// The end that connected, and the one that accepted.
    pub ends: [End<'a>; 2],
}

/// Which end a term speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Client,
    Server,
    Either,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Term {
    State(String),
    Carrier(String),
    Reason(String),
    Program(String),
    Process(u32),
    /// An address, a port, or both.
    Place(Side, Option<IpAddr>, Option<u16>),
}

/// An expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Filter {
    /// What holds of all rows.
    All,
    Not(Box<Filter>),
    And(Box<Filter>, Box<Filter>),
    Or(Box<Filter>, Box<Filter>),
    #[allow(private_interfaces, reason = "made by `parse` alone")]
    Is(Term),
}

/// Where a term begins, for mistakes and for `--help`.
pub const KEYS: &str = "state, carrier, reason, program, pid, client (src), server (dst), sport, dport, port";

const KEY_WORDS: [&str; 12] =
    ["state", "carrier", "reason", "program", "pid", "client", "src", "server", "dst", "sport", "dport", "port"];

/// Whether an expression may begin with this word.
pub fn begins_with(word: &str) -> bool {
    // A whole expression may be one argument.
    let word = word.split_whitespace().next().unwrap_or_default();
    let bare = word.trim_start_matches(['(', '!']);
    (bare.is_empty() && !word.is_empty()) || bare == "not" || KEY_WORDS.contains(&bare.split(['=', '!']).next().unwrap_or(bare))
}

/// The words of an expression: each may be a level of a recursion.
const WORDS: usize = 500;

impl Filter {
    /// From the words of a command line.
    ///
    /// # Errors
    /// A usage failure that names the word.
    pub fn parse(words: &[String]) -> Result<Filter, Failure> {
        let split = split(&words.join(" "));
        let mut left: Vec<&str> = split.iter().map(String::as_str).rev().collect();
        if left.is_empty() {
            return Ok(Filter::All);
        }
        if left.len() > WORDS {
            return Err(wrong(format_args!("it has more than {WORDS} words")));
        }
        let filter = either(&mut left)?;
        match left.pop() {
            None => Ok(filter),
            Some(word) => Err(wrong(format_args!("\"{}\" has no partner", word.escape_debug()))),
        }
    }

    /// Whether the row is shown.
    pub fn holds(&self, row: &Row<'_>) -> bool {
        match self {
            Filter::All => true,
            Filter::Not(filter) => !filter.holds(row),
            Filter::And(one, other) => one.holds(row) && other.holds(row),
            Filter::Or(one, other) => one.holds(row) || other.holds(row),
            Filter::Is(term) => term.holds(row),
        }
    }
}

/// Whether a row may have this state: one of memory, of a way to another host, of the kernel's TCP, or the reason why a connection was broken off.
fn is_state(word: &str) -> bool {
    const STATES: [&str; 13] = [
        "established",
        "waiting-for-accept",
        "client-finished",
        "server-finished",
        "closing",
        "reset",
        "peer-gone",
        "provisional",
        "beginning",
        "claimed",
        "fast",
        "resuming",
        "tcp",
    ];
    let of_kernel = (0..=u8::MAX).any(|number| crate::inspect::kernel_tcp::state(number) == word);
    STATES.contains(&word) || of_kernel || shunt_segment::reason::Reason::ALL.iter().any(|reason| reason.word() == word)
}

/// All reasons that begin with it.
const GIVEN_BACK: &str = "given-back";

/// Words; parentheses may touch them, and what stands in quotes is a part of one.
fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for character in text.chars() {
        match character {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '(' | ')' if !quoted => {
                words.extend(word.take());
                words.push(character.to_string());
            }
            _ if character.is_whitespace() && !quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// Whether a process that shows the name `shown` runs `program`: the kernel keeps 15 bytes of a name.
fn is_named(shown: &str, program: &str) -> bool {
    shown == program || shown.len() == 15 && program.starts_with(shown)
}

impl Term {
    fn holds(&self, row: &Row<'_>) -> bool {
        match self {
            Term::State(state) => row.state == state,
            Term::Carrier(carrier) => row.carrier == carrier,
            Term::Reason(reason) => row.reason == reason || (reason == GIVEN_BACK && row.reason.starts_with(GIVEN_BACK)),
            Term::Program(program) => row.ends.iter().any(|end| is_named(end.program, program)),
            Term::Process(pid) => row.ends.iter().any(|end| end.pid == Some(*pid) || end.pids.contains(pid)),
            Term::Place(side, address, port) => row.ends.iter().zip([Side::Client, Side::Server]).any(|(end, of)| {
                let is_there = |at: &IpAddr| {
                    // A link-local address has its interface behind it, which expressions leave out.
                    let own = end.address.split('%').next().unwrap_or_default();
                    own.parse().is_ok_and(|own: IpAddr| own.to_canonical() == at.to_canonical())
                };
                (*side == Side::Either || *side == of)
                    && address.as_ref().is_none_or(is_there)
                    && port.is_none_or(|port| end.port == port)
            }),
        }
    }
}

fn wrong(what: std::fmt::Arguments<'_>) -> Failure {
    Failure::of_usage(format_args!(
        "filter: {what}; a term begins with one of {KEYS}; example: dport = :6379 and not state closing"
    ))
}

/// Terms joined by `or`; the words that are left lie in reverse.
fn either(left: &mut Vec<&str>) -> Result<Filter, Failure> {
    let mut filter = both(left)?;
    while matches!(left.last(), Some(&("or" | "||"))) {
        left.pop();
        filter = Filter::Or(Box::new(filter), Box::new(both(left)?));
    }
    Ok(filter)
}

fn both(left: &mut Vec<&str>) -> Result<Filter, Failure> {
    let mut filter = term(left)?;
    loop {
        match left.last() {
            None | Some(&("or" | "||" | ")")) => return Ok(filter),
            Some(&("and" | "&&")) => {
                left.pop();
            }
            Some(_) => (),
        }
        filter = Filter::And(Box::new(filter), Box::new(term(left)?));
    }
}

fn term(left: &mut Vec<&str>) -> Result<Filter, Failure> {
    let Some(word) = left.pop() else { return Err(wrong(format_args!("a term is missing at the end"))) };
    match word {
        "not" | "!" => return Ok(Filter::Not(Box::new(term(left)?))),
        "(" => {
            let filter = either(left)?;
            return if left.pop() == Some(")") { Ok(filter) } else { Err(wrong(format_args!("a \")\" is missing"))) };
        }
        _ => (),
    }
    // As one word, too: sport=:80.
    let (key, mut rest) = match word.find(['=', '!']) {
        Some(at) => (&word[..at], vec![&word[at..]]),
        None => (word, Vec::new()),
    };
    if !KEY_WORDS.contains(&key) {
        return Err(wrong(format_args!("\"{}\" is no term", key.escape_debug())));
    }
    let mut negated = false;
    let value = loop {
        let Some(word) = rest.pop().or_else(|| left.pop()) else {
            return Err(wrong(format_args!("{key}: its value is missing")));
        };
        let bare = word
            .strip_prefix("!=")
            .inspect(|_| negated = true)
            .or_else(|| word.strip_prefix("=="))
            .or_else(|| word.strip_prefix('='));
        match bare.unwrap_or(word) {
            "" => continue,
            value => break value,
        }
    };
    let found = Filter::Is(told(key, value)?);
    Ok(if negated { Filter::Not(Box::new(found)) } else { found })
}

fn told(key: &str, value: &str) -> Result<Term, Failure> {
    let number = |text: &str| text.parse().map_err(|_| wrong(format_args!("{key}: \"{}\" is no number", value.escape_debug())));
    let port = |text: &str| -> Result<u16, Failure> {
        text.parse().map_err(|_| wrong(format_args!("{key}: \"{}\" has no port; example: :6379", value.escape_debug())))
    };
    let side = match key {
        "client" | "src" | "sport" => Side::Client,
        "server" | "dst" | "dport" => Side::Server,
        _ => Side::Either,
    };
    Ok(match key {
        "state" if !is_state(value) => {
            return Err(wrong(format_args!("state: \"{}\" is none; example: established", value.escape_debug())))
        }
        "state" => Term::State(value.to_owned()),
        "carrier" => Term::Carrier(value.to_owned()),
        "reason" => Term::Reason(value.to_owned()),
        "program" => Term::Program(value.to_owned()),
        "pid" => Term::Process(number(value)?),
        "sport" | "dport" | "port" => Term::Place(side, None, Some(port(value.trim_start_matches(':'))?)),
        _ => {
            let (address, at) = match value.rsplit_once(':') {
                // Of an address of IPv6 without brackets no part is a port.
                Some((address, _)) if address.contains(':') && !address.ends_with(']') => (value, None),
                Some((address, at)) => (address, Some(port(at)?)),
                None => (value, None),
            };
            let bare = address.trim_start_matches('[').trim_end_matches(']');
            let bare = bare.split('%').next().unwrap_or_default();
            let address = match bare {
                "" | "*" => None,
                _ => Some(bare.parse().map_err(|_| {
                    wrong(format_args!(
                        "{key}: \"{}\" is no address; example: 127.0.0.1:6379 or [::1]:6379",
                        value.escape_debug()
                    ))
                })?),
            };
            Term::Place(side, address, at)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(state: &'static str, server: u16) -> Row<'static> {
        let end = |address, port, program, pids| End { address, port, program, pid: None, pids };
        Row {
            state,
            carrier: "shm",
            reason: "accelerated",
            ends: [end("127.0.0.1", 40_000, "redis-cli", &[7, 8]), end("::ffff:127.0.0.1", server, "redis-server", &[9])],
        }
    }

    fn parsed(text: &str) -> Result<Filter, Failure> {
        Filter::parse(&[text.to_owned()])
    }

    #[test]
    fn terms_speak_of_the_end_they_name() {
        let row = row("established", 6379);
        for text in [
            "",
            "state established",
            "dport = :6379",
            "dport=6379",
            "sport != 6379",
            "port :40000",
            "server 127.0.0.1:6379",
            "dst [::ffff:127.0.0.1]:6379",
            "dst *:6379",
            "src 127.0.0.1",
            "program redis-cli",
            "pid 9",
            "carrier shm",
            "reason accelerated",
            "not state closing",
            "dport 1 or sport 40000",
            "sport 1 and dport 1 or state established",
            "(sport 1 or state established) dport 6379",
            "! ( sport 1 )",
        ] {
            assert!(parsed(text).unwrap().holds(&row), "{text}");
        }
        for text in ["sport 6379", "src [::1]", "pid 1", "not (dport 6379)", "state established and sport 1", "program redis"] {
            assert!(!parsed(text).unwrap().holds(&row), "{text}");
        }
    }

    #[test]
    fn names_may_have_spaces_and_addresses_interfaces() {
        assert_eq!(split("program = \"Web (x)\" (a)b"), ["program", "=", "Web (x)", "(", "a", ")", "b"]);
        let mut row = row("established", 6379);
        row.ends[0].program = "Web Content";
        row.ends[0].address = "fe80::1%2";
        for text in ["program \"Web Content\"", "program=\"Web Content\"", "src [fe80::1%2]:40000", "src fe80::1"] {
            assert!(parsed(text).unwrap().holds(&row), "{text}");
        }
    }

    #[test]
    fn words_that_begin_an_expression_are_known() {
        for word in ["dport", "dport=:80", "not", "!", "(", "(sport", "!(state", "pid!=3", "dport = :80", "( sport 1 )"] {
            assert!(begins_with(word), "{word}");
        }
        for word in ["4711", "redis-server", "ports", "-1", "nothing", ""] {
            assert!(!begins_with(word), "{word}");
        }
    }

    #[test]
    fn mistakes_are_told_with_the_word() {
        for (text, told) in [
            ("colour red", "\"colour\" is no term"),
            ("dport", "its value is missing"),
            ("dport = x", "\"x\" has no port"),
            ("pid x", "\"x\" is no number"),
            ("state estab", "state: \"estab\" is none"),
            ("src elsewhere", "\"elsewhere\" is no address"),
            ("( dport 1", "a \")\" is missing"),
            ("dport 1 )", "\")\" has no partner"),
            ("dport 1 or", "a term is missing"),
            ("not", "a term is missing"),
            (&"not ".repeat(50_000), "more than 500 words"),
            (&"(".repeat(50_000), "more than 500 words"),
        ] {
            let failure = parsed(text).unwrap_err();
            assert!(failure.message.contains(told) && failure.status == 2, "{text}: {failure:?}");
        }
    }
}

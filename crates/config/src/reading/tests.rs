use super::*;
use crate::options::{Log, Raw};
use crate::setters::*;
use crate::{Ports, Problem};

#[test]
fn the_table_and_the_constant_have_the_same_defaults() {
    let mut options = Options {
        accelerate: false,
        ring: 0,
        spin_ns: 1,
        spin_on_kernel: false,
        udp: crate::options::Udp::Eager,
        unix: crate::options::Unix::On,
        ports: Ports::parse(b"1").unwrap(),
        hosts: crate::Hosts::None,
        inet: Ports::ALL,
        inet_unasked: true,
        inet_seed: 0,
        near: crate::Near::AUTO,
        bulk: 0,
        log: Log::All,
        io_uring_allowed: true,
        raw: Raw::Trap,
    };
    for entry in &TABLE {
        options.set(entry, Source::Flag, entry.default.as_bytes()).unwrap();
    }
    assert_eq!(options, Options::default_const());
}

#[test]
fn every_example_is_accepted_and_every_row_is_complete() {
    for entry in &TABLE {
        Options::default().set(entry, Source::Flag, entry.example.as_bytes()).unwrap();
        assert_eq!(entry.flag, format!("--{}", entry.name));
        assert_eq!(entry.variable, format!("SHUNT_{}", entry.name.to_uppercase().replace('-', "_")));
        assert!(!entry.help.is_empty() && !entry.range.is_empty() && !entry.form.is_empty());
    }
}

#[test]
fn every_library_option_changes_something() {
    for entry in TABLE.iter().filter(|entry| entry.reader == Reader::Library) {
        let mut options = Options::default();
        options.set(entry, Source::Flag, entry.example.as_bytes()).unwrap();
        assert_ne!(options, Options::default(), "{}", entry.name);
    }
}

#[test]
fn the_ends_of_the_ranges_are_allowed_and_their_neighbours_are_not() {
    let ring = |value: &str| {
        let mut options = Options::default();
        set_ring(&mut options, value.as_bytes()).map(|()| options.ring)
    };
    assert_eq!(ring("4096"), Ok(4096));
    assert_eq!(ring("4097"), Ok(8192));
    assert_eq!(ring("4M"), Ok(4 << 20));
    assert_eq!(ring("4095"), Err(Problem::OutOfRange));
    assert_eq!(ring("4194305"), Err(Problem::OutOfRange));

    let bulk = |value: &str| {
        let mut options = Options::default();
        set_bulk(&mut options, value.as_bytes()).map(|()| options.bulk)
    };
    assert_eq!((bulk("0"), bulk("64"), bulk("1G")), (Ok(0), Ok(64), Ok(1 << 30)));
    assert_eq!((bulk("63"), bulk("1073741825")), (Err(Problem::OutOfRange), Err(Problem::OutOfRange)));

    let spin = |value: &str| {
        let mut options = Options::default();
        set_spin(&mut options, value.as_bytes()).map(|()| options.spin_ns)
    };
    assert_eq!(spin("0"), Ok(0));
    assert_eq!(spin("10ms"), Ok(10_000_000));
    assert_eq!(spin("10000001ns"), Err(Problem::OutOfRange));
}

#[test]
fn empty_variables_count_as_unset_and_empty_flags_do_not() {
    assert_eq!(Options::from_environment(|_| Some(b"")).unwrap(), Options::default());
    for entry in &TABLE {
        assert!(Options::default().set(entry, Source::Flag, b"").is_err(), "{}", entry.name);
    }
}

#[test]
fn the_first_wrong_variable_is_named() {
    let error = Options::from_environment(|_| Some(b"?")).unwrap_err();
    assert_eq!((error.entry.name, error.source, error.value), ("accelerate", Source::Variable, &b"?"[..]));
}

/// xorshift64*: enough randomness for tests, and the same on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// Words and bytes that come close to valid values, so that the parsers' inner branches are reached.
const PIECES: [&[u8]; 28] = [
    b"0",
    b"1",
    b"9",
    b"10",
    b"4096",
    b"65535",
    b"65536",
    b"99999999999999999999",
    b"K",
    b"M",
    b"G",
    b"iB",
    b"us",
    b"ms",
    b"ns",
    b"s",
    b",",
    b"-",
    b"all",
    b"on",
    b"off",
    b"fallbacks",
    b"deny",
    b" ",
    b"\0",
    b"\xff",
    b"\xc2\xb5s",
    b"+",
];

#[test]
fn no_string_panics_and_whatever_is_accepted_is_within_the_ranges() {
    let mut random = Random(0x5eed);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut value = Vec::new();
        for _ in 0..random.below(5) {
            value.extend_from_slice(PIECES[random.below(PIECES.len())]);
        }
        let entry = &TABLE[random.below(TABLE.len())];
        let mut options = Options::default();
        match options.set(entry, Source::Variable, &value) {
            Ok(()) => {
                accepted += 1;
                assert!(options.ring.is_power_of_two() && (4 << 10..=4 << 20).contains(&options.ring));
                assert!(options.spin_ns <= 10_000_000);
                let ranges = options.ports.ranges();
                assert!((1..=16).contains(&ranges.len()) && ranges.iter().all(|range| range.first <= range.last));
            }
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(text.starts_with(entry.variable) && text.ends_with(entry.example), "{text}");
                assert!(!text.chars().any(char::is_control), "{text:?}");
                assert_eq!(options, Options::default(), "a refused value changed something: {text}");
            }
        }
    }
    assert!(accepted > 1_000 && refused > 1_000, "the generator is lopsided: {accepted} accepted, {refused} refused");
}

#[test]
fn sizes_and_ports_read_back_as_they_were_written() {
    let mut random = Random(0xfeed);
    for _ in 0..20_000 {
        let bytes = 4096 + random.below((1 << 20) - 4096 + 1);
        let mut options = Options::default();
        set_ring(&mut options, bytes.to_string().as_bytes()).unwrap();
        assert!(options.ring as usize >= bytes && (options.ring as usize) < bytes * 2);

        let first = 1 + random.below(65535);
        let last = first + random.below(65536 - first);
        set_ports(&mut options, format!("{first}-{last}").as_bytes()).unwrap();
        let port = random.below(65536);
        assert_eq!(options.ports.contains(port as u16), (first..=last).contains(&port));
    }
}

//! Profiles: values of several options that serve one purpose, under a name.

/// A profile.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// What it is for, and what it costs: a sentence.
    pub purpose: &'static str,
    /// Options by name, and their values.
    pub values: &'static [(&'static str, &'static str)],
}

/// The profiles that every installation has.
pub const PROFILES: [Profile; 3] = [
    Profile {
        name: "latency",
        purpose: "The shortest round trips, for programs that have processors to themselves: waiting threads spin ten times longer.",
        values: &[("spin", "500us"), ("spin-on-kernel", "on"), ("udp", "on"), ("unix", "on")],
    },
    Profile {
        name: "throughput",
        purpose: "The most bytes and requests a processor: short spins, the largest rings, and long streams to other hosts go by TCP early.",
        values: &[("spin", "20us"), ("spin-on-kernel", "off"), ("ring", "4M"), ("bulk", "1M")],
    },
    Profile {
        name: "frugal",
        purpose: "The least processor time and memory, for programs that wait most of their time: nothing spins, rings are small.",
        values: &[("spin", "0"), ("spin-on-kernel", "off"), ("ring", "64K")],
    },
];

impl Profile {
    /// The one of this name.
    pub fn by_name(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Options, Source};

    #[test]
    fn every_value_is_one_that_its_option_takes() {
        for profile in &PROFILES {
            let mut options = Options::default();
            for (name, value) in profile.values {
                let entry = Entry::by_name(name).unwrap();
                options.set(entry, Source::File, value.as_bytes()).unwrap();
            }
            assert_ne!(options, Options::default(), "{}", profile.name);
        }
    }
}

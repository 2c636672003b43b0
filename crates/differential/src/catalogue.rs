//! The list of scenarios, as the binary itself tells it.

use crate::arrangement::Role;
use crate::programs;
use std::process::Command;

const SHAPE_CLIENT: u32 = 1;
const SHAPE_SERVER: u32 = 2;
const SHAPE_PROCESS: u32 = 4;
const SHAPE_KERNEL: u32 = 8;
const SHAPE_RAW: u32 = 16;
const SHAPE_TRAPPED: u32 = 32;

/// One scenario, as `laboratory.h` declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The part of the API it is about; a section of the matrix.
    pub family: String,
    /// Unique among all scenarios.
    pub name: String,
    /// The source file, such as `closing.c`.
    pub file: String,
    /// What it shows, in one sentence.
    pub summary: String,
    shape: u32,
}

impl Scenario {
    /// One process makes both ends.
    pub fn is_solo(&self) -> bool {
        self.shape & (SHAPE_CLIENT | SHAPE_SERVER) == 0
    }

    /// Far must not be a thread: it exits or is killed.
    pub fn needs_two_processes(&self) -> bool {
        self.shape & SHAPE_PROCESS != 0
    }

    /// Whether it makes connections that shunt ought to accelerate.
    pub fn expects_acceleration(&self) -> bool {
        self.shape & SHAPE_KERNEL == 0
    }

    /// Whether it makes calls that the library sees under `--raw trap` alone.
    pub fn may_be_trapped(&self) -> bool {
        self.shape & (SHAPE_RAW | SHAPE_TRAPPED) != 0
    }

    /// The same, to be compared under that option whether it makes such calls or not.
    pub fn trapped(mut self) -> Scenario {
        self.shape |= SHAPE_RAW;
        self
    }

    /// Whether it says nothing without that.
    pub fn must_be_trapped(&self) -> bool {
        self.shape & SHAPE_TRAPPED != 0
    }

    /// The roles near takes in turn.
    pub fn roles(&self) -> Vec<Role> {
        if self.is_solo() {
            return vec![Role::Solo];
        }
        let mut roles = Vec::new();
        if self.shape & SHAPE_CLIENT != 0 {
            roles.push(Role::Client);
        }
        if self.shape & SHAPE_SERVER != 0 {
            roles.push(Role::Server);
        }
        roles
    }

    fn parse(line: &str) -> Option<Scenario> {
        let mut fields = line.splitn(5, '\t');
        Some(Scenario {
            family: fields.next()?.into(),
            name: fields.next()?.into(),
            shape: fields.next()?.parse().ok()?,
            file: fields.next()?.into(),
            summary: fields.next()?.into(),
        })
    }
}

/// All scenarios, family by family.
///
/// # Panics
/// If the binary cannot be run, tells something else than a list, or two scenarios share a name.
pub fn all() -> Vec<Scenario> {
    let output = Command::new(programs::scenarios(false)).arg("--list").output().expect("the scenarios run");
    let text = String::from_utf8(output.stdout).expect("the list is text");
    let mut scenarios: Vec<Scenario> =
        text.lines().map(|line| Scenario::parse(line).expect("the list has five columns")).collect();
    // A family may have several source files.
    scenarios.sort_by(|left, right| left.family.cmp(&right.family));
    let mut names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        panic!("two scenarios are called {}", twice[0]);
    }
    scenarios
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duet_has_two_roles_and_a_solo_one() {
        let duet = Scenario::parse("data\tsizes\t3\tdata.c\tone send").expect("parses");
        assert_eq!(duet.roles(), [Role::Client, Role::Server]);
        let solo = Scenario::parse("data\tsizes\t0\tdata.c\tone send").expect("parses");
        assert_eq!(solo.roles(), [Role::Solo]);
        assert!(solo.is_solo() && solo.expects_acceleration());
    }

    #[test]
    fn a_short_line_is_no_scenario() {
        assert_eq!(Scenario::parse("data\tsizes\t3\tdata.c"), None);
        assert_eq!(Scenario::parse("data\tsizes\tx\ty\tz"), None);
    }
}

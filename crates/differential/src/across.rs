//! Which scenarios run between two hosts, and in which arrangements: `across.toml`.
//!
//! Every duet does: its two processes need nothing in common but the harness, which gives them addresses. Those that cannot are
//! named with the reason, and a short list is what `make test` runs; `make soak` runs all, and `matrix --across` writes
//! docs/reference/SEMANTICS-HOSTS.md ([`crate::page`]).

use crate::arrangement::Arrangement;
use crate::catalogue::Scenario;
use serde::Deserialize;
use std::path::PathBuf;

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Across {
    /// The arrangements in which the tests compare the short list, by name.
    arrangements: Vec<String>,
    /// Those in which everything is compared.
    all: Vec<String>,
    /// Scenarios that differ between hosts, and are known to.
    #[serde(default, rename = "differ")]
    differences: Vec<Difference>,
    /// Scenarios that accept later than a client in another network namespace waits: equal, and the kernel's.
    #[serde(default, rename = "late")]
    late: Vec<Difference>,
    /// The scenarios of the short list.
    quick: Vec<String>,
    /// Those that do not run between hosts.
    #[serde(default, rename = "except")]
    exceptions: Vec<Exception>,
}

/// Scenarios that may differ where streams are accelerated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// Their names.
    pub scenarios: Vec<String>,
    /// The arrangements, by name; without, those in which both hosts run shunt.
    #[serde(default)]
    arrangements: Vec<String>,
    /// What differs, and why.
    pub reason: String,
}

impl Difference {
    /// Whether it is about this one.
    pub fn holds_in(&self, arrangement: Arrangement) -> bool {
        match self.arrangements.as_slice() {
            [] => arrangement.accelerates() && arrangement.takes().is_none(),
            names => names.iter().any(|name| name == arrangement.name()),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    scenarios: Vec<String>,
    reason: String,
}

impl Across {
    /// Reads `across.toml`.
    ///
    /// # Errors
    /// A sentence with the place in the file.
    pub fn load() -> Result<Across, String> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("across.toml");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let across: Across = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        match across
            .arrangements
            .iter()
            .chain(&across.all)
            .find(|name| !Arrangement::named(name).is_some_and(Arrangement::has_two_hosts))
        {
            Some(name) => Err(format!("{}: {name} is no arrangement of two hosts", path.display())),
            None => Ok(across),
        }
    }

    /// The arrangements of the short list.
    pub fn arrangements(&self) -> Vec<Arrangement> {
        self.arrangements.iter().filter_map(|name| Arrangement::named(name)).collect()
    }

    /// Those of which docs/reference/SEMANTICS-HOSTS.md tells.
    pub fn told(&self) -> Vec<Arrangement> {
        self.all().into_iter().filter(|arrangement| arrangement.accelerates()).collect()
    }

    /// Those of all scenarios.
    pub fn all(&self) -> Vec<Arrangement> {
        self.all.iter().filter_map(|name| Arrangement::named(name)).collect()
    }

    /// Why the scenario may differ in this arrangement.
    pub fn difference(&self, scenario: &str, arrangement: Arrangement) -> Option<&Difference> {
        let named = |difference: &&Difference| difference.scenarios.iter().any(|name| name == scenario);
        self.differences.iter().filter(named).find(|difference| difference.holds_in(arrangement))
    }

    /// Whether the scenario's connections may be the kernel's.
    pub fn is_late(&self, scenario: &str, arrangement: Arrangement) -> bool {
        let named = |late: &&Difference| late.scenarios.iter().any(|name| name == scenario);
        self.late.iter().filter(named).any(|late| match late.arrangements.as_slice() {
            [] => arrangement == Arrangement::HostsNear,
            _ => late.holds_in(arrangement),
        })
    }

    /// What may differ.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
    }

    /// Those that do not run between hosts, with the reason.
    pub fn exceptions(&self) -> impl Iterator<Item = (&[String], &str)> {
        self.exceptions.iter().map(|exception| (exception.scenarios.as_slice(), exception.reason.as_str()))
    }

    /// Those of `scenarios` that run between hosts.
    pub fn among(&self, scenarios: Vec<Scenario>) -> Vec<Scenario> {
        let excepted = |name: &String| self.exceptions.iter().any(|exception| exception.scenarios.contains(name));
        scenarios.into_iter().filter(|scenario| !scenario.is_solo() && !excepted(&scenario.name)).collect()
    }

    /// Those of `scenarios` that are on the short list.
    pub fn quick(&self, scenarios: Vec<Scenario>) -> Vec<Scenario> {
        self.among(scenarios).into_iter().filter(|scenario| self.quick.contains(&scenario.name)).collect()
    }

    /// Names in the file that no duet has.
    pub fn strangers(&self, scenarios: &[Scenario]) -> Vec<String> {
        let named = self.quick.iter().chain(self.exceptions.iter().flat_map(|exception| &exception.scenarios));
        let named = named.chain(self.differences.iter().flat_map(|difference| &difference.scenarios));
        let named = named.chain(self.late.iter().flat_map(|late| &late.scenarios));
        let known = |name: &str| scenarios.iter().any(|scenario| scenario.name == name && !scenario.is_solo());
        named.filter(|name| !known(name)).cloned().collect()
    }
}

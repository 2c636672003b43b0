//! Which scenarios run between two hosts, and in which arrangements: `across.toml`.
//!
//! Every duet does: its two processes need nothing in common but the harness, which gives them addresses. Those that cannot are named with
//! the reason, and a short list is what `make test` runs; `make soak` runs all, and `matrix --across` writes docs/SEMANTICS-HOSTS.md.

use crate::arrangement::Arrangement;
use crate::catalogue::Scenario;
use crate::judge::Verdict;
use crate::matrix::Verdicts;
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
    /// What differs, and why.
    pub reason: String,
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

    /// Those of all scenarios.
    pub fn all(&self) -> Vec<Arrangement> {
        self.all.iter().filter_map(|name| Arrangement::named(name)).collect()
    }

    /// Why the scenario may differ where streams are accelerated.
    pub fn difference(&self, scenario: &str) -> Option<&Difference> {
        self.differences.iter().find(|difference| difference.scenarios.iter().any(|name| name == scenario))
    }

    /// What may differ.
    pub fn differences(&self) -> &[Difference] {
        &self.differences
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
        let known = |name: &str| scenarios.iter().any(|scenario| scenario.name == name && !scenario.is_solo());
        named.filter(|name| !known(name)).cloned().collect()
    }
}

impl Across {
    /// docs/SEMANTICS-HOSTS.md.
    pub fn render(&self, scenarios: &[Scenario], arrangements: &[Arrangement], verdicts: &Verdicts) -> String {
        let mut text = String::from(
            "# Semantics between hosts: what was compared\n\nWritten by `shunt-differential matrix --across`; do not edit. Each scenario with two \
             processes ran with these on two hosts (network namespaces joined by a veth), near as client and as server, on the kernel and under shunt; \
             the transcripts are equal but where it is said. A difference that does not come again in three runs is not counted. A family's scenarios are \
             listed by `shunt-differential list`.\n\n| file |",
        );
        arrangements.iter().for_each(|arrangement| text.push_str(&format!(" {} |", arrangement.name())));
        text.push_str("\n|---|");
        arrangements.iter().for_each(|_| text.push_str("---:|"));
        text.push('\n');
        let mut files: Vec<&str> = scenarios.iter().map(|scenario| scenario.file.as_str()).collect();
        files.dedup();
        let equal = |wanted: &dyn Fn(&Scenario) -> bool, arrangement: Arrangement| {
            let mut counts = (0, 0);
            for scenario in scenarios.iter().filter(|scenario| wanted(scenario)) {
                for role in scenario.roles() {
                    if let Some(verdict) = verdicts.get(&(scenario.name.clone(), role, arrangement)) {
                        counts.0 += usize::from(verdict.passes());
                        counts.1 += 1;
                    }
                }
            }
            format!(" {} of {} |", counts.0, counts.1)
        };
        for file in files {
            text.push_str(&format!("| {} |", file.trim_end_matches(".c")));
            for arrangement in arrangements {
                text.push_str(&equal(&|scenario| scenario.file == file, *arrangement));
            }
            text.push('\n');
        }
        text.push_str("| all |");
        arrangements.iter().for_each(|arrangement| text.push_str(&equal(&|_| true, *arrangement)));
        text.push_str("\n\n## What differs\n\n");
        for difference in &self.differences {
            text.push_str(&format!("- {}: {}\n", difference.scenarios.join(", "), difference.reason));
        }
        for scenario in scenarios.iter().filter(|scenario| self.difference(&scenario.name).is_none()) {
            for (role, arrangement) in
                scenario.roles().into_iter().flat_map(|role| arrangements.iter().map(move |arrangement| (role, *arrangement)))
            {
                match verdicts.get(&(scenario.name.clone(), role, arrangement)) {
                    Some(Verdict::Differs(_)) => {
                        text.push_str(&format!(
                            "- {} ({}, {}): not explained yet\n",
                            scenario.name,
                            role.name(),
                            arrangement.name()
                        ));
                    }
                    Some(Verdict::NotAccelerated) => text.push_str(&format!(
                        "- {} ({}, {}): equal, with a connection that fell back\n",
                        scenario.name,
                        role.name(),
                        arrangement.name()
                    )),
                    _ => {}
                }
            }
        }
        text.push_str("\n## What does not run between hosts\n\n");
        for exception in &self.exceptions {
            text.push_str(&format!("- {}: {}\n", exception.scenarios.join(", "), exception.reason));
        }
        text
    }
}

//! Accepted deviations: what may differ, line by line, and why.
//!
//! A deviation replaces lines of the kernel's transcript before it is compared; the rest of the scenario stays strict. One that
//! is no longer needed fails too, so the list only holds what is true.

use crate::arrangement::{Arrangement, Role};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// One entry of `deviations.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviation {
    /// A short name, by which the matrix refers to it.
    pub name: String,
    /// The scenarios it concerns.
    pub scenarios: Vec<String>,
    /// The arrangements it concerns, by name, or by name and role as in `client-only/client`; those with both ends under shunt
    /// (but for `trapped`) when left out.
    #[serde(default)]
    pub arrangements: Vec<String>,
    /// Why shunt does not do as the kernel does.
    pub reason: String,
    /// The lines that differ.
    pub lines: Vec<Replacement>,
    /// The scenario hangs under shunt: seconds after which that is believed, instead of the usual deadline.
    #[serde(default)]
    pub hangs_after: Option<u64>,
}

/// Lines of the kernel's transcript, and what shunt gives in their place.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    /// A line of the kernel's; each occurrence is replaced.
    #[serde(default)]
    pub kernel: String,
    /// Instead of `kernel`: the first line that begins so, and everything after it, is replaced.
    #[serde(default)]
    pub from: String,
    /// Shunt's line; `""` if it has none.
    pub shunt: String,
}

impl Replacement {
    fn apply(&self, lines: Vec<String>) -> Vec<String> {
        if self.from.is_empty() {
            let replaced = lines.into_iter().map(|line| if line == self.kernel { self.shunt.clone() } else { line });
            return replaced.filter(|line| !line.is_empty()).collect();
        }
        match lines.iter().position(|line| line.starts_with(&self.from)) {
            None => lines,
            Some(at) => lines.into_iter().take(at).chain(self.shunt.lines().map(str::to_owned)).collect(),
        }
    }

    /// How the matrix shows the kernel's side.
    pub fn shown(&self) -> String {
        if self.from.is_empty() {
            self.kernel.clone()
        } else {
            format!("{} ...", self.from)
        }
    }
}

/// All of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deviations {
    /// In the order of the file.
    #[serde(default, rename = "deviation")]
    pub list: Vec<Deviation>,
}

impl Deviations {
    /// Reads `deviations.toml`.
    ///
    /// # Errors
    /// A sentence with the place in the file.
    pub fn load() -> Result<Deviations, String> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("deviations.toml");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Deviations::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Result<Deviations, String> {
        let deviations: Deviations = toml::from_str(text).map_err(|error| error.to_string())?;
        for (index, deviation) in deviations.list.iter().enumerate() {
            if deviation.reason.trim().is_empty() || deviation.scenarios.is_empty() || deviation.lines.is_empty() {
                return Err(format!("deviation {}: a reason, scenarios and lines are needed", deviation.name));
            }
            if deviations.list[..index].iter().any(|other| other.name == deviation.name) {
                return Err(format!("there are two deviations {}", deviation.name));
            }
            for name in &deviation.arrangements {
                let (name, role) = name.split_once('/').unwrap_or((name, "client"));
                if Arrangement::named(name).is_none() || Role::named(role).is_none() {
                    return Err(format!("deviation {}: there is no arrangement {name}", deviation.name));
                }
            }
            if deviation.lines.iter().any(|line| line.kernel.is_empty() == line.from.is_empty()) {
                return Err(format!("deviation {}: each line has either `kernel` or `from`", deviation.name));
            }
        }
        Ok(deviations)
    }

    /// The same, with what is accepted of two processes under shunt accepted under `--raw trap`, too.
    #[must_use]
    pub fn trapped(mut self) -> Deviations {
        for arrangements in self.list.iter_mut().map(|deviation| &mut deviation.arrangements) {
            if arrangements.is_empty() {
                arrangements.push("trapped".into());
            }
            let both = arrangements.iter().filter(|name| name.split('/').next() == Some("both"));
            let more: Vec<String> = both.map(|name| name.replacen("both", "trapped", 1)).collect();
            arrangements.extend(more);
        }
        self
    }

    /// What shunt is expected to give where the kernel gives `lines`, and the names of the deviations that had an effect.
    pub fn apply(&self, scenario: &str, role: Role, arrangement: Arrangement, lines: &[String]) -> (Vec<String>, Vec<&str>) {
        let mut expected = lines.to_vec();
        let mut used = Vec::new();
        for deviation in self.list.iter().filter(|deviation| deviation.concerns(scenario, role, arrangement)) {
            for replacement in &deviation.lines {
                let before = expected.clone();
                expected = replacement.apply(expected);
                if before != expected && !used.contains(&deviation.name.as_str()) {
                    used.push(deviation.name.as_str());
                }
            }
        }
        (expected, used)
    }

    /// The deadline for a scenario that is known to hang under shunt.
    pub fn deadline(&self, scenario: &str, role: Role, arrangement: Arrangement) -> Option<Duration> {
        let concerned = self.list.iter().filter(|deviation| deviation.concerns(scenario, role, arrangement));
        concerned.filter_map(|deviation| deviation.hangs_after).min().map(Duration::from_secs)
    }

    /// Scenarios that are named here and do not exist.
    pub fn strangers(&self, known: &[&str]) -> Vec<String> {
        let named = self.list.iter().flat_map(|deviation| &deviation.scenarios);
        named.filter(|name| !known.contains(&name.as_str())).cloned().collect()
    }
}

impl Deviation {
    fn concerns(&self, scenario: &str, role: Role, arrangement: Arrangement) -> bool {
        self.scenarios.iter().any(|name| name == scenario)
            && if self.arrangements.is_empty() {
                // They are about near, which is plain there.
                arrangement.accelerates() && arrangement != Arrangement::Trapped && arrangement.takes() != Some(1)
            } else {
                let with_role = format!("{}/{}", arrangement.name(), role.name());
                self.arrangements.iter().any(|name| name == arrangement.name() || *name == with_role)
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"
        [[deviation]]
        name = "rounding"
        scenarios = ["buffers"]
        arrangements = ["both"]
        reason = "rings are powers of two"
        lines = [{ kernel = "size 3", shunt = "size 4" }]
    "#;

    #[test]
    fn a_deviation_replaces_its_line_and_no_other() {
        let deviations = Deviations::parse(ONE).expect("parses");
        let lines = ["size 3".to_owned(), "size 33".to_owned()];
        let (expected, used) = deviations.apply("buffers", Role::Solo, Arrangement::Both, &lines);
        assert_eq!(expected, ["size 4", "size 33"]);
        assert_eq!(used, ["rounding"]);
    }

    #[test]
    fn other_scenarios_and_arrangements_stay_strict() {
        let deviations = Deviations::parse(ONE).expect("parses");
        let lines = ["size 3".to_owned()];
        assert_eq!(deviations.apply("others", Role::Solo, Arrangement::Both, &lines).0, lines);
        assert_eq!(deviations.apply("buffers", Role::Solo, Arrangement::Fortified, &lines).0, lines);
    }

    #[test]
    fn what_both_may_give_may_come_under_the_trap() {
        let lines = ["size 3".to_owned()];
        for text in [ONE.to_owned(), ONE.replace("arrangements = [\"both\"]", "")] {
            let deviations = Deviations::parse(&text).expect("parses");
            assert_eq!(deviations.apply("buffers", Role::Solo, Arrangement::Trapped, &lines).0, lines);
            assert_eq!(deviations.trapped().apply("buffers", Role::Solo, Arrangement::Trapped, &lines).0, ["size 4"]);
        }
    }

    #[test]
    fn everything_from_a_line_on_can_be_replaced() {
        let text = ONE.replace("{ kernel = \"size 3\", shunt = \"size 4\" }", "{ from = \"size\", shunt = \"end\" }");
        let deviations = Deviations::parse(&text).expect("parses");
        let lines = ["one".to_owned(), "size 3".to_owned(), "two".to_owned()];
        assert_eq!(deviations.apply("buffers", Role::Solo, Arrangement::Both, &lines).0, ["one", "end"]);
    }

    #[test]
    fn a_line_needs_one_way_to_be_found() {
        let text = ONE.replace("kernel = \"size 3\", ", "");
        Deviations::parse(&text).expect_err("refused");
    }

    #[test]
    fn reasons_and_scenarios_are_needed_and_names_are_different() {
        for (from, to) in [("rings are powers of two", " "), ("[\"buffers\"]", "[]")] {
            assert!(ONE.contains(from));
            Deviations::parse(&ONE.replace(from, to)).expect_err("refused");
        }
        Deviations::parse(&format!("{ONE}{ONE}")).expect_err("refused");
    }

    #[test]
    fn an_unknown_arrangement_is_refused() {
        let error = Deviations::parse(&ONE.replace("\"both\"", "\"sideways\"")).expect_err("refused");
        assert!(error.contains("sideways"), "{error}");
    }
}

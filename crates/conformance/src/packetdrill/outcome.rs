//! What a run of scripts came to: kept as the suites' outcomes are, and told in the same document.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::paths;
use crate::record::{parse, take, told, write};

/// Collections of scripts whose outcome is kept, and whose they are.
pub const COLLECTIONS: [(&str, &str); 2] =
    [("google", "google's, `gtests/net/tcp`"), ("linux", "Linux's, `tools/testing/selftests/net/packetdrill`")];

/// Of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The day, and the kernel.
    pub day: String,
    /// See above.
    pub kernel: String,
    /// Scripts, and those that the kernel does not pass here.
    pub scripts: usize,
    /// See above.
    pub not_here: usize,
    /// Connections that were taken, where that was counted.
    #[serde(default)]
    pub hand_overs: u64,
    /// By the plan's name.
    pub plans: BTreeMap<String, Counts>,
}

/// Verdicts of the scripts that the kernel passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// With hand-overs.
    pub same: usize,
    /// Without one, as no connection could be taken where the plan asks for that.
    pub untaken: usize,
    /// Different for a reason that is known.
    pub known: usize,
    /// Different.
    pub different: usize,
}

impl Outcome {
    /// Keeps it until the document is written.
    ///
    /// # Errors
    /// A sentence, when it cannot be written.
    pub fn keep(&self, collection: &str) -> Result<(), String> {
        let day = told(Command::new("date").args(["-u", "+%F"])).trim().to_owned();
        let kernel = told(Command::new("uname").arg("-r")).trim().to_owned();
        let outcome = Outcome { day, kernel, ..self.clone() };
        let file = paths::results().join(format!("packetdrill.{collection}.toml"));
        write(&file, &toml::to_string(&outcome).map_err(|error| error.to_string())?)
    }
}

/// The section of the document, from what is kept.
///
/// # Errors
/// A sentence that names the file which cannot be read or written.
pub fn section() -> Result<String, String> {
    let file = paths::records().join("packetdrill.toml");
    let mut record: BTreeMap<String, Outcome> = parse(&file)?.unwrap_or_default();
    let fresh = COLLECTIONS.map(|(name, _)| (name, paths::results().join(format!("packetdrill.{name}.toml"))));
    take(&file, &mut record, fresh)?;
    Ok(describe(&record))
}

fn describe(record: &BTreeMap<String, Outcome>) -> String {
    let mut text = String::from(
        "\n## packetdrill\n\nScripts of calls and segments, on the kernel alone and, where it passes them, with each connection taken from it and given back between \
         the script's events (`scripts/conformance packetdrill --source PATH --record NAME`). Differences that are known stand with their reasons in \
         `crates/conformance/packetdrill.toml`.\n\n\
         | scripts | passed by the kernel here | taken | the same | the same, none taken | different for a known reason | different | run |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (name, whose) in COLLECTIONS {
        let Some(Outcome { day, kernel, scripts, not_here, plans, .. }) = record.get(name) else {
            text.push_str(&format!("| {whose} | not run | | | | | | |\n"));
            continue;
        };
        for (plan, Counts { same, untaken, known, different }) in plans {
            let passed = scripts - not_here;
            let different = if *different == 0 { "0".to_owned() } else { format!("**{different}**") };
            let row = format!("| {whose} | {passed} of {scripts} | {plan} | {same} | {untaken} | {known} | {different} | {day}, Linux {kernel} |");
            writeln!(text, "{row}").expect("a string takes all");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_told_and_what_differs_stands_out() {
        let plans = [
            ("calls:1", Counts { same: 3, untaken: 1, known: 1, different: 0 }),
            ("calls:2", Counts { same: 2, untaken: 1, known: 0, different: 2 }),
        ];
        let plans = plans.into_iter().map(|(name, counts)| (name.to_owned(), counts)).collect();
        let outcome = Outcome { day: "2026-11-30".into(), kernel: "6.18".into(), scripts: 9, not_here: 4, hand_overs: 17, plans };
        let text = toml::to_string(&outcome).expect("text");
        assert_eq!(toml::from_str::<Outcome>(&text), Ok(outcome.clone()));
        let told = describe(&BTreeMap::from([("linux".to_owned(), outcome)]));
        assert!(told.contains("packetdrill` | 5 of 9 | calls:1 | 3 | 1 | 1 | 0 | 2026-11-30, Linux 6.18 |"), "{told}");
        assert!(
            told.contains("| calls:2 | 2 | 1 | 0 | **2** |") && told.contains("| google's, `gtests/net/tcp` | not run |"),
            "{told}"
        );
    }
}

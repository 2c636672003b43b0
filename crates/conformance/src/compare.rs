//! Both sides, case by case, and again where they differ.

use crate::suite::{Part, Suite};
use crate::trial::{self, Run, Side};
use crate::verdicts::{class, Class, Format, Verdicts};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};

/// How often a part runs again on both sides while a difference remains.
const AGAIN: usize = 3;

/// What came of one part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Cases on the kernel: passed, failed, skipped.
    pub kernel: [usize; 3],
    /// The same under shunt.
    pub shunt: [usize; 3],
    /// Connections that the kernel's TCP opened.
    #[serde(default)]
    pub opened: Opened,
    /// How often processes under shunt gave each reason.
    #[serde(default)]
    pub reasons: BTreeMap<String, u64>,
    /// Programs and their versions, where the part says which it runs; otherwise the packages that the suite is of.
    #[serde(default)]
    pub versions: Vec<String>,
    /// The day of the run, as in `2026-01-31`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub day: String,
    /// Cases with different verdicts in every run.
    #[serde(default)]
    pub different: Vec<Difference>,
    /// Cases whose verdicts differed once, and agreed when they ran again.
    #[serde(default)]
    pub unsteady: Vec<Difference>,
}

/// Connections that the kernel's TCP opened, as far as the runs told.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Opened {
    /// On the kernel.
    pub kernel: Option<u64>,
    /// Under shunt.
    pub shunt: Option<u64>,
}

impl Opened {
    /// Whether more than a quarter of what a part connects went through the kernel under shunt, too.
    pub fn by_kernel(&self) -> bool {
        matches!((self.kernel, self.shunt), (Some(kernel), Some(shunt)) if shunt > kernel / 4)
    }
}

impl Display for Opened {
    fn fmt(&self, text: &mut Formatter<'_>) -> std::fmt::Result {
        let told = |count: Option<u64>| count.map_or("unknown".into(), |count| count.to_string());
        write!(text, "{} / {}", told(self.kernel), told(self.shunt))
    }
}

/// A case and the verdicts of all its runs, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Difference {
    /// The case, as the suite names it.
    pub case: String,
    /// On the kernel.
    pub kernel: Vec<String>,
    /// Under shunt.
    pub shunt: Vec<String>,
    /// Whether the suite's description says that it may differ.
    #[serde(default)]
    pub expected: bool,
}

impl Difference {
    /// Whether a verdict of shunt's is also one of the kernel's.
    fn agreed(&self) -> bool {
        self.shunt.iter().any(|verdict| self.kernel.contains(verdict))
    }
}

impl Outcome {
    /// Whether nothing differs but what may.
    pub fn passes(&self) -> bool {
        self.different.iter().all(|difference| difference.expected)
    }

    /// How many cases were compared.
    pub fn cases(&self) -> usize {
        self.kernel.iter().sum::<usize>().max(self.shunt.iter().sum())
    }
}

/// A part whose first runs were compared; what differed is to run again.
#[derive(Debug)]
pub struct Compared {
    outcome: Outcome,
    pending: BTreeMap<String, Difference>,
}

impl Compared {
    /// Compares the first runs of both sides.
    ///
    /// # Errors
    /// A sentence, when the kernel's gave no verdict at all.
    pub fn first(suite: &Suite, part: &Part, on_kernel: Run, under_shunt: Run) -> Result<Compared, String> {
        let (kernel, shunt) = (on_kernel.verdicts, under_shunt.verdicts);
        if kernel.keys().all(|case| case == trial::WHOLE) && part.verdicts != Format::Exit {
            return Err(format!("{}/{} gives no verdict on the kernel: {kernel:?}", suite.name, part.name));
        }
        let mut pending = BTreeMap::new();
        for case in kernel.keys().chain(shunt.keys()).collect::<BTreeSet<_>>() {
            if kernel.get(case) != shunt.get(case) {
                pending.insert(case.clone(), Difference { case: case.clone(), ..Difference::default() });
            }
        }
        note(&mut pending, &kernel, &shunt);
        let opened = Opened { kernel: on_kernel.opened, shunt: under_shunt.opened };
        let reasons = under_shunt.reasons;
        let outcome = Outcome { kernel: counted(&kernel), shunt: counted(&shunt), opened, reasons, ..Outcome::default() };
        Ok(Compared { outcome, pending })
    }

    /// Whether the verdicts were equal at once.
    pub fn is_equal(&self) -> bool {
        self.pending.is_empty()
    }

    /// Runs the part again on both sides while a difference remains, a few times.
    ///
    /// # Errors
    /// A sentence, when it could not be run.
    pub fn settle(self, suite: &Suite, part: &Part) -> Result<Outcome, String> {
        let Compared { mut outcome, mut pending } = self;
        for _ in 0..AGAIN {
            if pending.is_empty() {
                break;
            }
            let cases: Vec<String> =
                pending.keys().map(|case| case.split_once(": ").map_or(case.clone(), |(file, _)| file.into())).collect();
            let kernel = trial::run(suite, part, Side::Kernel, Some(&cases))?.verdicts;
            let shunt = trial::run(suite, part, Side::Shunt, Some(&cases))?.verdicts;
            note(&mut pending, &kernel, &shunt);
            let (agreed, rest) = pending.into_iter().partition(|(_, difference)| difference.agreed());
            outcome.unsteady.extend(BTreeMap::into_values(agreed));
            pending = rest;
        }
        for mut difference in pending.into_values() {
            difference.expected = suite.different(part, &difference.case).is_some();
            outcome.different.push(difference);
        }
        // Where all that differs may differ, so may the run's end.
        let (ends, others): (Vec<&mut Difference>, Vec<&mut Difference>) =
            outcome.different.iter_mut().partition(|difference| difference.case == trial::WHOLE);
        if !others.is_empty() && others.iter().all(|difference| difference.expected) {
            ends.into_iter().for_each(|end| end.expected = true);
        }
        Ok(outcome)
    }
}

fn note(pending: &mut BTreeMap<String, Difference>, kernel: &Verdicts, shunt: &Verdicts) {
    let told = |verdicts: &Verdicts, case: &str| verdicts.get(case).cloned().unwrap_or_else(|| "no verdict".into());
    for (case, difference) in pending {
        difference.kernel.push(told(kernel, case));
        difference.shunt.push(told(shunt, case));
    }
}

fn counted(verdicts: &Verdicts) -> [usize; 3] {
    let mut counts = [0; 3];
    for (_, verdict) in verdicts.iter().filter(|(case, _)| *case != trial::WHOLE) {
        counts[match class(verdict) {
            Class::Passed => 0,
            Class::Failed => 1,
            Class::Skipped => 2,
        }] += 1;
    }
    counts
}

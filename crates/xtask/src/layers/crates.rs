//! The repository's crates, what each takes from which, and how high each stands.

use super::load;
use super::references::{find, Found};
use super::report::count;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The crates from the lowest to the highest: a crate is one higher than the highest that it depends on.
///
/// # Errors
/// A sentence that names the file that cannot be read.
pub fn text() -> Result<String, String> {
    let packages = load::packages()?;
    let world = load::world(&packages)?;
    let mut rows = Vec::new();
    for (package, of) in world.crates.iter().enumerate() {
        let Found { references, statics, .. } = find(&world, package);
        let mut taken: BTreeMap<&str, BTreeSet<String>> =
            of.dependencies.values().map(|name| (name.as_str(), BTreeSet::new())).collect();
        for reference in &references {
            let (owner, _) = world.place(&reference.target);
            if owner != package {
                taken.entry(&world.crates[owner].package).or_default().insert(world.name(&reference.target));
            }
        }
        let lines: usize = of.tree.files.iter().map(|file| file.lines - file.of_tests.min(file.lines)).sum();
        rows.push((height(&world.crates, package), of.package.clone(), lines, statics.len(), taken));
    }
    rows.sort();
    let mut out = String::new();
    for (height, name, lines, statics, taken) in rows {
        let taken: Vec<String> = taken.iter().map(|(name, names)| format!("{} {}", short(name), names.len())).collect();
        let _ = writeln!(
            out,
            "{height:>2} {:14} {lines:>6} lines {:>12}  {}",
            short(&name),
            count(statics, "static"),
            taken.join(", ")
        );
    }
    out.push_str("(height, crate, what it takes from which: distinct names; 0: in the manifest alone, or used by tests and other roots than the library)\n");
    Ok(out)
}

fn short(name: &str) -> &str {
    name.strip_prefix("shunt-").unwrap_or(name)
}

fn height(crates: &[super::names::Crate], package: usize) -> usize {
    let below = crates[package].dependencies.values().filter_map(|name| crates.iter().position(|of| of.package == *name));
    below.map(|lower| height(crates, lower)).max().unwrap_or(0) + 1
}

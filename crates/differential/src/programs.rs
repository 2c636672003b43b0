//! Where the programs of a trial are.

use std::path::{Path, PathBuf};

/// The multi-call binary of scenarios, built by `build.rs`.
pub fn scenarios(fortified: bool) -> &'static Path {
    Path::new(if fortified { env!("SHUNT_SCENARIOS_FORTIFIED") } else { env!("SHUNT_SCENARIOS") })
}

/// The workspace's root.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The `shunt` command: `SHUNT_DIFFERENTIAL_COMMAND` if set, or the release build beside this program's own or in the workspace's
/// `target`.
///
/// # Errors
/// A sentence that says where it was looked for.
pub fn shunt() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("SHUNT_DIFFERENTIAL_COMMAND") {
        return Ok(named.into());
    }
    let mut places = Vec::new();
    if let Ok(own) = std::env::current_exe() {
        // target/release/shunt-differential, or target/release/deps/differential-0123.
        places.extend(own.ancestors().skip(1).take(2).map(|directory| directory.join("shunt")));
    }
    places.push(workspace().join("target/release/shunt"));
    places.iter().find(|place| place.is_file()).cloned().ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        format!(
            "the shunt command is not built (looked for {}): run `make build`, or set SHUNT_DIFFERENTIAL_COMMAND",
            looked.join(", ")
        )
    })
}

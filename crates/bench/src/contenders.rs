//! What carries the bytes: the kernel, the kernel asked again and again, shunt.
//!
//! A contender is only a prefix to a program's command line. The programs, their arguments and
//! their pinning are the same for all, so what differs between two series is the carrier.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;

/// What lies between the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Kernel TCP over loopback, blocking calls.
    Kernel,
    /// Kernel TCP over loopback, both sides spinning on non-blocking calls.
    KernelSpinning,
    /// `shunt run --` on both sides, blocking calls, default settings.
    Shunt,
}

impl Carrier {
    /// The word for tables and plots.
    pub fn title(self) -> &'static str {
        match self {
            Carrier::Kernel => "kernel",
            Carrier::KernelSpinning => "kernel, spinning",
            Carrier::Shunt => "shunt",
        }
    }
}

/// A carrier together with how to put a program on it.
#[derive(Clone, Debug)]
pub struct Contender {
    /// What it is.
    pub carrier: Carrier,
    /// What stands before the program on the command line.
    pub prefix: Vec<OsString>,
}

/// All contenders of this run, in the order in which they take turns; without shunt where there
/// is no such command, which is an error only if it is there and does not work.
pub fn contenders(shunt: Option<&Path>) -> io::Result<Vec<Contender>> {
    let mut all = vec![
        Contender { carrier: Carrier::Kernel, prefix: Vec::new() },
        Contender { carrier: Carrier::KernelSpinning, prefix: Vec::new() },
    ];
    if let Some(path) = shunt.map(Path::to_path_buf).or_else(shunt_beside_us) {
        works(&path).map_err(io::Error::other)?;
        let prefix = vec![path.into_os_string(), "run".into(), "--".into()];
        all.push(Contender { carrier: Carrier::Shunt, prefix });
    }
    Ok(all)
}

/// This executable if it is the shunt command, or the one in its directory.
pub(crate) fn shunt_beside_us() -> Option<PathBuf> {
    let here = std::env::current_exe().ok()?;
    let candidate = here.parent()?.join("shunt");
    candidate.is_file().then_some(candidate)
}

/// A first run of nothing, so that a missing library is said once and not in every cell.
fn works(path: &Path) -> Result<(), String> {
    let output = Command::new(path)
        .args(["run", "--", "true"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", path.display()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("`{} run -- true` ended with {}\n{said}", path.display(), output.status)),
    }
}

//! The C programs that are measured: their sources, how they are compiled, what they say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sources, which the measuring machine compiles.
const SOURCES: [(&str, &str); 10] = [
    ("batches.h", include_str!("batches.h")),
    ("hosts.c", include_str!("hosts.c")),
    ("micro.c", include_str!("micro.c")),
    ("program.h", include_str!("../../../../examples/split-c/program.h")),
    ("matrix.c", include_str!("../../../../examples/split-c/matrix.c")),
    ("sample-sort.c", include_str!("../../../../examples/split-c/sample-sort.c")),
    ("radix-sort.c", include_str!("../../../../examples/split-c/radix-sort.c")),
    ("components.c", include_str!("../../../../examples/split-c/components.c")),
    ("gradient.c", include_str!("../../../../examples/split-c/gradient.c")),
    ("header/split-c.h", include_str!("../../../shmem/include/split-c.h")),
];

/// Rows of the seven programs: source, argument, name.
pub const PROGRAMS: [(&str, &str, &str); 7] = [
    ("matrix", "", "matrix"),
    ("sample-sort", "small", "sample-sort-small"),
    ("sample-sort", "bulk", "sample-sort-bulk"),
    ("radix-sort", "small", "radix-sort-small"),
    ("radix-sort", "bulk", "radix-sort-bulk"),
    ("components", "", "components"),
    ("gradient", "", "gradient"),
];

/// What the rows are compiled to.
pub const BINARIES: [&str; 5] = ["matrix", "sample-sort", "radix-sort", "components", "gradient"];

/// Writes the sources into a directory below `output`, which it makes.
pub fn write(output: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(output).map_err(|error| format!("{}: {error}", output.display()))?;
    let directory = output.canonicalize().map_err(|error| error.to_string())?.join("programs");
    fs::create_dir_all(directory.join("header")).map_err(|error| error.to_string())?;
    for (name, text) in SOURCES {
        fs::write(directory.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(directory)
}

/// By a compiler script with its options.
pub fn compile(mut command: Command, source: &Path, program: &Path) -> Result<(), String> {
    command.arg("-O3").arg(source).arg("-o").arg(program).arg("-lm");
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// What one of the seven programs says of a run with the right answer: nanoseconds, and how many percent of them it communicates.
pub struct Report {
    pub time: f64,
    pub share: f64,
}

impl Report {
    /// As in `matrix: 2 processors, 0.0162 s, 8 % in communication, right`.
    pub fn of(said: &str) -> Option<Report> {
        let words: Vec<&str> = said.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<f64>().ok());
        let report = Report { time: number(3)? * 1e9, share: number(5)? };
        said.contains("right").then_some(report)
    }
}

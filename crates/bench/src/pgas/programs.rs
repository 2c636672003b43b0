//! The C programs that are measured: their sources, how they are compiled, what they say.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::model::Counts;

/// The sources, which the measuring machine compiles.
const SOURCES: [(&str, &str); 11] = [
    ("batches.h", include_str!("batches.h")),
    ("counting.c", include_str!("counting.c")),
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

/// A directory of its own that goes with its value, so that none of it stays beside what was measured.
pub struct Directory(PathBuf);

impl Directory {
    /// Below `output`, which it makes, with the sources in it.
    pub fn new(output: &Path) -> Result<Directory, String> {
        fs::create_dir_all(output).map_err(|error| format!("{}: {error}", output.display()))?;
        let path = output.canonicalize().map_err(|error| error.to_string())?.join("programs");
        write(&path)?;
        Ok(Directory(path))
    }
}

impl std::ops::Deref for Directory {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Writes the sources into a directory, which it makes.
fn write(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory.join("header")).map_err(|error| format!("{}: {error}", directory.display()))?;
    for (name, text) in SOURCES {
        fs::write(directory.join(name), text).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// By a compiler script with its options.
pub fn compile(command: Command, source: &Path, program: &Path) -> Result<(), String> {
    compile_all(command, &[source], program)
}

fn compile_all(mut command: Command, sources: &[&Path], program: &Path) -> Result<(), String> {
    command.arg("-O3").args(sources).arg("-o").arg(program).arg("-lm");
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// The seven programs as they count what they ask of others: compiled once, run once for each number of processes.
pub struct Counting<'p> {
    shunt: &'p Path,
    directory: &'p Path,
}

impl<'p> Counting<'p> {
    pub fn new(shunt: &'p Path, directory: &'p Path) -> Result<Counting<'p>, String> {
        let counting = Counting { shunt, directory };
        for name in BINARIES {
            let compiler = Command::new(shunt.with_file_name("shunt-shmemcc"));
            let sources = [directory.join(format!("{name}.c")), directory.join("counting.c")];
            compile_all(compiler, &sources.each_ref().map(PathBuf::as_path), &counting.program(name))?;
        }
        Ok(counting)
    }

    fn program(&self, source: &str) -> PathBuf {
        self.directory.join(format!("{source}-counting"))
    }

    /// What a process asks of others, of so many on this host.
    pub fn counts(&self, source: &str, words: &[&str], processes: usize) -> Result<Counts, String> {
        let said = said(self.shunt, processes, &self.program(source), words)?;
        Counts::of(&said).ok_or_else(|| format!("{source} of {processes} said {said:?}"))
    }
}

/// What a program says with so many processes on this host, each bound.
pub fn said(shunt: &Path, processes: usize, program: &Path, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(shunt);
    command.args(["spmd", "--bind", "-n", &processes.to_string(), "--"]).arg(program);
    command.args(words.iter().filter(|word| !word.is_empty())).stdin(Stdio::null());
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr))),
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

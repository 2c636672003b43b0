//! A directory with a library that can be preloaded and does nothing, and commands that use it.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The command under test.
pub const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

/// A scratch directory that every user may read, with a stand-in for the preload library. What the real library does
/// is tested elsewhere; here it only must be loaded.
pub struct Stage {
    directory: tempfile::TempDir,
}

impl Stage {
    pub fn new() -> Stage {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let stage = Stage { directory };
        stage.compile("libshunt.so", "int shunt_stand_in;", &["-shared", "-fPIC"]);
        stage
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    pub fn library(&self) -> PathBuf {
        self.path("libshunt.so")
    }

    /// Compiles C text to the file `name`.
    pub fn compile(&self, name: &str, text: &str, flags: &[&str]) -> PathBuf {
        let (source, target) = (self.path(&format!("{name}.c")), self.path(name));
        std::fs::write(&source, text).unwrap();
        let status = Command::new("gcc").args(flags).arg("-o").args([&target, &source]).status();
        assert!(status.expect("the tests need gcc").success());
        target
    }

    /// Writes an executable file.
    pub fn executable(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let (source, path) = (self.path(&format!("{name}.source")), self.path(name));
        std::fs::write(&source, content).unwrap();
        copy(&source, &path);
        path
    }

    /// `shunt run` with this directory's library and without variables of the tests' own caller.
    pub fn run(&self) -> Command {
        let mut command = plain(SHUNT);
        command.arg("run").env("SHUNT_LIBRARY", self.library());
        command
    }
}

/// A command whose environment holds none of our variables.
pub fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env_remove("LD_PRELOAD");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SHUNT_") {
            command.env_remove(name);
        }
    }
    command
}

/// Standard output, after checking that the command succeeded and said nothing on standard error.
#[track_caller]
pub fn quiet_output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

pub fn standard_error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Copies a file and makes it executable. Another process does it: if this one had the copy open for writing while a
/// test on another thread forks, executing the copy could fail with ETXTBSY.
pub fn copy(from: impl AsRef<Path>, to: &Path) {
    let status = Command::new("install").args(["-D", "-m", "755"]).args([from.as_ref(), to]).status();
    assert!(status.unwrap().success());
}

/// The real library, as `make build` leaves it.
pub fn library() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/libshunt.so");
    path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}; run: make build", path.display()))
}

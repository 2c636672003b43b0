//! Why a library cannot be preloaded into a program, or would not see its connections.
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::image::{ElfImage, Image};
use super::lookup;

/// A script's interpreter may be a script; the kernel follows four.
const SCRIPT_DEPTH: usize = 5;

/// The attribute that holds file capabilities, see capabilities(7).
const CAPABILITY_ATTRIBUTE: &str = "security.capability";

/// A reason why a program's connections will go through the kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Obstacle {
    program: PathBuf,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Static,
    Go,
    OtherArchitecture(String),
    OtherLibc,
    SetUser,
    SetGroup,
    Capabilities,
}

impl Obstacle {
    /// The obstacle that the program at `path` meets first; a script is its interpreter's program.
    /// None also if the file cannot be read: then nothing is known against it.
    pub fn of(path: &Path, search_path: Option<&OsStr>) -> Option<Obstacle> {
        let mut path = path.to_path_buf();
        for _ in 0..SCRIPT_DEPTH {
            match Image::read(&path).ok()? {
                Image::Script { interpreter, argument } => {
                    path = match (interpreter.file_name(), argument) {
                        (Some(name), Some(argument)) if name == "env" => env_target(&argument, search_path)?,
                        _ => interpreter,
                    };
                }
                Image::Elf(elf) => {
                    // Rights first: a set-user-ID program is not even asked for its loader's preload list.
                    let kind = special_rights(&path).or_else(|| of_elf(&path, &elf))?;
                    return Some(Obstacle { program: path, kind });
                }
                Image::Other { .. } => return None,
            }
        }
        None
    }

    /// The obstacle that the program of a running process met, if its file can be read.
    pub fn of_process(pid: u32) -> Option<Obstacle> {
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        Obstacle::of(&executable, None)
    }

    /// Whether the program would not start, or complain, with the library in LD_PRELOAD.
    pub fn library_would_break_it(&self) -> bool {
        matches!(self.kind, Kind::OtherLibc | Kind::OtherArchitecture(_))
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.program.display())?;
        match &self.kind {
            Kind::Static => f.write_str("is statically linked: no library can be loaded into it"),
            Kind::Go => f.write_str("is a Go program: it enters the kernel without the C library"),
            Kind::OtherArchitecture(name) => write!(f, "is a {name} program: {} is not", super::library::FILE),
            Kind::OtherLibc => write!(f, "uses another C library: {} needs glibc", super::library::FILE),
            Kind::SetUser => f.write_str("is set-user-ID: the dynamic loader takes no library from the environment"),
            Kind::SetGroup => f.write_str("is set-group-ID: the dynamic loader takes no library from the environment"),
            Kind::Capabilities => f.write_str("has file capabilities: the dynamic loader takes no library from the environment"),
        }
    }
}

fn of_elf(path: &Path, elf: &ElfImage) -> Option<Kind> {
    if !elf.is_native() {
        return Some(Kind::OtherArchitecture(elf.architecture()));
    }
    if elf.go {
        return Some(Kind::Go);
    }
    match &elf.interpreter {
        None if is_dynamic_loader(path) => None,
        None => Some(Kind::Static),
        Some(loader) if file_name_contains(loader, b"musl") => Some(Kind::OtherLibc),
        Some(_) => None,
    }
}

/// `ld-linux-x86-64.so.2 program` runs the program, preload list and all.
fn is_dynamic_loader(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.into());
    file_name_contains(&real, b"ld-linux") || file_name_contains(&real, b"ld.so") || file_name_contains(path, b"ld.so")
}

fn file_name_contains(path: &Path, part: &[u8]) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().windows(part.len()).any(|window| window == part))
}

/// Rights that make the kernel set AT_SECURE (ld.so(8), "Secure-execution mode"): those of another user or group, and
/// capabilities unless the user is root already.
fn special_rights(path: &Path) -> Option<Kind> {
    let metadata = std::fs::metadata(path).ok()?;
    let mode = metadata.mode();
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    if mode & libc::S_ISUID != 0 && metadata.uid() != user.as_raw() {
        return Some(Kind::SetUser);
    }
    if mode & libc::S_ISGID != 0 && mode & libc::S_IXGRP != 0 && metadata.gid() != group.as_raw() {
        return Some(Kind::SetGroup);
    }
    // Large enough for every revision of struct vfs_cap_data; a short buffer would be an error.
    let has_capabilities = rustix::fs::getxattr(path, CAPABILITY_ATTRIBUTE, &mut [0u8; 64]).is_ok();
    (has_capabilities && !user.is_root()).then_some(Kind::Capabilities)
}

/// The program that `env ARGUMENT` starts: the first word that is neither an option nor an assignment.
fn env_target(argument: &OsStr, search_path: Option<&OsStr>) -> Option<PathBuf> {
    argument
        .as_bytes()
        .split(u8::is_ascii_whitespace)
        .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='))
        .and_then(|word| lookup::find(OsStr::from_bytes(word), search_path).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_programs_and_scripts_meet_no_obstacle() {
        let directory = tempfile::tempdir().unwrap();
        let path = Some(OsStr::new("/usr/bin:/bin"));
        for text in ["#!/bin/sh\n", "#!/usr/bin/env sh\n", "#!/usr/bin/env -S A=1 sh -e\n", "#!/no/such\n", "just text"] {
            let script = directory.path().join("script");
            std::fs::write(&script, text).unwrap();
            assert_eq!(Obstacle::of(&script, path), None, "{text:?}");
        }
        assert_eq!(Obstacle::of(Path::new("/bin/true"), path), None);
        assert_eq!(Obstacle::of(Path::new("/no/such"), path), None);
    }

    #[test]
    fn a_script_that_is_its_own_interpreter_ends() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("#!{}\n", file.path().display())).unwrap();
        assert_eq!(Obstacle::of(file.path(), None), None);
    }

    #[test]
    fn the_dynamic_loader_itself_is_no_static_program() {
        match Image::read(Path::new("/bin/true")).unwrap() {
            Image::Elf(elf) => assert_eq!(Obstacle::of(&elf.interpreter.unwrap(), None), None),
            other => panic!("{other:?}"),
        }
    }
}

//! Where the preload library is.
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::image::Image;
use crate::failure::Failure;
use crate::this_command;

/// The library's file name.
pub const FILE: &str = "libshunt.so";
/// The library that stands before libtirpc, in the same directory.
pub const RPC_FILE: &str = "libshunt_tirpc.so";
/// The variable that says whether it is preloaded; `--rpc` sets it.
pub const RPC_VARIABLE: &str = "SHUNT_RPC";
/// The variable that names the library's path; `--library` sets it.
pub const VARIABLE: &str = "SHUNT_LIBRARY";

/// Places relative to the command's directory: beside it as the build leaves it, then as `make install` leaves it.
const PLACES: [&str; 3] = [".", "../lib/shunt", "../lib"];

/// The absolute path of the library: the one `named` by the user, in the flag or variable `by`, or the first that exists
/// in [`PLACES`].
///
/// # Errors
/// If there is none, with the places that were searched.
pub fn find(named: Option<&OsStr>, by: &str) -> Result<PathBuf, Failure> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let path = Path::new(named);
        if let Some(why) = obstacle(path) {
            return Err(unusable(by, path, why));
        }
        return std::path::absolute(path).map_err(|error| unusable(by, path, error));
    }
    let command = this_command::path().map_err(|error| {
        Failure::of_environment(format_args!(
            "cannot tell where this command is ({error}), so name the library: shunt run --library /path/{FILE}"
        ))
    })?;
    let directory = command.parent().unwrap_or(Path::new("/"));
    let found = search(directory).ok_or_else(|| {
        Failure::of_environment(format_args!(
            "cannot find {FILE} in {0}, {0}/../lib/shunt or {0}/../lib; build it (make build), or name it by \
             SHUNT_LIBRARY or --library",
            directory.display()
        ))
    })?;
    match obstacle(&found) {
        Some(why) => Err(Failure::of_environment(format_args!("cannot use {}: {why}", found.display()))),
        None => Ok(found),
    }
}

/// The library that stands before libtirpc, beside `library`.
///
/// # Errors
/// If it is not there, or cannot be used.
pub fn beside(library: &Path) -> Result<PathBuf, Failure> {
    let path = library.with_file_name(RPC_FILE);
    match obstacle(&path) {
        Some(why) => Err(Failure::of_environment(format_args!("--rpc on: cannot use {}: {why}", path.display()))),
        None => Ok(path),
    }
}

/// Why the loader could not preload the file at `path`. It would say so at the start of each program, and go on without.
fn obstacle(path: &Path) -> Option<String> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => return Some("it is not a file".into()),
        Ok(_) => {}
        Err(error) => return Some(error.to_string()),
    }
    match Image::read(path) {
        Ok(Image::Elf(elf)) if elf.is_native() => None,
        Ok(Image::Elf(elf)) => Some(format!("it is made for another machine ({})", elf.architecture())),
        Ok(_) => Some("it is not a library, or damaged".into()),
        Err(error) => Some(error.to_string()),
    }
}

/// Which part of its path lets other users than root and this one change the library, or put another in its place, for people.
pub fn writable_by_others(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let own = rustix::process::geteuid().as_raw();
    path.ancestors().find_map(|part| {
        let about = part.metadata().ok()?;
        let (owner, mode) = (about.uid(), about.mode() & if about.gid() == 0 { !0o020 } else { !0 });
        // In a directory with the sticky bit others replace nothing that is not theirs.
        let others = mode & 0o022 != 0 && !(about.is_dir() && mode & libc::S_ISVTX != 0);
        if owner != 0 && owner != own {
            Some(format!("{} belongs to user {owner}", part.display()))
        } else if others {
            Some(format!("{} can be written by other users", part.display()))
        } else {
            None
        }
    })
}

fn unusable(by: &str, path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::of_usage(format_args!("{by}: cannot use \"{}\": {why}; example: /usr/lib/shunt/{FILE}", path.display()))
}

fn search(directory: &Path) -> Option<PathBuf> {
    PLACES
        .iter()
        .map(|place| directory.join(place).join(FILE))
        .find(|path| path.is_file())
        // The path ends up in the environment and in /proc/PID/maps, where `bin/../lib` would only puzzle.
        .map(|path| path.canonicalize().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_the_command_wins_then_lib_shunt_then_lib() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for directory in ["bin", "lib/shunt"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        let bin = root.join("bin");
        assert_eq!(search(&bin), None);
        for place in ["lib", "lib/shunt", "bin"] {
            let path = root.join(place).join(FILE);
            std::fs::write(&path, "").unwrap();
            assert_eq!(search(&bin), Some(path));
        }
    }

    #[test]
    fn a_named_library_must_be_one() {
        for other in ["/nonexistent/x.so", "/", "Cargo.toml", "/dev/null"] {
            assert_eq!(find(Some(OsStr::new(other)), VARIABLE).unwrap_err().status, 2, "{other}");
        }
        let native = std::env::current_exe().unwrap();
        assert_eq!(find(Some(native.as_os_str()), VARIABLE).unwrap(), native);
    }

    #[test]
    fn a_library_for_another_machine_is_refused() {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        bytes[18..20].copy_from_slice(&40u16.to_le_bytes());
        let other = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(other.path(), bytes).unwrap();
        let why = find(Some(other.path().as_os_str()), VARIABLE).unwrap_err().message;
        assert!(why.contains("another machine (64-bit ARM)"), "{why}");
    }
}

//! Where the preload library is.
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::this_command;

/// The library's file name.
pub const FILE: &str = "libshunt.so";
/// The variable that names the library's path; `--library` sets it.
pub const VARIABLE: &str = "SHUNT_LIBRARY";

/// Places relative to the command's directory: beside it as the build leaves it, then as `make install` leaves it.
const PLACES: [&str; 3] = [".", "../lib/shunt", "../lib"];

/// The absolute path of the library: the one named by the user, or the first that exists in [`PLACES`].
///
/// # Errors
/// If there is none, with the places that were searched.
pub fn find(named: Option<&OsStr>) -> Result<PathBuf, Failure> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        let path = Path::new(named);
        return match std::fs::File::open(path).and_then(|file| file.metadata()) {
            Ok(metadata) if metadata.is_file() => std::path::absolute(path).map_err(|error| missing(path, error)),
            Ok(_) => Err(missing(path, "it is not a file")),
            Err(error) => Err(missing(path, error)),
        };
    }
    let command = this_command::path().map_err(|error| {
        Failure::of_environment(format_args!(
            "cannot tell where this command is ({error}), so name the library: shunt run --library /path/{FILE}"
        ))
    })?;
    let directory = command.parent().unwrap_or(Path::new("/"));
    search(directory).ok_or_else(|| {
        Failure::of_environment(format_args!(
            "cannot find {FILE} in {0}, {0}/../lib/shunt or {0}/../lib; build it (make build), or name it by \
             SHUNT_LIBRARY or --library",
            directory.display()
        ))
    })
}

fn missing(path: &Path, why: impl std::fmt::Display) -> Failure {
    Failure::of_usage(format_args!("{VARIABLE}: cannot use \"{}\": {why}; example: /usr/lib/shunt/{FILE}", path.display()))
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
    fn a_named_library_must_be_a_readable_file() {
        assert_eq!(find(Some(OsStr::new("/nonexistent/x.so"))).unwrap_err().status, 2);
        assert_eq!(find(Some(OsStr::new("/"))).unwrap_err().status, 2);
        assert_eq!(find(Some(OsStr::new("Cargo.toml"))).unwrap(), std::path::absolute("Cargo.toml").unwrap());
    }
}

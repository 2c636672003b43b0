//! Which file a program's name means: as execvp(3) finds it, with the exit statuses of shells.
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::Errno;

use crate::failure::Failure;

/// What execvp(3) searches when PATH is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The file to execute for `program`. A name with a slash is a path; others are searched for in `search_path`.
///
/// # Errors
/// Status 127 if there is no such file, 126 if there is one that cannot be executed.
pub fn find(program: &OsStr, search_path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let name = Path::new(program).display();
    if program.as_bytes().contains(&b'/') {
        return check(Path::new(program)).map(|()| program.into());
    }
    if program.is_empty() {
        return Err(Failure::not_found("the program's name is empty"));
    }
    let mut unusable = None;
    for directory in std::env::split_paths(search_path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        // An empty element means the current directory, and `join` would make a bare name of it.
        let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
        let candidate = directory.join(program);
        if candidate.is_dir() {
            continue;
        }
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(failure) if failure.status == 126 => unusable = unusable.or(Some(failure)),
            Err(_) => {}
        }
    }
    Err(unusable.unwrap_or_else(|| Failure::not_found(format_args!("{name}: not found in PATH"))))
}

fn check(path: &Path) -> Result<(), Failure> {
    let name = path.display();
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Err(Failure::not_executable(format_args!("{name}: is a directory, not a program"))),
        Ok(_) => match rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS) {
            // Filters of older containers refuse the call itself; execve(2) will say.
            Ok(()) | Err(Errno::PERM | Errno::NOSYS) => Ok(()),
            Err(_) => Err(Failure::not_executable(format_args!("{name}: no permission to execute it (try: chmod +x {name})"))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Failure::not_executable(format_args!("{name}: no permission to look it up: {error}")))
        }
        Err(error) => Err(Failure::not_found(format_args!("{name}: not found: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_search_goes_past_files_that_cannot_be_executed() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        for directory in [&first, &second] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("tool"), "").unwrap();
        }
        let path = std::env::join_paths([&first, &second]).unwrap();
        let plain = find("tool".as_ref(), Some(&path)).unwrap_err();
        assert_eq!(plain.status, 126, "{}", plain.message);

        let tool = second.join("tool");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("tool".as_ref(), Some(&path)).unwrap(), tool);
        assert_eq!(find(first.join("tool").as_os_str(), None).unwrap_err().status, 126);
    }

    #[test]
    fn missing_names_and_directories() {
        assert_eq!(find("no-such-program-here".as_ref(), Some("/bin".as_ref())).unwrap_err().status, 127);
        assert_eq!(find("/no/such/program".as_ref(), None).unwrap_err().status, 127);
        assert_eq!(find("etc".as_ref(), Some("/".as_ref())).unwrap_err().status, 127);
        assert_eq!(find("".as_ref(), None).unwrap_err().status, 127);
        assert_eq!(find("/etc".as_ref(), None).unwrap_err().status, 126);
        assert_eq!(find("sh".as_ref(), None).unwrap(), Path::new("/bin/sh"));
    }
}

//! The directory below which units lie: of an image, whose links and names are its maker's and lead nowhere out of it.
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{openat, openat2, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};

use crate::failure::Failure;

/// It, opened.
pub struct Root {
    /// As it was named.
    pub path: PathBuf,
    directory: OwnedFd,
}

/// A file in it, found and not opened yet.
pub struct Found(OwnedFd);

impl Root {
    /// Opens it.
    ///
    /// # Errors
    /// If it is no directory that may be searched.
    pub fn open(path: &Path) -> Result<Root, Failure> {
        let directory = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let directory =
            directory.map_err(|error| Failure::of_environment(format_args!("{}: cannot be opened: {error}", path.display())))?;
        Ok(Root { path: path.to_owned(), directory })
    }

    /// The machine's own, where nothing is an image's.
    pub fn is_own(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The path as the machine has it, to be shown.
    pub fn shown(&self, path: &Path) -> PathBuf {
        self.path.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn look(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let path = path.strip_prefix("/").unwrap_or(path);
        let flags = flags | OFlags::CLOEXEC;
        if self.is_own() {
            return Ok(openat(&self.directory, path, flags, Mode::empty())?);
        }
        // Again where names were changed meanwhile.
        for _ in 0..16 {
            let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            match openat2(&self.directory, path, flags, Mode::empty(), within) {
                Err(rustix::io::Errno::AGAIN) => {}
                other => return Ok(other?),
            }
        }
        Err(ErrorKind::WouldBlock.into())
    }

    /// The file at `path`, by whatever links lead there inside; anything but a file is none.
    ///
    /// # Errors
    /// What the system answers.
    pub fn find(&self, path: &Path) -> io::Result<Found> {
        let file = self.look(path, OFlags::PATH)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(Found(file)),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    /// The names in a directory; none if it cannot be read.
    pub fn names(&self, path: &Path) -> Vec<OsString> {
        let read = || Dir::new(self.look(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK).ok()?).ok();
        let entries = read().into_iter().flatten().flatten();
        entries.map(|entry| OsString::from_vec(entry.file_name().to_bytes().to_vec())).collect()
    }

    /// Opens the directory at `path`, which is made if it is not there, with those above it.
    ///
    /// # Errors
    /// What the system answers.
    pub fn make_directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut so_far = PathBuf::from(".");
        let mut directory = self.look(&so_far, OFlags::PATH | OFlags::DIRECTORY)?;
        for component in path.components().filter(|component| matches!(component, Component::Normal(_))) {
            so_far.push(component);
            match rustix::fs::mkdirat(&directory, component.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            directory = self.look(&so_far, OFlags::PATH | OFlags::DIRECTORY)?;
        }
        Ok(directory)
    }

    /// Removes the file at `path`, and its directory if nothing else is in it.
    ///
    /// # Errors
    /// What the system answers of the file.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Err(ErrorKind::InvalidInput.into()) };
        rustix::fs::unlinkat(self.look(directory, OFlags::PATH | OFlags::DIRECTORY)?, name, AtFlags::empty())?;
        if let (Some(above), Some(name)) = (directory.parent(), directory.file_name()) {
            let _ = self
                .look(above, OFlags::PATH | OFlags::DIRECTORY)
                .map(|above| rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR));
        }
        Ok(())
    }
}

impl Found {
    /// All that is in it.
    ///
    /// # Errors
    /// What the system answers.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(self.path())?.take(1 << 20).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// A path to it for this process, while it is kept.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_stay_inside() {
        let directory = tempfile::tempdir().unwrap();
        let (outside, inside) = (directory.path().join("secret"), directory.path().join("image"));
        std::fs::create_dir_all(inside.join("etc")).unwrap();
        std::fs::write(&outside, "out").unwrap();
        std::fs::write(inside.join("etc/here"), "in").unwrap();
        symlink(&outside, inside.join("absolute")).unwrap();
        symlink("../../secret", inside.join("etc/relative")).unwrap();
        symlink("/etc/here", inside.join("of-the-image")).unwrap();
        symlink("/proc/self/root", inside.join("magic")).unwrap();
        symlink(directory.path(), inside.join("out")).unwrap();
        let root = Root::open(&inside).unwrap();
        for path in ["absolute", "etc/relative", "../secret", "magic/etc/passwd", "out/secret", "etc"] {
            assert!(root.find(Path::new(path)).is_err(), "{path}");
        }
        assert_eq!(root.find(Path::new("/of-the-image")).unwrap().read().unwrap(), b"in");
        // A directory through a link that leads out would be made inside, and is refused where the link's own target is not there.
        assert!(root.make_directory(Path::new("out/new")).is_err());
        assert!(!directory.path().join("new").exists());
        drop(root.make_directory(Path::new("etc/a/b")).unwrap());
        assert!(inside.join("etc/a/b").is_dir());
        assert_eq!(root.names(Path::new("etc/a")).iter().filter(|name| *name == "b").count(), 1);
    }

    #[test]
    fn what_would_hold_a_reader_up_is_no_file() {
        let directory = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, directory.path().join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .unwrap();
        assert!(Root::open(directory.path()).unwrap().find(Path::new("pipe")).is_err());
    }
}

//! A directory of the test's own, removed when the test succeeds and kept when it fails.

use crate::launch::EXECUTABLES;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::PoisonError;

/// A temporary directory that servers running as another user may enter.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes `<temporary directory>/shunt-test-<label>-<pid>-<number>`, mode 0755.
    pub fn new(label: &str) -> Scratch {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Names of UNIX sockets are limited to 108 bytes, so only the test's own part of the label is kept.
        let short = label.rsplit("::").take(2).collect::<Vec<_>>().join("-");
        let path = std::env::temp_dir().join(format!("shunt-test-{short}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the scratch directory can be made");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode can be set");
        Scratch { path }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of `name` in the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Gives an executable or a library a name in the directory, where other users reach it, and returns its path. The file stays what it is while a build
    /// goes on: that puts new files in the place of old ones. It is copied where the directory lies on another file system.
    pub fn link_program(&self, from: &Path, name: impl AsRef<Path>) -> PathBuf {
        let path = self.join(&name);
        match fs::canonicalize(from).and_then(|file| fs::hard_link(file, &path)) {
            Ok(()) => path,
            Err(_) => self.copy_program(from, name),
        }
    }

    /// Copies an executable or a library into the directory, where other users reach it, and returns its path.
    pub fn copy_program(&self, from: &Path, name: impl AsRef<Path>) -> PathBuf {
        let path = self.join(name);
        let _nothing_is_started = EXECUTABLES.write().unwrap_or_else(PoisonError::into_inner);
        fs::copy(from, &path).unwrap_or_else(|error| panic!("{}: {error}: run `make build`", from.display()));
        path
    }

    /// Writes a file into the directory and returns its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, contents).expect("the scratch directory can be written");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("kept for inspection: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

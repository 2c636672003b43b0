//! The programs that are run: our own in C, carried inside this command, and those of the system.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A measuring program of `programs/`, compiled when this crate was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measuring {
    /// Round trips.
    PingPong,
    /// Bulk transfer.
    Stream,
    /// Connection set-up.
    Connect,
    /// Silent connections.
    Idle,
    /// Shared memory without sockets.
    Floor,
    /// Many connections, threads and processes, any way of waiting.
    Load,
    /// Datagrams.
    Datagrams,
    /// Messages by MSG_ZEROCOPY from a pool.
    ZeroCopy,
    /// Datagrams between two hosts.
    Udp,
}

impl Measuring {
    const ALL: [Measuring; 9] = [
        Measuring::PingPong,
        Measuring::Stream,
        Measuring::Connect,
        Measuring::Idle,
        Measuring::Floor,
        Measuring::Load,
        Measuring::Datagrams,
        Measuring::ZeroCopy,
        Measuring::Udp,
    ];

    fn name(self) -> &'static str {
        match self {
            Measuring::PingPong => "pingpong",
            Measuring::Stream => "stream",
            Measuring::Connect => "connect",
            Measuring::Idle => "idle",
            Measuring::Floor => "floor",
            Measuring::Load => "load",
            Measuring::Datagrams => "datagrams",
            Measuring::ZeroCopy => "zerocopy",
            Measuring::Udp => "udp",
        }
    }

    fn bytes(self) -> &'static [u8] {
        match self {
            Measuring::PingPong => include_bytes!(concat!(env!("OUT_DIR"), "/pingpong")),
            Measuring::Stream => include_bytes!(concat!(env!("OUT_DIR"), "/stream")),
            Measuring::Connect => include_bytes!(concat!(env!("OUT_DIR"), "/connect")),
            Measuring::Idle => include_bytes!(concat!(env!("OUT_DIR"), "/idle")),
            Measuring::Floor => include_bytes!(concat!(env!("OUT_DIR"), "/floor")),
            Measuring::Load => include_bytes!(concat!(env!("OUT_DIR"), "/load")),
            Measuring::Datagrams => include_bytes!(concat!(env!("OUT_DIR"), "/datagrams")),
            Measuring::ZeroCopy => include_bytes!(concat!(env!("OUT_DIR"), "/zerocopy")),
            Measuring::Udp => include_bytes!(concat!(env!("OUT_DIR"), "/udp")),
        }
    }

    /// Where [`unpack`] has put it.
    pub fn path(self, scratch: &Path) -> PathBuf {
        scratch.join(self.name())
    }
}

/// Writes the measuring programs into the scratch directory.
pub fn unpack(scratch: &Path) -> io::Result<()> {
    for program in Measuring::ALL {
        let path = program.path(scratch);
        fs::write(&path, program.bytes())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// A program of the system and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External {
    /// Name of the executable.
    pub name: &'static str,
    /// Package to install when it is missing.
    pub package: &'static str,
}

impl External {
    /// Finds it where Debian keeps the versions of PostgreSQL (what it has in PATH are scripts that
    /// pick one), in PATH, and in the directories of system programs; the error names the package.
    pub fn find(self) -> Result<PathBuf, String> {
        let mut directories: Vec<PathBuf> =
            fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path().join("bin")).collect();
        directories.sort_by(|one, other| other.cmp(one));
        directories.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        directories.extend(["/usr/sbin", "/usr/local/sbin", "/usr/bin"].map(PathBuf::from));
        directories
            .into_iter()
            .map(|directory| directory.join(self.name))
            .find(|candidate| is_executable(candidate))
            .ok_or_else(|| format!("{} is not installed (Debian package {})", self.name, self.package))
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        let missing = External { name: "no-such-program-here", package: "some-package" };
        assert!(missing.find().unwrap_err().contains("some-package"));
        assert!(External { name: "sh", package: "dash" }.find().is_ok());
    }
}

//! Processes and their descriptors, as /proc shows them.
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::fs::{makedev, statx, AtFlags, FileType, MemfdFlags, Mode, OFlags, StatxFlags};

use crate::failure::Failure;

/// What a descriptor of another process is, as far as its link in /proc tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A socket, with its inode.
    Socket(u64),
    /// An anonymous memory file, with its name.
    Memory(String),
    /// An epoll set.
    Epoll,
    /// Anything else.
    Other,
}

/// A descriptor of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number.
    pub number: u32,
    /// What it is.
    pub target: Target,
}

/// Every process number that /proc shows, in ascending order.
pub fn all() -> Vec<u32> {
    let mut numbers: Vec<u32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Looks whether /proc shows processes at all.
///
/// # Errors
/// If it does not: nothing can be said of any process.
pub fn are_shown() -> Result<(), Failure> {
    match std::fs::read_link("/proc/self/exe") {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::of_environment("cannot look at processes: /proc is not mounted here (mount -t proc proc /proc)")),
    }
}

/// Whether the process exists.
pub fn exists(pid: u32) -> bool {
    pid != 0 && path(pid, "").exists()
}

/// The file `name` in the process's directory in /proc.
pub fn path(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// The program's name (15 bytes at most), without characters that could upset a terminal.
pub fn program(pid: u32) -> Option<String> {
    let comm = std::fs::read(path(pid, "comm")).ok()?;
    Some(printable(comm.strip_suffix(b"\n").unwrap_or(&comm)))
}

/// Whether the process runs a program of this name: by the name that it has now, of which the kernel keeps 15 bytes, or that of its file.
pub fn is_program(pid: u32, name: &str) -> bool {
    let comm = std::fs::read(path(pid, "comm")).unwrap_or_default();
    let file = std::fs::read_link(path(pid, "exe")).unwrap_or_default();
    comm.strip_suffix(b"\n").unwrap_or(&comm) == name.as_bytes() || file.file_name().is_some_and(|file| file == name)
}

/// Text as it can be shown: what other processes and hosts wrote may hold anything.
pub fn printable(bytes: &[u8]) -> String {
    let shown = |character: char| if character.is_control() || is_format(character) { '?' } else { character };
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

/// Characters that have no width or turn the direction of others (Unicode's category Cf): with them a line reads as another one.
fn is_format(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The number of the process's network namespace.
pub fn network_namespace(pid: u32) -> Option<u64> {
    let link = std::fs::read_link(path(pid, "ns/net")).ok()?;
    number_in(link.to_str()?, "net:[")
}

/// The process's number as it knows it itself: another one than `pid` if it lives in a container.
pub fn own_number(pid: u32) -> u32 {
    let status = std::fs::read_to_string(path(pid, "status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.and_then(|numbers| numbers.split_ascii_whitespace().next_back()?.parse().ok()).unwrap_or(pid)
}

/// The process's descriptors, in ascending order.
///
/// # Errors
/// If the process does not exist, or may not be looked at: it is another user's, or changed its user, and root is without CAP_SYS_PTRACE, as in containers.
pub fn descriptors(pid: u32) -> io::Result<Vec<Descriptor>> {
    let mut descriptors = Vec::new();
    for entry in std::fs::read_dir(path(pid, "fd"))?.flatten() {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match std::fs::read_link(entry.path()) {
            Ok(link) => descriptors.push(Descriptor { number, target: target(link.as_os_str().as_bytes()) }),
            // To list the numbers takes less than to see what they are (proc(5)).
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // It may have been closed since the directory was read.
            Err(_) => {}
        }
    }
    descriptors.sort_unstable_by_key(|descriptor| descriptor.number);
    Ok(descriptors)
}

fn target(link: &[u8]) -> Target {
    let Ok(link) = std::str::from_utf8(link) else { return Target::Other };
    if let Some(inode) = number_in(link, "socket:[") {
        Target::Socket(inode)
    } else if let Some(name) = link.strip_prefix("/memfd:") {
        Target::Memory(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
    } else if link == "anon_inode:[eventpoll]" {
        Target::Epoll
    } else {
        Target::Other
    }
}

fn number_in(link: &str, prefix: &str) -> Option<u64> {
    link.strip_prefix(prefix)?.strip_suffix(']')?.parse().ok()
}

/// Whether the process has mapped a file of this name.
pub fn has_mapped(pid: u32, file_name: &str) -> bool {
    let maps = std::fs::read(path(pid, "maps")).unwrap_or_default();
    let ending = format!("/{file_name}");
    maps.split(|byte| *byte == b'\n').any(|line| line.ends_with(ending.as_bytes()))
}

/// Whether the process has mapped a library whose file's name begins so: behind it stands the file's own version.
pub fn has_mapped_library(pid: u32, name: &str) -> bool {
    let maps = std::fs::read(path(pid, "maps")).unwrap_or_default();
    maps.split(|byte| *byte == b'\n').any(|line| {
        let file = line.rsplit(|byte| *byte == b'/').next().filter(|file| file.len() < line.len());
        file.is_some_and(|file| file.starts_with(name.as_bytes()))
    })
}

/// The environment with which the process was started.
pub fn environment(pid: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bytes = std::fs::read(path(pid, "environ")).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            let equals = entry.iter().position(|byte| *byte == b'=')?;
            Some((entry[..equals].to_vec(), entry[equals + 1..].to_vec()))
        })
        .collect()
}

/// Memory behind a descriptor of another process: found, and not opened yet.
///
/// What a process calls a memory file may have become anything since its name was read: a device that acts when it is opened, a program that cannot
/// be executed while one writes to it, a file system whose server never answers. So it is looked at without being opened.
pub struct Memory {
    place: OwnedFd,
    /// The file system and the number of the file, which name it.
    pub key: (u64, u64),
    /// Whose it is.
    pub owner: u32,
    /// Its bytes.
    pub length: u64,
}

/// Finds it.
///
/// # Errors
/// If it was closed meanwhile, belongs to another user, or is no memory file.
pub fn memory(pid: u32, descriptor: u32) -> io::Result<Memory> {
    let place = rustix::fs::open(path(pid, &format!("fd/{descriptor}")), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let (device, about) = looked_at(&place)?;
    let is_memory = FileType::from_raw_mode(about.stx_mode.into()) == FileType::RegularFile && memory_devices().contains(&device);
    if !is_memory {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(Memory { key: (device, about.stx_ino), owner: about.stx_uid, length: about.stx_size, place })
}

impl Memory {
    /// Opens it, for reading, and for writing where that is said.
    ///
    /// # Errors
    /// What the system answers.
    pub fn open(&self, write: bool) -> io::Result<File> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let path = format!("/proc/self/fd/{}", self.place.as_raw_fd());
        Ok(rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty())?.into())
    }
}

/// Which device a file lies on, and what else is known of it without asking a server.
fn looked_at(file: &OwnedFd) -> io::Result<(u64, rustix::fs::Statx)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let about = statx(file, "", flags, StatxFlags::BASIC_STATS)?;
    Ok((makedev(about.stx_dev_major, about.stx_dev_minor), about))
}

/// Where this kernel has memory files, of ordinary pages and of huge ones: no path leads there.
fn memory_devices() -> &'static [u64] {
    static DEVICES: OnceLock<Vec<u64>> = OnceLock::new();
    let device = |flags| {
        let own = rustix::fs::memfd_create("shunt", MemfdFlags::CLOEXEC | flags).ok()?;
        looked_at(&own).ok().map(|(device, _)| device)
    };
    DEVICES.get_or_init(|| [MemfdFlags::empty(), MemfdFlags::HUGETLB].into_iter().filter_map(device).collect())
}

/// Opens the memory file behind a descriptor of another process, for reading.
///
/// # Errors
/// As for [`memory`].
pub fn open(pid: u32, descriptor: u32) -> io::Result<File> {
    memory(pid, descriptor)?.open(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn links_are_told_apart() {
        assert_eq!(target(b"socket:[4711]"), Target::Socket(4711));
        assert_eq!(target(b"/memfd:shunt-link (deleted)"), Target::Memory("shunt-link".into()));
        assert_eq!(target(b"anon_inode:[eventpoll]"), Target::Epoll);
        for other in [&b"socket:[]"[..], b"socket:[x]", b"/dev/null", b"pipe:[1]", b"\xff"] {
            assert_eq!(target(other), Target::Other);
        }
    }

    #[test]
    fn this_process_is_seen_with_its_socket() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = socket.as_raw_fd() as u32;
        let pid = std::process::id();
        assert!(all().contains(&pid) && exists(pid) && !exists(0));
        assert_eq!(own_number(pid), pid);
        let inode = std::fs::metadata(path(pid, &format!("fd/{number}"))).unwrap().ino();
        assert!(descriptors(pid).unwrap().contains(&Descriptor { number, target: Target::Socket(inode) }));
        assert!(network_namespace(pid).is_some());
        assert_eq!(program(pid).unwrap().len(), program(pid).unwrap().trim().len());
    }

    #[test]
    fn names_cannot_upset_a_terminal() {
        assert_eq!(printable(b"a\x1b[2J\n\xff"), "a?[2J?\u{fffd}");
        assert_eq!(printable("a\u{202e}b\u{200b}\u{9b}\u{e4}".as_bytes()), "a?b??\u{e4}");
    }

    #[test]
    fn what_is_no_memory_file_is_not_opened() {
        let pid = std::process::id();
        let number = |file: &File| file.as_raw_fd() as u32;
        let memfd: File = rustix::fs::memfd_create("shunt-x", MemfdFlags::CLOEXEC).unwrap().into();
        assert!(open(pid, number(&memfd)).is_ok());
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(open(pid, socket.as_raw_fd() as u32).is_err());
        let directory = tempfile::tempdir().unwrap();
        // As another mount namespace shows it, such a file's path may begin as a memory file's does.
        let file = directory.path().join("memfd:shunt-link (deleted)");
        std::fs::write(&file, [0; 4096]).unwrap();
        assert!(open(pid, number(&File::open(&file).unwrap())).is_err());
        let device = rustix::fs::open("/dev/null", OFlags::PATH, Mode::empty()).unwrap();
        assert!(open(pid, device.as_raw_fd() as u32).is_err());
        assert!(open(pid, number(&File::open("/proc/version").unwrap())).is_err());
    }
}

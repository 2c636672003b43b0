//! The file that is written: a regular one, of which each block is whole whatever happens, or a pipe, whose reader may be slow or end.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// So much is put together before it is written.
const ENOUGH: usize = 1 << 20;
/// Bytes that a pipe takes without waiting where poll(2) says that it takes some (PIPE_BUF).
const PIECE: usize = 4096;
/// How long one look at a pipe that is full waits (ms).
const LOOK: i32 = 50;

/// What is done about a FIFO that no process reads yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It is waited for one, as open(2) does.
    Waits,
    /// That is an error.
    Refuses,
}

/// A file of packets that is being written.
pub struct Output {
    file: File,
    is_regular: bool,
    /// Bytes of whole blocks in the file.
    written: u64,
    /// Blocks that are not written yet.
    pending: Vec<u8>,
}

impl Output {
    /// Makes the file, or takes standard output (`-`).
    ///
    /// What programs say to each other is not for others of the host: nor by a link, or a file of theirs that is there.
    ///
    /// # Errors
    /// What open(2) says; a sentence where the file is another user's, or a FIFO has no reader.
    pub fn create(path: &Path, opening: Opening) -> io::Result<Output> {
        if path.as_os_str() == "-" {
            return Output::to(File::from(io::stdout().as_fd().try_clone_to_owned()?));
        }
        let flags = if opening == Opening::Refuses { libc::O_NONBLOCK } else { 0 };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW | flags);
        let file = options.open(path).map_err(|error| match error.raw_os_error() {
            Some(libc::ENXIO) => io::Error::other("no process reads this FIFO: start its reader first"),
            Some(libc::ELOOP) => io::Error::other("it is a symbolic link"),
            _ => error,
        })?;
        let about = file.metadata()?;
        if about.is_file() {
            // SAFETY: takes nothing.
            if about.uid() != unsafe { libc::geteuid() } {
                return Err(io::Error::other("the file belongs to another user"));
            }
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.set_len(0)?;
        }
        Output::to(file)
    }

    fn to(file: File) -> io::Result<Output> {
        let about = file.metadata()?;
        // SAFETY: an open descriptor, and no pointer.
        let appends = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) } & libc::O_APPEND != 0;
        let written = match about.is_file() {
            // Behind what is there, which is not ours to cut.
            true if appends => about.len(),
            true => (&file).stream_position()?,
            false => 0,
        };
        Ok(Output { file, is_regular: about.is_file(), written, pending: Vec::new() })
    }

    /// Where the next block is put, behind those that wait to be written.
    pub fn blocks(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    /// Whether so much waits that it should be written.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= ENOUGH
    }

    /// Writes what waits. While a pipe is full `goes_on` is asked some times a second.
    ///
    /// # Errors
    /// What write(2) says: ENOSPC, EPIPE; a regular file then ends with the last block that is whole. TimedOut: `goes_on` said no.
    pub fn flush(&mut self, goes_on: impl FnMut() -> bool) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let written = match self.is_regular {
            true => self.file.write_all(&pending).inspect_err(|_| {
                let length = self.file.metadata().map_or(0, |about| about.len());
                // Nothing better can be done where this fails, too: readers say that the last packet is cut.
                let _ = self.file.set_len(self.written + whole(&pending, length, self.written));
            }),
            false => write_patiently(&self.file, &pending, goes_on),
        };
        self.written += pending.len() as u64;
        self.pending = pending;
        self.pending.clear();
        written
    }

    /// Whether the reader of a pipe is gone.
    pub fn is_over(&self) -> bool {
        !self.is_regular && poll(&self.file, 0) & (libc::POLLERR | libc::POLLNVAL) != 0
    }
}

/// How many of the bytes of whole blocks are in a file that has `length` bytes, `before` of which were there before.
fn whole(blocks: &[u8], length: u64, before: u64) -> u64 {
    let (room, mut at) = (length.saturating_sub(before), 0);
    while let Some(next) = blocks.get(at + 4..at + 8).map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()) as usize)
    {
        if next == 0 || (at + next) as u64 > room {
            break;
        }
        at += next;
    }
    at as u64
}

fn poll(file: &File, patience: i32) -> libc::c_short {
    let mut set = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one structure, as said.
    unsafe { libc::poll(&mut set, 1, patience) };
    set.revents
}

/// Writes to a pipe, of which other processes may have the other end, without waiting in the call for longer than a look.
fn write_patiently(mut file: &File, mut bytes: &[u8], mut goes_on: impl FnMut() -> bool) -> io::Result<()> {
    while !bytes.is_empty() {
        if poll(file, LOOK) == 0 {
            if !goes_on() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            continue;
        }
        match file.write(&bytes[..bytes.len().min(PIECE)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{self, Interface, Packet};
    use std::io::Read;
    use std::os::fd::{FromRawFd, OwnedFd};

    fn fill(output: &mut Output, packets: usize, length: usize) {
        block::section(output.blocks());
        block::interface(output.blocks(), &Interface { link: block::RAW, longest: 0, name: "x", description: "" });
        let bytes = vec![5; length];
        for time in 0..packets as u64 {
            let parts = &[&bytes[..]];
            block::packet(
                output.blocks(),
                &Packet { interface: 0, time, length: length as u32, parts, direction: None, comment: None },
            );
        }
    }

    fn packets(bytes: &[u8]) -> usize {
        let mut reader = pcap_file::pcapng::PcapNgReader::new(bytes).expect("a section");
        let mut count = 0;
        while let Some(block) = reader.next_block() {
            count += usize::from(block.expect("a whole block").into_enhanced_packet().is_some());
        }
        count
    }

    /// Where the disk is full in the middle of a block the file ends in front of it.
    #[test]
    fn a_file_that_is_cut_ends_with_a_whole_block() {
        let mut output = Output::to(tempfile()).expect("a file");
        fill(&mut output, 100, 333);
        let blocks = output.blocks().clone();
        for length in [0, 27, 28, 29, 76, 100, 5_000, blocks.len() - 1, blocks.len()] {
            let kept = whole(&blocks, length as u64 + 1000, 1000) as usize;
            assert!(kept <= length && blocks.len() - kept < 400 + blocks.len() - length, "{length} {kept}");
            if kept >= 28 {
                packets(&blocks[..kept]);
            }
        }
        // The first write fits, the second does not (a limit of file sizes, in a process of its own).
        let directory = std::env::temp_dir().join(format!("shunt-pcapng-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("limited");
        // SAFETY: the child uses files alone, and ends without running what its parent has to run.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a number, and a structure that is read.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: 60_000, rlim_max: 60_000 });
            }
            let mut output = Output::create(&path, Opening::Refuses).expect("a file");
            fill(&mut output, 100, 333);
            let fits = output.flush(|| true).is_ok();
            fill(&mut output, 100, 333);
            let fails = output.flush(|| true).is_err_and(|error| error.raw_os_error() == Some(libc::EFBIG));
            // SAFETY: ends.
            unsafe { libc::_exit(i32::from(!(fits && fails))) };
        }
        let mut status = 0;
        // SAFETY: our child, and a number that is written.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        let bytes = std::fs::read(&path).expect("a file");
        assert!(bytes.len() > 55_000 && bytes.len() <= 60_000 && packets(&bytes) > 140, "{} bytes", bytes.len());
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        let _ = std::fs::remove_dir_all(&directory);
    }

    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!("shunt-pcapng-file-{}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        let _ = std::fs::remove_file(&path);
        file
    }

    /// A reader that does not read holds nothing up for longer than is wished; one that ends is an error.
    #[test]
    fn pipes_are_waited_for_as_long_as_is_wished() {
        let mut ends = [-1; 2];
        // SAFETY: two numbers are written; both are owned at once.
        let [reads, writes] = unsafe {
            assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
            ends.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        let mut output = Output::to(File::from(writes)).expect("a pipe");
        fill(&mut output, 1000, 333);
        let length = output.blocks().len();
        let mut looks = 0;
        let error = output.flush(|| {
            looks += 1;
            looks < 3
        });
        assert_eq!((error.expect_err("full").kind(), looks), (io::ErrorKind::TimedOut, 3));
        assert!(!output.is_over());
        let mut reader = File::from(reads);
        let mut bytes = vec![0; 1 << 16];
        assert_eq!(reader.read(&mut bytes).expect("bytes"), 1 << 16);
        assert!(length > bytes.len());
        drop(reader);
        assert!(output.is_over());
        fill(&mut output, 1, 1);
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        assert_eq!(output.flush(|| true).expect_err("gone").raw_os_error(), Some(libc::EPIPE));
    }

    #[test]
    fn files_that_are_none_of_ours_are_refused() {
        let directory = std::env::temp_dir().join(format!("shunt-pcapng-refused-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let said = |name: &str| Output::create(&directory.join(name), Opening::Refuses).err().map(|error| error.to_string());
        std::os::unix::fs::symlink("/nowhere", directory.join("link")).expect("a link");
        assert_eq!(said("link").as_deref(), Some("it is a symbolic link"));
        let path = std::ffi::CString::new(directory.join("fifo").as_os_str().as_encoded_bytes()).expect("a path");
        // SAFETY: a string that ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
        assert!(said("fifo").is_some_and(|said| said.contains("no process reads")));
        assert!(said("missing/file").is_some() && said(".").is_some());
        let _ = std::fs::remove_dir_all(&directory);
    }
}

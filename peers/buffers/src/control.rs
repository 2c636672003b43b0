//! Words that both processes see: by them each says how far it is, in the same way for all contenders.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::place::Place;
use crate::Failure;

#[repr(C, align(4096))]
struct Words {
    ready: Line,
    done: Line,
    failed: Line,
}

/// A word alone in its cache line, and in the pair of lines that is fetched with it.
#[repr(C, align(128))]
struct Line(AtomicU64);

/// Both processes' mapping of the words; it lasts as long as the process.
#[derive(Clone, Copy)]
pub struct Control(&'static Words);

impl Control {
    pub fn of(place: &Place, name: &str) -> Result<Self, Failure> {
        let path = place.file(&format!("control-{name}"));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(size_of::<Words>() as u64)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file as long as that, which stays.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), size_of::<Words>(), protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: aligned to a page, mapped as above, for good; atomics may be changed by others.
        Ok(Self(unsafe { &*at.cast::<Words>() }))
    }

    /// The receiver waits for the message of this number.
    pub fn ready(&self, number: u64) {
        self.0.ready.0.store(number, Ordering::Release);
    }

    pub fn is_ready(&self, number: u64) -> bool {
        self.0.ready.0.load(Ordering::Acquire) == number
    }

    /// The receiver has read the message of this number.
    pub fn done(&self, number: u64) {
        self.0.done.0.store(number, Ordering::Release);
    }

    pub fn is_done(&self, number: u64) -> bool {
        self.0.done.0.load(Ordering::Acquire) == number
    }

    pub fn fail(&self) {
        self.0.failed.0.store(1, Ordering::Release);
    }

    /// # Errors
    /// The receiver has given up; its process says why.
    pub fn check(&self) -> Result<(), Failure> {
        match self.0.failed.0.load(Ordering::Acquire) {
            0 => Ok(()),
            _ => Err("its receiver gave up".into()),
        }
    }
}

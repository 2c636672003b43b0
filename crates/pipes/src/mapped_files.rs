//! Files in memory that are sent over and over: mapped, so that sendfile copies them as send copies a buffer.
//!
//! To read such a file costs the kernel a search for each page, and its stores wait for lines that the reader's caches have; to map it for one
//! call costs more than that. So a file that comes a second time by the same descriptor stays mapped until that descriptor is closed. It is asked each
//! time whether the descriptor still is that file, of that length, and without holes, which a look through a mapping would fill.
//!
//! What a close past the library leaves mapped is bounded: [`MOST`] files of at most [`LARGEST`] bytes.

use crate::kept_pipes;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use shunt_ring::lock;
use shunt_sys::section::Section;
use shunt_sys::{calls, libc, mapping, memory_file, thread};

/// Files that are known at a time.
const MOST: usize = 8;
/// Bytes of one: of longer ones the file's own lines are in no cache, and reading costs no more.
const LARGEST: usize = 4 << 20;

/// What is known of one. Zeros: none.
struct File {
    /// Its descriptor, and 1.
    number: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    size: AtomicUsize,
    /// Null: it came once.
    base: AtomicPtr<u8>,
    /// Calls that read it now.
    users: AtomicU32,
    /// It is closed, or another one.
    over: AtomicBool,
}

/// All of them. Zeros are an empty one.
pub(crate) struct Files {
    lock: AtomicU32,
    known: AtomicU32,
    next: AtomicUsize,
    files: [File; MOST],
}

impl File {
    fn is(&self, fd: i32) -> bool {
        self.number.load(Ordering::Relaxed) == fd + 1 && !self.over.load(Ordering::Relaxed)
    }

    /// The caller has the lock, and nobody reads it.
    fn forget(&self) {
        let (base, size) = (self.base.swap(core::ptr::null_mut(), Ordering::Relaxed), self.size.load(Ordering::Relaxed));
        if !base.is_null() {
            let _ = calls::munmap(base, size);
        }
        self.over.store(false, Ordering::Relaxed);
        self.number.store(0, Ordering::Relaxed);
    }

    /// Forgotten now, or by the last call that reads it. The caller has the lock.
    fn end(&self) {
        match self.users.load(Ordering::Relaxed) {
            0 => self.forget(),
            _ => self.over.store(true, Ordering::Relaxed),
        }
    }
}

impl Files {
    fn with<R>(&'static self, part: impl FnOnce(&'static [File; MOST]) -> R) -> Option<R> {
        let _section = Section::begin();
        let held = lock::acquire(&self.lock, thread::id(), false, |_| calls::sched_yield())?;
        let result = part(&self.files);
        self.known
            .store(self.files.iter().filter(|file| file.number.load(Ordering::Relaxed) != 0).count() as u32, Ordering::Relaxed);
        drop(held);
        Some(result)
    }

    /// In a child of fork: its parent's other threads read nothing here.
    pub(crate) fn forked(&self) {
        self.lock.store(0, Ordering::Relaxed);
        self.files.iter().for_each(|file| file.users.store(0, Ordering::Relaxed));
    }
}

/// `fd` was found to be a file in memory. If it comes again it is mapped.
#[cold]
pub fn enter(fd: i32) {
    let Some(files) = kept_pipes::place_files() else { return };
    let Some(status) = suits(fd) else { return };
    files.with(|all| {
        if all.iter().any(|file| file.is(fd)) {
            return;
        }
        let place = files.next.fetch_add(1, Ordering::Relaxed) % MOST;
        let file = &all[place];
        if file.users.load(Ordering::Relaxed) != 0 {
            return;
        }
        file.forget();
        file.device.store(status.st_dev, Ordering::Relaxed);
        file.inode.store(status.st_ino, Ordering::Relaxed);
        file.size.store(status.st_size as usize, Ordering::Relaxed);
        file.number.store(fd + 1, Ordering::Relaxed);
    });
}

/// What `fd` is, if that may be read through a mapping: it is short enough, and has no holes.
fn suits(fd: i32) -> Option<libc::stat> {
    let status = calls::status_of(fd).ok()?;
    let fits = (1..=LARGEST as i64).contains(&status.st_size) && status.st_blocks * 512 >= status.st_size;
    (fits && status.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(status)
}

/// The file at `fd`, if it is one of these.
pub fn get(fd: i32) -> Option<Mapped> {
    let files = kept_pipes::files().filter(|files| files.known.load(Ordering::Relaxed) != 0)?;
    if !files.files.iter().any(|file| file.is(fd)) {
        return None;
    }
    let status = suits(fd);
    files.with(|all| {
        let file = all.iter().find(|file| file.is(fd))?;
        let same = status.filter(|status| {
            file.device.load(Ordering::Relaxed) == status.st_dev
                && file.inode.load(Ordering::Relaxed) == status.st_ino
                && file.size.load(Ordering::Relaxed) == status.st_size as usize
        });
        if same.is_none() {
            file.end();
            return None;
        }
        let size = file.size.load(Ordering::Relaxed);
        if file.base.load(Ordering::Relaxed).is_null() {
            // The first of two may have been of any kind of file.
            let base = memory_file::size(fd).and_then(|_| mapping::private_to_read(fd, size));
            file.base.store(base.unwrap_or(core::ptr::null_mut()), Ordering::Relaxed);
        }
        let base = file.base.load(Ordering::Relaxed);
        if base.is_null() {
            file.end();
            return None;
        }
        file.users.fetch_add(1, Ordering::Relaxed);
        Some(Mapped { files, file, base, size })
    })?
}

/// The program closes `fd`.
#[inline]
pub fn closing(fd: i32) {
    if let Some(files) = kept_pipes::files().filter(|files| files.known.load(Ordering::Relaxed) != 0) {
        files.with(|all| all.iter().filter(|file| file.is(fd)).for_each(File::end));
    }
}

/// The program closes many.
pub fn closing_all() {
    if let Some(files) = kept_pipes::files() {
        files.with(|all| all.iter().filter(|file| file.number.load(Ordering::Relaxed) != 0).for_each(File::end));
    }
}

/// A mapping that stays for one call.
pub struct Mapped {
    files: &'static Files,
    file: &'static File,
    base: *mut u8,
    size: usize,
}

impl Mapped {
    /// Up to `most` bytes from `offset` on. They may be gone when they are read: then that is a fault, as of memory of the program's.
    pub fn bytes(&self, offset: i64, most: usize) -> (*const u8, usize) {
        match usize::try_from(offset) {
            Ok(at) if at < self.size => (self.base.wrapping_add(at), most.min(self.size - at)),
            _ => (self.base, 0),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.files.with(|_| {
            if self.file.users.fetch_sub(1, Ordering::Relaxed) == 1 && self.file.over.load(Ordering::Relaxed) {
                self.file.forget();
            }
        });
    }
}

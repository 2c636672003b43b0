//! Pools that are shown to the peer of a stream socket: what tells both processes that they mean the same one.
//!
//! The owner's process is told where a pool lies and by which descriptor ([`Shown::at`]); the peer opens that descriptor in the owner's
//! entry of proc(5) and maps it to be read ([`View::open`]). The header holds a secret, so a peer that names a pool has it, whatever process and
//! descriptor it names: a peer that lies has nothing opened that it could not read itself, and nothing is opened but regular files of
//! memory.
//!
//! A view is of a pool all of whose units are memory: what is memory stays so (seals), so no access to it faults or costs its reader memory.
//!
//! A program's own file of memory, which has neither header nor seals, is shown in the same way ([`Shown::file`]); how it is known and read
//! says [`crate::files`].

use crate::files::{self, Place};
use crate::holes;
use crate::huge::decimal;
use crate::pool::{Header, MAGIC, VERSION};
use crate::seals;
use crate::shape::{Shape, LARGEST, PAGE};
use shunt_segment::channel::references::FILE;
use shunt_sys::{calls, libc, mapping, memory_file, user, Errno};

/// A pool of this process, or a part of a file of memory that it has mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// First byte of its mapping.
    pub base: usize,
    /// Its descriptor.
    pub descriptor: i32,
    /// What the header says; of a file, where it is claimed: the same for all parts that are shown of it by one descriptor.
    pub secret: [u64; 2],
    /// Bytes in front of the units.
    pub front: usize,
    /// Bytes of the units.
    pub bytes: usize,
    /// Of a file, what it is.
    pub file: Option<File>,
}

/// What is mapped of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    /// The process that has mapped it.
    owner: u32,
    /// Device and number.
    identity: [u64; 2],
    /// Where in the file the mapping begins.
    from: usize,
    /// Its bytes when it was shown: a peer that has mapped it while it was shorter has less of it.
    size: usize,
}

/// How a program names what is to be shown: `struct shunt_so_file` of `shunt_socket.h`, which begins as `struct shunt_so_pool`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Asked {
    /// First byte of the mapping.
    pub address: u64,
    /// The file.
    pub descriptor: i32,
    /// 0.
    pub reserved: i32,
    /// Bytes that are mapped; of a pool, none.
    pub length: u64,
    /// Where in the file they begin.
    pub offset: u64,
}

/// A [`Header`] that was copied.
#[repr(C)]
#[derive(Clone, Copy)]
struct Copied {
    magic: u64,
    version: u32,
    unit: u32,
    units: u32,
    owner: u32,
    secret: [u64; 2],
}

const _: () = assert!(size_of::<Copied>() == size_of::<Header>());
const _: () = assert!(core::mem::offset_of!(Copied, secret) == core::mem::offset_of!(Header, secret));

/// What a header at `base` says of a pool of process `owner`: its secret and its shape.
fn header(base: usize, owner: u32) -> Option<([u64; 2], Shape)> {
    // SAFETY: any bytes are one, and an address that is none is an answer.
    let header = unsafe { user::read(base as *const Copied) }.ok()?;
    let sound = header.magic == MAGIC && header.version == VERSION && header.owner == owner && header.secret != [0; 2];
    let shape = Shape { unit: header.unit as usize, units: header.units as usize };
    sound.then_some((header.secret, shape.checked().ok()?))
}

impl Shown {
    /// The pool of process `owner`, this one, whose mapping begins at `base` and whose file is `descriptor`. Its units become memory, if they
    /// are not.
    ///
    /// # Errors
    /// EINVAL: no pool of this process is there, or it is one that others could write; EPROTO, EBADF: the descriptor is not its; ENOMEM.
    pub fn at(base: usize, descriptor: i32, owner: u32) -> Result<Shown, Errno> {
        let (secret, shape) = header(base, owner).ok_or(Errno(libc::EINVAL))?;
        if seals::size(descriptor, false) != Ok(shape.file()) {
            return Err(Errno(libc::EPROTO));
        }
        let mut found = [0u64; 2];
        let at = core::mem::offset_of!(Header, secret) as i64;
        if calls::pread(descriptor, found.as_mut_ptr().cast(), 16, at)? != 16 || found != secret {
            return Err(Errno(libc::EPROTO));
        }
        let (front, bytes) = (shape.front(), shape.bytes());
        if holes::first(descriptor, front) < front + bytes {
            const MADV_POPULATE_WRITE: i32 = 23;
            calls::madvise((base + front) as *mut u8, bytes, MADV_POPULATE_WRITE).map_err(|_| Errno(libc::ENOMEM))?;
        }
        Ok(Shown { base, descriptor, secret, front, bytes, file: None })
    }

    /// What a program of process `owner`, this one, has named: a file (`SHUNT_SO_FILE`), or a pool (`SHUNT_SO_POOL`).
    ///
    /// # Errors
    /// As [`Shown::file`] and [`Shown::at`].
    pub fn named(asked: &Asked, is_file: bool, owner: u32) -> Result<Shown, Errno> {
        match is_file {
            true => Shown::file(asked, owner),
            false => Shown::at(asked.address as usize, asked.descriptor, owner),
        }
    }

    /// A part of a file of memory that process `owner`, this one, has mapped shared. That it is mapped there, and stays so until it is shown no
    /// more, is the program's word.
    ///
    /// # Errors
    /// EINVAL: no part of the file; EPROTO: no file of memory; EBADF; those of getrandom(2).
    pub fn file(asked: &Asked, owner: u32) -> Result<Shown, Errno> {
        let [base, bytes, from] = [asked.address, asked.length, asked.offset].map(|number| number as usize);
        let end = from.checked_add(bytes).filter(|_| bytes > 0 && base.checked_add(bytes).is_some());
        let (identity, size) = files::identity(asked.descriptor, end.ok_or(Errno(libc::EINVAL))?)?;
        let mut secret = [0u64; 2];
        if calls::getrandom(secret.as_mut_ptr().cast(), 16, libc::GRND_NONBLOCK)? != 16 {
            return Err(Errno(libc::EAGAIN));
        }
        let file = Some(File { owner, identity, from, size });
        Ok(Shown { base, descriptor: asked.descriptor, secret, front: 0, bytes, file })
    }

    /// Whether both are the same, but for the secret that a file is given when it is shown.
    pub fn is(&self, other: &Shown) -> bool {
        let secret = if self.file.is_some() { other.secret } else { self.secret };
        Shown { secret, ..*self } == *other
    }

    /// A peer that is told the secret can open it from now on.
    ///
    /// # Errors
    /// Those of fcntl(2): EBADF, a descriptor by which it cannot be read; EBUSY: it is locked by others as a whole.
    pub fn claim(&self) -> Result<(), Errno> {
        self.file.map_or(Ok(()), |_| files::claim(self.descriptor, self.secret))
    }

    /// What a file is known by, where it is one.
    fn opened(&self) -> Option<(i32, [u64; 2], usize)> {
        self.file.map(|file| (self.descriptor, file.identity, file.size))
    }

    /// Whether it is part of `new`, or lies there no more where `new` does: its program shows what it has mapped since.
    pub fn is_replaced_by(&self, new: &Shown) -> bool {
        let range = |shown: &Shown| (shown.base + shown.front, shown.base + shown.front + shown.bytes);
        let ((start, end), (from, to)) = (range(self), range(new));
        let Some(file) = self.file else { return false };
        let is_same = |other: File| {
            other.identity == file.identity && new.base.wrapping_sub(other.from) == self.base.wrapping_sub(file.from)
        };
        start < to && from < end && (!new.file.is_some_and(is_same) || from <= start && end <= to)
    }

    /// Whether all of it is there up to `end`, as [`Shown::offset`] counts: of a file that has become shorter a mapping has zeros up to the next page.
    /// Where the program has closed the descriptor since, that cannot be asked.
    pub fn reaches(&self, end: usize) -> bool {
        !self.file.is_some_and(|file| files::is_shorter(self.descriptor, file.identity, end))
    }

    /// No peer opens the file by that secret any more. Those that have it open go on.
    pub fn release(&self) {
        if let Some(file) = self.file {
            files::release(self.descriptor, file.identity, self.secret);
        }
    }

    /// How it is named to the peer.
    pub fn name(&self) -> u32 {
        self.descriptor as u32 | if self.file.is_some() { FILE } else { 0 }
    }

    fn from(&self) -> usize {
        self.file.map_or(0, |file| file.from)
    }

    /// Where in the units, or in the file, `length` bytes at `address` are, if they are.
    pub fn offset(&self, address: usize, length: usize) -> Option<usize> {
        let offset = address.checked_sub(self.base + self.front)?;
        (offset <= self.bytes && length <= self.bytes - offset).then(|| offset + self.from())
    }

    /// Where `length` bytes from that `offset` on are, if they are in them.
    pub fn address(&self, offset: u64, length: usize) -> Option<usize> {
        let offset = usize::try_from(offset).ok()?.checked_sub(self.from())?;
        (offset <= self.bytes && length <= self.bytes - offset).then(|| self.base + self.front + offset)
    }

    /// Whether it is still there, and process `owner`'s: a pool may have been given up, and other memory be at its addresses.
    pub fn is_there(&self, owner: u32) -> bool {
        if let Some(file) = self.file {
            return file.owner == owner;
        }
        header(self.base, owner).is_some_and(|(secret, shape)| secret == self.secret && shape.bytes() == self.bytes)
    }
}

/// What a process shows, and numbers for it: never another's.
///
/// **Locks.** An open file has one for all of its parts, and none when the last of them has made room: each further lock of a file, and each look of a peer,
/// goes past all that it has. Bytes that are under way need none: a peer that has not opened the file yet says so, and they were copied. A child of fork
/// has its parent's open files, and so goes by its parent's locks, which it leaves.
#[derive(Debug)]
pub struct List {
    all: [Option<Entry>; List::ROOM],
    numbers: u32,
    /// Of entries that were made, or asked for.
    uses: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u32,
    /// When it was used last.
    used: u32,
    /// The process whose lock it is.
    claimed: u32,
    shown: Shown,
}

impl Default for List {
    fn default() -> List {
        List::new()
    }
}

impl List {
    /// At a time. Of files the one makes room that was longest not asked for; a pool does when it is gone.
    pub const ROOM: usize = 32;

    /// An empty one.
    pub const fn new() -> List {
        List { all: [None; List::ROOM], numbers: 0, uses: 0 }
    }

    /// Enters what process `own`, this one, shows, and claims it; gives its number, and what is to be released ([`Shown::release`]).
    ///
    /// # Errors
    /// EBUSY: there is no room; those of [`Shown::claim`].
    pub fn enter(&mut self, shown: Shown, own: u32) -> Result<(u32, Option<Shown>), Errno> {
        let used = self.next_use();
        if let Some(entry) = self.all.iter_mut().flatten().find(|entry| entry.shown.is(&shown)) {
            entry.used = used;
            return entry.shown.claim().map(|()| (entry.number, None));
        }
        let mut known = self.all.iter().flatten().filter(|known| known.shown.opened() == shown.opened());
        let known = known.find(|known| known.shown.file.is_some());
        let (secret, claimed) = known.map_or((shown.secret, own), |known| (known.shown.secret, known.claimed));
        let shown = Shown { secret, ..shown };
        // Of a parent's the locks are known as long as there is room.
        let age = |place: &Option<Entry>| match place {
            Some(entry) if entry.shown.is_there(own) => entry.shown.file.map(|_| used.wrapping_sub(entry.used)),
            Some(_) => Some(u32::MAX - 1),
            None => Some(u32::MAX),
        };
        let oldest = self.all.iter_mut().filter_map(|place| age(place).map(|age| (age, place))).max_by_key(|row| row.0);
        let (_, place) = oldest.ok_or(Errno(libc::EBUSY))?;
        shown.claim()?;
        self.numbers = self.numbers.wrapping_add(1).max(1);
        let before = place.replace(Entry { number: self.numbers, used, claimed, shown });
        let is_listed = |gone: &Entry| self.all.iter().flatten().any(|entry| entry.shown.opened() == gone.shown.opened());
        let gone = before.filter(|gone| gone.shown.file.is_some() && gone.claimed == own && !is_listed(gone));
        Ok((self.numbers, gone.map(|gone| gone.shown)))
    }

    /// What has this number, whether it is there or not.
    pub fn get(&mut self, number: u32) -> Option<Shown> {
        let used = self.next_use();
        let entry = self.all.iter_mut().flatten().find(|entry| entry.number == number)?;
        entry.used = used;
        Some(entry.shown)
    }

    fn next_use(&mut self) -> u32 {
        self.uses = self.uses.wrapping_add(1);
        self.uses
    }
}

/// A peer's pool, mapped to be read, or a file of its.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// First byte of the mapping; 0: a file that is not mapped.
    pub base: usize,
    /// Bytes of the mapping.
    pub size: usize,
    /// Bytes in front of the units.
    pub front: usize,
    /// Bytes of the units; of a file, more than it has.
    pub bytes: usize,
    /// The file, where it is none of a pool, as a descriptor that is this process's; -1.
    pub file: i32,
}

/// Closed when it goes.
struct Descriptor(i32);

impl Drop for Descriptor {
    fn drop(&mut self) {
        let _ = calls::close(self.0);
    }
}

/// Opens `directory`/`descriptor`.
fn opened(process: Option<u32>, descriptor: u32, flags: i32) -> Result<Descriptor, Errno> {
    let mut path = [0; 48];
    let mut at = 0;
    let mut put = |text: &[u8], path: &mut [u8]| {
        path[at..at + text.len()].copy_from_slice(text);
        at += text.len();
        at
    };
    let mut end = put(b"/proc/", &mut path);
    match process {
        None => end = put(b"self", &mut path),
        Some(process) => end = decimal(process, &mut path, end),
    }
    path[end..end + 4].copy_from_slice(b"/fd/");
    decimal(descriptor, &mut path, end + 4);
    calls::openat(libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC, 0).map(Descriptor)
}

impl View {
    /// Maps the pool that `secret` names and process `owner`, as it knows itself, has open as `descriptor`; or opens the file,
    /// whose descriptor `keep` takes, and gives as another one.
    ///
    /// # Errors
    /// Those of openat(2) and mmap(2), and of `keep`. EPROTO: another file, or one that its reader cannot rely on.
    pub fn open(owner: u32, descriptor: u32, secret: [u64; 2], keep: impl Fn(i32) -> Result<i32, Errno>) -> Result<View, Errno> {
        if descriptor & FILE != 0 {
            let file = View::found(owner, descriptor & !FILE, secret)?;
            let file = keep(core::mem::ManuallyDrop::new(file).0)?;
            let (base, size) = files::mapped(file);
            return Ok(View { base, size, front: 0, bytes: LARGEST, file });
        }
        // Of a file of another kind even opening it can be noticed, and a file system that is a process need never answer: so its kind is asked
        // first, by what the kernel knows itself.
        let named = opened(Some(owner), descriptor, libc::O_PATH)?;
        memory_file::is_anonymous(named.0)?;
        let file = opened(None, named.0 as u32, libc::O_RDONLY | libc::O_NONBLOCK)?;
        let size = seals::size(file.0, false).map_err(|_| Errno(libc::EPROTO))?;
        // Reading a hole would make it memory.
        if size < PAGE || holes::first(file.0, 0) < PAGE {
            return Err(Errno(libc::EPROTO));
        }
        let base = mapping::shared_to_read(file.0, size)? as usize;
        let view = header(base, owner).filter(|(found, shape)| *found == secret && shape.file() == size).map(|(_, shape)| View {
            base,
            size,
            front: shape.front(),
            bytes: shape.bytes(),
            file: -1,
        });
        match view.filter(|view| holes::first(file.0, view.front) >= view.front + view.bytes) {
            Some(view) => {
                view.populate();
                Ok(view)
            }
            None => {
                let _ = calls::munmap(base as *mut u8, size);
                Err(Errno(libc::EPROTO))
            }
        }
    }

    /// The file that `secret` names.
    fn found(owner: u32, descriptor: u32, secret: [u64; 2]) -> Result<Descriptor, Errno> {
        let named = opened(Some(owner), descriptor, libc::O_PATH)?;
        files::is_memory(named.0)?;
        let file = opened(None, named.0 as u32, libc::O_RDONLY | libc::O_NONBLOCK)?;
        files::is_claimed(file.0, secret)?;
        Ok(file)
    }

    /// Enters what is memory into this process's page tables: a fault for each page that is read the first time costs more.
    fn populate(&self) {
        const MADV_POPULATE_READ: i32 = 22;
        /// Not more than takes a blink.
        const MOST: usize = 1 << 30;
        let _ = calls::madvise((self.base + self.front) as *mut u8, self.bytes.min(MOST), MADV_POPULATE_READ);
    }

    /// Where `length` bytes from `offset` of the units on are.
    pub fn place(&self, offset: u64, length: usize) -> Option<Place> {
        let offset = usize::try_from(offset).ok()?;
        if offset > self.bytes || length > self.bytes - offset {
            return None;
        }
        let address = self.base + self.front + offset;
        let is_mapped = self.base != 0 && offset + length <= self.size;
        Some(match self.file {
            -1 => Place::Memory(address),
            descriptor => Place::File { descriptor, offset, mapped: if is_mapped { address } else { 0 } },
        })
    }

    /// Unmaps it; a file's descriptor is the caller's to close. A thread that still copies from there gets a fault, which its copy answers.
    pub fn close(self) {
        if self.size > 0 {
            let _ = calls::munmap(self.base as *mut u8, self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Audience, Pages, Pool};

    fn pool(audience: Audience) -> Pool {
        Pool::create(Shape { unit: 64 << 10, units: 4 }, Pages::Small, audience).unwrap()
    }

    fn me() -> u32 {
        std::process::id()
    }

    #[test]
    fn what_its_owner_writes_is_read_through_a_view() {
        let pool = pool(Audience::Anyone);
        let mut region = pool.allocate(100).unwrap();
        region.bytes_mut()[..5].copy_from_slice(b"hello");
        let shown = Shown::at(pool.address(), pool.descriptor(), me()).unwrap();
        let view = View::open(me(), pool.descriptor() as u32, shown.secret, Ok).unwrap();
        let offset = shown.offset(region.bytes().as_ptr() as usize, 100).unwrap();
        let Some(Place::Memory(at)) = view.place(offset as u64, 5) else { panic!("mapped") };
        let at = at as *const u8;
        // SAFETY: five bytes of the view, which no thread writes now.
        assert_eq!(unsafe { core::slice::from_raw_parts(at, 5) }, b"hello");
        assert_eq!((view.place(4 << 16, 0).is_some(), view.place(4 << 16, 1), view.place(u64::MAX, 1)), (true, None, None));
        assert_eq!((shown.offset(shown.base, 1), shown.offset(shown.base + shown.front, shown.bytes)), (None, Some(0)));
        assert_eq!(shown.offset(shown.base + shown.front + 1, shown.bytes), None);
        view.close();
    }

    #[test]
    fn who_does_not_know_the_secret_opens_nothing() {
        let pool = pool(Audience::Anyone);
        let shown = Shown::at(pool.address(), pool.descriptor(), me()).unwrap();
        let open = |pid, fd, secret| View::open(pid, fd, secret, Ok).is_ok();
        assert!(open(me(), pool.descriptor() as u32, shown.secret));
        assert!(!open(me(), pool.descriptor() as u32, [1, 2]));
        assert!(!open(me(), pool.descriptor() as u32, [0; 2]));
        assert!(!open(1, pool.descriptor() as u32, shown.secret));
        assert!(!open(me(), u32::MAX, shown.secret) && !open(u32::MAX, 0, shown.secret));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(!open(me(), std::os::fd::AsRawFd::as_raw_fd(&null) as u32, shown.secret));
    }

    /// What a peer could offer that looks like a pool: a file of these seals, size and first words, written up to `written`.
    fn offered(seals: i32, size: usize, words: Copied, written: usize) -> Result<View, Errno> {
        let fd = calls::memfd_create(b"any\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
        calls::ftruncate(fd, size as i64)?;
        let mut bytes = vec![0; written.max(size_of::<Copied>())];
        // SAFETY: room for the words.
        unsafe { bytes.as_mut_ptr().cast::<Copied>().write_unaligned(words) };
        assert_eq!(calls::pwrite(fd, bytes.as_ptr().cast(), written, 0), Ok(written));
        calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize)?;
        let view = View::open(words.owner, fd as u32, words.secret, Ok);
        let _ = calls::close(fd);
        view
    }

    #[test]
    fn what_only_looks_like_a_pool_is_not_mapped() {
        const SEALED: i32 = memory_file::SIZE_SEALS | libc::F_SEAL_FUTURE_WRITE;
        let shape = Shape { unit: 4096, units: 8 };
        let (size, all) = (shape.file(), shape.front() + shape.bytes());
        let good = Copied { magic: MAGIC, version: VERSION, unit: 4096, units: 8, owner: me(), secret: [3, 4] };
        offered(SEALED, size, good, all).expect("a pool").close();
        offered(memory_file::SIZE_SEALS | libc::F_SEAL_WRITE, size, good, all).expect("nobody writes it any more").close();
        let refused = |what: &str, seals, size, words, written| {
            assert_eq!(offered(seals, size, words, written), Err(Errno(libc::EPROTO)), "{what}");
        };
        refused("no seals", 0, size, good, all);
        refused("it can shrink", SEALED & !libc::F_SEAL_SHRINK, size, good, all);
        refused("it can grow", SEALED & !libc::F_SEAL_GROW, size, good, all);
        refused("it can be sealed further", SEALED & !libc::F_SEAL_SEAL, size, good, all);
        refused("pages can be taken out of it", memory_file::SIZE_SEALS, size, good, all);
        refused("truncated", SEALED, size - 4096, good, all);
        refused("longer", SEALED, size + 4096, good, all);
        refused("a hole at its end", SEALED, size, good, all - 4096);
        refused("all holes but the header", SEALED, size, good, 4096);
        refused("no page", SEALED, 0, good, 0);
        refused("another magic", SEALED, size, Copied { magic: 1, ..good }, all);
        refused("another version", SEALED, size, Copied { version: VERSION + 1, ..good }, all);
        refused("no secret", SEALED, size, Copied { secret: [0; 2], ..good }, all);
        for (unit, units) in [(0, 8), (4096, 0), (4095, 8), (1 << 31, 1 << 31), (u32::MAX, u32::MAX), (8192, 8), (4096, 9)] {
            refused("another shape", SEALED, size, Copied { unit, units, ..good }, all);
        }
    }

    fn entered(list: &mut List, shown: Shown, own: u32) -> u32 {
        let (number, gone) = list.enter(shown, own).unwrap();
        gone.into_iter().for_each(|gone| gone.release());
        number
    }

    /// Each program shows more files in its life than there is room for; the one that it sends from all the time is not to be pushed out.
    #[test]
    fn what_is_asked_for_keeps_its_place() {
        let file = |size: usize| {
            let fd = calls::memfd_create(b"shown\0", libc::MFD_CLOEXEC).unwrap();
            calls::ftruncate(fd, size as i64).unwrap();
            let asked = Asked { address: 1 << 20, descriptor: fd, length: size as u64, ..Asked::default() };
            Shown::file(&asked, me()).unwrap()
        };
        let mut list = List::new();
        let kept = entered(&mut list, file(4096), me());
        let silent = entered(&mut list, file(8192), me());
        let others: Vec<Shown> = (0..3 * List::ROOM).map(|number| file((number + 3) * 4096)).collect();
        for other in &others {
            assert!(list.get(kept).is_some());
            let number = entered(&mut list, *other, me());
            assert_eq!(list.enter(*other, me()), Ok((number, None)), "it is there already");
        }
        assert!(list.get(silent).is_none() && list.get(kept).is_some_and(|shown| shown.bytes == 4096));
        let _ = others.iter().map(|shown| calls::close(shown.descriptor)).collect::<Vec<_>>();
    }

    fn memfd(size: usize) -> i32 {
        let fd = calls::memfd_create(b"shown\0", libc::MFD_CLOEXEC).unwrap();
        calls::ftruncate(fd, size as i64).unwrap();
        fd
    }

    fn part(fd: i32, from: usize, owner: u32) -> Shown {
        let asked =
            Asked { address: (1 << 20) + from as u64, descriptor: fd, length: 4096, offset: from as u64, ..Asked::default() };
        Shown::file(&asked, owner).unwrap()
    }

    fn close(files: &[i32]) {
        for fd in files {
            let _ = calls::close(*fd);
        }
    }

    /// How many locks the open file has: what `/proc/locks` has, but for this one alone, and whole while others come and go.
    fn locks(fd: i32) -> usize {
        let all = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        all.lines().filter(|line| line.starts_with("lock:")).count()
    }

    /// A ring of frames in one file, each shown for as long as it is sent.
    #[test]
    fn the_parts_of_a_file_have_one_lock_however_many_are_shown() {
        let (file, mut list) = (memfd(1 << 20), List::new());
        let secrets: Vec<[u64; 2]> = (0..200)
            .map(|at| {
                let number = entered(&mut list, part(file, at * 4096, me()), me());
                assert_eq!(locks(file), 1, "{at}");
                list.get(number).unwrap().secret
            })
            .collect();
        assert!(secrets.iter().all(|secret| *secret == secrets[0]) && secrets[0] != [0; 2]);
        // The last of them leads to it.
        let view = View::open(me(), file as u32 | FILE, secrets[199], Ok).unwrap();
        view.close();
        close(&[view.file, file]);
    }

    #[test]
    fn a_file_that_has_made_room_has_no_lock() {
        let (files, mut list) = ((0..List::ROOM + 8).map(|_| memfd(8192)).collect::<Vec<i32>>(), List::new());
        for _ in 0..3 {
            for file in &files {
                entered(&mut list, part(*file, 0, me()), me());
                entered(&mut list, part(*file, 4096, me()), me());
                assert_eq!(locks(*file), 1);
            }
        }
        let locked: Vec<usize> = files.iter().map(|file| locks(*file)).collect();
        let (none, one) = locked.split_at(files.len() - List::ROOM / 2);
        assert!(none.iter().all(|count| *count == 0) && one.iter().all(|count| *count == 1), "{locked:?}");
        close(&files);
    }

    /// The open file is its parent's, too.
    #[test]
    fn a_child_goes_by_its_parent_s_lock_and_leaves_it() {
        let (file, parent, mut list) = (memfd(8192), me() + 1, List::new());
        entered(&mut list, part(file, 0, parent), parent);
        entered(&mut list, part(file, 4096, me()), me());
        entered(&mut list, part(file, 0, me()), me());
        assert_eq!(locks(file), 1);
        let others: Vec<i32> = (0..2 * List::ROOM).map(|_| memfd(4096)).collect();
        for other in &others {
            entered(&mut list, part(*other, 0, me()), me());
        }
        assert!(list.all.iter().flatten().all(|entry| entry.shown.descriptor != file));
        assert_eq!(locks(file), 1);
        close(&others);
        close(&[file]);
    }

    #[test]
    fn a_number_that_is_another_file_s_by_now_lets_go_of_nothing() {
        let (file, again, mut list) = (memfd(4096), memfd(8192), List::new());
        let number = entered(&mut list, part(file, 0, me()), me());
        let shown = list.get(number).unwrap();
        files::claim(again, shown.secret).unwrap();
        let kept = calls::fcntl(file, libc::F_DUPFD_CLOEXEC, 0).unwrap();
        calls::dup3(again, file, libc::O_CLOEXEC).unwrap();
        shown.release();
        assert_eq!((locks(kept), locks(again)), (1, 1));
        calls::dup3(kept, file, libc::O_CLOEXEC).unwrap();
        shown.release();
        assert_eq!(locks(kept), 0);
        close(&[file, again, kept]);
    }

    /// A peer that has mapped it would read what is new by another call for each piece.
    #[test]
    fn a_file_that_has_grown_is_another_one_to_peers() {
        let (file, mut list) = (memfd(4096), List::new());
        let secret = |list: &mut List, number: u32| list.get(number).unwrap().secret;
        let first = entered(&mut list, part(file, 0, me()), me());
        calls::ftruncate(file, 8192).unwrap();
        let second = entered(&mut list, part(file, 4096, me()), me());
        assert_ne!(secret(&mut list, first), secret(&mut list, second));
        close(&[file]);
    }

    #[test]
    fn what_finds_no_room_has_no_lock() {
        let (pools, file, mut list) =
            ((0..List::ROOM).map(|_| pool(Audience::Anyone)).collect::<Vec<Pool>>(), memfd(4096), List::new());
        for pool in &pools {
            entered(&mut list, Shown::at(pool.address(), pool.descriptor(), me()).unwrap(), me());
        }
        assert_eq!(list.enter(part(file, 0, me()), me()), Err(Errno(libc::EBUSY)));
        assert_eq!(locks(file), 0);
        close(&[file]);
    }

    #[test]
    fn what_is_shown_at_an_address_replaces_what_cannot_be_there_any_more() {
        let files = [memfd(1 << 20), memfd(1 << 20)];
        let part = |which: usize, address: u64, length: u64, offset: u64| {
            Shown::file(&Asked { address, descriptor: files[which], length, offset, ..Asked::default() }, me()).unwrap()
        };
        let old = part(0, 1 << 20, 8192, 4096);
        let replaced = |new: &Shown| old.is_replaced_by(new);
        assert!(replaced(&part(1, (1 << 20) + 4096, 8192, 0)), "another file over its second half");
        assert!(replaced(&part(0, 1 << 20, 8192, 8192)), "another part of the file");
        assert!(replaced(&part(0, (1 << 20) - 4096, 16384, 0)), "more of the same");
        assert!(!replaced(&part(0, 1 << 20, 4096, 4096)), "less of it, which may be there as well");
        assert!(!replaced(&part(1, (1 << 20) + 8192, 4096, 0)) && !replaced(&part(1, (1 << 20) - 4096, 4096, 0)), "beside it");
        close(&files);
    }

    #[test]
    fn a_pool_that_others_could_write_or_that_is_gone_is_none() {
        let trusted = pool(Audience::Trusted);
        assert_eq!(Shown::at(trusted.address(), trusted.descriptor(), me()), Err(Errno(libc::EPROTO)));
        let pool = pool(Audience::Anyone);
        assert_eq!(Shown::at(pool.address(), trusted.descriptor(), me()), Err(Errno(libc::EPROTO)));
        assert_eq!(Shown::at(pool.address(), pool.descriptor(), me() + 1), Err(Errno(libc::EINVAL)));
        let shown = Shown::at(pool.address(), pool.descriptor(), me()).unwrap();
        assert!(shown.is_there(me()) && !shown.is_there(me() + 1));
        assert!(!Shown { secret: [1, 2], ..shown }.is_there(me()));
    }
}

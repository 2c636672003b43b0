//! The program's static data as symmetric memory.
//!
//! The writable pages of the program (not of its libraries), those excepted that the loader makes read-only after relocation, are copied into the
//! job's memory and mapped over themselves. Ranks run one program, so an object lies at one offset from their beginning, wherever the
//! kernel has put the program in each rank.

use crate::error::{Error, Result};
use crate::layout::{Header, Layout, PAGE};
use crate::memory::{Mapping, Memory};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize};

/// Where static data lies in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The program's own pages.
    pub own: usize,
    /// Rank 0's, as mapped here.
    pub first: usize,
    /// Their size, which is the stride.
    pub bytes: usize,
}

/// Segments of large data (`-mcmodel=medium`) begin at most so far behind others.
const GAP: usize = 4 << 20;

/// The program's writable pages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pages {
    start: usize,
    end: usize,
    parts: Vec<Part>,
}

/// A segment's part of them. Between two there may be pages that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    start: usize,
    /// From here on it was zeroes when the program started.
    zeroes: usize,
    end: usize,
}

fn pages() -> Pages {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, found: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a valid description, and `found` is what was passed below. The program comes first.
        unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
            *found.cast::<Pages>() = writable(headers, info.dlpi_addr as usize);
        }
        1
    }
    let mut found = Pages::default();
    // SAFETY: `each` has the type that is asked for, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    found
}

fn writable(headers: &[libc::Elf64_Phdr], bias: usize) -> Pages {
    let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
    let read_only_end = relro.map_or(0, |header| (bias + (header.p_vaddr + header.p_memsz) as usize).next_multiple_of(PAGE));
    let read_only_start = relro.map_or(0, |header| (bias + header.p_vaddr as usize) / PAGE * PAGE);
    let segments = headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0);
    let parts = segments.map(|header| {
        let start = (bias + header.p_vaddr as usize) / PAGE * PAGE;
        let filled = (bias + (header.p_vaddr + header.p_filesz) as usize).next_multiple_of(PAGE);
        let end = (bias + (header.p_vaddr + header.p_memsz) as usize).next_multiple_of(PAGE);
        let hidden = read_only_start <= start && start < read_only_end;
        let start = if hidden { read_only_end.min(end) } else { start };
        Part { start, zeroes: filled.clamp(start, end), end }
    });
    let mut parts: Vec<Part> = parts.filter(|part| part.start < part.end).collect();
    parts.sort_by_key(|part| part.start);
    // All as one, or the largest where they lie apart, or on the same page.
    let together = parts.windows(2).all(|pair| pair[0].end <= pair[1].start && pair[1].start - pair[0].end <= GAP);
    if !together {
        parts = parts.into_iter().max_by_key(|part| part.end - part.start).into_iter().collect();
    }
    let (start, end) = (parts.first().map_or(0, |part| part.start), parts.last().map_or(0, |part| part.end));
    Pages { start, end, parts }
}

/// For a job of one: where the data is, and nothing is moved.
pub(crate) fn own() -> Image {
    let Pages { start, end, .. } = pages();
    Image { own: start, first: start, bytes: end - start }
}

/// Shares this rank's data, and maps everybody's.
pub(crate) fn share(memory: &Memory, header: &Header, layout: &Layout, me: usize) -> Result<Image> {
    let Pages { start, end, parts } = pages();
    let bytes = end - start;
    let known = match header.data_bytes.compare_exchange(0, bytes as u64, AcqRel, Acquire) {
        Ok(_) => bytes as u64,
        Err(known) => known,
    };
    if known != bytes as u64 {
        return Err(Error::Setup(format!(
            "rank {me} runs another program than the ranks before it: {bytes} bytes of static data, not {known}"
        )));
    }
    if bytes == 0 {
        return Ok(Image { own: 0, first: 0, bytes: 0 });
    }
    let trouble = |error: std::io::Error| Error::Setup(format!("cannot share {bytes} bytes of static data: {error}"));
    memory.grow(layout.data() + layout.ranks * bytes).map_err(trouble)?;
    // A program before this one may have left its bytes.
    memory.clear(layout.data() + me * bytes, bytes).map_err(trouble)?;
    let all = memory.map(layout.data(), layout.ranks * bytes).map_err(trouble)?.leave();
    watch_forks(start, bytes)?;
    // SAFETY: the pages are the program's data, which no other thread changes before `main`; they keep their bytes. Nothing between the copy
    // and the mapping writes to static data.
    unsafe {
        for part in parts {
            let to = |at: usize| all + me * bytes + (at - start);
            copy(part.start, to(part.start), part.zeroes - part.start);
            copy_touched(part.zeroes, to(part.zeroes), part.end - part.zeroes);
        }
        memory.map_over(start, layout.data() + me * bytes, bytes).map_err(trouble)?;
    }
    Ok(Image { own: start, first: all, bytes })
}

/// Copies pages that hold anything: large arrays that the program has not touched stay untouched.
///
/// # Safety
/// Both are whole pages of mapped memory, and the destination is zeroes.
unsafe fn copy(from: usize, to: usize, bytes: usize) {
    for at in (0..bytes).step_by(PAGE) {
        // SAFETY: within both, by the caller.
        unsafe {
            let page = (from + at) as *const [u64; PAGE / 8];
            if (*page).iter().any(|word| *word != 0) {
                std::ptr::copy_nonoverlapping(page, (to + at) as *mut [u64; PAGE / 8], 1);
            }
        }
    }
}

/// The same of pages that were never written unless they exist now: a large array without contents is not even looked at.
///
/// # Safety
/// As [`copy`], and the pages are private ones without a file.
unsafe fn copy_touched(from: usize, to: usize, bytes: usize) {
    /// In /proc/self/pagemap (proc(5)): the page is in memory, or was moved out of it.
    const EXISTS: u64 = 1 << 63 | 1 << 62;
    let map = std::fs::File::open("/proc/self/pagemap");
    let mut entries = [0; 512 * 8];
    for at in (0..bytes).step_by(512 * PAGE) {
        let length = (bytes - at).min(512 * PAGE);
        let wanted = &mut entries[..length / PAGE * 8];
        let known = map.as_ref().is_ok_and(|map| map.read_exact_at(wanted, ((from + at) / PAGE * 8) as u64).is_ok());
        for (page, entry) in (at..at + length).step_by(PAGE).zip(wanted.chunks_exact(8)) {
            if !known || u64::from_ne_bytes(entry.try_into().expect("eight bytes")) & EXISTS != 0 {
                // SAFETY: by the caller.
                unsafe { copy(from + page, to + page, PAGE) };
            }
        }
    }
}

/// What the handlers of `fork` need: static, since they get no argument.
static OWN: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// A word that parent and child share: 1 until the child has copied.
static COPIES: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// 1 while a thread of this process forks: one at a time has the word. In memory that is the process's own, which a child finds as it was.
static FORKS: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());
/// `errno` of the thread that forks.
static KEPT: AtomicI32 = AtomicI32::new(0);

/// From now on a child of `fork` gets pages of its own: it must not write into its parent's.
fn watch_forks(own: usize, bytes: usize) -> Result<()> {
    let trouble = |error: std::io::Error| Error::Setup(format!("no page for forks: {error}"));
    COPIES.store(Mapping::anonymous(PAGE, 0).map_err(trouble)?.leave() as *mut AtomicU32, Release);
    FORKS.store(Mapping::anonymous_private(PAGE).map_err(trouble)?.leave() as *mut AtomicU32, Release);
    OWN.store(own, Release);
    BYTES.store(bytes, Release);
    // SAFETY: the handlers are functions that live as long as the library, which is never unloaded once a job is joined.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    Ok(())
}

fn copies() -> &'static AtomicU32 {
    // SAFETY: set before the handlers were.
    unsafe { &*COPIES.load(Acquire) }
}

fn forks() -> &'static AtomicU32 {
    // SAFETY: as above.
    unsafe { &*FORKS.load(Acquire) }
}

fn errno() -> &'static mut i32 {
    // SAFETY: this thread's.
    unsafe { &mut *libc::__errno_location() }
}

extern "C" fn before_fork() {
    while forks().compare_exchange(0, 1, AcqRel, Acquire).is_err() {
        crate::wait::futex_wait(forks(), 1, 1_000_000);
    }
    copies().store(1, SeqCst);
    KEPT.store(std::mem::replace(errno(), 0), Relaxed);
}

/// The parent waits, or the child would copy what the parent has written since. A child that died has nothing to copy, so the wait
/// has a limit. There is no wait if `fork` has failed, which has left its error (fork(2): EAGAIN, ENOMEM).
extern "C" fn after_fork() {
    if ![libc::EAGAIN, libc::ENOMEM].contains(errno()) {
        *errno() = KEPT.load(Relaxed);
        for _ in 0..2000 {
            if copies().load(SeqCst) == 0 {
                break;
            }
            crate::wait::futex_wait(copies(), 1, 1_000_000);
        }
    }
    forks().store(0, Release);
    crate::wait::futex_wake(forks());
}

extern "C" fn in_child() {
    *errno() = KEPT.load(Relaxed);
    let (own, bytes) = (OWN.load(Relaxed), BYTES.load(Relaxed));
    let done = copies();
    let is_own = Mapping::anonymous_private(bytes).is_ok_and(|copy_of| {
        let fresh = copy_of.leave();
        // SAFETY: whole pages; the child has one thread, and they keep their bytes.
        unsafe {
            copy(own, fresh, bytes);
            let fixed = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            libc::mremap(fresh as *mut libc::c_void, bytes, bytes, fixed, own as *mut libc::c_void) != libc::MAP_FAILED
        }
    });
    // Children of the child are its own affair. Until it has pages of its own it writes nothing.
    let is_own = is_own
        && Mapping::anonymous(PAGE, 0).is_ok_and(|word| {
            COPIES.store(word.leave() as *mut AtomicU32, Release);
            true
        });
    done.store(0, SeqCst);
    crate::wait::futex_wake(done);
    if !is_own {
        let why = b"shunt: a child of fork has no room for its copy of the program's static data, and ends\n";
        // SAFETY: writes bytes of ours, and ends the child before it writes into its parent's.
        unsafe {
            libc::write(2, why.as_ptr().cast(), why.len());
            libc::_exit(127)
        }
    }
    forks().store(0, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u32, flags: u32, address: u64, size: u64) -> libc::Elf64_Phdr {
        libc::Elf64_Phdr {
            p_type: kind,
            p_flags: flags,
            p_offset: 0,
            p_vaddr: address,
            p_paddr: 0,
            p_filesz: 0,
            p_memsz: size,
            p_align: 0,
        }
    }

    #[test]
    fn what_the_loader_protects_is_left_out() {
        let gnu = [
            header(libc::PT_LOAD, libc::PF_R, 0, 0x1000),
            header(libc::PT_LOAD, libc::PF_R | libc::PF_W, 0x3de8, 0x5000),
            header(libc::PT_GNU_RELRO, libc::PF_R, 0x3de8, 0x218),
        ];
        let span = |headers: &[libc::Elf64_Phdr], bias: usize| {
            let pages = writable(headers, bias);
            (pages.start, pages.end)
        };
        assert_eq!(span(&gnu, 0x10000), (0x14000, 0x19000));
        let lld = [
            header(libc::PT_LOAD, libc::PF_R | libc::PF_W, 0x3000, 0x200),
            header(libc::PT_LOAD, libc::PF_R | libc::PF_W, 0x5200, 0x2000),
            header(libc::PT_GNU_RELRO, libc::PF_R, 0x3000, 0x1000),
        ];
        assert_eq!(span(&lld, 0), (0x5000, 0x8000));
        assert_eq!(span(&gnu[..1], 0), (0, 0));
    }

    /// Those of large data are further segments, behind a page that is nobody's. What lies far apart is not one.
    #[test]
    fn large_data_is_shared_too() {
        let writable_at = |address, size| header(libc::PT_LOAD, libc::PF_R | libc::PF_W, address, size);
        let medium =
            [writable_at(0x3db0, 0x18970), writable_at(0x1e720, 0x30d40), header(libc::PT_GNU_RELRO, libc::PF_R, 0x3db0, 0x250)];
        let pages = writable(&medium, 0);
        assert_eq!((pages.start, pages.end, pages.parts.len()), (0x4000, 0x50000, 2));
        assert_eq!((pages.parts[0].end, pages.parts[1].start), (0x1d000, 0x1e000));
        let apart = writable(&[writable_at(0x3000, 0x1000), writable_at(0x1000_0000, 0x2000)], 0);
        assert_eq!((apart.start, apart.parts.len()), (0x1000_0000, 1));
    }

    #[test]
    fn pages_that_were_never_touched_are_not_touched_by_a_copy() {
        let bytes = 2000 * PAGE;
        let (from, to) = (Mapping::anonymous_private(bytes).unwrap(), Mapping::anonymous_private(bytes).unwrap());
        let in_memory = || {
            let mut pages = vec![0u8; bytes / PAGE];
            // SAFETY: asks about pages of this test, with room for a byte each.
            assert_eq!(unsafe { libc::mincore(from.address() as *mut libc::c_void, bytes, pages.as_mut_ptr()) }, 0);
            pages.iter().filter(|page| **page & 1 != 0).count()
        };
        // SAFETY: mapped memory of this test.
        unsafe {
            for page in [0, 700, 1999] {
                ((from.address() + page * PAGE + 8) as *mut u64).write(page as u64 + 1);
            }
            let before = in_memory();
            copy_touched(from.address(), to.address(), bytes);
            assert_eq!(in_memory(), before);
            for page in [0, 700, 1999] {
                assert_eq!(((to.address() + page * PAGE + 8) as *const u64).read(), page as u64 + 1);
            }
        }
    }

    #[test]
    fn this_program_has_data() {
        static mut DATA: u64 = 1;
        let image = own();
        let address = (&raw mut DATA) as usize;
        assert!(image.own <= address && address + 8 <= image.own + image.bytes);
    }
}

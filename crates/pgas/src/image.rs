//! The program's static data as symmetric memory.
//!
//! The writable pages of the program (not of its libraries), those excepted that the loader makes read-only after relocation, are copied into the
//! job's memory and mapped over themselves. Ranks run one program, so an object lies at one offset from their beginning, wherever the
//! kernel has put the program in each rank.

use crate::error::{Error, Result};
use crate::layout::{Header, Layout, PAGE};
use crate::memory::{Mapping, Memory};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

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

/// Begin and end of the program's writable pages; equal if there are none.
fn pages() -> (usize, usize) {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, found: *mut libc::c_void) -> i32 {
        // SAFETY: the loader passes a valid description, and `found` is what was passed below. The program comes first.
        unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize);
            *found.cast::<(usize, usize)>() = writable(headers, info.dlpi_addr as usize);
        }
        1
    }
    let mut found = (0, 0);
    // SAFETY: `each` has the type that is asked for, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    found
}

fn writable(headers: &[libc::Elf64_Phdr], bias: usize) -> (usize, usize) {
    let relro = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO);
    let read_only_end = relro.map_or(0, |header| (bias + (header.p_vaddr + header.p_memsz) as usize).next_multiple_of(PAGE));
    let read_only_start = relro.map_or(0, |header| (bias + header.p_vaddr as usize) / PAGE * PAGE);
    let segments = headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W != 0);
    let parts = segments.map(|header| {
        let start = (bias + header.p_vaddr as usize) / PAGE * PAGE;
        let end = (bias + (header.p_vaddr + header.p_memsz) as usize).next_multiple_of(PAGE);
        let hidden = read_only_start <= start && start < read_only_end;
        (if hidden { read_only_end.min(end) } else { start }, end)
    });
    parts.max_by_key(|(start, end)| end - start).unwrap_or((0, 0))
}

/// For a job of one: where the data is, and nothing is moved.
pub(crate) fn own() -> Image {
    let (start, end) = pages();
    Image { own: start, first: start, bytes: end - start }
}

/// Shares this rank's data, and maps everybody's.
pub(crate) fn share(memory: &Memory, header: &Header, layout: &Layout, me: usize) -> Result<Image> {
    let (start, end) = pages();
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
        copy(start, all + me * bytes, bytes);
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

/// What the handlers of `fork` need: static, since they get no argument.
static OWN: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// A word that parent and child share: 1 while the child copies.
static COPIES: AtomicPtr<AtomicU32> = AtomicPtr::new(std::ptr::null_mut());

/// From now on a child of `fork` gets pages of its own: it must not write into its parent's.
fn watch_forks(own: usize, bytes: usize) -> Result<()> {
    let word = Mapping::anonymous(PAGE, 0).map_err(|error| Error::Setup(format!("no page for forks: {error}")))?;
    COPIES.store(word.leave() as *mut AtomicU32, Release);
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

extern "C" fn before_fork() {
    copies().store(1, SeqCst);
}

/// The parent waits, or the child would copy what the parent has written since. A child that died has nothing to copy, so the wait
/// has a limit.
extern "C" fn after_fork() {
    for _ in 0..2000 {
        if copies().load(SeqCst) == 0 {
            return;
        }
        crate::wait::futex_wait(copies(), 1, 1_000_000);
    }
}

extern "C" fn in_child() {
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
        assert_eq!(writable(&gnu, 0x10000), (0x14000, 0x19000));
        let lld = [
            header(libc::PT_LOAD, libc::PF_R | libc::PF_W, 0x3000, 0x200),
            header(libc::PT_LOAD, libc::PF_R | libc::PF_W, 0x5200, 0x2000),
            header(libc::PT_GNU_RELRO, libc::PF_R, 0x3000, 0x1000),
        ];
        assert_eq!(writable(&lld, 0), (0x5000, 0x8000));
        assert_eq!(writable(&gnu[..1], 0), (0, 0));
    }

    #[test]
    fn this_program_has_data() {
        static mut DATA: u64 = 1;
        let image = own();
        let address = (&raw mut DATA) as usize;
        assert!(image.own <= address && address + 8 <= image.own + image.bytes);
    }
}

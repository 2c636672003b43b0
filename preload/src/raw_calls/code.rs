//! Whether code that is loaded could make calls that meet connections (option `raw`, `auto`): then calls are told of.
//!
//! That is asked when the program has its first socket, or is about to have a second thread, which the kernel must be asked about
//! when it begins; so a program that has neither pays nothing. It is asked again about what was loaded meanwhile.

use crate::loader::objects;
use core::ffi::{c_int, c_void};
use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shunt_calls::libc::{self, dl_phdr_info};
use shunt_config::Raw;
use shunt_conventions::places::{overlap, Places};
use shunt_conventions::seen::Seen;
use shunt_conventions::{harmless, segments};
use shunt_instructions::survey::{survey, Room};
use shunt_instructions::{Memory, Object};
use shunt_segment::process::found;
use shunt_segment::reason::Reason;
use shunt_sys::{dispatch, user};
use shunt_table::global::{LockedCell, Mutex};
use shunt_table::process::{kernel_only, status_page};
use shunt_table::{global, table};

/// What is worked with, under [`Looks::looking`].
struct Work {
    room: Room,
    seen: Seen,
}

/// What this file keeps.
struct Looks {
    /// There may be objects that were not looked at.
    unseen: AtomicBool,
    /// dlopen(3) was called: there may be more at any time.
    loads: AtomicBool,
    /// There were several threads before a fork.
    threaded: AtomicBool,
    looking: Mutex,
    /// Under `looking`.
    work: LockedCell<Work>,
    /// Where liburing's text lies.
    rings: [AtomicUsize; 2],
}

static LOOKS: Looks = Looks {
    unseen: AtomicBool::new(false),
    loads: AtomicBool::new(false),
    threaded: AtomicBool::new(false),
    looking: Mutex::new(),
    work: LockedCell::new(Work { room: Room::new(), seen: Seen::new() }),
    rings: [const { AtomicUsize::new(0) }; 2],
};

/// From here on the program is watched.
pub fn start() {
    LOOKS.unseen.store(true, Ordering::Relaxed);
    table::before_each(look);
    // It may have been given some.
    if table::any_ours() {
        look();
        kernel_only::carry();
    }
}

/// dlopen(3) begins.
pub fn loading() {
    LOOKS.loads.store(true, Ordering::Relaxed);
    LOOKS.unseen.store(true, Ordering::Relaxed);
}

/// fork(3) begins. What the child may not look at any more is looked at here.
pub fn before_fork() {
    let threaded = !global::single_threaded();
    LOOKS.threaded.store(threaded, Ordering::Relaxed);
    if threaded && LOOKS.unseen.load(Ordering::Relaxed) {
        look();
    }
}

/// In the child of fork(3): another thread may have held the loader's lock, and none would give it back.
pub fn after_fork_child() {
    if LOOKS.threaded.load(Ordering::Relaxed) {
        LOOKS.looking.reset();
        LOOKS.loads.store(false, Ordering::Relaxed);
        LOOKS.unseen.store(false, Ordering::Relaxed);
    }
}

/// Threads and children that come are not told of. So a process that needs that keeps to the kernel from here on.
pub fn freeze() {
    if dispatch::begun() {
        status_page::count(Reason::RawNotTrapped);
        kernel_only::keep();
        kernel_only::carry();
    }
    dispatch::freeze();
}

/// Whether an instruction is liburing's.
pub fn is_of_rings(address: usize) -> bool {
    (LOOKS.rings[0].load(Ordering::Relaxed)..LOOKS.rings[1].load(Ordering::Relaxed)).contains(&address)
}

/// Looks, if there is anything new to be seen, and has calls told of if need be.
pub fn look() {
    dispatch::arm_late();
    if LOOKS.unseen.load(Ordering::Relaxed) {
        look_now();
    }
}

#[cold]
fn look_now() {
    if global::options().raw == Raw::Off || kernel_only::keeps() {
        LOOKS.unseen.store(false, Ordering::Relaxed);
        return;
    }
    let Some(_looking) = LOOKS.looking.lock() else { return };
    // SAFETY: under the lock.
    let work = unsafe { &mut *LOOKS.work.get() };
    let mut changes = (0, 0);
    // SAFETY: the callback's data outlive the call.
    unsafe { objects::each(first, (&raw mut changes).cast()) };
    if work.seen.are_all(changes) {
        return;
    }
    let Some(objects) = objects::look() else { return };
    work.seen.begin(changes);
    let begun = dispatch::begun();
    // Where calls are not told of, and will not be, all objects enter kernel_only.
    let possible = begun || (global::options().raw == Raw::Auto && !dispatch::frozen());
    let range = objects.range().filter(|_| possible);
    let mut look = Look { objects: &objects, range: range.as_ref(), work, told: begun, first: None, kernel_only: false };
    // SAFETY: as above.
    unsafe { objects::each(each, (&raw mut look).cast()) };
    if look.told && !begun {
        if super::begin(range.clone()) {
            if let Some((name, call)) = &look.first {
                status_page::found(name, *call, found::TRAPPED);
            }
        } else {
            look.range = None;
            look.work.seen.forget();
            // SAFETY: as above.
            unsafe { objects::each(each, (&raw mut look).cast()) };
        }
    }
    if look.kernel_only {
        status_page::count(Reason::RawNotTrapped);
        kernel_only::keep();
    }
    if !LOOKS.loads.load(Ordering::Relaxed) {
        LOOKS.unseen.store(false, Ordering::Relaxed);
    }
}

/// What one look is about.
struct Look<'a> {
    objects: &'a Places,
    range: Option<&'a Range<usize>>,
    work: &'a mut Work,
    /// Calls were found that the kernel would tell of.
    told: bool,
    /// Whose these are, and a call's number.
    first: Option<([u8; found::NAME], Option<u32>)>,
    /// Calls were found of which it cannot.
    kernel_only: bool,
}

/// This process's memory, of which some may be gone.
struct Own;

impl Memory for Own {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        // SAFETY: as many bytes as there is room for; a fault is survived.
        unsafe { user::copy(address as usize as *const u8, into.as_mut_ptr(), into.len()) }
    }
}

const TEXTS: usize = 8;

/// Tells how many objects were loaded and unloaded; no object is looked at.
unsafe extern "C" fn first(object: *mut dl_phdr_info, size: usize, changes: *mut c_void) -> c_int {
    if size >= size_of::<dl_phdr_info>() {
        // SAFETY: what dl_iterate_phdr(3) and `look_now` give.
        unsafe { *changes.cast::<(u64, u64)>() = ((*object).dlpi_adds, (*object).dlpi_subs) };
    }
    1
}

unsafe extern "C" fn each(object: *mut dl_phdr_info, _size: usize, look: *mut c_void) -> c_int {
    // SAFETY: what dl_iterate_phdr(3) and `look_now` give.
    unsafe {
        one(&*object, &mut *look.cast::<Look>());
        // liburing may come behind one that decides.
        0
    }
}

/// Looks at one object.
unsafe fn one(object: &dl_phdr_info, look: &mut Look) {
    let mut texts = [const { 0..0 }; TEXTS];
    let (mut count, mut unwind) = (0, 0..0);
    // SAFETY: promised by the caller.
    for (segment, place) in unsafe { segments::segments(object) } {
        let place64 = place.start as u64..place.end as u64;
        if segment.p_type == libc::PT_GNU_EH_FRAME {
            unwind = place64;
        } else if segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0 {
            if look.objects.is_known(&place) {
                return;
            }
            // More than there is room for is not judged.
            if let Some(text) = texts.get_mut(count) {
                *text = place64;
            }
            count += 1;
        }
    }
    let judged = count <= TEXTS;
    let text = &texts[..count.min(TEXTS)];
    let Some(first) = text.first() else { return };
    if !look.work.seen.enter(first.start ^ (first.end << 20)) {
        return;
    }
    // SAFETY: the loader's name of the object, null or a string.
    let name = unsafe { segments::file_name(object.dlpi_name) };
    if name.starts_with(b"liburing.so") {
        LOOKS.rings[0].store(first.start as usize, Ordering::Relaxed);
        LOOKS.rings[1].store(first.end as usize, Ordering::Relaxed);
        return;
    }
    let outside = |text: &Range<u64>| look.range.is_some_and(|range| !overlap(range, &(text.start as usize..text.end as usize)));
    let told = text.iter().all(outside);
    // One is enough for the trap to begin.
    if if told { look.told } else { harmless::is_harmless(name) } {
        return;
    }
    let (mut concerns, mut call) = (false, None);
    let whole = survey(&Object { memory: &Own, text, unwind }, &mut look.work.room, &mut |site| {
        if !site.concerns() {
            return ControlFlow::Continue(());
        }
        concerns = true;
        call = call.or(site.number);
        // A known number says more.
        if call.is_some() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    if concerns || !whole || !judged {
        if told {
            let mut kept = [0; found::NAME];
            let length = name.len().min(kept.len());
            kept[..length].copy_from_slice(&name[..length]);
            look.first = Some((kept, call));
            look.told = true;
        } else {
            look.kernel_only = true;
            status_page::found(name, call, found::UNTOLD);
        }
    }
}

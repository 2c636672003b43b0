//! What is loaded, and which of it may enter the kernel.

use super::list::{self, LinkMap};
use core::ffi::{c_int, c_long, c_ulong, c_void};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use shunt_calls::libc::{self, dl_phdr_info, Elf64_Ehdr};
use shunt_conventions::places::{around, Places, NONE};
use shunt_conventions::segments::{holds, segments};
use shunt_handover::image;

pub type Callback = unsafe extern "C" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int;

/// What [`resolve`] looks up. Null, or 0: the C library does not have it.
struct Resolved {
    /// What [`Places::new`] takes..
    marks: [AtomicUsize; 4],
    /// dl_iterate_phdr(3).
    iterate: AtomicPtr<c_void>,
    /// _dl_find_object(3), since version 2.35 of the C library.
    find_object: AtomicPtr<c_void>,
    /// dlinfo(3).
    information: AtomicPtr<c_void>,
}

static RESOLVED: Resolved = Resolved {
    marks: [const { AtomicUsize::new(0) }; 4],
    iterate: AtomicPtr::new(core::ptr::null_mut()),
    find_object: AtomicPtr::new(core::ptr::null_mut()),
    information: AtomicPtr::new(core::ptr::null_mut()),
};

/// Looks up, once, what is needed later, when another thread may have the loader's lock that dlsym(3) takes, and wait for one of ours in a
/// constructor of a library that it loads.
pub fn resolve() {
    if !RESOLVED.iterate.load(Ordering::Relaxed).is_null() {
        return;
    }
    // SAFETY: functions of the C library by their prototypes.
    unsafe {
        let libc = super::following(b"gnu_get_libc_version\0");
        let value = super::find(b"getauxval\0");
        if libc.is_null() || value.is_null() {
            return;
        }
        let value: unsafe extern "C" fn(c_ulong) -> c_ulong = core::mem::transmute(value);
        let marks =
            [libc as usize, look as *const () as usize, value(libc::AT_BASE) as usize, value(libc::AT_SYSINFO_EHDR) as usize];
        RESOLVED.marks.iter().zip(marks).for_each(|(place, mark)| place.store(mark, Ordering::Relaxed));
        // Not by dlsym(3), which would leave the program an error (dlerror(3)) where there is none.
        RESOLVED.find_object.store(list::behind(b"_dl_find_object").unwrap_or(core::ptr::null_mut()), Ordering::Relaxed);
        RESOLVED.information.store(super::find(b"dlinfo\0"), Ordering::Relaxed);
        RESOLVED.iterate.store(super::find(b"dl_iterate_phdr\0"), Ordering::Relaxed);
    }
}

/// struct dl_find_object.
#[repr(C)]
struct Found {
    flags: u64,
    start: *const Elf64_Ehdr,
    end: usize,
    map: *const LinkMap,
    frames: usize,
    reserved: [u64; 7],
}

/// dlinfo(3): of which namespace an object is; the program's, LM_ID_BASE.
const RTLD_DI_LMID: c_int = 1;
const BASE: c_long = 0;

/// What `act` makes of the object that an address lies in. `None`: it lies in none of the program's namespace.
///
/// dl_iterate_phdr(3) takes a lock that stays taken in a child of fork(3) if another thread had it, and that neither dlsym(3) nor
/// pthread_create(3) asks for: it is used where the C library is older than _dl_find_object, which takes none.
pub fn with<R>(address: usize, act: impl FnOnce(&dl_phdr_info) -> R) -> Option<R> {
    resolve();
    let find = RESOLVED.find_object.load(Ordering::Relaxed);
    if find.is_null() {
        return search(address).map(|object| act(&object));
    }
    let mut found = Found { flags: 0, start: core::ptr::null(), end: 0, map: core::ptr::null(), frames: 0, reserved: [0; 7] };
    // SAFETY: functions of the C library by their prototypes; the loader maps an object's headers at its beginning.
    unsafe {
        let find: unsafe extern "C" fn(usize, *mut Found) -> c_int = core::mem::transmute(find);
        if find(address, &mut found) != 0 || is_in_other_namespace(found.map) {
            return None;
        }
        let (header, map) = (&*found.start, &*found.map);
        if header.e_ident[..4] != *b"\x7fELF" {
            return None;
        }
        if header.e_phoff != size_of::<Elf64_Ehdr>() as u64 {
            // A tool has moved them, perhaps where nothing is mapped at that distance.
            return search(address).map(|object| act(&object));
        }
        let mut object: dl_phdr_info = core::mem::zeroed();
        (object.dlpi_addr, object.dlpi_name) = (map.address as u64, map.name);
        object.dlpi_phdr = found.start.cast::<u8>().wrapping_add(header.e_phoff as usize).cast();
        object.dlpi_phnum = header.e_phnum;
        holds(&object, address).then(|| act(&object))
    }
}

/// # Safety
/// The loader's description of an object.
unsafe fn is_in_other_namespace(map: *const LinkMap) -> bool {
    let information = RESOLVED.information.load(Ordering::Relaxed);
    if information.is_null() {
        return false;
    }
    let mut namespace = BASE;
    // SAFETY: a function of the C library by its prototype, which takes such a description for a handle.
    unsafe {
        let information: unsafe extern "C" fn(*const LinkMap, c_int, *mut c_long) -> c_int = core::mem::transmute(information);
        information(map, RTLD_DI_LMID, &mut namespace) != 0 || namespace != BASE
    }
}

/// The same by dl_iterate_phdr(3).
fn search(address: usize) -> Option<dl_phdr_info> {
    let mut search = Search { address, found: None };
    // SAFETY: the search outlives the call. The object stays as long as it is being called.
    unsafe { each(visit, (&raw mut search).cast()) };
    search.found
}

struct Search {
    address: usize,
    found: Option<dl_phdr_info>,
}

unsafe extern "C" fn visit(object: *mut dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: what dl_iterate_phdr(3) and `with` give.
    unsafe {
        let (object, search) = (&*object, &mut *search.cast::<Search>());
        let found = holds(object, search.address);
        if found {
            search.found = Some(*object);
        }
        found.into()
    }
}

/// Looks. `None`: the C library does not tell.
pub fn look() -> Option<Places> {
    let marks = [0, 1, 2, 3].map(|i: usize| RESOLVED.marks[i].load(Ordering::Relaxed));
    if marks[0] == 0 {
        return None;
    }
    // SAFETY: the object outlives the call.
    unsafe {
        let mut objects = Places::new(marks);
        each(add, (&raw mut objects).cast())?;
        Some(objects)
    }
}

/// Shows each object to `callback`, until it gives something but 0. `None`: the C library has no such function.
pub unsafe fn each(callback: Callback, data: *mut c_void) -> Option<()> {
    // SAFETY: a function of the C library by its prototype; the data are the caller's.
    unsafe {
        let iterate = RESOLVED.iterate.load(Ordering::Relaxed);
        if iterate.is_null() {
            return None;
        }
        let iterate: unsafe extern "C" fn(Callback, *mut c_void) -> c_int = core::mem::transmute(iterate);
        iterate(callback, data);
        Some(())
    }
}

/// Whether an address lies in an object of Go's.
pub fn is_go(address: usize) -> bool {
    // SAFETY: the loader's description.
    with(address, |object| unsafe { notes(object).any(image::is_go) }) == Some(true)
}

/// What an object's notes say.
unsafe fn notes(object: &dl_phdr_info) -> impl Iterator<Item = &[u8]> {
    // SAFETY: promised by the caller.
    let notes = unsafe { segments(object) }.filter(|(segment, _)| segment.p_type == libc::PT_NOTE);
    // SAFETY: mapped, and as long as the object is.
    notes.map(|(_, place)| unsafe { core::slice::from_raw_parts(place.start as *const u8, place.len()) })
}

/// Enters one object. The program itself comes first.
unsafe extern "C" fn add(object: *mut dl_phdr_info, _size: usize, objects: *mut c_void) -> c_int {
    // SAFETY: what dl_iterate_phdr(3) and `look` give.
    unsafe {
        let (object, objects) = (&*object, &mut *objects.cast::<Places>());
        let (mut whole, mut text) = (NONE, NONE);
        for (segment, part) in segments(object).filter(|(segment, _)| segment.p_type == libc::PT_LOAD) {
            whole = around(&whole, &part);
            if segment.p_flags & libc::PF_X != 0 {
                text = around(&text, &part);
            }
        }
        objects.add(&whole, &text, notes(object).any(image::is_go));
        0
    }
}

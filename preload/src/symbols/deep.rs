//! Libraries that are loaded with RTLD_DEEPBIND (PHP's extensions are): the loader looks for what they need in the libraries that they
//! name before it looks in this one, so it binds them to the C library's functions. They are bound anew when they are loaded.

use crate::loader::{list, objects};
use core::ffi::{c_char, c_int, c_void, CStr};
use shunt_calls::libc::{self, dl_phdr_info};
use shunt_conventions::deep;
use shunt_conventions::segments::{dynamic, is_read_only, PAGE};
use shunt_conventions::tables::Table;
use shunt_sys::{check, syscall};

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Whether dlopen(3) with these arguments is to go through [`open`]. One of a name without a directory is not: where it is looked for
/// depends on the caller.
///
/// # Safety
/// `name` is null or a string.
pub unsafe fn concerns(name: *const c_char, flags: c_int) -> bool {
    // SAFETY: promised by the caller.
    let name = unsafe { name.as_ref().map(|name| CStr::from_ptr(name).to_bytes()) };
    deep::concerns(name, flags)
}

/// dlopen(3), by `function`, of a library that [`concerns`].
///
/// # Safety
/// As the function itself.
pub unsafe fn open(function: *mut c_void, name: *const c_char, flags: c_int) -> *mut c_void {
    // SAFETY: the function has this prototype; promised by the caller.
    unsafe {
        let function: Dlopen = core::mem::transmute(function);
        objects::resolve();
        let mut count = 0usize;
        objects::each(one_more, (&raw mut count).cast());
        // What is bound at its first use would be so past this.
        let opened = function(name, deep::at_once(flags));
        if opened.is_null() {
            return function(name, flags);
        }
        objects::each(behind, (&raw mut count).cast());
        opened
    }
}

unsafe extern "C" fn one_more(_object: *mut dl_phdr_info, _size: usize, count: *mut c_void) -> c_int {
    // SAFETY: what `open` gives.
    unsafe { *count.cast::<usize>() += 1 };
    0
}

/// Binds an object anew, if it comes behind those that there were. New ones are at the end of the loader's list.
unsafe extern "C" fn behind(object: *mut dl_phdr_info, _size: usize, left: *mut c_void) -> c_int {
    // SAFETY: what dl_iterate_phdr(3) and `open` give.
    unsafe {
        let left = &mut *left.cast::<usize>();
        if *left > 0 {
            *left -= 1;
        } else {
            bind(&*object);
        }
    }
    0
}

/// # Safety
/// The loader's description of an object.
unsafe fn bind(object: &dl_phdr_info) {
    // SAFETY: promised by the caller; the tables are those of a loaded object.
    unsafe {
        let Some(dynamic) = dynamic(object) else { return };
        let own = list::own();
        Table::new(object.dlpi_addr as usize, dynamic).each_binding(|place, name| {
            if let Some(function) = own.find(name).filter(|_| super::is_stood_for(place.read())) {
                write(object, place, function as usize);
            }
        });
    }
}

/// # Safety
/// `place` is a word of the object's.
unsafe fn write(object: &dl_phdr_info, place: *mut usize, value: usize) {
    let page = place as usize & !(PAGE - 1);
    // SAFETY: promised by the caller. What the loader has made read-only is so again.
    unsafe {
        if !is_read_only(object, page) {
            return place.write(value);
        }
        if check(syscall!(libc::SYS_mprotect, page, PAGE, libc::PROT_READ | libc::PROT_WRITE)).is_ok() {
            place.write(value);
            let _ = check(syscall!(libc::SYS_mprotect, page, PAGE, libc::PROT_READ));
        }
    }
}

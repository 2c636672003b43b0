//! An object's parts, as the loader describes them (dl_iterate_phdr(3)).

use core::ffi::{c_char, CStr};
use core::ops::Range;
use shunt_calls::libc::{self, dl_phdr_info, Elf64_Phdr};

/// Bytes in a page.
pub const PAGE: usize = 4096;

/// An object's segments, and where they lie.
///
/// # Safety
/// The loader's description of an object that stays.
pub unsafe fn segments(object: &dl_phdr_info) -> impl Iterator<Item = (&Elf64_Phdr, Range<usize>)> {
    (0..object.dlpi_phnum as usize).map(|i| {
        // SAFETY: promised by the caller: the loader's headers of what it has mapped.
        let segment = unsafe { &*object.dlpi_phdr.add(i) };
        let start = (object.dlpi_addr as usize).wrapping_add(segment.p_vaddr as usize);
        (segment, start..start + segment.p_memsz as usize)
    })
}

/// Whether an object has an address.
///
/// # Safety
/// As for [`segments`].
pub unsafe fn holds(object: &dl_phdr_info, address: usize) -> bool {
    // SAFETY: promised by the caller.
    unsafe { segments(object) }.any(|(segment, place)| segment.p_type == libc::PT_LOAD && place.contains(&address))
}

/// An object's dynamic section.
///
/// # Safety
/// As for [`segments`].
pub unsafe fn dynamic<T>(object: &dl_phdr_info) -> Option<*const T> {
    // SAFETY: promised by the caller.
    let section = unsafe { segments(object) }.find(|(segment, _)| segment.p_type == libc::PT_DYNAMIC);
    section.map(|(_, place)| place.start as *const T)
}

/// Whether the loader has made a page read-only when it had bound the object (PT_GNU_RELRO): whole pages, from the one in which that part
/// begins; where it ends in the middle of one, that is left to be written.
///
/// # Safety
/// As for [`segments`].
pub unsafe fn is_read_only(object: &dl_phdr_info, page: usize) -> bool {
    // SAFETY: passed on.
    let mut segments = unsafe { segments(object) };
    segments.any(|(segment, at)| {
        segment.p_type == libc::PT_GNU_RELRO && (at.start & !(PAGE - 1)..at.end & !(PAGE - 1)).contains(&page)
    })
}

/// A file's name without directories. The program's own is empty.
///
/// # Safety
/// Null, or a string that stays.
pub unsafe fn file_name<'a>(name: *const c_char) -> &'a [u8] {
    if name.is_null() {
        return b"";
    }
    // SAFETY: promised by the caller.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
}

#[cfg(test)]
#[path = "tests/segments.rs"]
pub(crate) mod tests;

//! Segments of the objects that the loader has mapped in this very test, beside the kernel's list of mappings.

use super::*;
use core::ffi::{c_int, c_void};

unsafe extern "C" fn enter(object: *mut dl_phdr_info, _size: usize, objects: *mut c_void) -> c_int {
    // SAFETY: what `objects` gives, and the loader's description.
    unsafe { (*objects.cast::<Vec<dl_phdr_info>>()).push(*object) };
    0
}

/// All that is loaded.
pub(crate) fn objects() -> Vec<dl_phdr_info> {
    let mut objects = Vec::new();
    // SAFETY: the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(enter), (&raw mut objects).cast()) };
    objects
}

/// The one whose file's name begins so.
pub(crate) fn object(file: &[u8]) -> dl_phdr_info {
    // SAFETY: the loader's names.
    objects().into_iter().find(|object| unsafe { file_name(object.dlpi_name) }.starts_with(file)).unwrap()
}

fn header(kind: u32, start: u64, length: u64) -> Elf64_Phdr {
    Elf64_Phdr { p_type: kind, p_flags: 0, p_offset: 0, p_vaddr: start, p_paddr: 0, p_filesz: 0, p_memsz: length, p_align: 0 }
}

fn described(headers: &[Elf64_Phdr], address: u64) -> dl_phdr_info {
    // SAFETY: all-zero is a valid description of nothing.
    let mut object: dl_phdr_info = unsafe { core::mem::zeroed() };
    (object.dlpi_addr, object.dlpi_phdr, object.dlpi_phnum) = (address, headers.as_ptr(), headers.len() as u16);
    object
}

#[test]
fn the_kernel_has_mapped_what_the_headers_say() {
    let object = object(b"libc.so");
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped: Vec<Range<usize>> = maps
        .lines()
        .filter_map(|line| line.split_once(' ')?.0.split_once('-'))
        .map(|(start, end)| usize::from_str_radix(start, 16).unwrap()..usize::from_str_radix(end, 16).unwrap())
        .collect();
    // SAFETY: the loader's description.
    let loaded: Vec<_> = unsafe { segments(&object) }.filter(|(segment, _)| segment.p_type == libc::PT_LOAD).collect();
    assert!(loaded.len() >= 2);
    for (_, place) in loaded {
        assert!(mapped.iter().any(|range| range.contains(&place.start)), "{place:x?}");
    }
}

#[test]
fn a_function_lies_in_the_object_that_has_it() {
    let function = libc::getpid as *const () as usize;
    // SAFETY: the loader's description.
    unsafe {
        assert!(holds(&object(b"libc.so"), function));
        assert!(!holds(&objects()[0], function));
    }
}

#[test]
fn a_dynamic_section_ends_with_an_entry_of_tag_zero() {
    // SAFETY: the loader's description; the section ends so.
    unsafe {
        let section: *const [u64; 2] = dynamic(&object(b"libc.so")).unwrap();
        assert!((0..200).any(|i| (*section.add(i))[0] == 0));
    }
}

#[test]
fn an_object_without_a_dynamic_section_has_none() {
    let headers = [header(libc::PT_LOAD, 0, 4096)];
    // SAFETY: described above.
    assert!(unsafe { dynamic::<u8>(&described(&headers, 0x10_0000)) }.is_none());
}

#[test]
fn the_address_at_which_an_object_was_loaded_is_added() {
    let headers = [header(libc::PT_LOAD, 0x1000, 0x800)];
    // SAFETY: described above.
    let place = unsafe { segments(&described(&headers, 0x10_0000)) }.map(|(_, place)| place).next();
    assert_eq!(place, Some(0x10_1000..0x10_1800));
}

#[test]
fn only_loaded_segments_hold_addresses() {
    let headers = [header(libc::PT_NOTE, 0, 4096), header(libc::PT_LOAD, 8192, 4096)];
    let object = described(&headers, 0x10_0000);
    // SAFETY: described above.
    unsafe {
        assert!(!holds(&object, 0x10_0000));
        assert!(holds(&object, 0x10_2fff));
        assert!(!holds(&object, 0x10_3000));
    }
}

#[test]
fn an_object_without_headers_holds_nothing() {
    // SAFETY: described above.
    assert!(!unsafe { holds(&described(&[], 0), 0) });
}

#[test]
fn pages_are_read_only_from_the_one_in_which_relro_begins() {
    let headers = [header(libc::PT_GNU_RELRO, 0x1800, 0x2000)];
    let object = described(&headers, 0x10_0000);
    // SAFETY: described above.
    let read_only = |page: usize| unsafe { is_read_only(&object, 0x10_0000 + page) };
    assert!(!read_only(0));
    assert!(read_only(0x1000));
    assert!(read_only(0x2000));
    // Relro ends in the middle of this one.
    assert!(!read_only(0x3000));
}

#[test]
fn a_file_is_named_without_its_directories() {
    // SAFETY: C strings.
    unsafe {
        assert_eq!(file_name(c"/usr/lib/libc.so.6".as_ptr()), b"libc.so.6");
        assert_eq!(file_name(c"linux-vdso.so.1".as_ptr()), b"linux-vdso.so.1");
        assert_eq!(file_name(c"/".as_ptr()), b"");
        assert_eq!(file_name(c"".as_ptr()), b"");
        assert_eq!(file_name(core::ptr::null()), b"");
    }
}

#[test]
fn the_program_itself_comes_first_and_has_no_name() {
    // SAFETY: the loader's name.
    assert_eq!(unsafe { file_name(objects()[0].dlpi_name) }, b"");
}

//! Symbols of real objects, beside what dlsym(3) finds; and of tables made by hand.

use super::*;
use crate::segments::{dynamic, tests::object};
use shunt_calls::libc;

fn table(file: &[u8]) -> Table {
    let object = object(file);
    // SAFETY: the loader's description of an object that stays.
    unsafe { Table::new(object.dlpi_addr as usize, dynamic(&object).unwrap()) }
}

#[test]
fn a_symbol_lies_where_dlsym_finds_it() {
    let table = table(b"libc.so");
    for name in [c"getpid", c"write", c"fopen", c"dlsym", c"environ", c"qsort", c"__errno_location"] {
        // SAFETY: a C string.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        assert_eq!(table.find(name.to_bytes()), Some(expected), "{name:?}");
    }
}

#[test]
fn every_symbol_of_the_c_library_that_shunt_intercepts_is_found_as_dlsym_finds_it() {
    let table = table(b"libc.so");
    let mut found = 0;
    for call in shunt_calls::CALLS {
        let name = std::ffi::CString::new(call.symbol).unwrap();
        // SAFETY: a C string.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if let Some(address) = table.find(call.symbol.as_bytes()) {
            assert_eq!(address, expected, "{}", call.symbol);
            found += 1;
        }
    }
    assert!(found > 100);
}

#[test]
fn what_an_object_does_not_define_is_not_found() {
    let table = table(b"libc.so");
    assert_eq!(table.find(b"no_such_symbol_anywhere"), None);
    assert_eq!(table.find(b""), None);
    // The beginning of a name, and one that is longer.
    assert_eq!(table.find(b"getpi"), None);
    assert_eq!(table.find(b"getpidd"), None);
}

#[test]
fn what_an_object_only_uses_is_not_found_in_it() {
    // The unwinder uses the C library's functions.
    let table = table(b"libgcc_s");
    assert_eq!(table.find(b"malloc"), None);
    assert!(table.find(b"_Unwind_Resume").is_some());
}

#[test]
fn the_loader_has_written_the_addresses_of_symbols_where_bindings_say() {
    // Rust binds a program's functions when it starts.
    let (libc, program) = (table(b"libc.so"), table(b""));
    let mut bound = 0;
    // SAFETY: the object is loaded; its words can be read.
    unsafe {
        program.each_binding(|place, name| {
            if [&b"waitpid"[..], b"posix_spawn", b"__errno_location", b"abort"].contains(&name) {
                assert_eq!(Some(place.read() as *mut c_void), libc.find(name), "{name:?}");
                bound += 1;
            }
        });
    }
    assert!(bound >= 3);
}

/// Tables made by hand, at address 0: what they say is where they lie.
struct Made {
    names: Vec<u8>,
    symbols: Vec<Elf64_Sym>,
    versions: Vec<u16>,
    hashes: Vec<u32>,
}

/// A name and its value, or no definition; in one bucket, behind the symbol 0.
fn made(symbols: &[(&str, Option<u64>)]) -> Made {
    let symbol = |name, section, value| Elf64_Sym {
        st_name: name,
        st_info: 0,
        st_other: 0,
        st_shndx: section,
        st_value: value,
        st_size: 0,
    };
    let (mut names, mut made) = (vec![0], vec![symbol(0, 0, 0)]);
    for (name, value) in symbols {
        made.push(symbol(names.len() as u32, value.is_some().into(), value.unwrap_or(0)));
        names.extend_from_slice(name.as_bytes());
        names.push(0);
    }
    // One bucket, first symbol 1, a filter of one word of 64 bits.
    let mut hashes = vec![1, 1, 1, 0, 0, 0, if symbols.is_empty() { 0 } else { 1 }];
    for (i, (name, _)) in symbols.iter().enumerate() {
        let last = i + 1 == symbols.len();
        hashes.push(hash(name.as_bytes()) & !1 | u32::from(last));
    }
    Made { names, versions: vec![0; made.len()], symbols: made, hashes }
}

impl Made {
    fn section(&self) -> [Entry; 5] {
        [
            (DT_STRTAB, self.names.as_ptr() as u64),
            (DT_SYMTAB, self.symbols.as_ptr() as u64),
            (DT_GNU_HASH, self.hashes.as_ptr() as u64),
            (DT_VERSYM, self.versions.as_ptr() as u64),
            (DT_NULL, 0),
        ]
        .map(|(tag, value)| Entry { tag, value })
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        // SAFETY: the section ends with null, and its tables outlive the search.
        unsafe { Table::new(0, self.section().as_ptr()) }.find(name).map(|address| address as usize)
    }
}

#[test]
fn symbols_of_one_bucket_are_told_apart_by_name() {
    let made = made(&[("one", Some(0x11)), ("two", Some(0x22)), ("three", Some(0x33))]);
    assert_eq!([made.find(b"one"), made.find(b"two"), made.find(b"three")], [Some(0x11), Some(0x22), Some(0x33)]);
    assert_eq!(made.find(b"four"), None);
}

#[test]
fn names_of_one_hash_are_told_apart() {
    // 33 * 'b' + 'A' is 33 * 'a' + 'b'.
    assert_eq!(hash(b"ab"), hash(b"bA"));
    let made = made(&[("ab", Some(1)), ("bA", Some(2))]);
    assert_eq!([made.find(b"ab"), made.find(b"bA")], [Some(1), Some(2)]);
}

#[test]
fn an_undefined_symbol_is_passed_over() {
    let made = made(&[("f", None), ("f", Some(7))]);
    assert_eq!(made.find(b"f"), Some(7));
}

#[test]
fn a_hidden_version_is_passed_over_for_the_default_one() {
    let mut made = made(&[("f", Some(1)), ("f", Some(2))]);
    made.versions[1] = HIDDEN | 2;
    made.versions[2] = 3;
    assert_eq!(made.find(b"f"), Some(2));
    made.versions[2] = HIDDEN | 3;
    assert_eq!(made.find(b"f"), None);
}

#[test]
fn an_empty_bucket_has_no_symbols() {
    assert_eq!(made(&[]).find(b"f"), None);
}

#[test]
fn a_table_without_buckets_has_no_symbols() {
    let mut made = made(&[("f", Some(1))]);
    made.hashes[0] = 0;
    assert_eq!(made.find(b"f"), None);
}

#[test]
fn a_bucket_that_names_a_symbol_before_the_first_is_empty() {
    let mut made = made(&[("f", Some(1))]);
    made.hashes[1] = 5;
    assert_eq!(made.find(b"f"), None);
}

#[test]
fn a_section_that_lacks_a_table_has_no_symbols() {
    let made = made(&[("f", Some(1))]);
    for missing in 0..3 {
        let mut section = made.section();
        section[missing].tag = 0x7777;
        // SAFETY: as in `find`.
        assert_eq!(unsafe { Table::new(0, section.as_ptr()) }.find(b"f"), None);
    }
    let mut section = made.section();
    section[3].tag = 0x7777;
    // Without versions each is the default one.
    // SAFETY: as in `find`.
    assert!(unsafe { Table::new(0, section.as_ptr()) }.find(b"f").is_some());
}

#[test]
fn values_that_the_loader_left_as_offsets_are_added_to_the_address() {
    let made = made(&[("f", Some(0x40))]);
    let base = [
        made.names.as_ptr() as usize,
        made.symbols.as_ptr() as usize,
        made.hashes.as_ptr() as usize,
        made.versions.as_ptr() as usize,
    ]
    .into_iter()
    .min()
    .unwrap();
    // All tables lie within an address's own distance from there.
    let mut section = made.section();
    section[..4].iter_mut().for_each(|entry| entry.value -= base as u64);
    // SAFETY: as in `find`; the offsets lead back to the tables.
    let found = unsafe { Table::new(base, section.as_ptr()) }.find(b"f");
    assert_eq!(found, Some((base + 0x40) as *mut c_void));
}

#[test]
fn only_relocations_that_hold_a_symbols_address_are_bindings() {
    let mut made = made(&[("f", Some(0x40)), ("g", Some(0x50))]);
    made.versions.clear();
    let rela =
        |kind: u64, symbol: u64, addend| Elf64_Rela { r_offset: 8 * symbol, r_info: symbol << 32 | kind, r_addend: addend };
    // R_X86_64_64, _RELATIVE, one with an addend; _GLOB_DAT.
    let (first, second) = ([rela(1, 1, 0), rela(8, 1, 0), rela(1, 1, 4)], [rela(6, 2, 0)]);
    let section = [
        (DT_STRTAB, made.names.as_ptr() as u64),
        (DT_SYMTAB, made.symbols.as_ptr() as u64),
        (DT_RELA, first.as_ptr() as u64),
        (DT_RELASZ, size_of_val(&first) as u64),
        (DT_JMPREL, second.as_ptr() as u64),
        (DT_PLTRELSZ, size_of_val(&second) as u64),
        (DT_NULL, 0),
    ]
    .map(|(tag, value)| Entry { tag, value });
    let mut bound = Vec::new();
    // SAFETY: the tables outlive the walk.
    unsafe { Table::new(0, section.as_ptr()).each_binding(|place, name| bound.push((place as usize, name.to_vec()))) };
    assert_eq!(bound, [(8, b"f".to_vec()), (16, b"g".to_vec())]);
}

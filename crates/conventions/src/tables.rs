//! The symbols that an object exports, read from its own tables (elf(5)) where the loader has mapped them.

use core::ffi::{c_char, c_void, CStr};
use shunt_calls::libc::{Elf64_Rela, Elf64_Sym, Elf64_Xword};

/// Elf64_Dyn.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Entry {
    /// DT_NULL and its like.
    pub tag: i64,
    /// A number or an address, as the tag says.
    pub value: Elf64_Xword,
}

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;

/// Kinds of relocation by which a place holds a symbol's address: R_X86_64_64, _GLOB_DAT, _JUMP_SLOT.
const BINDING: [u32; 3] = [1, 6, 7];

/// A version that is given only where it is named (the highest bit of an entry of .gnu.version).
const HIDDEN: u16 = 0x8000;

/// One object's tables.
pub struct Table {
    address: usize,
    names: usize,
    symbols: usize,
    hashes: usize,
    versions: usize,
    /// DT_RELA and DT_JMPREL: where, and how many bytes.
    relocations: [(usize, usize); 2],
}

impl Table {
    /// That of an object that was loaded at `address`.
    ///
    /// # Safety
    /// `dynamic` is its dynamic section, and it stays loaded as long as the table is used.
    pub unsafe fn new(address: usize, dynamic: *const Entry) -> Table {
        let mut table = Table { address, names: 0, symbols: 0, hashes: 0, versions: 0, relocations: [(0, 0); 2] };
        let mut at = dynamic;
        // SAFETY: promised by the caller; the section ends with an entry of tag 0.
        unsafe {
            while (*at).tag != DT_NULL {
                // The loader has written addresses there, unless the section may not be written.
                let value = (*at).value as usize;
                let place = if value < address { address + value } else { value };
                match (*at).tag {
                    DT_STRTAB => table.names = place,
                    DT_SYMTAB => table.symbols = place,
                    DT_GNU_HASH => table.hashes = place,
                    DT_VERSYM => table.versions = place,
                    DT_RELA => table.relocations[0].0 = place,
                    DT_RELASZ => table.relocations[0].1 = value,
                    DT_JMPREL => table.relocations[1].0 = place,
                    DT_PLTRELSZ => table.relocations[1].1 = value,
                    _ => {}
                }
                at = at.add(1);
            }
        }
        table
    }

    /// Calls `each` with the places where the loader has written the address of a symbol, and the symbol's name.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn each_binding(&self, mut each: impl FnMut(*mut usize, &[u8])) {
        for (start, length) in self.relocations {
            for i in 0..length / core::mem::size_of::<Elf64_Rela>() {
                // SAFETY: promised by the caller: the table has so many entries, and they name symbols of the object.
                unsafe {
                    let Elf64_Rela { r_offset, r_info, r_addend } = *(start as *const Elf64_Rela).add(i);
                    if BINDING.contains(&(r_info as u32)) && r_addend == 0 {
                        let symbol = &*(self.symbols as *const Elf64_Sym).add((r_info >> 32) as usize);
                        let name = CStr::from_ptr((self.names + symbol.st_name as usize) as *const c_char);
                        each((self.address + r_offset as usize) as *mut usize, name.to_bytes());
                    }
                }
            }
        }
    }

    /// Where the symbol of this name lies, in its default version.
    pub fn find(&self, name: &[u8]) -> Option<*mut c_void> {
        if self.hashes == 0 || self.symbols == 0 || self.names == 0 {
            return None;
        }
        let hash = hash(name);
        // SAFETY: the layout of DT_GNU_HASH: counts, a filter of 64-bit words, buckets, and a chain for each bucket, whose last
        // hash has its lowest bit set.
        unsafe {
            let words = self.hashes as *const u32;
            let (buckets, first, filter) = (*words, *words.add(1), *words.add(2));
            let bucket = words.add(4 + 2 * filter as usize);
            let chain = bucket.add(buckets as usize);
            let mut index = if buckets == 0 { 0 } else { *bucket.add((hash % buckets) as usize) };
            if index < first {
                return None;
            }
            loop {
                let here = *chain.add((index - first) as usize);
                if here | 1 == hash | 1 {
                    if let Some(found) = self.defined(index as usize, name) {
                        return Some(found);
                    }
                }
                if here & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// Where the symbol of this index lies, if it is defined under that name.
    ///
    /// # Safety
    /// The table has such an index.
    unsafe fn defined(&self, index: usize, name: &[u8]) -> Option<*mut c_void> {
        // SAFETY: promised by the caller.
        unsafe {
            let symbol = &*(self.symbols as *const Elf64_Sym).add(index);
            let hidden = self.versions != 0 && *(self.versions as *const u16).add(index) & HIDDEN != 0;
            let known = CStr::from_ptr((self.names + symbol.st_name as usize) as *const c_char);
            let defined = symbol.st_shndx != 0 && !hidden && known.to_bytes() == name;
            defined.then(|| (self.address + symbol.st_value as usize) as *mut c_void)
        }
    }
}

/// The hash function of DT_GNU_HASH.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
#[path = "tests/tables.rs"]
mod tests;

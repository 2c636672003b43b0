//! The environment of a program that this process starts: what was inherited is named in it, and LD_PRELOAD brings the library in.

use core::ffi::{c_char, CStr};
use shunt_calls::libc::ENOMEM;
use shunt_sys::{calls, mapping, user, Errno, Result};

/// An array of C strings that ends with null, as execve(2) takes two.
pub type Strings = *const *const c_char;

/// The name of the library's file, as LD_PRELOAD has it.
const LIBRARY: &[u8] = b"libshunt";

/// How the variable that the loader looks at begins (ld.so(8)).
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The value of a variable in an environment, without the C library's getenv(3) (which another thread may be changing).
///
/// # Safety
/// `environment` is null, or an array of C strings that ends with null; they stay.
pub unsafe fn variable<'a>(environment: Strings, name: &str) -> Option<&'a [u8]> {
    // SAFETY: promised by the caller.
    unsafe {
        let mut at = environment;
        while !at.is_null() && !(*at).is_null() {
            let text = CStr::from_ptr(*at).to_bytes();
            if let Some(value) = text.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"=")) {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// How many strings there are; all of them can be read. Errors: EFAULT.
///
/// # Safety
/// Any address that is not ours.
pub unsafe fn count(strings: Strings) -> Result<usize> {
    let mut n = 0;
    // SAFETY: any address that is not ours.
    unsafe {
        while !strings.is_null() {
            let text = user::read(strings.wrapping_add(n))?;
            if text.is_null() {
                break;
            }
            measure(text)?;
            n += 1;
        }
    }
    Ok(n)
}

/// Bytes before the string's end. Errors: EFAULT.
unsafe fn measure(text: *const c_char) -> Result<usize> {
    let mut length = 0;
    // SAFETY: any address that is not ours.
    while unsafe { user::read(text.wrapping_add(length)) }? != 0 {
        length += 1;
    }
    Ok(length)
}

/// The variable LD_PRELOAD with which this program was started: given on to programs whose environment was cleaned
/// while they inherit descriptors that only this library can serve.
pub struct Preload {
    text: [u8; 4096],
    length: usize,
}

impl Preload {
    /// Of a program that was started without.
    pub const fn none() -> Preload {
        Preload { text: [0; 4096], length: 0 }
    }

    /// Remembers the variable's value. One that there is no room for is forgotten whole.
    pub fn note(&mut self, value: &[u8]) {
        let end = PRELOAD.len() + value.len();
        if end + 1 < self.text.len() {
            self.text[..PRELOAD.len()].copy_from_slice(PRELOAD);
            self.text[PRELOAD.len()..end].copy_from_slice(value);
            self.text[end] = 0;
            self.length = end;
        }
    }

    fn value(&self) -> &[u8] {
        self.text[..self.length].strip_prefix(PRELOAD).unwrap_or(&[])
    }

    /// The part that names this library; empty without one.
    pub fn own_entry(&self) -> &[u8] {
        let names_us = |entry: &&[u8]| entry.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(LIBRARY));
        entries(self.value()).find(names_us).unwrap_or(&[])
    }
}

/// What a value of LD_PRELOAD names, as the loader separates it.
fn entries(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| matches!(byte, b':' | b' '))
}

/// An environment for the next program. It points into what it was made of.
pub struct Environment {
    memory: *mut *const c_char,
    size: usize,
}

impl Environment {
    /// The given environment with `inherit` (a name, an equals sign, a value) in it, and LD_PRELOAD so that it names this library.
    ///
    /// Errors: ENOMEM, EFAULT.
    ///
    /// # Safety
    /// As for [`variable`]; an array or a string that cannot be read is told.
    pub unsafe fn new(given: Strings, preload: &Preload, inherit: &CStr) -> Result<Environment> {
        let replaced = inherit.to_bytes().split_inclusive(|byte| *byte == b'=').next().unwrap_or(&[]);
        // SAFETY: the array ends with null; the new one has room for two more entries and the null, and behind them for
        // each given LD_PRELOAD with the own entry.
        unsafe {
            let n = count(given)?;
            let array = (n + 4) * size_of::<*const c_char>();
            let own = preload.own_entry();
            let entry_of = |i: usize| CStr::from_ptr(*given.add(i)).to_bytes();
            // The program may have several, of which the loader takes the last.
            let others = (0..n).map(entry_of).filter(|entry| entry.starts_with(PRELOAD));
            let size = array + others.map(|entry| entry.len() + own.len() + 2).sum::<usize>();
            let memory = mapping::reserve(size).map_err(|_| Errno(ENOMEM))?.cast::<*const c_char>();
            let mut target = memory.cast::<u8>().add(array);
            let mut at = 0;
            let mut preloaded = false;
            for i in 0..n {
                let text = entry_of(i);
                if text.starts_with(replaced) {
                    continue;
                }
                memory.add(at).write(*given.add(i));
                if let Some(value) = text.strip_prefix(PRELOAD) {
                    preloaded = true;
                    if !own.is_empty() && !entries(value).any(|entry| entry == own) {
                        // The program's own library stays the first; ours serves what it inherits.
                        memory.add(at).write(target.cast_const().cast());
                        for part in [text, b":", own, b"\0"] {
                            core::ptr::copy_nonoverlapping(part.as_ptr(), target, part.len());
                            target = target.add(part.len());
                        }
                    }
                }
                at += 1;
            }
            memory.add(at).write(inherit.as_ptr());
            at += 1;
            if !preloaded && !preload.value().is_empty() {
                memory.add(at).write(preload.text.as_ptr().cast());
            }
            Ok(Environment { memory, size })
        }
    }

    /// As execve(2) takes it.
    pub fn strings(&self) -> Strings {
        self.memory.cast_const()
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        let _ = calls::munmap(self.memory.cast(), self.size);
    }
}

#[cfg(test)]
#[path = "tests/environment.rs"]
mod tests;

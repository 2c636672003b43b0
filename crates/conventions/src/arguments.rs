//! The arguments of execl(3) and its kin, which take them as a list of any length.

use crate::environment::Strings;
use core::ffi::c_char;
use shunt_calls::libc::ENOMEM;
use shunt_sys::{calls, mapping, Errno, Result};

/// How many of a variable argument list behind one named argument lie in registers (System V x86-64 ABI).
const IN_REGISTERS: usize = 5;

/// Where a variable argument list lies: five in registers (saved), the rest on the stack.
pub struct List {
    saved: Strings,
    stack: Strings,
}

impl List {
    /// A list that ends with null.
    ///
    /// # Safety
    /// Five words can be read at `saved`, and at `stack` those behind, up to the null and whatever else is asked for.
    pub const unsafe fn new(saved: Strings, stack: Strings) -> List {
        List { saved, stack }
    }

    /// An argument.
    ///
    /// # Safety
    /// The list has so many: none behind the terminating null, but for execle's environment.
    pub unsafe fn get(&self, i: usize) -> *const c_char {
        // SAFETY: promised by the caller.
        unsafe {
            if i < IN_REGISTERS {
                *self.saved.add(i)
            } else {
                *self.stack.add(i - IN_REGISTERS)
            }
        }
    }

    /// Calls `exec` with the arguments as an array, and the index behind the terminating null. Errors: ENOMEM.
    pub fn gather<R>(&self, exec: impl FnOnce(Strings, usize) -> R) -> Result<R> {
        // SAFETY: the list ends with null, as `new` was promised.
        unsafe {
            let mut n = 0;
            while !self.get(n).is_null() {
                n += 1;
            }
            let size = (n + 1) * size_of::<*const c_char>();
            let memory = mapping::reserve(size).map_err(|_| Errno(ENOMEM))?;
            let array = memory.cast::<*const c_char>();
            for i in 0..n {
                array.add(i).write(self.get(i));
            }
            let result = exec(array.cast_const(), n + 1);
            let _ = calls::munmap(memory, size);
            Ok(result)
        }
    }
}

#[cfg(test)]
#[path = "tests/arguments.rs"]
mod tests;

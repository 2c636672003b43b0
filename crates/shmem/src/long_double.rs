//! `long double`, which Rust does not have: sixteen bytes, of which ten are the number. The processor's old unit adds them; functions that take or
//! return one by value follow the calling convention by hand.

use crate::contexts::{Ctx, DEFAULT};
use crate::numbers::Number;
use crate::transfers;
use std::arch::asm;
use std::ffi::c_int;

/// In memory.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct LongDouble([u8; 16]);

/// As an argument: more than sixteen bytes go by the stack, as a `long double` does. What lies behind it is the caller's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OnStack([u64; 3]);

impl OnStack {
    pub fn number(self) -> LongDouble {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_ne_bytes());
        bytes[8..10].copy_from_slice(&(self.0[1] as u16).to_ne_bytes());
        LongDouble(bytes)
    }
}

macro_rules! computed {
    ($name:ident, $instruction:literal) => {
        fn $name(self, other: Self) -> Self {
            let mut result = LongDouble([0; 16]);
            // SAFETY: reads two numbers and writes one; the unit's stack is as before.
            unsafe {
                asm!(
                    "fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", $instruction, "fstp tbyte ptr [{c}]",
                    a = in(reg) &self, b = in(reg) &other, c = in(reg) &mut result,
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack)
                );
            }
            result
        }
    };
}

impl LongDouble {
    fn exceeds(&self, other: &Self) -> bool {
        let above: u8;
        // SAFETY: reads two numbers; the unit's stack is as before.
        unsafe {
            asm!(
                "fld tbyte ptr [{b}]", "fld tbyte ptr [{a}]", "fcomip st, st(1)", "fstp st(0)", "seta {above}",
                a = in(reg) self, b = in(reg) other, above = out(reg_byte) above,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack, readonly)
            );
        }
        above != 0
    }
}

impl Number for LongDouble {
    fn largest(self, other: Self) -> Self {
        if other.exceeds(&self) {
            other
        } else {
            self
        }
    }
    fn smallest(self, other: Self) -> Self {
        if self.exceeds(&other) {
            other
        } else {
            self
        }
    }
    computed!(plus, "faddp st(1), st");
    computed!(times, "fmulp st(1), st");
}

/// For `shmem_longdouble_g`: writes what is to be loaded.
pub extern "C" fn get(from: *const LongDouble, pe: c_int, to: *mut LongDouble) {
    get_by_context(DEFAULT, from, pe, to);
}

/// The same with a context.
pub extern "C" fn get_by_context(context: Ctx, from: *const LongDouble, pe: c_int, to: *mut LongDouble) {
    transfers::get("shmem_longdouble_g", context, to, from, 1, pe);
}

macro_rules! long_double_p {
    ($name:ident) => {
        #[no_mangle]
        pub unsafe extern "C" fn $name(dest: *mut LongDouble, value: crate::long_double::OnStack, pe: c_int) {
            transfers::p("shmem_longdouble_p", DEFAULT, dest, value.number(), pe)
        }
    };
}

macro_rules! long_double_ctx_p {
    ($name:ident) => {
        #[no_mangle]
        pub unsafe extern "C" fn $name(ctx: Ctx, dest: *mut LongDouble, value: crate::long_double::OnStack, pe: c_int) {
            transfers::p("shmem_ctx_longdouble_p", ctx, dest, value.number(), pe)
        }
    };
}

macro_rules! long_double_g {
    ($name:ident) => {
        #[no_mangle]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(source: *const LongDouble, pe: c_int) {
            core::arch::naked_asm!(
                "sub rsp, 24",
                "mov rdx, rsp",
                "call {get}",
                "fld tbyte ptr [rsp]",
                "add rsp, 24",
                "ret",
                get = sym crate::long_double::get
            )
        }
    };
}

macro_rules! long_double_ctx_g {
    ($name:ident) => {
        #[no_mangle]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(ctx: Ctx, source: *const LongDouble, pe: c_int) {
            core::arch::naked_asm!(
                "sub rsp, 24",
                "mov rcx, rsp",
                "call {get}",
                "fld tbyte ptr [rsp]",
                "add rsp, 24",
                "ret",
                get = sym crate::long_double::get_by_context
            )
        }
    };
}

pub(crate) use {long_double_ctx_g, long_double_ctx_p, long_double_g, long_double_p};

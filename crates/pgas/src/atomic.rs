//! Atomic operations on words of symmetric memory. Floating-point numbers are moved as bits; nothing adds them.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

mod sealed {
    /// For numbers of the language: operations rely on their sizes and alignments.
    pub trait Number {}
}

/// A value of four or eight bytes (two, for loads) whose every pattern of bits is one.
pub trait Word: Copy + sealed::Number {
    /// Its bits.
    fn bits(self) -> u64;
    /// The value with these bits; higher ones are dropped.
    fn from_bits(bits: u64) -> Self;
}

/// A whole number: what adding and operations on bits are of.
pub trait Whole: Word {}

macro_rules! words {
    ($($type:ty)*) => {$(
        impl sealed::Number for $type {}
        impl Whole for $type {}
        impl Word for $type {
            #[inline(always)]
            fn bits(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as $type
            }
        }
    )*};
}
words! { u16 i16 u32 i32 u64 i64 usize isize }

impl sealed::Number for f32 {}
impl sealed::Number for f64 {}

impl Word for f32 {
    #[inline(always)]
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        f32::from_bits(bits as u32)
    }
}

impl Word for f64 {
    #[inline(always)]
    fn bits(self) -> u64 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_bits(bits: u64) -> Self {
        f64::from_bits(bits)
    }
}

/// The value there.
///
/// # Safety
/// `at` is an aligned word of mapped memory.
#[inline(always)]
pub unsafe fn load<T: Word>(at: usize) -> T {
    // SAFETY: by the caller.
    let bits = unsafe {
        match size_of::<T>() {
            2 => u64::from(AtomicU16::from_ptr(at as *mut u16).load(Acquire)),
            4 => u64::from(AtomicU32::from_ptr(at as *mut u32).load(Acquire)),
            _ => AtomicU64::from_ptr(at as *mut u64).load(Acquire),
        }
    };
    T::from_bits(bits)
}

macro_rules! operations {
    ($($(#[$text:meta])* $name:ident;)*) => {$(
        $(#[$text])*
        ///
        /// # Safety
        /// `at` is an aligned word of mapped memory.
        #[inline(always)]
        pub unsafe fn $name<T: Word>(at: usize, value: T) -> T {
            // SAFETY: by the caller.
            let bits = unsafe {
                match size_of::<T>() {
                    4 => u64::from(AtomicU32::from_ptr(at as *mut u32).$name(value.bits() as u32, SeqCst)),
                    _ => AtomicU64::from_ptr(at as *mut u64).$name(value.bits(), SeqCst),
                }
            };
            T::from_bits(bits)
        }
    )*};
}

operations! {
    /// Writes; the value before.
    swap;
    /// Adds, and wraps around; the value before.
    fetch_add;
    /// And of bits; the value before.
    fetch_and;
    /// Or of bits; the value before.
    fetch_or;
    /// Exclusive or of bits; the value before.
    fetch_xor;
}

/// Writes `value` if `expected` is there; the value before.
///
/// # Safety
/// `at` is an aligned word of mapped memory.
#[inline(always)]
pub unsafe fn compare_swap<T: Word>(at: usize, expected: T, value: T) -> T {
    // SAFETY: by the caller.
    let bits = unsafe {
        match size_of::<T>() {
            4 => {
                let word = AtomicU32::from_ptr(at as *mut u32);
                let result = word.compare_exchange(expected.bits() as u32, value.bits() as u32, SeqCst, Relaxed);
                u64::from(result.unwrap_or_else(|found| found))
            }
            _ => {
                let word = AtomicU64::from_ptr(at as *mut u64);
                word.compare_exchange(expected.bits(), value.bits(), SeqCst, Relaxed).unwrap_or_else(|found| found)
            }
        }
    };
    T::from_bits(bits)
}

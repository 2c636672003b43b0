//! Parameters by reference: memory that a call names instead of carrying it.

use crate::value::Form;
use crate::wire::Piece;
use crate::xdr::{loaded_once, Decoder, Encoder, Xdr};
use std::marker::PhantomData;
use std::time::Duration;

/// How one call goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// How long it may take; `None`: as the client's options say.
    pub deadline: Option<Duration>,
    /// Buffers that the arguments name.
    pub lent: &'a [Lent],
}

/// A buffer that a call's arguments name.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    pub(crate) number: u32,
    pub(crate) piece: Piece,
    pub(crate) form: Form,
    /// The server reads what is in it.
    pub to_server: bool,
    /// The server writes to it.
    pub from_server: bool,
}

/// Numbers that lie in a window as this machine has them: what is passed by reference is not translated.
///
/// # Safety
/// Any bytes are a value, and it has no padding.
pub unsafe trait Scalar: Copy + Default + Send + 'static {
    /// How it goes where memory is not shared, and not mirrored either.
    #[doc(hidden)]
    const FORM: Form;
}

macro_rules! scalar {
    ($($type:ty, $form:ident;)*) => {$(
        // SAFETY: a number.
        unsafe impl Scalar for $type {
            const FORM: Form = Form::$form;
        }
    )*};
}
scalar!(u8, Opaque; i8, Tiny; u16, Short; i16, SignedShort; u32, Four; i32, Four; f32, Four; u64, Eight; i64, Eight; f64, Eight;);

/// A buffer's name in arguments: two units, offset and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference<T> {
    pub(crate) piece: Piece,
    elements: PhantomData<T>,
}

impl<T> Reference<T> {
    #[inline(always)]
    pub(crate) fn to(piece: Piece) -> Self {
        Self { piece, elements: PhantomData }
    }
}

impl<T: Scalar> Xdr for Reference<T> {
    const LEAST: usize = 8;
    const MOST: usize = 8;
    #[inline]
    fn encode(&self, to: &mut Encoder<'_>) {
        if let Some(values) = to.by_value {
            return values.encode(self.piece, T::FORM, to);
        }
        to.unsigned(self.piece.offset);
        to.unsigned(self.piece.length);
    }
    #[inline]
    fn decode(from: &mut Decoder<'_>) -> Result<Self, crate::xdr::Error> {
        if let Some(inlet) = from.inlet {
            return Ok(Self::to(inlet.decode(T::FORM, from)?));
        }
        let piece = Piece { offset: from.unsigned()?, length: from.unsigned()? };
        Ok(Self::to(piece))
    }
}

/// Bytes of a line of cache, and how far ahead lines are asked for: a transfer takes as long as the work on so many.
const LINE: usize = 64;
const AHEAD: usize = 16 * LINE;

/// Asks for the line of cache at an address, to be written here.
#[inline(always)]
fn own_soon(at: *const u8) {
    // SAFETY: a prefetch does not fault.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("prefetchw byte ptr [{}]", in(reg) at, options(nostack, preserves_flags, readonly))
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Elements that another process may write at the same time.
pub struct Shared<'a, T: Scalar> {
    at: *mut T,
    count: usize,
    life: PhantomData<&'a mut T>,
}

impl<T: Scalar> Shared<'_, T> {
    /// # Safety
    /// `count` elements lie at `at`, aligned and mapped for reading and writing, as long as the value lives.
    pub(crate) unsafe fn new(at: *mut T, count: usize) -> Self {
        Self { at, count, life: PhantomData }
    }

    /// Elements.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// An element, as it is now.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    #[inline]
    pub fn get(&self, index: usize) -> T {
        assert!(index < self.count, "element {index} of {}", self.count);
        // SAFETY: within the elements.
        unsafe { self.at.add(index).read_volatile() }
    }

    /// Writes an element.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn set(&mut self, index: usize, value: T) {
        assert!(index < self.count, "element {index} of {}", self.count);
        // SAFETY: within the elements.
        unsafe { self.at.add(index).write_volatile(value) }
    }

    /// Replaces each element by what `change` makes of it. What the other side wrote last lies in its processor's caches; the lines ahead are
    /// asked for as this one's own at once, where reading an element and writing it asks twice.
    pub fn update(&mut self, mut change: impl FnMut(T) -> T) {
        let each = LINE / size_of::<T>();
        for begin in (0..self.count).step_by(each) {
            own_soon(self.at.cast::<u8>().wrapping_add(begin * size_of::<T>() + AHEAD));
            for index in begin..self.count.min(begin + each) {
                // SAFETY: within the elements.
                unsafe { self.at.add(index).write_volatile(change(self.at.add(index).read_volatile())) }
            }
        }
    }

    /// A private copy of all of them.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        let mut copy = vec![T::default(); self.count];
        self.copy_to(&mut copy);
        copy
    }

    /// Copies the first of them, as many as `into` has.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn copy_to(&self, into: &mut [T]) {
        assert!(into.len() <= self.count);
        // SAFETY: within the elements; any bytes are a value.
        unsafe { std::ptr::copy_nonoverlapping(self.at, into.as_mut_ptr(), into.len()) }
        loaded_once(into.as_ptr().cast());
    }

    /// Overwrites the first of them.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn copy_from(&mut self, from: &[T]) {
        assert!(from.len() <= self.count);
        // SAFETY: within the elements.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.at, from.len()) }
    }

    /// Where they lie, for code that knows what it does: another process may write there.
    #[must_use]
    pub fn as_ptr(&mut self) -> *mut T {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_element_is_replaced_once() {
        fn one<T: Scalar + PartialEq + std::fmt::Debug>(count: usize, next: impl Fn(T) -> T, value: impl Fn(usize) -> T) {
            let mut elements: Vec<T> = (0..count).map(&value).collect();
            // SAFETY: the vector's elements.
            unsafe { Shared::new(elements.as_mut_ptr(), count) }.update(&next);
            let wanted: Vec<T> = (0..count).map(|at| next(value(at))).collect();
            assert_eq!(elements, wanted);
        }
        for count in [0, 1, 7, 8, 9, 63, 64, 65, 1000] {
            one(count, |byte: u8| byte.wrapping_add(3), |at| at as u8);
            one(count, |number: i16| number ^ 5, |at| at as i16);
            one(count, |number: u64| number * 3, |at| at as u64);
        }
    }
}

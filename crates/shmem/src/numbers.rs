//! What reductions do to numbers. Integers wrap around, as C's unsigned ones do.

/// An element of a reduction. Operations that the standard does not have for a type are never asked for.
pub trait Number: Copy {
    fn bit_and(self, other: Self) -> Self {
        let _ = other;
        self
    }
    fn bit_or(self, other: Self) -> Self {
        let _ = other;
        self
    }
    fn bit_xor(self, other: Self) -> Self {
        let _ = other;
        self
    }
    fn largest(self, other: Self) -> Self {
        let _ = other;
        self
    }
    fn smallest(self, other: Self) -> Self {
        let _ = other;
        self
    }
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Number for $type {
            #[inline]
            fn bit_and(self, other: Self) -> Self {
                self & other
            }
            #[inline]
            fn bit_or(self, other: Self) -> Self {
                self | other
            }
            #[inline]
            fn bit_xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline]
            fn largest(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline]
            fn smallest(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            #[inline]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }
    )*};
}
integers! { i8 i16 i32 i64 isize u8 u16 u32 u64 usize }

macro_rules! floats {
    ($($type:ty)*) => {$(
        impl Number for $type {
            #[inline]
            fn largest(self, other: Self) -> Self {
                if self < other { other } else { self }
            }
            #[inline]
            fn smallest(self, other: Self) -> Self {
                if other < self { other } else { self }
            }
            #[inline]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline]
            fn times(self, other: Self) -> Self {
                self * other
            }
        }
    )*};
}
floats! { f32 f64 }

/// `float _Complex` and `double _Complex`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Complex<T> {
    re: T,
    im: T,
}

macro_rules! complex {
    ($($type:ty)*) => {$(
        impl Number for Complex<$type> {
            fn plus(self, other: Self) -> Self {
                Complex { re: self.re + other.re, im: self.im + other.im }
            }
            fn times(self, other: Self) -> Self {
                Complex { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
            }
        }
    )*};
}
complex! { f32 f64 }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complex_numbers_are_multiplied() {
        let i = Complex { re: 0.0, im: 1.0 };
        assert_eq!(i.times(i), Complex { re: -1.0, im: 0.0 });
        assert_eq!(i.plus(i), Complex { re: 0.0, im: 2.0 });
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(i8::MAX.plus(1), i8::MIN);
        assert_eq!(3u8.largest(4), 4);
    }
}

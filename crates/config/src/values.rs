//! How values are written: decimal numbers, sizes, times and words.
use crate::problem::Problem;

/// Digits only. A number too great for 64 bits has the right form and is out of range.
pub(crate) fn decimal(text: &[u8]) -> Result<u64, Problem> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(Problem::Malformed);
    }
    text.iter()
        .try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .ok_or(Problem::OutOfRange)
}

/// A number followed by one of `units` (name in any case, factor), or by nothing, which multiplies by `bare`.
fn with_unit(text: &[u8], bare: u64, units: &[(&str, u64)]) -> Result<u64, Problem> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        [] => bare,
        _ => units.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name.as_bytes())).ok_or(Problem::Malformed)?.1,
    };
    decimal(number)?.checked_mul(factor).ok_or(Problem::OutOfRange)
}

/// Bytes: `65536`, `256K`, `1M`, `1MiB`. Units are powers of 1024.
pub(crate) fn size(text: &[u8]) -> Result<u64, Problem> {
    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;
    const G: u64 = 1 << 30;
    with_unit(text, 1, &[("B", 1), ("K", K), ("KiB", K), ("M", M), ("MiB", M), ("G", G), ("GiB", G)])
}

/// Nanoseconds: `50us`, `1ms`, `800ns`; a bare number is microseconds.
pub(crate) fn time(text: &[u8]) -> Result<u64, Problem> {
    with_unit(text, 1_000, &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)])
}

/// The value that belongs to the word `text`.
pub(crate) fn choice<T: Copy>(text: &[u8], words: &[(&str, T)]) -> Result<T, Problem> {
    words.iter().find(|(word, _)| word.as_bytes() == text).map(|&(_, value)| value).ok_or(Problem::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("4k", 4096), ("256KiB", 262144), ("1M", 1 << 20), ("2G", 2 << 30), ("7b", 7)]
        {
            assert_eq!(size(text.as_bytes()), Ok(bytes), "{text}");
        }
        for text in ["", "K", "12q", "1.5M", "-1", " 1", "1 K", "0x10", "1KB"] {
            assert_eq!(size(text.as_bytes()), Err(Problem::Malformed), "{text:?}");
        }
        for text in ["18446744073709551616", "18446744073709551615K"] {
            assert_eq!(size(text.as_bytes()), Err(Problem::OutOfRange), "{text:?}");
        }
    }

    #[test]
    fn times() {
        for (text, nanoseconds) in
            [("0", 0), ("50", 50_000), ("50us", 50_000), ("1ms", 1_000_000), ("800NS", 800), ("1s", 1_000_000_000)]
        {
            assert_eq!(time(text.as_bytes()), Ok(nanoseconds), "{text}");
        }
        for text in ["", "us", "1m", "1.5ms", "-1us"] {
            assert_eq!(time(text.as_bytes()), Err(Problem::Malformed), "{text:?}");
        }
    }
}

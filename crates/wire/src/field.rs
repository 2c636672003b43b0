//! Integers in a byte string. Reading beyond the end gives 0, so that views cannot panic; lengths are checked by `parse`.

/// The place of a field: first byte, and the byte behind the last.
pub type Field = core::ops::Range<usize>;

/// Reads a little-endian integer of up to eight bytes; 0 where the bytes end too early.
#[inline(always)]
pub fn read(bytes: &[u8], field: Field) -> u64 {
    let mut value = [0u8; 8];
    match (bytes.get(field.clone()), value.get_mut(..field.len())) {
        (Some(source), Some(target)) => target.copy_from_slice(source),
        _ => return 0,
    }
    u64::from_le_bytes(value)
}

/// Writes the low bytes of `value`.
///
/// # Panics
/// If the field lies outside `bytes` or is longer than eight bytes: a mistake of the program.
#[inline(always)]
pub fn write(bytes: &mut [u8], field: Field, value: u64) {
    let length = field.len();
    bytes[field].copy_from_slice(&value.to_le_bytes()[..length]);
}

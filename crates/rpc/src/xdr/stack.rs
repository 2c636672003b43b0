//! How deep values may lie in each other: the bytes of a hostile peer are not to fill the stack.

/// Values inside each other that are followed. The elements of a list, whose last field is the optional next one, are none: they are as
/// many as there are bytes for.
pub const DEEPEST: u32 = 1000;

/// Bytes of the stack that values nested in each other may take while they are written or read: a small part of a thread's.
pub(super) const STACK: usize = 256 << 10;

/// Where the stack is.
#[inline(always)]
pub(super) fn stack() -> usize {
    let mark = 0u8;
    std::hint::black_box(&raw const mark).addr()
}

//! Objects whose own instructions make no calls on connections, though the numbers of some could be of such calls. Where an object
//! lies so that it cannot be trapped, it is one of these, or the process keeps to the kernel.

/// Beginnings of files' names.
const HARMLESS: [&[u8]; 10] = [
    // Parts of the C library up to 2.33: what they do for the program, they do in functions that this library sees.
    b"libpthread",
    b"librt.so",
    b"libanl.so",
    // gperftools: rt_sigaction(2), clone(2) and fcntl(2) list the process's own threads; the others are given their numbers, of
    // memory and futexes.
    b"libtcmalloc",
    // Run-times of sanitizers: they read /proc, write reports, close pipes of their own, and run a symbolizer, with numbers that they
    // opened.
    b"libasan.so",
    b"libtsan.so",
    b"liblsan.so",
    b"libubsan.so",
    b"libhwasan.so",
    // The number, always of futex(2), is in a register that is not followed.
    b"libgomp.so",
];

/// Whether the object of this file name, without directories, is one.
pub fn is_harmless(file: &[u8]) -> bool {
    HARMLESS.iter().any(|known| file.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_times_of_sanitizers_are_harmless_in_any_version() {
        assert!(is_harmless(b"libasan.so.8.0.0"));
        assert!(is_harmless(b"libtcmalloc_minimal.so.4"));
    }

    #[test]
    fn a_library_that_is_not_listed_is_not_harmless() {
        assert!(!is_harmless(b"liburing.so.2"));
        assert!(!is_harmless(b"librt-extra.so"));
    }

    #[test]
    fn the_program_itself_is_not_harmless() {
        assert!(!is_harmless(b""));
    }
}

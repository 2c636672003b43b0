//! Memory from others that can be mapped without fear.

use shunt_sys::memory_file;

pub use memory_file::SIZE_SEALS as SEALS;

/// Whether an access to a mapping of `size` bytes of `fd` can never fault: it is all of a memfd that cannot shrink, of ordinary pages.
pub fn is_safe_to_map(fd: i32, size: usize) -> bool {
    memory_file::sealed(fd, SEALS).is_ok_and(|(whole, _)| whole == size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_sys::{calls, libc};

    #[test]
    fn only_sealed_memory_of_the_right_size_and_kind() {
        let make = |flags: u32, size: i64, seals: i32| {
            let fd = calls::memfd_create(b"test\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags).ok()?;
            calls::ftruncate(fd, size).ok()?;
            calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize).ok()?;
            let safe = is_safe_to_map(fd, 2 << 20);
            let _ = calls::close(fd);
            Some(safe)
        };
        assert_eq!(make(0, 2 << 20, SEALS), Some(true));
        assert_eq!(make(0, 4096, SEALS), Some(false));
        assert_eq!(make(0, 2 << 20, libc::F_SEAL_GROW | libc::F_SEAL_SEAL), Some(false));
        // A kernel without huge pages answers nothing here.
        assert_ne!(make(libc::MFD_HUGETLB, 2 << 20, SEALS), Some(true));
        assert!(!is_safe_to_map(-1, 0));
    }
}

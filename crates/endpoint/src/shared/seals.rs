//! Memory from others that can be mapped without fear.

use shunt_sys::{calls, libc};

/// What memory that is handed to others cannot do any more: change its size, or its seals.
pub const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Whether an access to a mapping of `size` bytes of `fd` can never fault: it is all of a memfd that cannot shrink, and of
/// ordinary pages. Huge ones (MFD_HUGETLB) can be sealed too, but taking one away by a punched hole leaves a fault where
/// the system has no other.
pub fn is_safe_to_map(fd: i32, size: usize) -> bool {
    // SAFETY: plain integers.
    let (mut status, mut system): (libc::stat, libc::statfs) = unsafe { core::mem::zeroed() };
    calls::fcntl(fd, libc::F_GET_SEALS, 0).is_ok_and(|seals| seals & SEALS == SEALS)
        && calls::fstat(fd, &mut status).is_ok()
        && status.st_size as u64 == size as u64
        && calls::fstatfs(fd, &mut system).is_ok()
        && system.f_type == libc::TMPFS_MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

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

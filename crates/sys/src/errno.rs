//! Kernel error numbers as a type.

/// A kernel error number, positive as in `errno(3)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// What a filter (seccomp(2)) answers, or a kernel that does not know the call.
    #[cold]
    pub fn is_refusal(self) -> bool {
        matches!(self.0, libc::EPERM | libc::ENOSYS)
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(to, "errno {}", self.0)
    }
}

impl core::error::Error for Errno {}

/// What a system call gives.
pub type Result<T> = core::result::Result<T, Errno>;

/// Turns the kernel's return convention (`-4095..=-1` is an error) into a `Result`.
#[inline(always)]
pub fn check(value: isize) -> Result<usize> {
    if (-4095..0).contains(&value) {
        Err(Errno(-value as i32))
    } else {
        Ok(value as usize)
    }
}

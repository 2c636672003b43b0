//! The buffers of one call: what recv and send have one of, and readv, writev, sendmsg and recvmsg up to IOV_MAX.

use core::mem::MaybeUninit;
use shunt_sys::libc::{self, iovec};
use shunt_sys::mapping::Room;
use shunt_sys::{user, Errno, Result};

/// Most buffers that a call may have (UIO_MAXIOV).
pub const IOV_MAX: usize = 1024;

/// Most bytes that one call moves (MAX_RW_COUNT): the largest int, less a page.
pub const MOST: usize = 0x7fff_f000;

/// Buffers, in the order of the stream.
#[derive(Clone, Copy)]
pub struct Pieces<'a> {
    list: &'a [iovec],
    length: usize,
}

impl<'a> Pieces<'a> {
    /// One buffer.
    pub fn one(buffer: &'a iovec) -> Pieces<'a> {
        Pieces { length: buffer.iov_len.min(MOST), list: core::slice::from_ref(buffer) }
    }

    /// A vector, checked as the kernel does (import_iovec): EINVAL for more than IOV_MAX buffers and for lengths that
    /// are negative. Bytes beyond [`MOST`] are left out.
    ///
    /// # Safety
    /// `vector` holds `count` entries, unless there are too many.
    pub unsafe fn new(vector: *const iovec, count: usize) -> Result<Pieces<'a>> {
        if count > IOV_MAX {
            return Err(Errno(libc::EINVAL));
        }
        if count == 0 {
            return Ok(Pieces { list: &[], length: 0 });
        }
        // SAFETY: promised by the caller.
        let list = unsafe { core::slice::from_raw_parts(vector, count) };
        if list.iter().any(|piece| (piece.iov_len as isize) < 0) {
            return Err(Errno(libc::EINVAL));
        }
        let length = list.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.iov_len)).min(MOST);
        Ok(Pieces { list, length })
    }

    /// A vector of the program's, copied for the time of `act`: its memory may fault (EFAULT), and another thread may
    /// change it meanwhile.
    ///
    /// # Safety
    /// `vector` may be any address that is not ours.
    pub unsafe fn with<R>(vector: *const iovec, count: usize, act: impl FnOnce(&Pieces) -> Result<R>) -> Result<R> {
        // SAFETY: passed on.
        unsafe {
            match count {
                0..=FEW => copied::<FEW, R>(vector, count, act),
                _ if count <= SOME => some(vector, count, act),
                _ if count <= IOV_MAX => many(vector, count, act),
                _ => Err(Errno(libc::EINVAL)),
            }
        }
    }

    /// The buffers as they were given.
    pub fn list(&self) -> &'a [iovec] {
        self.list
    }

    /// Bytes in all.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The buffers that are not empty, from byte `skip` on, as address and length; no more than `most` bytes.
    pub fn from(&self, mut skip: usize, most: usize) -> impl Iterator<Item = (*mut u8, usize)> + 'a {
        let mut left = most.min(self.length.saturating_sub(skip));
        self.list.iter().filter_map(move |piece| {
            let jump = skip.min(piece.iov_len);
            skip -= jump;
            let part = (piece.iov_len - jump).min(left);
            left -= part;
            (part > 0).then(|| (piece.iov_base.cast::<u8>().wrapping_add(jump), part))
        })
    }

    /// The same but for the last byte.
    pub fn without_last(&self) -> Pieces<'a> {
        Pieces { length: self.length.saturating_sub(1), ..*self }
    }

    /// The only buffer, if there is one.
    pub fn single(&self) -> Option<(*mut u8, usize)> {
        match self.list {
            [piece] => Some((piece.iov_base.cast(), self.length)),
            _ => None,
        }
    }
}

/// Buffers that most calls have at most (UIO_FASTIOV).
const FEW: usize = 8;
/// So many have place on a stack: a KiB.
const SOME: usize = 64;

/// Not part of its caller, whose stack frame would be as large for the few.
#[inline(never)]
unsafe fn some<R>(vector: *const iovec, count: usize, act: impl FnOnce(&Pieces) -> Result<R>) -> Result<R> {
    // SAFETY: passed on.
    unsafe { copied::<SOME, R>(vector, count, act) }
}

/// More than that are no program's stack's to hold.
#[cold]
#[inline(never)]
unsafe fn many<R>(vector: *const iovec, count: usize, act: impl FnOnce(&Pieces) -> Result<R>) -> Result<R> {
    let size = count * core::mem::size_of::<iovec>();
    let mut room = Room::new(size)?;
    // SAFETY: there is room for `count` entries, at a page's start, and any bytes are entries.
    unsafe {
        user::copy_all(vector.cast(), room.start(), size)?;
        act(&Pieces::new(room.start().cast(), count)?)
    }
}

#[inline(always)]
unsafe fn copied<const ROOM: usize, R>(vector: *const iovec, count: usize, act: impl FnOnce(&Pieces) -> Result<R>) -> Result<R> {
    let mut copy = MaybeUninit::<[iovec; ROOM]>::uninit();
    // SAFETY: there is room for `count` entries, and any bytes are entries.
    unsafe {
        user::copy_all(vector.cast(), copy.as_mut_ptr().cast(), count * core::mem::size_of::<iovec>())?;
        act(&Pieces::new(copy.as_ptr().cast(), count)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(length: usize) -> iovec {
        iovec { iov_base: 0x1000 as *mut _, iov_len: length }
    }

    #[test]
    fn skipping_leaves_the_rest_and_empty_buffers_out() {
        let list = [piece(4), piece(0), piece(6)];
        // SAFETY: three entries.
        let pieces = unsafe { Pieces::new(list.as_ptr(), 3) }.unwrap();
        let lengths = |skip, most| pieces.from(skip, most).map(|(_, length)| length).collect::<Vec<_>>();
        assert_eq!(pieces.length(), 10);
        assert_eq!(lengths(0, usize::MAX), [4, 6]);
        assert_eq!(lengths(1, usize::MAX), [3, 6]);
        assert_eq!(lengths(4, 5), [5]);
        assert_eq!(lengths(9, usize::MAX), [1]);
        assert!(lengths(10, usize::MAX).is_empty());
    }

    #[test]
    fn too_many_and_negative_lengths_are_refused() {
        let list = [piece(usize::MAX)];
        // SAFETY: one entry; none is read of too many.
        unsafe {
            assert_eq!(Pieces::new(list.as_ptr(), 1).err(), Some(Errno(libc::EINVAL)));
            assert_eq!(Pieces::new(core::ptr::null(), IOV_MAX + 1).err(), Some(Errno(libc::EINVAL)));
        }
    }

    #[test]
    fn no_call_moves_more_than_the_kernels() {
        let list = [piece(MOST), piece(MOST)];
        // SAFETY: two entries.
        assert_eq!(unsafe { Pieces::new(list.as_ptr(), 2) }.unwrap().length(), MOST);
    }
}

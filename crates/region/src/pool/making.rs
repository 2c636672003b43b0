//! How pools are made: their files, of small pages and of huge ones, and their pages.

use crate::fifo::Vain;
use crate::limit::Limit;
use crate::shape::{Audience, Pages, Shape, HUGE, PAGE};
use crate::word::Word;
use crate::{cgroup, huge, registry, seals, told};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use shunt_sys::{calls, libc, mapping, Errno};

use super::{Control, Header, Pool, MAGIC, VERSION};

impl Pool {
    /// A fresh pool. Its pages cost nothing before they are touched; [`Pool::populate`] touches them.
    ///
    /// # Errors
    /// [`Limit::PoolShape`], [`Limit::Memory`], [`Limit::Descriptors`], [`Limit::Refused`], [`Limit::Pools`]; [`Limit::NoHugePages`] and
    /// [`Limit::Untrusted`] (they cannot be sealed) of huge ones alone. It is told to `shunt why`, too: what would have been sent of the
    /// pool is copied.
    pub fn create(shape: Shape, pages: Pages, audience: Audience) -> Result<Pool, Limit> {
        let made = match pages {
            Pages::Small => shape.checked().and_then(|shape| Pool::of_small(shape, audience)),
            Pages::Huge => Pool::of_huge(shape, audience),
            Pages::HugeIfPossible => Pool::of_huge(shape, audience).or_else(|_| Pool::of_small(shape.checked()?, audience)),
        };
        made.inspect_err(|limit| told::note_seldom(*limit))
    }

    fn of_small(shape: Shape, audience: Audience) -> Result<Pool, Limit> {
        let fd = calls::memfd_create(b"shunt-pool\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).map_err(Limit::of)?;
        let pool = calls::give_size(fd, shape.file())
            .and_then(|()| mapping::shared(fd, shape.file()))
            .map_err(Limit::of)
            .and_then(|base| Pool::at(base, fd, shape, audience, false));
        let pool = match pool {
            Ok(pool) => pool,
            Err(limit) => {
                let _ = calls::close(fd);
                return Err(limit);
            }
        };
        // After the owner's own mapping, which stays writable.
        seals::seal(fd, audience == Audience::Anyone)?;
        Ok(pool)
    }

    /// The same number of bytes, in units of whole huge pages.
    fn of_huge(shape: Shape, audience: Audience) -> Result<Pool, Limit> {
        if audience != Audience::Trusted {
            return Err(Limit::Untrusted);
        }
        let shape = Shape { unit: HUGE, units: (shape.checked()?.bytes().div_ceil(HUGE)).max(1) }.checked()?;
        let fd = huge::file(shape.file())?;
        let mapped = aligned(shape.file()).and_then(|base| {
            // SAFETY: a range that was reserved for this.
            unsafe { mapping::shared_over(base, fd, shape.file()) }.map_err(Limit::of)
        });
        mapped.and_then(|base| Pool::at(base, fd, shape, audience, true)).inspect_err(|_| {
            let _ = calls::close(fd);
        })
    }

    fn at(base: *mut u8, fd: i32, shape: Shape, audience: Audience, huge: bool) -> Result<Pool, Limit> {
        let undo = || {
            let _ = calls::munmap(base, shape.file());
        };
        let size = Control::arrays(shape).2;
        // What peers read without a reference.
        populate(base, shape.told()).inspect_err(|_| undo())?;
        let control = mapping::reserve(size).map_err(Limit::of).inspect_err(|_| undo())?.cast::<Control>();
        // SAFETY: fresh memory, as large as is needed; the arrays are zero but for the words.
        unsafe {
            control.write(Control {
                base,
                shape,
                fd,
                huge,
                audience,
                handles: AtomicU32::new(1),
                forked: AtomicBool::new(false),
                peer: AtomicU64::new(0),
                cursor: AtomicU32::new(0),
                vain: Vain::default(),
                apart: AtomicU32::new(0),
            });
            for unit in 0..shape.units {
                (&raw const (*control).unit(unit).word).cast_mut().write(Word::new());
            }
            let header = &*base.cast::<Header>();
            header.magic.store(MAGIC, Ordering::Relaxed);
            header.version.store(VERSION, Ordering::Relaxed);
            header.unit.store(shape.unit as u32, Ordering::Relaxed);
            header.owner.store(calls::getpid() as u32, Ordering::Relaxed);
            let mut secret = [0u64; 2];
            if calls::getrandom(secret.as_mut_ptr().cast(), 16, libc::GRND_NONBLOCK) == Ok(16) {
                header.secret.iter().zip(secret).for_each(|(half, drawn)| half.store(drawn, Ordering::Relaxed));
            }
            header.units.store(shape.units as u32, Ordering::Release);
        }
        let bytes = shape.bytes();
        let entered = cgroup::enter(bytes).and_then(|()| registry::add(control).inspect_err(|_| cgroup::leave(bytes)));
        if let Err(limit) = entered {
            undo();
            let _ = calls::munmap(control.cast(), size);
            return Err(limit);
        }
        // SAFETY: not null.
        Ok(Pool(unsafe { core::ptr::NonNull::new_unchecked(control) }))
    }
}

/// Makes memory of all pages of a file that are mapped here.
///
/// # Errors
/// [`Limit::Protection`]: they cannot even be read. [`Limit::Memory`].
pub(super) fn populate(start: *mut u8, size: usize) -> Result<(), Limit> {
    const MADV_POPULATE_READ: i32 = 22;
    const MADV_POPULATE_WRITE: i32 = 23;
    let done = match calls::madvise(start, size, MADV_POPULATE_WRITE) {
        // Writing was taken away; a read makes memory as well. Or the kernel does not know this.
        Err(Errno(libc::EFAULT | libc::EINVAL)) => calls::madvise(start, size, MADV_POPULATE_READ),
        other => other,
    };
    let unknown = || calls::madvise(start, 0, MADV_POPULATE_READ).is_err();
    match done {
        // A kernel before 5.14.
        Err(Errno(libc::EINVAL)) if unknown() => {
            for page in (0..size).step_by(PAGE) {
                // SAFETY: mapped; a word is written as it is, by one step.
                unsafe { (*start.add(page).cast::<AtomicU32>()).fetch_or(0, Ordering::Relaxed) };
            }
            Ok(())
        }
        Err(Errno(libc::EFAULT | libc::EINVAL)) => Err(Limit::Protection),
        other => other.map_err(Limit::of),
    }
}

/// Memory of `size` bytes at a multiple of 2 MiB, reserved.
fn aligned(size: usize) -> Result<*mut u8, Limit> {
    let start = mapping::range(size + HUGE).map_err(Limit::of)?;
    let front = start.align_offset(HUGE);
    // SAFETY: inside the range.
    let base = unsafe { start.add(front) };
    let _ = calls::munmap(start, front);
    // SAFETY: inside the range.
    let _ = calls::munmap(unsafe { base.add(size) }, HUGE - front);
    Ok(base)
}

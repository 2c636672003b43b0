//! Where a process has mapped the largest rings of a direction.
//!
//! They lie in a part of the link that no process maps before it is used. A [`Pipe`] cannot map it, being below the system
//! calls: a sender that wants to grow leaves a request here and sends less than it was asked to; a receiver gets
//! [`Trouble::Unmapped`]. Their caller maps the window and tries again.
//!
//! [`Pipe`]: crate::Pipe
//! [`Trouble::Unmapped`]: crate::Trouble::Unmapped

use crate::distance::Distance;
use crate::pace::Pace;
use crate::streamed::Streamed;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// One direction's window as this process has it: private memory.
pub struct Window {
    base: AtomicPtr<u8>,
    /// How long parts are best written in the rings of the base, which a processor's caches hold.
    pub(crate) in_base: Distance,
    /// And how in the larger ones.
    pub(crate) in_window: Distance,
    /// How messages behind others are written.
    pub(crate) streamed: Streamed,
    /// How close its receiver is behind the sender.
    pub(crate) pace: Pace,
    /// [`Window::hold`].
    held: AtomicBool,
}

const WANTED: usize = 1;
const REFUSED: usize = 2;

impl Window {
    /// Not mapped.
    pub const fn new() -> Window {
        Window {
            base: AtomicPtr::new(core::ptr::null_mut()),
            in_base: Distance::new(),
            in_window: Distance::new(),
            streamed: Streamed::new(),
            pace: Pace::new(),
            held: AtomicBool::new(false),
        }
    }

    /// Its first byte, if it is mapped.
    #[inline(always)]
    pub fn get(&self) -> Option<*mut u8> {
        let base = self.base.load(Ordering::Acquire);
        (base as usize > REFUSED).then_some(base)
    }

    /// A sender would grow if it were mapped.
    #[cold]
    pub fn ask(&self) {
        let none = core::ptr::null_mut();
        let _ = self.base.compare_exchange(none, core::ptr::without_provenance_mut(WANTED), Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether a sender asked for it since.
    #[inline(always)]
    pub fn is_wanted(&self) -> bool {
        self.base.load(Ordering::Relaxed) as usize == WANTED
    }

    /// It cannot be mapped: senders stay in smaller rings.
    pub fn refuse(&self) {
        self.base.store(core::ptr::without_provenance_mut(REFUSED), Ordering::Release);
    }

    /// Whether it was refused.
    #[inline(always)]
    pub fn is_refused(&self) -> bool {
        self.base.load(Ordering::Relaxed) as usize == REFUSED
    }

    /// Whether senders are to stay in the rings of the base for now, though they could grow.
    pub fn hold(&self, held: bool) {
        if self.held.load(Ordering::Relaxed) != held {
            self.held.store(held, Ordering::Relaxed);
        }
    }

    /// The last word of [`Window::hold`].
    #[inline(always)]
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// It is mapped at `base`, for as long as a thread may use it.
    pub fn set(&self, base: *mut u8) {
        self.base.store(base, Ordering::Release);
    }

    /// Forgets it: the socket begins another life.
    pub fn clear(&self) {
        self.hold(false);
        self.in_base.forget();
        self.in_window.forget();
        self.streamed.forget();
        self.base.store(core::ptr::null_mut(), Ordering::Release);
    }
}

impl Default for Window {
    fn default() -> Self {
        Window::new()
    }
}

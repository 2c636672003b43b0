//! What `libshunt.so` does for this library, where it is there (`preload/src/collapsed.rs`).

use core::ffi::CStr;
use std::sync::OnceLock;

use libc::c_int;

/// Its functions.
#[derive(Clone, Copy, Debug)]
pub struct Accelerated {
    defer: unsafe extern "C" fn(),
    deliver: unsafe extern "C" fn(),
    come: unsafe extern "C" fn(c_int) -> c_int,
    is_stream: unsafe extern "C" fn(c_int) -> c_int,
}

/// They are there if it was loaded before this library.
pub fn accelerated() -> Option<&'static Accelerated> {
    static FOUND: OnceLock<Option<Accelerated>> = OnceLock::new();
    FOUND.get_or_init(find).as_ref()
}

fn find() -> Option<Accelerated> {
    let symbol = |name: &CStr| {
        // SAFETY: a C string; what is found stays: the library is never unloaded.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    };
    let (defer, deliver) = (symbol(c"shunt_defer_handlers")?, symbol(c"shunt_deliver_handlers")?);
    let (come, is_stream) = (symbol(c"shunt_bytes_come")?, symbol(c"shunt_is_stream")?);
    // SAFETY: the functions have these prototypes.
    unsafe {
        Some(Accelerated {
            defer: core::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn()>(defer),
            deliver: core::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn()>(deliver),
            come: core::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(c_int) -> c_int>(come),
            is_stream: core::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(c_int) -> c_int>(is_stream),
        })
    }
}

impl Accelerated {
    /// Whether sends on a descriptor cost a copy alone.
    pub fn is_stream(&self, fd: c_int) -> bool {
        // SAFETY: any number may be asked about.
        unsafe { (self.is_stream)(fd) != 0 }
    }

    /// Whether bytes of a stream are there, or come within about as long as an answer takes that is on its way; `None`: looking is no use.
    #[inline]
    pub fn bytes_come(&self, fd: c_int) -> Option<bool> {
        // SAFETY: any number may be asked about.
        match unsafe { (self.come)(fd) } {
            n if n < 0 => None,
            n => Some(n > 0),
        }
    }
}

/// Signals of this thread wait until this is dropped, as they do in a call of libtirpc's: a handler that calls on the same handle would wait
/// for ever.
#[derive(Debug)]
pub struct Signals {
    deferred: Option<&'static Accelerated>,
    mask: Option<libc::sigset_t>,
}

impl Signals {
    /// From here on.
    pub fn wait() -> Signals {
        let mut signals = Signals { deferred: accelerated(), mask: None };
        match signals.deferred {
            // SAFETY: ended by `block` or on drop, in this thread.
            Some(library) => unsafe { (library.defer)() },
            None => signals.mask = Some(block()),
        }
        signals
    }

    /// Before this thread sleeps, which it must not do with handlers deferred.
    pub fn before_sleep(&mut self) {
        if let Some(library) = self.deferred.take() {
            self.mask = Some(block());
            // SAFETY: as was begun; what comes waits for the mask.
            unsafe { (library.deliver)() };
        }
    }
}

fn block() -> libc::sigset_t {
    // SAFETY: both sets are this frame's.
    unsafe {
        let (mut all, mut mask) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut mask);
        mask
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        if let Some(library) = self.deferred {
            // SAFETY: as was begun.
            unsafe { (library.deliver)() };
        }
        if let Some(mask) = &self.mask {
            // SAFETY: the mask that was before.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, core::ptr::null_mut()) };
        }
    }
}

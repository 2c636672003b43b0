//! What each intercepted symbol does that is about descriptors, signals or processes. Variants of one call share a body.

/// Hooks that try the fast path first, which is not taken by a thread that is cancelled. What they leave to do is the last
/// thing that they do (`crate::general`, with all that other hooks do).
macro_rules! swift_hook {
    ($(fn $name:ident ( $fd:ident: c_int, $($arg:ident : $ty:ty),* ) -> isize, $from_section:ident, $lean:expr, $full:expr, $kernel:expr;)*) => {
        $(
            /// # Safety
            /// As for the C function.
            #[no_mangle]
            pub unsafe extern "C" fn $name($fd: c_int, $($arg: $ty),*) -> isize {
                /// Where the lean way has declined, in a section that this ends.
                #[inline(never)]
                unsafe fn not_lean($fd: c_int, $($arg: $ty),*) -> isize {
                    section::leave();
                    // SAFETY: as below.
                    unsafe {
                        if let Some(socket) = shunt_stream::socket::stream($fd) {
                            match $full(socket) {
                                Ok(moved) => return moved,
                                Err(Declined::InSection | Declined::NotLeanInSection) => return general::$from_section($fd, $($arg),*),
                                Err(Declined::Unusual) => {}
                            }
                        }
                        general::$name($fd, $($arg),*)
                    }
                }

                // SAFETY: the caller gives what the C function of this name asks for.
                unsafe {
                    if let Some(socket) = shunt_stream::socket::stream($fd) {
                        match $lean(socket) {
                            Ok(moved) => return moved,
                            Err(Declined::InSection) => return general::$from_section($fd, $($arg),*),
                            Err(Declined::NotLeanInSection) => return not_lean($fd, $($arg),*),
                            Err(Declined::Unusual) => {}
                        }
                    } else if $kernel($fd) {
                        // The kernel's: not even a cancellation is ours to see to.
                        return real::$name($fd, $($arg),*);
                    }
                    general::$name($fd, $($arg),*)
                }
            }
        )*
    };
}

mod descriptors;
mod fast_path;
mod files;
mod processes;
mod receive;
mod send;
mod signals;
mod sockets;
mod wait;

pub use descriptors::*;
pub use fast_path::*;
pub use processes::{prctl, prlimit, setns, setrlimit, unshare};
pub use receive::*;
pub use send::*;
pub use sockets::*;
pub use wait::*;

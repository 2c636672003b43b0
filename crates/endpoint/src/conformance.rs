//! What every device and every wrapper must do, as tests that take a maker of joined hosts.
//!
//! ```ignore
//! shunt_endpoint::conformance!(|| Some(Couple::new(a, b)));
//! ```
//!
//! writes one `#[test]` for each function of this module. The maker gives two endpoints that can reach each other, or
//! `None` after it has said why not (no privilege, say). On a lossy device the suite sends again what did not arrive, and
//! leaves out what only a faithful one can promise. Deadlines are long and end a test only by failing it.

pub mod direct;
mod joined;
mod messages;
mod opening;
mod room;
mod upcalls;
mod waking;
pub mod wrapped;

pub use direct::{updates_are_checked, updates_arrive};
pub use joined::{connect, meet, provide};
pub use messages::{counting, gathered, large_messages, ordered_stream, small_messages};
pub use opening::{opening, refusals, tags_protect};
pub use room::{back_pressure, batches, closing, held_arrivals, injection, no_buffers};
pub use upcalls::upcalls;
pub use waking::{arming, no_wake_up_is_lost};

use crate::DirectAccess;
use std::any::Any;

/// An endpoint that may move to another thread.
pub type Boxed = Box<dyn DirectAccess + Send>;

/// Two endpoints that can reach each other, and whatever must live as long.
pub struct Couple {
    /// One.
    pub a: Boxed,
    /// The other.
    pub b: Boxed,
    /// Namespaces, switches.
    pub keep: Option<Box<dyn Any>>,
}

impl Couple {
    /// Two endpoints that need nothing else.
    pub fn new(a: impl DirectAccess + Send + 'static, b: impl DirectAccess + Send + 'static) -> Couple {
        Couple { a: Box::new(a), b: Box::new(b), keep: None }
    }
}

/// A maker of couples.
pub type Make<'m> = &'m mut dyn FnMut() -> Option<Couple>;

/// One `#[test]` for each function of the suite; the argument is a maker of couples. With `@wrapped`, the same behind each of the
/// wrappers; with `@each`, only the functions that are named.
#[macro_export]
macro_rules! conformance {
    ($make:expr) => {
        $crate::conformance!(
            @each $make;
            small_messages large_messages gathered ordered_stream refusals opening tags_protect back_pressure no_buffers
            held_arrivals batches closing injection arming no_wake_up_is_lost counting updates_arrive
            updates_are_checked upcalls
        );
    };
    (@wrapped $make:expr) => {
        mod traced_and_captured {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance!(|| $make().map($crate::conformance::Couple::traced_and_captured));
        }
        mod captured_and_traced {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance!(|| $make().map($crate::conformance::Couple::captured_and_traced));
        }
        mod bad_network {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance!(|| $make().map(|couple| couple.with_faults($crate::conformance::wrapped::BAD_NETWORK)));
        }
    };
    (@each $make:expr; $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::$name(&mut $make);
            }
        )*
    };
}

//! Macros that make an exported symbol.

/// Hooks of calls.
macro_rules! hook {
    ($($(#[$meta:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty $body:block)*) => {
        $(
            #[no_mangle]
            $(#[$meta])*
            #[allow(unused_unsafe)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                let _shield = crate::cancel::shield();
                // SAFETY: the caller gives what the C function of this name asks for.
                unsafe { $body }
            }
        )*
    };
}

/// Hooks of calls that are cancellation points (pthreads(7)).
macro_rules! point {
    ($($(#[$meta:meta])* fn $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty $body:block)*) => {
        hook! { $($(#[$meta])* fn $name($($arg: $ty),*) -> $ret { shunt_sys::dispatch::arm_late(); crate::cancel::point(); $body })* }
    };
}

//! Start-up.

use crate::process::ending;
use crate::{process, wiring};
use shunt_config::Options;
use shunt_sys::clock;
use shunt_table::global;
use shunt_table::process::{status_page, user, users};
use shunt_table::receiver;

/// The start-up ladder, called once by the preload library's constructor. Until it is done, calls go to the kernel.
///
/// # Safety
/// No other thread exists; `single_threaded` is null or libc's `__libc_single_threaded`.
pub unsafe fn start(options: Options, single_threaded: *mut u8, inherited: Option<&[u8]>) {
    wiring::fill(); // first: whatever follows may ask a crate above
    clock::start(); // before anything is timed
    shunt_sys::processor::find_vectors(); // before anything of the program's is copied
    ending::begin(); // the process may end from here on
                     // SAFETY: passed on.
    unsafe { global::set(options, single_threaded) }; // options decide on what follows
    wiring::choose(); // before anything connects
    process::register_barriers(); // before peers rely on them
    user::start(); // before anything is shared under it
    if global::options().accelerate {
        status_page::start(); // before reasons are counted
        receiver::start(); // before this process receives descriptors
        users::start(); // before it listens
        if let Some(list) = inherited {
            shunt_handover::inherit::take_up(list); // last, as connections of the program before may be used at once
        }
    }
    global::set_ready(); // calls are ours from here on
}

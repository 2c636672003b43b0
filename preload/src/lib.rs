//! libshunt.so: the symbols that a program finds instead of the C library's, and nothing else.
//!
//! Each symbol looks its descriptor up and either asks the engine (`shunt-sockets` and the crates below it) or calls the C
//! library's own function, found by dlsym(RTLD_NEXT), so that other preloaded libraries keep their place in the chain. The
//! list of symbols is `shunt-calls`; a check after the build makes sure that nothing in this library calls one of them.
//!
//! What is decided here is what only the C library's callers see: stdio, exec and posix_spawn, signals, cancellation,
//! dlsym and dlopen, AIO, liburing, and calls that go past the C library. From the bottom:
//!
//! ```text
//! errno environment log                the C convention, variables, lines on stderr
//! loader real memory                   symbols of mapped objects; the C library's own functions
//! cancel masks signals raw_calls       threads that are cancelled; signals; calls by instructions of the program's own
//! passing datagrams locals splices general    what data calls do for each kind of descriptor
//! standard copies files                FILEs that are known, fork and its kin, fstat and its kin
//! hooks                                the exported symbols of descriptors
//! stdio end timed exec spawn shell pipes aio uring symbols    exported symbols of other topics
//! direct trap                          calls by number, and those that the kernel tells of
//! collapsed                            what libraries of shunt's own ask that stand behind this one
//! start                                the constructor: one line a step
//! ```
#![no_std]

#[macro_use]
mod hook;

mod aio;
mod cancel;
mod collapsed;
mod copies;
mod datagrams;
mod direct;
mod end;
mod environment;
mod errno;
mod exec;
mod files;
mod general;
mod hooks;
mod loader;
mod locals;
mod log;
mod masks;
mod memory;
mod passing;
mod pipes;
mod raw_calls;
mod real;
mod received;
mod shell;
mod signals;
mod spawn;
mod splices;
mod standard;
mod start;
mod stdio;
mod symbols;
mod timed;
mod trap;
mod uring;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    log::complain(info);
    // SAFETY: a plain system call; the program's own handler for SIGABRT may run.
    unsafe {
        let pid = shunt_sys::calls::getpid() as i32;
        let _ = shunt_sys::calls::kill(pid, 6);
        shunt_sys::raw::call6(231, 134, 0, 0, 0, 0, 0);
    }
    loop {
        core::hint::spin_loop();
    }
}

//! Forms of the C library and its loader that callers see, as far as they are data.
//!
//! The preload library is symbols and no logic: what its functions decide without a socket is decided here, where it can be tested beside
//! the C library itself. This crate owns environments and arguments of programs that are started, modes and lists of FILEs, file actions
//! of posix_spawn(3), masks and actions of signals as the program is told of them, and the tables of mapped objects. It refuses to know
//! sockets, the process's state, and the C library's functions: nothing here calls one.
//!
//! ```text
//! environment  what execve(2) gets for the environment             arguments: of execl(3)          shells: of system(3)
//! actions      file actions and attributes of posix_spawn(3)
//! files, modes FILEs that are known; how fopen(3)'s modes open
//! veil, styles masks without SIGSYS; signal(3) and its kin as sigaction(2)
//! tables       symbols of an object (elf(5))                        segments: where its parts lie
//! places       which addresses may enter the kernel                 seen, harmless: objects that need no other look
//! holder       whose function an address is                         deep: libraries that are bound past this one
//! ```
//!
//! ```
//! use shunt_conventions::environment::{variable, Environment, Preload};
//! let mut preload = Preload::none();
//! preload.note(b"/usr/lib/shunt/libshunt.so");
//! // `env -i`: the next program would have nothing that serves what it inherits.
//! let empty = [core::ptr::null()];
//! // SAFETY: an array that ends with null.
//! let next = unsafe { Environment::new(empty.as_ptr(), &preload, c"SHUNT_INHERIT=L902") }.unwrap();
//! // SAFETY: as above; `next` lives.
//! assert_eq!(unsafe { variable(next.strings(), "LD_PRELOAD") }, Some(&b"/usr/lib/shunt/libshunt.so"[..]));
//! ```
#![cfg_attr(not(test), no_std)]

pub mod actions;
pub mod arguments;
pub mod deep;
pub mod environment;
pub mod files;
pub mod harmless;
pub mod holder;
pub mod modes;
pub mod places;
pub mod seen;
pub mod segments;
pub mod shells;
pub mod styles;
pub mod tables;
pub mod veil;

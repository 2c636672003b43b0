//! What splice(2) and sendfile(2) move between descriptors, as far as it lies in this process's memory instead of the kernel's: pipes that nothing
//! but splice has seen ([`kept_pipes`]), and files in memory that are sent over and over ([`mapped_files`]).
//!
//! It refuses to know what a stream is: bytes are handed out by address and length, to the call that moves them.
//!
//! ```
//! // A pipe that the program has not just made is the kernel's.
//! assert!(shunt_pipes::kept_pipes::reading(0).is_none() && !shunt_pipes::kept_pipes::are_any());
//! ```
#![cfg_attr(not(test), no_std)]

pub mod kept_pipes;
pub mod mapped_files;

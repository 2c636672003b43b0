//! The program in the kernel: how it is written, what it does, how it is loaded and attached.
pub mod assembler;
pub mod kernel;
pub mod program;

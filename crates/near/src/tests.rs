//! Tests of more than one file of the crate.

mod announcing;

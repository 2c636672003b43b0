//! Strangers' own test suites, on the kernel and under shunt.
//!
//! CPython, redis, Tcl, Perl, libuv and others test how sockets behave, each in its own way, and none of them knows of
//! shunt. So a suite that gives another verdict under shunt has found something that a program can notice. What a
//! verdict is does not matter: a test that fails on the kernel has to fail under shunt as well.
//!
//! - [`suite`]: a suite is a file in `suites/`: where it comes from, how to prepare it, its parts, what is left out and why.
//! - [`fetch`]: Debian's source packages and packages, unpacked below `target/conformance`; nothing is installed.
//! - [`trial`]: one run of one part on one side, in namespaces of its own, with a deadline.
//! - [`verdicts`]: what the run's output says about each case.
//! - [`compare`]: both sides, and again where they differ, to tell a difference from a test that is unsteady.
//! - [`schedule`]: several runs at once.
//! - [`record`]: what the last run of each part said, in `results/`.
//! - [`packetdrill`]: scripts of calls and segments, with hand-overs between them.
//! - [`document`]: `docs/reference/CONFORMANCE.md`, from the records.
//!
//! ```text
//! scripts/conformance                 all suites; an hour and more
//! scripts/conformance --quick         what `make test` runs; some minutes
//! scripts/conformance cpython/test_socket redis
//! scripts/conformance --document      docs/reference/CONFORMANCE.md anew
//! ```
//!
//! ```
//! use shunt_conformance::pattern::matches;
//! assert!(matches("*VSOCK*", "test.test_socket.BasicVSOCKTest.testFamily"));
//! ```

pub mod compare;
pub mod document;
pub mod fetch;
pub mod packetdrill;
pub mod paths;
pub mod pattern;
pub mod record;
pub mod schedule;
pub mod suite;
pub mod trial;
pub mod verdicts;

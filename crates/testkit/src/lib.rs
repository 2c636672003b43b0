//! Test support: the same programs, on the kernel and under shunt.
//!
//! This layer owns everything an integration test needs around the programs it runs: a private network
//! namespace, a scratch directory, processes that cannot outlive the test, bounded waiting, and the inspection
//! of what is left when they are gone (processes, mappings, descriptors, abstract names, kernel TCP segments).
//! It knows nothing of how shunt works inside. It sees shunt the way a user does: as the command `shunt run --`
//! put in front of a program, and as names that the kernel shows in `/proc`.
//!
//! Every scenario is written once and runs in four [`Mode`]s, of which [`Mode::Kernel`] is the baseline that
//! tells a broken test from a broken shunt:
//!
//! ```no_run
//! use shunt_testkit::{program, Host, SECOND};
//!
//! fn answers(host: &Host) {
//!     let server = host.server(program("redis-server", "redis-server")).args(["--port", "6379"]).start();
//!     host.wait_for_listener(&server, 6379);
//!     let reply = host.client(program("redis-cli", "redis-tools")).arg("PING").run(10 * SECOND);
//!     assert_eq!(reply.text(), "PONG\n");
//!     server.terminate(libc::SIGTERM).expect_success();
//! }
//! shunt_testkit::in_every_mode!(answers);
//! ```
//!
//! `in_every_mode!` makes one `#[test]` per mode, prepares the [`Host`], and afterwards calls [`Host::finish`],
//! which fails the test if anything was left behind or if shunt complained.

pub mod agent;
pub mod captured;
pub mod conversation;
mod example;
mod host;
pub mod hosts;
mod inspect;
mod launch;
mod listeners;
mod mode;
mod namespace;
mod output;
mod process;
mod programs;
mod random;
pub mod running;
mod scratch;
mod wait;
pub mod wire;

pub use example::example;
pub use host::{link_shunt, Host};
pub use inspect::{tcp_segments_sent, Inspection};
pub use launch::{spawn, Launch, Side};
pub use listeners::has_listener;
pub use mode::Mode;
pub use namespace::{NamespaceUnavailable, NetworkNamespace, SECOND_ADDRESS};
pub use output::{Follower, Output};
pub use process::Process;
pub use programs::{program, python_program, script};
pub use random::Random;
pub use scratch::Scratch;
pub use wait::{wait_until, SECOND};

/// Makes a module of four tests, one for each [`Mode`], out of a function that takes a [`&Host`](Host).
///
/// The module has the function's name. Where no network namespace can be made, the tests say so on the real
/// standard error (the test harness captures the other one) and pass: there is nothing they could run in.
#[macro_export]
macro_rules! in_every_mode {
    ($scenario:ident) => {
        mod $scenario {
            $crate::in_mode!(both_sides, Both, super::$scenario);
            $crate::in_mode!(client_only, ClientOnly, super::$scenario);
            $crate::in_mode!(server_only, ServerOnly, super::$scenario);
            $crate::in_mode!(kernel, Kernel, super::$scenario);
        }
    };
}

/// Makes one test named `$name` that runs `$scenario` in one [`Mode`].
#[macro_export]
macro_rules! in_mode {
    ($name:ident, $mode:ident, $scenario:path) => {
        #[test]
        fn $name() {
            let label = concat!(module_path!(), "::", stringify!($name));
            if let Some(host) = $crate::Host::prepare(label, $crate::Mode::$mode) {
                $scenario(&host);
                host.finish();
            }
        }
    };
}

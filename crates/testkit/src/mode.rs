//! Which sides of a scenario run under shunt.

use crate::launch::Side;

/// Which sides of a scenario run under `shunt run`; the others are plain programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Server and client under shunt: connections between them are accelerated.
    Both,
    /// A shunt client with a plain server: every connection must land on kernel TCP.
    ClientOnly,
    /// A plain client with a shunt server: the shadow socket serves it.
    ServerOnly,
    /// Plain programs: the baseline. A test that fails here is wrong or misses something on this machine.
    Kernel,
}

impl Mode {
    /// Whether a program on `side` is started through `shunt run --`.
    pub fn accelerates(self, side: Side) -> bool {
        match side {
            Side::Server => matches!(self, Mode::Both | Mode::ServerOnly),
            Side::Client => matches!(self, Mode::Both | Mode::ClientOnly),
            Side::Plain => false,
        }
    }

    /// Whether any program of the scenario needs the shunt command.
    pub fn needs_shunt(self) -> bool {
        self != Mode::Kernel
    }
}

//! Why a call, or the binding before it, came to nothing: which side, what, and whether the procedure ran.

use std::fmt;

/// Whose doing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This process.
    Caller,
    /// The server.
    Server,
    /// What lies between: a death, a device.
    Between,
}

/// Whether the procedure ran. It never runs twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// Not begun, and it will not be.
    No,
    /// It cannot be told: the call was on its way or being served.
    Maybe,
    /// To its end.
    Yes,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// No server of this name or at this address, in the time that was given.
    Unreachable,
    /// The server does not take this user, or it is not of the user that was asked for.
    Denied,
    /// The server does not have the program, or none of the versions.
    Version,
    /// The peer does not keep to the protocol.
    Protocol,
    /// The system refused something.
    System,
    /// The time is over.
    TimedOut,
    /// The server is gone.
    Lost,
    /// All places of calls, or all of the window, are in use.
    Busy,
    /// The caller took the call back.
    Cancelled,
    /// Arguments or results have more bytes than there is room for.
    TooLong,
    /// The server's version of the program has no such procedure.
    NoProcedure,
    /// The server could not decode the arguments.
    BadArguments,
    /// The results could not be decoded.
    BadResults,
    /// The procedure said so: [`Error::fault`].
    Application,
    /// The procedure panicked. Its server lives.
    Panicked,
    /// The handle belongs to the process that forked this one.
    Forked,
}

/// An error of an application: a number and words, as the procedure gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// The program's own number.
    pub code: i32,
    /// What it says to people.
    pub text: String,
}

impl Fault {
    /// A fault.
    pub fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} ({})", self.text, self.code)
    }
}

impl std::error::Error for Fault {}

/// Why a call came to nothing.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: Kind,
    side: Side,
    ran: Ran,
    /// The server: its name and, where known, its process.
    peer: String,
    /// What more is known.
    detail: String,
    fault: Option<Fault>,
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: Kind, side: Side, ran: Ran, peer: impl fmt::Display, detail: impl fmt::Display) -> Self {
        Self(Box::new(Inner { kind, side, ran, peer: peer.to_string(), detail: detail.to_string(), fault: None }))
    }

    pub(crate) fn with_fault(mut self, fault: Fault) -> Self {
        self.0.fault = Some(fault);
        self
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whose doing it is.
    #[must_use]
    pub fn side(&self) -> Side {
        self.0.side
    }

    /// Whether the procedure ran.
    #[must_use]
    pub fn ran(&self) -> Ran {
        self.0.ran
    }

    /// The server.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.0.peer
    }

    /// What the procedure said, where it said anything.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.0.fault.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, ran, peer, detail, .. } = &*self.0;
        let what = match kind {
            Kind::Unreachable => "no server",
            Kind::Denied => "denied",
            Kind::Version => "no such program or version",
            Kind::Protocol => "the peer breaks the protocol",
            Kind::System => "the system refused",
            Kind::TimedOut => "timed out",
            Kind::Lost => "the server is gone",
            Kind::Busy => "busy",
            Kind::Cancelled => "cancelled",
            Kind::TooLong => "too long",
            Kind::NoProcedure => "the server has no such procedure",
            Kind::BadArguments => "the server could not decode the arguments",
            Kind::BadResults => "the results could not be decoded",
            Kind::Application => "the procedure failed",
            Kind::Panicked => "the procedure panicked",
            Kind::Forked => "the handle belongs to the parent process",
        };
        write!(to, "{peer}: {what}")?;
        if !detail.is_empty() {
            write!(to, ": {detail}")?;
        }
        match ran {
            Ran::Maybe => to.write_str(" (the call may have run)"),
            Ran::No | Ran::Yes => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:?} of {:?}, ran: {:?}: {self}", self.kind(), self.side(), self.ran())
    }
}

impl std::error::Error for Error {}

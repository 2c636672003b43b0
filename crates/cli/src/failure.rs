//! How the command ends when it cannot do what it was asked.
use std::fmt::Display;
use std::io::Write;

/// A message for standard error and an exit status.
#[derive(Debug)]
pub struct Failure {
    /// One sentence, without the leading `shunt: `.
    pub message: String,
    /// The exit status.
    pub status: u8,
}

impl Failure {
    /// The machine or a process is not as it must be: status 1.
    pub fn of_environment(message: impl Display) -> Failure {
        Failure { message: message.to_string(), status: 1 }
    }

    /// The user's mistake: status 2.
    pub fn of_usage(message: impl Display) -> Failure {
        Failure { message: message.to_string(), status: 2 }
    }

    /// The program exists and cannot be executed: status 126, as shells say it.
    pub fn not_executable(message: impl Display) -> Failure {
        Failure { message: message.to_string(), status: 126 }
    }

    /// The program does not exist: status 127, as shells say it.
    pub fn not_found(message: impl Display) -> Failure {
        Failure { message: message.to_string(), status: 127 }
    }

    /// Writes the message to standard error.
    pub fn report(&self) {
        // If standard error is closed there is no reader to tell; the exit status still says it.
        let _ = writeln!(std::io::stderr(), "shunt: {}", self.message);
    }
}

/// Writes a warning to standard error.
pub fn warn(message: impl Display) {
    let _ = writeln!(std::io::stderr(), "shunt: warning: {message}");
}

//! A command that a test has started, and that ends with the test: one that fails in between leaves nothing behind.

use std::io;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

/// How long a command may take to end what it has started itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// Dropped, it gets SIGTERM, which launchers pass on to what they have started, and SIGKILL where that is not enough.
pub struct Running(Option<Child>);

impl Running {
    /// Starts it.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn start(command: &mut Command) -> io::Result<Running> {
        Ok(Running(Some(command.spawn()?)))
    }

    /// As [`Child::wait_with_output`].
    ///
    /// # Errors
    /// As that.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        // It is waited for, or waiting for it is not possible: nothing is left to end.
        self.0.take().expect("a command is taken once, with its value").wait_with_output()
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("a command is taken with its value")
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("a command is taken with its value")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        let limit = Instant::now() + PATIENCE;
        if matches!(child.try_wait(), Ok(None)) {
            // SAFETY: a child that has not been waited for keeps its number.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        }
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    #[test]
    fn what_a_command_has_started_ends_with_its_value() {
        // Not `wait`: a signal right before it is not heard until that ends. And the child says its number: before it is another program, it has
        // the shell's own way with the signal, and loses it.
        let script = "trap 'kill $!; exit' TERM; sh -c 'echo $$; exec sleep 100' & while :; do sleep 0.02; done";
        let mut running = Running::start(Command::new("sh").args(["-c", script]).stdout(Stdio::piped())).unwrap();
        let mut line = String::new();
        BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let child: i32 = line.trim().parse().unwrap();
        drop(running);
        let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let limit = Instant::now() + Duration::from_secs(60);
        while !(state().is_empty() || state().contains(") Z")) {
            assert!(Instant::now() < limit, "{}", state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn one_that_is_waited_for_has_its_output() {
        let running = Running::start(Command::new("echo").arg("words").stdout(Stdio::piped())).unwrap();
        assert_eq!(running.wait_with_output().unwrap().stdout, b"words\n");
    }
}

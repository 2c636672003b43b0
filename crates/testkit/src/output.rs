//! What a finished program said and how it ended.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

/// A finished program: its status and everything it wrote.
pub struct Output {
    /// The command line, for messages.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Everything it wrote to standard output.
    pub stdout: Vec<u8>,
    /// Everything it wrote to standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Standard output as text, with anything that is not UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text, with anything that is not UTF-8 replaced.
    pub fn error_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Fails the test unless the program ended with status 0.
    pub fn expect_success(self) -> Output {
        self.expect_status(0)
    }

    /// Fails the test unless the program ended by itself with `code`.
    pub fn expect_status(self, code: i32) -> Output {
        if let Some(signal) = self.status.signal() {
            panic!("died by signal {signal}, expected status {code}\n{}", self.describe());
        }
        assert!(self.status.code() == Some(code), "expected status {code}\n{}", self.describe());
        self
    }

    /// Fails the test unless standard output contains `wanted`.
    pub fn expect_text(self, wanted: &str) -> Output {
        assert!(self.text().contains(wanted), "expected {wanted:?} in the output\n{}", self.describe());
        self
    }

    /// Fails the test unless the program was ended by `signal`.
    pub fn expect_signal(self, signal: i32) -> Output {
        assert!(self.status.signal() == Some(signal), "expected an end by signal {signal}\n{}", self.describe());
        self
    }

    /// Command, status and the ends of both outputs.
    pub fn describe(&self) -> String {
        format!(
            "{}\n{}\n--- standard output (end)\n{}\n--- standard error (end)\n{}",
            self.command,
            self.status,
            tail(&self.text()),
            tail(&self.error_text())
        )
    }
}

/// Reads the lines of a growing file, each once.
pub struct Follower {
    path: PathBuf,
    offset: u64,
}

impl Follower {
    pub(crate) fn new(path: PathBuf) -> Follower {
        Follower { path, offset: 0 }
    }

    /// The complete lines that were added since the last call.
    pub fn new_lines(&mut self) -> Vec<String> {
        let mut text = Vec::new();
        if let Ok(mut file) = File::open(&self.path) {
            let sought = file.seek(SeekFrom::Start(self.offset));
            sought.and_then(|_| file.read_to_end(&mut text)).expect("the file can be read");
        }
        let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        self.offset += complete as u64;
        String::from_utf8_lossy(&text[..complete]).lines().map(str::to_string).collect()
    }
}

/// The last lines of `text`: what matters in a long log.
pub(crate) fn tail(text: &str) -> String {
    const LINES: usize = 30;
    const CHARACTERS_A_LINE: usize = 300;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..]
        .iter()
        .map(|line| line.chars().take(CHARACTERS_A_LINE).collect::<String>() + "\n")
        .collect()
}

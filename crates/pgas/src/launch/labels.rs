//! Output of ranks, line by line, each with its rank before it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStderr, ChildStdout};
use std::thread::JoinHandle;

/// One thread for each pipe.
#[derive(Default)]
pub(super) struct Labels {
    readers: Vec<JoinHandle<()>>,
}

impl Labels {
    pub fn read(&mut self, rank: usize, out: ChildStdout, error: ChildStderr) {
        self.readers.push(std::thread::spawn(move || copy(rank, out, io::stdout)));
        self.readers.push(std::thread::spawn(move || copy(rank, error, io::stderr)));
    }

    /// Until all has been written. Something that a rank has left running may keep a pipe open, so callers end those first.
    pub fn finish(self) {
        for reader in self.readers {
            let _ = reader.join();
        }
    }
}

fn copy<W: Write>(rank: usize, from: impl Read, to: impl Fn() -> W) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(format!("[{rank}] ").as_bytes());
        match lines.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        // In one piece, so that ranks' lines do not mix.
        let mut to = to();
        if to.write_all(&line).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

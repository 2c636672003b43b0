//! Output of ranks that this process passes on: line by line, each with its rank before it, or as it comes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStderr, ChildStdout};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Takes bytes of a rank, in one piece, for standard error if the flag says so; false if there is no point in reading on.
pub(super) type Sink = Arc<dyn Fn(bool, &[u8]) -> bool + Send + Sync>;

/// To this process's own output.
pub(super) fn own_output(error: bool, bytes: &[u8]) -> bool {
    let write = |to: &mut dyn Write| to.write_all(bytes).and_then(|()| to.flush()).is_ok();
    if error {
        write(&mut io::stderr())
    } else {
        write(&mut io::stdout())
    }
}

/// One thread for each pipe.
pub(super) struct Labels {
    readers: Vec<JoinHandle<()>>,
    label: bool,
    sink: Sink,
}

impl Labels {
    pub fn new(label: bool, sink: Sink) -> Labels {
        Labels { readers: Vec::new(), label, sink }
    }

    pub fn read(&mut self, rank: usize, out: ChildStdout, error: ChildStderr) {
        let label = self.label.then_some(rank);
        let (to_out, to_error) = (self.sink.clone(), self.sink.clone());
        self.readers.push(std::thread::spawn(move || copy(label, out, |bytes| to_out(false, bytes))));
        self.readers.push(std::thread::spawn(move || copy(label, error, |bytes| to_error(true, bytes))));
    }

    /// Until all has been written. Something that a rank has left running may keep a pipe open, so callers end those first.
    pub fn finish(self) {
        for reader in self.readers {
            let _ = reader.join();
        }
    }
}

fn copy(label: Option<usize>, from: impl Read, to: impl Fn(&[u8]) -> bool) {
    let mut from = BufReader::new(from);
    let mut piece = Vec::new();
    loop {
        piece.clear();
        let read = match label {
            Some(rank) => {
                piece.extend_from_slice(format!("[{rank}] ").as_bytes());
                from.read_until(b'\n', &mut piece)
            }
            None => from.fill_buf().map(|bytes| {
                piece.extend_from_slice(bytes);
                bytes.len()
            }),
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(length) if label.is_none() => from.consume(length),
            Ok(_) => {}
        }
        if label.is_some() && piece.last() != Some(&b'\n') {
            piece.push(b'\n');
        }
        // In one piece, so that ranks' lines do not mix.
        if !to(&piece) {
            return;
        }
    }
}

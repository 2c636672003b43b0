//! Output of ranks that this process passes on: line by line, each with its rank before it, or as it comes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{ChildStderr, ChildStdout};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the rest of an ended job's output may take.
const LAST: Duration = Duration::from_secs(1);

/// Bytes of a line that are kept until it ends; a longer one is passed on in several, each with its rank.
const LINE: u64 = 64 << 10;

/// Takes bytes of a rank, in one piece, for standard error if the flag says so.
pub(super) type Sink = Arc<dyn Fn(bool, &[u8]) -> io::Result<()> + Send + Sync>;

/// To this process's own output.
///
/// # Errors
/// A sentence; of its kind is [`io::ErrorKind::BrokenPipe`] where the reader has gone, which programs end by in silence.
pub(super) fn own_output(error: bool, bytes: &[u8]) -> io::Result<()> {
    let write = |to: &mut dyn Write| to.write_all(bytes).and_then(|()| to.flush());
    let written = if error { write(&mut io::stderr()) } else { write(&mut io::stdout()) };
    written.map_err(|error| io::Error::new(error.kind(), format!("the ranks' output cannot be written: {error}")))
}

/// One thread for each pipe.
pub(super) struct Labels {
    readers: Vec<JoinHandle<()>>,
    label: bool,
    sink: Sink,
    /// The first piece that the sink did not take.
    failed: Arc<Mutex<Option<io::Error>>>,
}

impl Labels {
    pub fn new(label: bool, sink: Sink) -> Labels {
        Labels { readers: Vec::new(), label, sink, failed: Arc::default() }
    }

    /// # Errors
    /// If there is no thread to be had.
    pub fn read(&mut self, rank: usize, out: ChildStdout, error: ChildStderr) -> io::Result<()> {
        let label = self.label.then_some(rank);
        self.readers.push(self.reader(label, out, false)?);
        self.readers.push(self.reader(label, error, true)?);
        Ok(())
    }

    fn reader(&self, label: Option<usize>, from: impl Read + Send + 'static, error: bool) -> io::Result<JoinHandle<()>> {
        let (to, failed) = (self.sink.clone(), self.failed.clone());
        std::thread::Builder::new().spawn(move || {
            if let Err(why) = copy(label, from, |bytes| to(error, bytes)) {
                failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(why);
            }
        })
    }

    /// Until all has been written. Something that a rank has left running may keep a pipe open, and a reader of ours may not read: of a job that was
    /// `ended` they get a second.
    ///
    /// # Errors
    /// If the sink has refused something; the rank has had a pipe without a reader since.
    pub fn finish(self, ended: bool) -> io::Result<()> {
        let limit = Instant::now() + LAST;
        for reader in self.readers {
            while ended && !reader.is_finished() && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !ended || reader.is_finished() {
                let _ = reader.join();
            }
        }
        let failed = self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        failed.map_or(Ok(()), Err)
    }
}

/// Until the end, or until `to` takes no more.
fn copy(label: Option<usize>, from: impl Read, to: impl Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut piece = Vec::new();
    loop {
        piece.clear();
        let read = match label {
            Some(rank) => {
                piece.extend_from_slice(format!("[{rank}] ").as_bytes());
                from.by_ref().take(LINE).read_until(b'\n', &mut piece)
            }
            None => from.fill_buf().map(|bytes| {
                piece.extend_from_slice(bytes);
                bytes.len()
            }),
        };
        match read {
            Ok(0) | Err(_) => return Ok(()),
            Ok(length) if label.is_none() => from.consume(length),
            Ok(_) => {}
        }
        if label.is_some() && piece.last() != Some(&b'\n') {
            piece.push(b'\n');
        }
        // In one piece, so that ranks' lines do not mix.
        to(&piece)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line without an end takes no more memory than others, and each byte comes through.
    #[test]
    fn a_long_line_is_passed_on_in_pieces() {
        let pieces = Mutex::new(Vec::new());
        let keep = |bytes: &[u8]| {
            pieces.lock().unwrap().push(bytes.to_vec());
            Ok(())
        };
        copy(Some(3), io::repeat(b'y').take(3 * LINE + 5).chain(&b"\nlast"[..]), keep).unwrap();
        let pieces = pieces.into_inner().unwrap();
        assert!(pieces
            .iter()
            .all(|piece| piece.starts_with(b"[3] ") && piece.ends_with(b"\n") && piece.len() <= LINE as usize + 5));
        let bodies: Vec<usize> = pieces.iter().map(|piece| piece.len() - 5).collect();
        assert_eq!(bodies, [LINE as usize, LINE as usize, LINE as usize, 5, 4]);
    }

    #[test]
    fn what_is_not_taken_is_told() {
        let full = |_: &[u8]| Err(io::Error::from_raw_os_error(libc::ENOSPC));
        assert_eq!(copy(None, &b"bytes"[..], full).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        copy(None, &b""[..], full).unwrap();
    }
}

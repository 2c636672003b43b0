//! The sending direction.

use super::{Ended, LAST, MARK};

/// Where bytes go.
pub trait Sink {
    /// All bytes of both parts, one part behind the other.
    ///
    /// # Errors
    /// [`Ended`] if some of them cannot be sent.
    fn write(&mut self, parts: [&[u8]; 2]) -> Result<(), Ended>;

    /// Whether a send of its own costs less than a copy of [`LONG`] bytes.
    fn is_memory(&self) -> bool {
        false
    }
}

/// As many bytes at once go from where they are, if a send is cheap.
pub const LONG: usize = 8 << 10;

/// Records into a stream.
#[derive(Debug)]
pub struct Output {
    buffer: Vec<u8>,
    size: usize,
    /// Where the mark of the current fragment will be; before it, records that wait.
    mark: usize,
    /// The end of what was put.
    at: usize,
    /// Whether fragments of the current record were sent.
    cut: bool,
    /// Whether the current record is kept whole.
    whole: bool,
}

impl Output {
    /// Before the first record. `size` bytes are kept; bytes that do not fit are sent from where they are.
    pub fn new(size: usize) -> Output {
        let size = size.max(64);
        Output { buffer: vec![0; size], size, mark: 0, at: MARK, cut: false, whole: false }
    }

    /// The next record is kept whole, however long it is, so that all its positions can be gone back to: authentication that wraps arguments signs
    /// what was put, in its place.
    pub fn keep_whole(&mut self) {
        self.whole = true;
    }

    /// Makes room up to here, for a record that is kept whole.
    fn grow(&mut self, end: usize) {
        if self.whole && end > self.buffer.len() && end - self.mark < LAST as usize {
            self.buffer.resize(end.next_multiple_of(self.size), 0);
        }
    }

    /// Four bytes, most significant first.
    ///
    /// # Errors
    /// [`Ended`] if there was no room and what was there could not be sent.
    #[inline]
    pub fn word(&mut self, word: u32, sink: &mut impl Sink) -> Result<(), Ended> {
        self.bytes(&word.to_be_bytes(), sink)
    }

    /// Bytes, fewer than 2 GiB less the buffer.
    ///
    /// # Errors
    /// As [`Output::word`].
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<(), Ended> {
        self.grow(self.at + bytes.len());
        if self.whole || bytes.len() < LONG || !sink.is_memory() {
            if let Some(room) = self.buffer.get_mut(self.at..self.at + bytes.len()) {
                room.copy_from_slice(bytes);
                self.at += bytes.len();
                return Ok(());
            }
        }
        if self.whole || bytes.len() >= LAST as usize - self.buffer.len() {
            return Err(Ended);
        }
        self.cut = true;
        self.ship(bytes, 0, sink)
    }

    /// Room in the current fragment, for the caller to write, if there is some.
    pub fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        let end = self.at.checked_add(length)?;
        self.grow(end);
        let room = self.buffer.get_mut(self.at..end)?;
        self.at += length;
        Some(room)
    }

    /// Bytes of the current fragment.
    pub fn position(&self) -> usize {
        self.at - self.mark - MARK
    }

    /// Goes on at this position of the current fragment; whether there can be one.
    pub fn set_position(&mut self, position: usize) -> bool {
        let at = position.checked_add(self.mark + MARK);
        self.grow(at.unwrap_or(0));
        let at = at.filter(|at| *at <= self.buffer.len());
        self.at = at.unwrap_or(self.at);
        at.is_some()
    }

    /// Ends the record. With `now` it is sent, and what waits with it; else it waits until one is, or until there is no room.
    ///
    /// # Errors
    /// [`Ended`] if it could not be sent.
    #[inline]
    pub fn end_record(&mut self, now: bool, sink: &mut impl Sink) -> Result<(), Ended> {
        self.whole = false;
        if now || self.cut || self.at + MARK >= self.size {
            self.cut = false;
            let sent = self.ship(&[], LAST, sink);
            if self.buffer.len() > self.size {
                self.buffer = vec![0; self.size];
            }
            return sent;
        }
        self.write_mark(0, LAST);
        self.mark = self.at;
        self.at += MARK;
        Ok(())
    }

    fn write_mark(&mut self, more: usize, last: u32) {
        let length = (self.position() + more) as u32 | last;
        self.buffer[self.mark..self.mark + MARK].copy_from_slice(&length.to_be_bytes());
    }

    /// Sends all that is here, and `bytes` as the end of the current fragment.
    fn ship(&mut self, bytes: &[u8], last: u32, sink: &mut impl Sink) -> Result<(), Ended> {
        self.write_mark(bytes.len(), last);
        let sent = sink.write([&self.buffer[..self.at], bytes]);
        (self.mark, self.at) = (0, MARK);
        sent
    }
}

//! The receiving direction.

use super::{Ended, LAST, MARK};

/// Where bytes come from.
pub trait Source {
    /// At least one byte into `into`, which is not empty, and how many.
    ///
    /// # Errors
    /// [`Ended`] if there is none and never will be, or none in time.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Ended>;
}

/// What is asked for and is as long goes from the source to the caller's memory.
const DIRECT: usize = 4 << 10;

/// Records out of a stream.
#[derive(Debug)]
pub struct Input {
    buffer: Box<[u8]>,
    /// Bytes of the buffer that were read from the source and not taken: `at..end`.
    at: usize,
    end: usize,
    /// Bytes of the current fragment that were not taken.
    left: usize,
    /// Whether it is its record's last.
    last: bool,
}

impl Input {
    /// At the end of a record, before the first one.
    pub fn new(size: usize) -> Input {
        Input { buffer: vec![0; size.max(64)].into(), at: 0, end: 0, left: 0, last: true }
    }

    /// Goes past what is left of the current record: what is taken next is the next one's.
    ///
    /// # Errors
    /// [`Ended`] if the stream ends before the record.
    pub fn next_record(&mut self, source: &mut impl Source) -> Result<(), Ended> {
        self.skip(source)?;
        self.last = false;
        Ok(())
    }

    /// Goes past what is left of the current record. Whether bytes of another one are here.
    ///
    /// # Errors
    /// [`Ended`] if the stream ends before the record.
    pub fn has_more(&mut self, source: &mut impl Source) -> Result<bool, Ended> {
        self.skip(source)?;
        Ok(self.at < self.end)
    }

    fn skip(&mut self, source: &mut impl Source) -> Result<(), Ended> {
        loop {
            while self.left > 0 {
                if self.at == self.end {
                    self.fill(source)?;
                }
                let here = self.left.min(self.end - self.at);
                self.at += here;
                self.left -= here;
            }
            if self.last {
                return Ok(());
            }
            self.mark(source)?;
        }
    }

    /// The next four bytes, most significant first.
    ///
    /// # Errors
    /// [`Ended`] if the record or the stream ends before.
    #[inline]
    pub fn word(&mut self, source: &mut impl Source) -> Result<u32, Ended> {
        if let Some(bytes) = self.here(4, source)? {
            return Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
        let mut bytes = [0; 4];
        self.bytes(&mut bytes, source)?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// The next bytes, as many as `into` has room for.
    ///
    /// # Errors
    /// [`Ended`] if the record or the stream ends before; some of them may have been written.
    pub fn bytes(&mut self, mut into: &mut [u8], source: &mut impl Source) -> Result<(), Ended> {
        while !into.is_empty() {
            if self.left == 0 {
                self.fragment(source)?;
                continue;
            }
            if self.at == self.end {
                let wanted = into.len().min(self.left);
                if wanted >= DIRECT {
                    let taken = source.read(&mut into[..wanted])?;
                    self.left -= taken;
                    into = &mut into[taken..];
                    continue;
                }
                self.fill(source)?;
            }
            let here = into.len().min(self.left).min(self.end - self.at);
            into[..here].copy_from_slice(&self.buffer[self.at..self.at + here]);
            self.at += here;
            self.left -= here;
            into = &mut into[here..];
        }
        Ok(())
    }

    /// Begins the next fragment where the last one has ended, so that [`Input::ahead`] can show some of it.
    ///
    /// # Errors
    /// [`Ended`] if the record has ended, or the stream before the next mark.
    #[inline]
    pub fn begin(&mut self, source: &mut impl Source) -> Result<(), Ended> {
        if self.left == 0 {
            self.fragment(source)?;
        }
        Ok(())
    }

    /// The next bytes where they are, if they are here and of the current fragment. None is taken.
    #[inline]
    pub fn ahead(&self, length: usize) -> Option<&[u8]> {
        if length > self.left {
            return None;
        }
        self.buffer[self.at..self.end].get(..length)
    }

    /// Goes past bytes that [`Input::ahead`] has shown.
    #[inline]
    pub fn take(&mut self, length: usize) {
        debug_assert!(length <= self.left && length <= self.end - self.at);
        self.at += length;
        self.left -= length;
    }

    /// The next bytes where they are, if they are here and of one fragment.
    ///
    /// # Errors
    /// [`Ended`] if the record has ended, or the stream before the next mark.
    #[inline]
    pub fn here(&mut self, length: usize, source: &mut impl Source) -> Result<Option<&mut [u8]>, Ended> {
        if self.left == 0 && length > 0 {
            self.fragment(source)?;
        }
        if length > self.left || length > self.end - self.at {
            return Ok(None);
        }
        let begin = self.at;
        self.at += length;
        self.left -= length;
        Ok(Some(&mut self.buffer[begin..begin + length]))
    }

    /// Bytes of the current fragment that were not taken: a position, that falls.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Goes so many bytes forth, or back, within what is here of the current fragment; whether that could be done.
    pub fn seek(&mut self, by: isize) -> bool {
        let at = self.at.checked_add_signed(by).filter(|at| *at <= self.end);
        let left = self.left.checked_add_signed(by.wrapping_neg()).filter(|left| *left < LAST as usize);
        if let (Some(at), Some(left)) = (at, left) {
            (self.at, self.left) = (at, left);
            return true;
        }
        false
    }

    fn fragment(&mut self, source: &mut impl Source) -> Result<(), Ended> {
        while self.left == 0 {
            if self.last {
                return Err(Ended);
            }
            self.mark(source)?;
        }
        Ok(())
    }

    fn mark(&mut self, source: &mut impl Source) -> Result<(), Ended> {
        let mut mark = [0; MARK];
        if self.at == self.end {
            self.fill(source)?;
        }
        if let Some(bytes) = self.buffer[self.at..self.end].first_chunk() {
            mark = *bytes;
            self.at += MARK;
        } else {
            for byte in &mut mark {
                if self.at == self.end {
                    self.fill(source)?;
                }
                *byte = self.buffer[self.at];
                self.at += 1;
            }
        }
        let mark = u32::from_be_bytes(mark);
        self.last = mark & LAST != 0;
        self.left = (mark & !LAST) as usize;
        // A fragment of nothing that is not the last: any number of them could follow.
        if mark == 0 {
            return Err(Ended);
        }
        Ok(())
    }

    fn fill(&mut self, source: &mut impl Source) -> Result<(), Ended> {
        (self.at, self.end) = (0, 0);
        self.end = source.read(&mut self.buffer)?.min(self.buffer.len());
        Ok(())
    }
}

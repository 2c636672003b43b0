//! Record marking (RFC 5531, section 11): messages in a stream of bytes, each as one or several fragments. Sans I/O.
//!
//! A fragment begins with four bytes, big-endian: the highest bit says that it is the record's last, the others its length.

const LAST: u32 = 1 << 31;

/// Why a stream is not read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The fragments of a record have more bytes than the reader takes.
    TooLong,
    /// A fragment without bytes that is not the last: such could go on for ever.
    Empty,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::TooLong => "a record is longer than is taken here",
            Self::Empty => "a fragment of a record is empty",
        })
    }
}

/// Joins fragments. It holds as many bytes as have come, not as many as were announced.
///
/// ```
/// use shunt_rpc::onc::record::{mark, Reader};
/// let stream = [&mark(4)[..], b"call"].concat();
/// let mut reader = Reader::new(1 << 20);
/// let mut rest = &stream[..];
/// assert_eq!(reader.take(&mut rest), Ok(Some(b"call".to_vec())));
/// ```
#[derive(Debug)]
pub struct Reader {
    most: usize,
    record: Vec<u8>,
    mark: [u8; 4],
    marked: usize,
    left: usize,
    last: bool,
}

impl Reader {
    /// Whether a record has begun that has not ended.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.marked > 0 || !self.record.is_empty()
    }

    /// For records of at most so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, record: vec![], mark: [0; 4], marked: 0, left: 0, last: false }
    }

    /// Takes bytes from the front of `input` up to the end of a record, which it gives; `None`: all were taken, and more are to come.
    ///
    /// # Errors
    /// [`Broken`]; the stream has no more records then.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, Broken> {
        loop {
            while self.marked < 4 {
                let Some((&byte, rest)) = input.split_first() else { return Ok(None) };
                self.mark[self.marked] = byte;
                self.marked += 1;
                *input = rest;
                if self.marked == 4 {
                    let mark = u32::from_be_bytes(self.mark);
                    self.left = (mark & !LAST) as usize;
                    self.last = mark & LAST != 0;
                    if self.left == 0 && !self.last {
                        return Err(Broken::Empty);
                    }
                    if self.left > self.most - self.record.len().min(self.most) {
                        return Err(Broken::TooLong);
                    }
                }
            }
            let (part, rest) = input.split_at(self.left.min(input.len()));
            self.record.extend_from_slice(part);
            self.left -= part.len();
            *input = rest;
            if self.left > 0 {
                return Ok(None);
            }
            self.marked = 0;
            if self.last {
                return Ok(Some(std::mem::take(&mut self.record)));
            }
        }
    }

    /// Bytes of the record that has begun.
    #[must_use]
    pub fn held(&self) -> usize {
        self.record.len()
    }

    /// These bytes.
    #[must_use]
    pub fn begun(&self) -> &[u8] {
        &self.record
    }
}

/// The mark before a record that is one fragment: what each reader of records takes.
#[must_use]
pub fn mark(length: u32) -> [u8; 4] {
    (length | LAST).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(reader: &mut Reader, mut input: &[u8]) -> Result<Vec<Vec<u8>>, Broken> {
        let mut records = vec![];
        while let Some(record) = reader.take(&mut input)? {
            records.push(record);
        }
        assert!(input.is_empty());
        Ok(records)
    }

    /// A record in fragments of these sizes.
    fn fragments(record: &[u8], sizes: &[usize]) -> Vec<u8> {
        let (mut stream, mut rest) = (vec![], record);
        for &size in sizes {
            let (part, behind) = rest.split_at(size.min(rest.len()));
            if !part.is_empty() {
                stream.extend((part.len() as u32).to_be_bytes());
                stream.extend_from_slice(part);
            }
            rest = behind;
        }
        stream.extend(mark(rest.len() as u32));
        stream.extend_from_slice(rest);
        stream
    }

    #[test]
    fn records_are_bounded_as_a_whole() {
        let mut stream = vec![];
        for _ in 0..3 {
            stream.extend([0, 0, 0, 4, 1, 2, 3, 4]);
        }
        assert_eq!(all(&mut Reader::new(11), &stream), Err(Broken::TooLong));
        assert_eq!(all(&mut Reader::new(1 << 20), &[0x7f, 0xff, 0xff, 0xff]), Err(Broken::TooLong));
        assert_eq!(all(&mut Reader::new(64), &[0; 4]), Err(Broken::Empty));
        // Senders that flush a full buffer end a record with an empty fragment.
        assert_eq!(all(&mut Reader::new(64), &[0, 0, 0, 1, 7, 0x80, 0, 0, 0]), Ok(vec![vec![7]]));
    }

    proptest! {
        #[test]
        fn wherever_the_bytes_are_split_the_records_are_the_same(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..5),
            sizes in proptest::collection::vec(0usize..30, 0..5),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let stream: Vec<u8> = records.iter().flat_map(|record| fragments(record, &sizes)).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut reader = Reader::new(60);
            let mut seen = vec![];
            for pair in cuts.windows(2) {
                seen.extend(all(&mut reader, &stream[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(seen, records);
            prop_assert_eq!(reader.held(), 0);
        }

        #[test]
        fn any_bytes_are_records_or_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
            let cut = if bytes.is_empty() { 0 } else { cut.index(bytes.len()) };
            let whole = all(&mut Reader::new(100), &bytes);
            let mut reader = Reader::new(100);
            let parts = all(&mut reader, &bytes[..cut]).and_then(|mut first| {
                first.extend(all(&mut reader, &bytes[cut..])?);
                Ok(first)
            });
            prop_assert_eq!(parts, whole);
            prop_assert!(reader.held() <= 100);
        }
    }
}

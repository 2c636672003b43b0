//! What the next program is told, as the text of an environment variable.

use core::fmt::Write;

/// The environment variable that names what was handed over: `L902,R901,I903,E17.1.3.0`. The descriptors of a link, of a
/// rendezvous, and of an inbox; and by nonce and sequence of a link, channels whose first or second side ended with the exec, a bit each.
pub const VARIABLE: &str = "SHUNT_INHERIT";

/// Bytes behind which no more ends are named: descriptors need the room.
const ENDS_BEFORE: usize = 1500;

/// A text of bounded length: the variable.
pub struct Text {
    bytes: [u8; 2048],
    length: usize,
}

impl Text {
    /// The variable without a value.
    #[inline(always)]
    pub(super) fn new() -> Text {
        let mut text = Text { bytes: [0; 2048], length: 0 };
        let _ = write!(text, "{VARIABLE}=");
        text
    }

    /// With a NUL behind it.
    pub fn with_nul(&self) -> &[u8] {
        &self.bytes[..self.length + 1]
    }

    fn value(&self) -> &[u8] {
        &self.bytes[VARIABLE.len() + 1..self.length]
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.value().is_empty()
    }

    /// The descriptors that are named, which the next program must find open.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + Clone + '_ {
        items(self.value()).filter_map(|item| match item {
            Item::Link(fd) | Item::Rendezvous(fd) | Item::Inbox(fd) => Some(fd),
            Item::Ends(_) => None,
        })
    }

    /// Names a descriptor, once.
    pub(super) fn name(&mut self, letter: char, fd: i32) {
        if !self.descriptors().any(|named| named == fd) {
            self.item(format_args!("{letter}{fd}"));
        }
    }

    /// Names what ends. False: there is no room.
    pub(super) fn name_ends(&mut self, ends: &Ends) -> bool {
        let room = self.length < ENDS_BEFORE;
        if room {
            let [first, second] = ends.sides;
            self.item(format_args!("E{}.{}.{first}.{second}", ends.nonce, ends.sequence));
        }
        room
    }

    fn item(&mut self, item: core::fmt::Arguments) {
        let (comma, before) = (if self.is_empty() { "" } else { "," }, self.length);
        if self.write_str(comma).and_then(|()| self.write_fmt(item)).is_err() {
            self.bytes[before..].fill(0);
            self.length = before;
        }
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        if self.length + text.len() >= self.bytes.len() {
            return Err(core::fmt::Error);
        }
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

/// Sides of a link's channels that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ends {
    pub nonce: u64,
    pub sequence: u32,
    /// For either side the channels, a bit each.
    pub sides: [u64; 2],
}

/// One thing that is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Item {
    Link(i32),
    Rendezvous(i32),
    Inbox(i32),
    Ends(Ends),
}

/// What a value of the variable names. Whatever is not well formed is left out.
pub(super) fn items(value: &[u8]) -> impl Iterator<Item = Item> + Clone + '_ {
    value.split(|byte| *byte == b',').filter_map(|item| {
        let (letter, rest) = item.split_first()?;
        match letter {
            b'L' => Some(Item::Link(decimal(rest)?)),
            b'R' => Some(Item::Rendezvous(decimal(rest)?)),
            b'I' => Some(Item::Inbox(decimal(rest)?)),
            b'E' => {
                let mut parts = rest.split(|byte| *byte == b'.');
                let ends = Ends {
                    nonce: decimal(parts.next()?)?,
                    sequence: decimal(parts.next()?)?,
                    sides: [decimal(parts.next()?)?, decimal(parts.next()?)?],
                };
                parts.next().is_none().then_some(Item::Ends(ends))
            }
            _ => None,
        }
    })
}

fn decimal<T: core::str::FromStr>(digits: &[u8]) -> Option<T> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_is_read() {
        let ends = Ends { nonce: u64::MAX, sequence: 7, sides: [u64::MAX, 1] };
        let mut text = Text::new();
        assert!(text.is_empty());
        text.name('L', 902);
        text.name('R', 901);
        text.name('L', 902);
        text.name('I', 903);
        assert!(text.name_ends(&ends));
        assert!(text.descriptors().eq([902, 901, 903]));
        let value = text.with_nul().strip_prefix(b"SHUNT_INHERIT=").unwrap().strip_suffix(b"\0").unwrap();
        assert!(items(value).eq([Item::Link(902), Item::Rendezvous(901), Item::Inbox(903), Item::Ends(ends)]));
    }

    #[test]
    fn what_does_not_fit_is_left_out_whole() {
        let mut text = Text::new();
        for fd in 0..1000 {
            text.name('L', 100_000 + fd);
        }
        let named: Vec<i32> = text.descriptors().collect();
        assert!(named.len() > 200 && named.len() < 1000);
        assert!(named.iter().enumerate().all(|(i, fd)| *fd == 100_000 + i as i32));
        assert!(!text.name_ends(&Ends { nonce: 1, sequence: 1, sides: [1, 0] }));
    }

    #[test]
    fn nonsense_names_nothing() {
        assert_eq!(items(b",L,Lx,R-,Q9,E1.2.3,E1.2.3.4.5,E1.x.3.4,\xff").count(), 0);
    }
}

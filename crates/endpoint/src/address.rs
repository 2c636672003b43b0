//! Where an endpoint is, and what names a channel there.

use shunt_sys::{calls, Errno};

/// Bytes of an address.
pub const ADDRESS: usize = 40;

/// What kind of place an [`Address`] names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Family {
    /// Nowhere.
    None = 0,
    /// A port of an in-process switch: its number.
    Local = 1,
    /// An endpoint on this host: the number in its socket's abstract name.
    Memory = 2,
    /// A UDP address: a `sockaddr_in` or `sockaddr_in6`.
    Udp = 3,
    /// An interface's address: see the device.
    Xdp = 4,
    /// An address of libfabric.
    Fabric = 5,
}

/// The address of an endpoint, as its device understands it. Plain bytes: it may be sent to the peer as it is.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    family: u32,
    length: u32,
    bytes: [u8; ADDRESS],
}

impl Address {
    /// No address.
    pub const NONE: Address = Address { family: 0, length: 0, bytes: [0; ADDRESS] };

    /// An address of `family`; `None` if there are more than [`ADDRESS`] bytes.
    pub fn new(family: Family, bytes: &[u8]) -> Option<Address> {
        let mut address = Address { family: family as u32, length: bytes.len() as u32, bytes: [0; ADDRESS] };
        address.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(address)
    }

    /// Whether it is of this family.
    pub fn is(&self, family: Family) -> bool {
        self.family == family as u32
    }

    /// The device's part, at most [`ADDRESS`] bytes whatever the length says.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.length as usize).min(ADDRESS)]
    }

    /// As words, for shared memory.
    pub fn to_words(&self) -> [u64; 6] {
        let mut words = [0; 6];
        words[0] = self.family as u64 | (self.length as u64) << 32;
        for (word, bytes) in words[1..].iter_mut().zip(self.bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
        words
    }

    /// From words of shared memory, which may be anything.
    pub fn from_words(words: [u64; 6]) -> Address {
        let mut address = Address { family: words[0] as u32, length: (words[0] >> 32) as u32, bytes: [0; ADDRESS] };
        for (bytes, word) in address.bytes.chunks_exact_mut(8).zip(&words[1..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        address
    }
}

/// The name of one direction of a channel: 64 random bits that the receiver chose and told the sender. 0 is no tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag(pub u64);

impl Tag {
    /// A tag that no other process can guess.
    ///
    /// # Errors
    /// What getrandom(2) answers; EAGAIN if it gave fewer bytes.
    pub fn random() -> Result<Tag, Errno> {
        loop {
            let mut bytes = [0u8; 8];
            if calls::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0)? != bytes.len() {
                return Err(Errno(shunt_sys::libc::EAGAIN));
            }
            let tag = u64::from_ne_bytes(bytes);
            if tag != 0 {
                return Ok(Tag(tag));
            }
        }
    }
}

/// Both tags of a channel, as one side sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tags {
    /// What this side chose: in each message that arrives for the channel.
    pub receive: Tag,
    /// What the other side chose: put into each message that is sent.
    pub send: Tag,
}

/// A channel that was opened at an endpoint: its place in the registry, and a generation by which a closed one is known.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Channel(pub u32);

impl Channel {
    /// Of a place and a generation, both cut to 16 bits.
    #[inline(always)]
    pub const fn new(index: usize, generation: u32) -> Channel {
        Channel(index as u32 & 0xffff | generation << 16)
    }

    /// Its place in the registry.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize & 0xffff
    }

    /// Which of those that had this place.
    #[inline(always)]
    pub const fn generation(self) -> u32 {
        self.0 >> 16
    }
}

//! The bytes of an outgoing message, wherever they lie, as one string.

use crate::area::{Area, Bytes, Segment};
use crate::capabilities::Capabilities;
use crate::error::SendError;
use crate::message::{Body, Message, INLINE, SCATTER};
use crate::shared::SendDescriptor;

/// A checked message: lengths and areas are right, only the program's own bytes may still fault. For devices.
#[derive(Clone, Copy)]
pub struct Gather<'a> {
    head: &'a [u8],
    segment: Segment,
    areas: [Area; SCATTER],
    count: usize,
    bytes: Option<Bytes<'a>>,
    length: usize,
}

impl<'a> Gather<'a> {
    /// Checks `message` against what the device can do and against the segment.
    ///
    /// # Errors
    /// `TooLarge`, `Area`.
    #[inline(always)]
    pub fn of(message: &Message<'a>, segment: Segment, capabilities: &Capabilities) -> Result<Gather<'a>, SendError> {
        let mut gather = Gather {
            head: message.head,
            segment,
            areas: [Area::default(); SCATTER],
            count: 0,
            bytes: None,
            length: message.len(),
        };
        if message.head.len() > INLINE || gather.length > capabilities.largest as usize {
            return Err(SendError::TooLarge);
        }
        match message.body {
            Body::None => {}
            Body::Bytes(bytes) => gather.bytes = Some(bytes),
            Body::Areas(areas) => gather.set_areas(areas, capabilities.gather as usize)?,
        }
        Ok(gather)
    }

    /// A message in one piece, of any length: for devices that copy.
    pub fn of_bytes(bytes: &'a [u8], segment: Segment) -> Gather<'a> {
        Gather { head: bytes, segment, areas: [Area::default(); SCATTER], count: 0, bytes: None, length: bytes.len() }
    }

    /// The same of a descriptor in a send queue, which may hold anything.
    ///
    /// # Errors
    /// `TooLarge`, `Area`.
    #[inline]
    pub fn of_descriptor(descriptor: &'a SendDescriptor, segment: Segment, largest: u32) -> Result<Gather<'a>, SendError> {
        let (head, areas) = (descriptor.head(), descriptor.areas());
        let length = head.len() + areas.iter().map(|area| area.length as usize).sum::<usize>();
        if length > largest as usize {
            return Err(SendError::TooLarge);
        }
        let mut gather = Gather { head, segment, areas: [Area::default(); SCATTER], count: 0, bytes: None, length };
        gather.set_areas(areas, SCATTER)?;
        Ok(gather)
    }

    fn set_areas(&mut self, areas: &[Area], limit: usize) -> Result<(), SendError> {
        if areas.len() > limit.min(SCATTER) {
            return Err(SendError::TooLarge);
        }
        if !areas.iter().all(|area| self.segment.contains(*area)) {
            return Err(SendError::Area);
        }
        self.areas[..areas.len()].copy_from_slice(areas);
        self.count = areas.len();
        Ok(())
    }

    /// Bytes in all.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.length
    }

    /// The head.
    #[inline(always)]
    pub fn head(&self) -> &'a [u8] {
        self.head
    }

    /// The pieces behind the head: address and length of each. Addresses of the program may fault.
    #[inline]
    pub fn body(&self) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        let areas = self.areas[..self.count].iter().map(|area| {
            // Checked when the gather was made.
            (self.segment.pointer(*area).unwrap_or_default().cast_const(), area.length as usize)
        });
        areas.chain(self.bytes.iter().map(|bytes| (bytes.address(), bytes.len())))
    }

    /// Copies `length` bytes of the string, from `from` on, to `target`; false if the program's bytes fault or the string
    /// is shorter.
    ///
    /// # Safety
    /// `target` has room for `length` bytes.
    #[inline]
    pub unsafe fn copy_to(&self, from: usize, target: *mut u8, length: usize) -> bool {
        let (mut skip, mut done) = (from, 0);
        let mut piece = |source: *const u8, size: usize, ours: bool| {
            let here = skip.min(size);
            skip -= here;
            let part = (size - here).min(length - done);
            let (source, target) = (source.wrapping_add(here), target.wrapping_add(done));
            done += part;
            // SAFETY: `done <= length`; sources of ours are checked, a fault at others is resolved.
            unsafe {
                if ours {
                    core::ptr::copy_nonoverlapping(source, target, part);
                    true
                } else {
                    part == 0 || shunt_sys::user::copy(source, target, part)
                }
            }
        };
        if !piece(self.head.as_ptr(), self.head.len(), true) {
            return false;
        }
        let ours = self.bytes.is_none();
        self.body().all(|(source, size)| piece(source, size, ours)) && done == length
    }

    /// A descriptor of the message for a send queue; `None` if its body is bytes of the program.
    #[inline(always)]
    pub fn descriptor(&self, channel: u32, kind: u32) -> Option<SendDescriptor> {
        if self.bytes.is_some() {
            return None;
        }
        let mut descriptor = SendDescriptor::empty();
        descriptor.channel = channel;
        descriptor.kind = kind;
        descriptor.head_length = self.head.len() as u32;
        descriptor.head[..self.head.len()].copy_from_slice(self.head);
        descriptor.areas = self.areas;
        descriptor.count = self.count as u32;
        Some(descriptor)
    }
}

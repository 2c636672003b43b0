//! Windows: the largest rings of a direction, mapped when a stream first needs them.
//!
//! A window belongs to a channel of a link, so the next connection of that channel finds it mapped. It is never unmapped:
//! a dropped link's windows become blank memory, which serves other links, so a thread that races with a close reads
//! zeros, not a fault. All that is kept here is guarded by the set-up lock.

use crate::list::{descriptor, MOST};
use shunt_segment::area::{window_offset, WINDOW_SIZE};
use shunt_segment::CHANNELS;
use shunt_sys::{calls, libc, mapping, Errno, Result};
use shunt_table::global::LockedCell;

/// Windows of one link: client's direction and server's, by channel. Null: not mapped.
type Row = [[*mut u8; 2]; CHANNELS];

struct Windows {
    rows: *mut Row,
    mapped: usize,
    blanks: [*mut u8; 64],
    blank_count: usize,
}

static WINDOWS: LockedCell<Windows> =
    LockedCell::new(Windows { rows: core::ptr::null_mut(), mapped: 0, blanks: [core::ptr::null_mut(); 64], blank_count: 0 });

fn windows() -> &'static mut Windows {
    // SAFETY: the set-up lock is held, as every caller here sees to.
    unsafe { &mut *WINDOWS.get() }
}

impl Windows {
    fn row(&mut self, link: usize) -> Result<&mut Row> {
        if self.rows.is_null() {
            self.rows = mapping::reserve(MOST * core::mem::size_of::<Row>())?.cast();
        }
        if link >= MOST {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: link < MOST rows; all-zero is a valid row.
        Ok(unsafe { &mut *self.rows.add(link) })
    }

    fn map(&mut self, link: usize, channel: usize, side: usize) -> Result<*mut u8> {
        let known = self.row(link)?[channel][side];
        if !known.is_null() {
            return Ok(known);
        }
        let (fd, offset) = (descriptor(link), window_offset(channel, side));
        let base = if self.blank_count > 0 {
            let base = self.blanks[self.blank_count - 1];
            // SAFETY: a blank range; late readers accept any bytes.
            unsafe { mapping::shared_part_over(base, fd, offset, WINDOW_SIZE)? };
            self.blank_count -= 1;
            base
        } else {
            mapping::shared_part(fd, offset, WINDOW_SIZE)?
        };
        self.row(link)?[channel][side] = base;
        self.mapped += 1;
        Ok(base)
    }
}

/// Of link `index` only the windows of `channels` stay, one bit each; those that are not mapped yet are now, while they can be.
pub fn keep(index: usize, channels: u64) {
    for channel in 0..CHANNELS {
        if channels & 1 << channel != 0 {
            for side in 0..2 {
                // One that cannot be mapped is missed only by a stream that grows into it.
                let _ = windows().map(index, channel, side);
            }
        } else {
            forget(index, channel);
        }
    }
}

/// Where the list of windows lies.
pub fn rows_address() -> usize {
    windows().rows as usize
}

/// Bytes of address space that windows take now.
pub fn address_space() -> u64 {
    let windows = windows();
    ((windows.mapped + windows.blank_count) * WINDOW_SIZE) as u64
}

/// Gives the memory of a channel's windows back; the mappings stay for its next connection.
pub fn trim(link: usize, channel: usize) {
    let windows = windows();
    if windows.mapped == 0 {
        return;
    }
    if let Ok(row) = windows.row(link) {
        for base in row[channel & (CHANNELS - 1)].into_iter().filter(|base| !base.is_null()) {
            let _ = calls::madvise(base, WINDOW_SIZE, libc::MADV_REMOVE);
        }
    }
}

/// A link is dropped: no connection of ours uses its windows any more; late readers of a closed socket accept zeros.
pub fn drop_link(link: usize) {
    for channel in 0..CHANNELS {
        forget(link, channel);
    }
}

/// The windows of a channel, as [`drop_link`].
pub fn forget(link: usize, channel: usize) {
    let windows = windows();
    if windows.mapped == 0 {
        return;
    }
    let Ok(row) = windows.row(link) else { return };
    let pair = core::mem::replace(&mut row[channel], [core::ptr::null_mut(); 2]);
    for base in pair.into_iter().filter(|base| !base.is_null()) {
        windows.mapped -= 1;
        // SAFETY: as said above.
        if unsafe { mapping::blank_at_any_price(base, WINDOW_SIZE) } && windows.blank_count < windows.blanks.len() {
            windows.blanks[windows.blank_count] = base;
            windows.blank_count += 1;
        }
    }
}

/// Unmaps blank windows: the address space is short.
pub fn release_blanks() {
    let windows = windows();
    while windows.blank_count > 0 {
        windows.blank_count -= 1;
        let _ = calls::munmap(windows.blanks[windows.blank_count], WINDOW_SIZE);
    }
}

/// Maps the window of link `index` in which that side of the channel sends. Under the set-up lock.
///
/// Errors: as mmap(2).
pub fn map(index: usize, channel: usize, side: usize) -> Result<*mut u8> {
    windows().map(index, channel, side)
}

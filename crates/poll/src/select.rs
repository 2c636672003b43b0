//! select(2) and pselect(2) in terms of poll(2).

use crate::poll::Query;
use crate::{in_kernel, poll};
use core::mem::MaybeUninit;
use shunt_stream::waiting::kernel_sockets::Answer;
use shunt_sys::libc::{self, pollfd, sigset_t, POLLERR, POLLHUP, POLLIN, POLLOUT};
use shunt_sys::{calls, user, Errno, Result};
use shunt_table::memory::leased;
use shunt_table::memory::scratch::Scratch;

/// The program's three sets, copied: readable, writable, exceptional.
pub struct Sets {
    given: [*mut u64; 3],
    stack: MaybeUninit<[u64; 3 * Sets::SMALL]>,
    heap: *mut u64,
    /// Descriptors asked about, from 0.
    count: usize,
    /// Words of one set.
    words: usize,
}

impl Sets {
    /// Words of one set that are kept on the stack: FD_SETSIZE bits.
    const SMALL: usize = 16;

    /// Descriptors of sets of which none is ours, that are looked at before the kernel's call.
    const ENTRIES: usize = 16;

    /// Sets that the program passed; nothing is copied yet.
    pub fn new(given: [*mut u64; 3]) -> Sets {
        Sets { given, stack: MaybeUninit::uninit(), heap: core::ptr::null_mut(), count: 0, words: 0 }
    }

    /// Copies them; false if they fault, `count` makes no sense, or memory is short: all that is for the kernel to say.
    ///
    /// # Safety
    /// The sets may be null, or any addresses that are not ours.
    pub unsafe fn read(&mut self, count: i32) -> bool {
        if count < 0 {
            return false;
        }
        leased::begin(self.frame());
        self.count = count as usize;
        if count as usize > 64 * Sets::SMALL {
            // As the kernel, which looks at no more than there may be descriptors.
            self.count = self.count.min(calls::soft_limit(libc::RLIMIT_NOFILE).min(1 << 20) as usize);
        }
        let words = self.count.div_ceil(64);
        if words > Sets::SMALL {
            match leased::reserve(3 * words * 8, self.frame()) {
                Ok(memory) => self.heap = memory.cast(),
                Err(_) => return false,
            }
        }
        self.words = words;
        for which in 0..3 {
            let from = self.given[which];
            let copy = self.set(which);
            copy.fill(0);
            // SAFETY: the copy has room for `words` words.
            if !from.is_null() && !unsafe { user::copy(from.cast(), copy.as_mut_ptr().cast(), words * 8) } {
                return false;
            }
        }
        true
    }

    /// By which the call is known that keeps them ([`leased`]).
    fn frame(&self) -> usize {
        self as *const Sets as usize
    }

    fn start(&self) -> *mut u64 {
        if self.heap.is_null() {
            self.stack.as_ptr().cast::<u64>().cast_mut()
        } else {
            self.heap
        }
    }

    fn set(&mut self, which: usize) -> &mut [u64] {
        // SAFETY: three sets of `words` words.
        unsafe { core::slice::from_raw_parts_mut(self.start().add(which * self.words), self.words) }
    }

    /// What is asked about one word of descriptors, in each set.
    fn word(&self, index: usize) -> [u64; 3] {
        // SAFETY: index < words; `read` filled them.
        [0, 1, 2].map(|which| unsafe { *self.start().add(which * self.words + index) })
    }

    /// Descriptors that any set asks about, in order, with what is asked.
    fn asked(&self) -> impl Iterator<Item = pollfd> + '_ {
        (0..self.words).filter(|index| self.word(*index) != [0; 3]).flat_map(move |index| {
            let words = self.word(index);
            (0..64).filter_map(move |bit| {
                let mut events = 0;
                for (word, mask) in words.iter().zip([POLLIN, POLLOUT, libc::POLLPRI]) {
                    if word >> bit & 1 == 1 {
                        events |= mask;
                    }
                }
                let fd = index * 64 + bit;
                (events != 0 && fd < self.count).then_some(pollfd { fd: fd as i32, events, revents: 0 })
            })
        })
    }

    /// Waits by `own`, the program's call, for descriptors of which none is ours ([`crate::in_kernel`]).
    pub fn wait_in_kernel(&self, limit: Option<u64>, own: impl FnOnce() -> isize) -> Answer {
        let mut entries = [pollfd { fd: -1, events: 0, revents: 0 }; Sets::ENTRIES];
        let mut count = 0;
        for entry in self.asked() {
            match entries.get_mut(count) {
                Some(place) => *place = entry,
                None => return Answer::Raw(own()),
            }
            count += 1;
        }
        in_kernel::select(&mut entries[..count], limit, own)
    }

    /// Whether they ask about a descriptor that only we understand. Asked of all sets for which a thread selects.
    pub fn concern_us(&self) -> bool {
        poll::polls_only(|| self.asked());
        self.asked().any(|e| poll::understood(e.fd))
    }
}

impl Drop for Sets {
    fn drop(&mut self) {
        if !self.heap.is_null() {
            // SAFETY: made by `read`.
            unsafe { leased::release(self.heap.cast()) };
        }
    }
}

/// select(2): fills the sets in, and gives the number of bits that are set.
///
/// # Safety
/// As for [`Sets::read`], which was called.
pub unsafe fn select(sets: &mut Sets, deadline: u64, mask: *const sigset_t) -> Result<isize> {
    let used = sets.asked().count();
    let mut scratch = Scratch::new(used, pollfd { fd: -1, events: 0, revents: 0 }, sets.frame())?;
    for (entry, asked) in scratch.items().iter_mut().zip(sets.asked()) {
        *entry = asked;
    }
    let entries = &mut scratch.items()[..used];
    Query::forgiving(entries, deadline, mask, sets.frame()).poll()?;
    if entries.iter().any(|e| e.revents & libc::POLLNVAL != 0) {
        return Err(Errno(libc::EBADF));
    }
    for which in 0..3 {
        // Bits behind the last number go as well, as in the kernel's.
        for word in sets.set(which).iter_mut() {
            *word = 0;
        }
    }
    let mut total = 0;
    // What the kernel's select counts as readable, writable, exceptional (POLLIN_SET and so on in fs/select.c).
    let meaning = [
        libc::POLLRDNORM | libc::POLLRDBAND | POLLIN | POLLHUP | POLLERR,
        libc::POLLWRBAND | libc::POLLWRNORM | POLLOUT | POLLERR,
        libc::POLLPRI,
    ];
    for entry in entries.iter() {
        let fd = entry.fd as usize;
        for (which, (asked, counts)) in [POLLIN, POLLOUT, libc::POLLPRI].into_iter().zip(meaning).enumerate() {
            if entry.events & asked != 0 && entry.revents & counts != 0 {
                sets.set(which)[fd / 64] |= 1 << (fd % 64);
                total += 1;
            }
        }
    }
    for which in 0..3 {
        let (to, words) = (sets.given[which], sets.words);
        if !to.is_null() {
            // SAFETY: the program's set may be anything.
            unsafe { user::copy_all(sets.set(which).as_ptr().cast(), to.cast(), words * 8)? };
        }
    }
    Ok(total)
}

//! Links that hold one connection for ever, so that a process of another user may have the whole of one.
//!
//! Such a link's maker gives out no further channel, and its server accepts none. A word in the link could not keep it so, because every
//! process with the link can write there. The kernel can: the file grows by a page, which any of them may do and none undoes. The one that
//! grows it then reads how many connections were made; the maker of the second one says so first and then asks for the size. So one of the
//! two sees the other, and the size is asked for once in the life of a link.

use crate::list::{at, header, Link};
use core::sync::atomic::{fence, Ordering};
use shunt_segment::area::{CLOSED_SIZE, LINK_SIZE};
use shunt_sys::{calls, libc};

/// Closes link `index` to all connections but its only one. False: it has, or had, others.
pub fn make_dedicated(index: usize) -> bool {
    let link = *at(index);
    if link.base.is_null() || link.fd < 0 || link.is_of_a_station() {
        return false;
    }
    let head = header(link.base);
    if !link.ours {
        // A server that passes one of a client's connections to another user passes the next, too: each has a link of its own from
        // here on, and a client that finds many such goes through the kernel (`forking.rs`).
        head.retired.store(1, Ordering::SeqCst);
    }
    if link.lent > 1 {
        return false;
    }
    // ftruncate would raise SIGXFSZ.
    if head.lent.load(Ordering::SeqCst) > 1 || calls::soft_limit(libc::RLIMIT_FSIZE) < CLOSED_SIZE as u64 {
        return false;
    }
    // For the maker alone, that it drops the link with its connection.
    head.retired.store(1, Ordering::SeqCst);
    if !is_closed(&link) && calls::ftruncate(link.fd, CLOSED_SIZE as i64).is_err() {
        return false;
    }
    fence(Ordering::SeqCst);
    head.lent.load(Ordering::SeqCst) <= 1
}

fn is_closed(link: &Link) -> bool {
    calls::status_of(link.fd).is_ok_and(|status| status.st_size > LINK_SIZE as i64)
}

impl Link {
    /// Counts a connection that is made in the link, by its maker or by the acceptor. False: it is closed to further ones.
    pub fn count(&mut self) -> bool {
        if self.closed {
            return false;
        }
        self.lent = self.lent.saturating_add(1);
        if self.lent <= 2 {
            if self.ours {
                header(self.base).lent.store(self.lent, Ordering::SeqCst);
            }
            fence(Ordering::SeqCst);
            self.closed = self.lent == 2 && is_closed(self);
        }
        !self.closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drop::drop_link;
    use crate::make::make;
    use shunt_table::global::SETUP;

    #[test]
    fn a_closed_link_stays_closed_whatever_is_written_in_it() {
        let _setup = SETUP.lock().unwrap();
        let index = make(0x7fff_0001).unwrap();
        assert!(at(index).count());
        assert!(make_dedicated(index));
        assert!(make_dedicated(index), "by whoever has it next");
        let head = header(at(index).base);
        head.retired.store(0, Ordering::Relaxed);
        head.lent.store(0, Ordering::Relaxed);
        assert!(!at(index).count());
        assert!(!at(index).lends_to(0x7fff_0001));
        drop_link(index);
    }

    #[test]
    fn connections_in_memory_are_the_effective_user_s() {
        let _setup = SETUP.lock().unwrap();
        shunt_table::process::user::is_now(calls::geteuid());
        let index = make(0x7fff_0003).unwrap();
        assert_eq!(crate::for_offers(0x7fff_0003), Some(index));
        at(index).user ^= 1;
        assert_eq!(crate::for_offers(0x7fff_0003), None);
        drop_link(index);
    }

    #[test]
    fn a_link_that_had_two_connections_is_no_one_s_alone() {
        let _setup = SETUP.lock().unwrap();
        let index = make(0x7fff_0002).unwrap();
        assert!(at(index).count() && at(index).count());
        assert!(!make_dedicated(index));
        at(index).lent = 0; // as another process of the same end knows it
        assert!(!make_dedicated(index));
        assert!(!at(index).is_retired() && !is_closed(at(index)));
        drop_link(index);
    }
}

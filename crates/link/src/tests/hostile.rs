//! Segments of others: whatever could fault this process, or is not what it is called, is refused.

use super::*;
use crate::{adopt, by_name, is_segment, known, name_of, named, take_up};
use shunt_segment::area::LINK_SIZE;
use shunt_segment::link::{MAGIC, NAME};
use shunt_segment::{CHANNELS, VERSION};
use shunt_sys::Errno;

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
const CLIENT: (u32, u32) = (1, 1);
const EPROTO: Errno = Errno(libc::EPROTO);

/// The first words of a header: magic, version and channels, nonce, sequence.
fn header_of(nonce: u64) -> [u64; 4] {
    [MAGIC, u64::from(VERSION) | (CHANNELS as u64) << 32, nonce, 1]
}

/// A memory of this size with these words first and these seals.
fn segment(words: &[u64], size: usize, seals: i32) -> i32 {
    let fd = calls::memfd_create(NAME, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).unwrap();
    calls::ftruncate(fd, size as i64).unwrap();
    calls::pwrite(fd, words.as_ptr().cast(), size_of_val(words).min(size), 0).unwrap();
    calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize).unwrap();
    fd
}

#[test]
fn a_segment_as_it_should_be_is_adopted_and_known_for_its_client_alone() {
    let mut room = Room::enter();
    let (index, link) = adopt(segment(&header_of(11), LINK_SIZE, SEALS), 11, 1, CLIENT, -1).unwrap();
    room.made.insert(index);
    assert_eq!(known(11, 1, CLIENT).map(|(index, _)| index), Some(index));
    assert!(known(11, 1, (1, 2)).is_none() && known(11, 2, CLIENT).is_none() && known(12, 1, CLIENT).is_none());
    assert_eq!(header(link.base).server.pid.load(Ordering::Relaxed), calls::getpid(), "it says who accepts");
    assert!(
        offer(0).map(|offer| room.made.insert(offer.index) && offer.index != index).unwrap(),
        "its channels are its client's to lend"
    );
}

#[test]
fn a_segment_that_could_shrink_or_be_sealed_is_refused_and_closed() {
    let _room = Room::enter();
    for seals in [0, libc::F_SEAL_SHRINK, libc::F_SEAL_SEAL, SEALS | libc::F_SEAL_WRITE, SEALS | libc::F_SEAL_FUTURE_WRITE] {
        let fd = segment(&header_of(12), LINK_SIZE, seals);
        assert!(!is_segment(fd));
        assert_eq!(adopt(fd, 12, 1, CLIENT, -1).err(), Some(EPROTO), "{seals:x}");
        assert!(!is_open(fd));
    }
}

#[test]
fn a_segment_that_is_too_small_is_refused() {
    let _room = Room::enter();
    for size in [0, 8, 4096, LINK_SIZE - 1] {
        let fd = segment(&header_of(13), size, SEALS);
        assert_eq!(take_up(fd), Err(EPROTO));
        assert_eq!(adopt(fd, 13, 1, CLIENT, -1).err(), Some(EPROTO), "{size}");
    }
}

#[test]
fn what_is_no_memory_is_refused() {
    let _room = Room::enter();
    let [socket, other] = pair();
    assert!(!is_segment(socket) && take_up(socket).is_err() && !is_segment(-1));
    assert!(adopt(socket, 1, 1, CLIENT, -1).is_err() && !is_open(socket));
    calls::close(other).unwrap();
}

#[test]
fn a_header_of_another_kind_version_or_shape_is_refused() {
    let _room = Room::enter();
    let right = header_of(14);
    for (place, wrong) in [(0, 0), (0, MAGIC ^ 1), (1, right[1] ^ 1), (1, right[1] ^ 1 << 32), (1, 0)] {
        let mut words = right;
        words[place] = wrong;
        let before = by_name(14, 1).is_some();
        assert_eq!(adopt(segment(&words, LINK_SIZE, SEALS), 14, 1, CLIENT, -1).err(), Some(EPROTO), "{words:x?}");
        assert_eq!(by_name(14, 1).is_some(), before, "nothing is left of it");
    }
}

#[test]
fn random_headers_are_adopted_only_where_they_say_what_they_should() {
    let mut room = Room::enter();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..40 {
        let mut words = header_of(15);
        for word in &mut words {
            if random() & 1 == 0 {
                *word ^= random() & random() & random();
            }
        }
        let honest = words[0] == MAGIC && words[1] == header_of(15)[1];
        let adopted = adopt(segment(&words, LINK_SIZE, SEALS), 15, 1, CLIENT, -1);
        assert_eq!(adopted.is_ok(), honest, "{words:x?}");
        if let Ok((index, _)) = adopted {
            room.made.insert(index);
            drop_link(index);
        }
    }
}

#[test]
fn a_segment_through_which_another_user_accepted_is_refused() {
    let _room = Room::enter();
    let at = core::mem::offset_of!(shunt_segment::link::LinkHeader, server);
    for (process, user, refused) in [(1u32, 4_000_000_001u32, true), (1, calls::geteuid(), false), (0, 4_000_000_001, false)] {
        let fd = segment(&header_of(16), LINK_SIZE, SEALS);
        calls::pwrite(fd, [process, user].as_ptr().cast(), 8, at as i64).unwrap();
        let adopted = adopt(fd, 16, 1, CLIENT, -1);
        assert_eq!(adopted.is_err(), refused, "process {process}, user {user}");
        if let Ok((index, _)) = adopted {
            drop_link(index);
        }
    }
}

#[test]
fn a_name_is_read_of_a_segment_alone() {
    let _room = Room::enter();
    let [good, short, plain] = [(header_of(17), LINK_SIZE), (header_of(17), 16), ([1, 2, 3, 4], LINK_SIZE)]
        .map(|(words, size)| segment(&words, size, SEALS));
    assert_eq!(name_of(good), Ok((17, 1)));
    assert_eq!(name_of(plain), Err(EPROTO));
    assert_eq!(name_of(short), Ok((0, 0)), "of a file that ends the rest is nothing");
    assert!(is_segment(good) && !is_segment(short) && !is_segment(plain));
    [good, short, plain].into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn a_descriptor_is_given_to_the_client_alone_that_the_header_names() {
    let mut room = Room::enter();
    let link = room.offer(0x7fff_3001).link;
    let me = (calls::getpid(), calls::geteuid());
    assert_eq!(named(link.nonce, link.sequence, (me.0, me.1 ^ 1)), -1);
    assert_eq!(named(link.nonce ^ 1, link.sequence, me), -1);
    let copy = named(link.nonce, link.sequence, me);
    assert!(crate::is_segment_of(&link, copy));
    calls::close(copy).unwrap();
}

#[test]
fn a_link_that_is_taken_up_twice_is_one_and_lends_nothing() {
    let mut room = Room::enter();
    let fd = segment(&header_of(18), LINK_SIZE, SEALS);
    let again = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0).unwrap();
    let (index, ours) = take_up(fd).unwrap();
    room.made.insert(index);
    assert!(ours && at(index).inherited && !at(index).ours);
    assert_eq!(take_up(again), Ok((index, false)), "the descriptor stays its caller's");
    calls::close(again).unwrap();
    crate::drop_unused();
    assert!(at(index).base.is_null() && !is_open(fd), "it carries nothing");
}

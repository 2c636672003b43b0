//! Names of AF_UNIX: what a receive tells of the sender, in the room that there is (`unix_copy_addr`).

use super::*;
use shunt_sys::libc::{MSG_DONTWAIT, SOCK_SEQPACKET, SOCK_STREAM};
use std::sync::atomic::{AtomicU32, Ordering};

/// An abstract name that nobody else has, of so many bytes with its NUL.
fn unique(length: usize) -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = format!("\0shunt-test-{:08}-{number:06}", std::process::id()).into_bytes();
    name.resize(length.max(name.len()), b'n');
    name
}

/// What is told of a client of this name, by one that has `room` for it: bytes that are no number of this run's, and the length.
fn told(world: &World, kind: i32, client: Option<&[u8]>, room: u32) -> (usize, u32, bool) {
    let (near, far) = world.named(kind, client, &unique(0));
    world.send(near, b"x", 0).unwrap();
    assert!(world.in_memory(far));
    let got = world.receive_message(far, Room { name: room, ..plain(&[8], MSG_DONTWAIT) }).unwrap();
    let (bytes, length) = got.name;
    let expected = client.unwrap_or(&[]);
    let there = (room.min(length) as usize).saturating_sub(2);
    (
        got.told,
        length,
        bytes.get(2..2 + there).is_none_or(|bytes| bytes[..there.min(expected.len())] == expected[..there.min(expected.len())]),
    )
}

#[test]
fn a_client_without_a_name_has_none() {
    for kind in [SOCK_STREAM, SOCK_SEQPACKET] {
        assert_eq!(in_both(|world| told(world, kind, None, 110)), (1, 0, true));
    }
}

#[test]
fn abstract_names_of_every_length_are_told_whole() {
    for length in [26, 27, 60, 107, 108] {
        for kind in [SOCK_STREAM, SOCK_SEQPACKET] {
            let found = in_both(|world| told(world, kind, Some(&unique(length)), 110));
            assert_eq!(found, (1, unique(length).len() as u32 + 2, true));
        }
    }
}

#[test]
fn names_are_cut_to_their_room_and_the_length_is_the_true_one() {
    for room in [1, 2, 3, 10, 61, 62, 63, 128] {
        let found = in_both(|world| told(world, SOCK_SEQPACKET, Some(&unique(60)), room));
        assert_eq!(found, (1, 62, true), "{room}");
    }
}

#[test]
fn a_path_is_told_with_its_end() {
    let found = in_both(|world| {
        let path = std::env::temp_dir().join(String::from_utf8_lossy(&unique(0)[1..]).into_owned());
        let name = path.as_os_str().as_encoded_bytes().to_vec();
        let told = told(world, SOCK_STREAM, Some(&name), 110);
        std::fs::remove_file(path).unwrap();
        (told, told.1 as usize == name.len() + 3)
    });
    assert_eq!((found.0 .2, found.1), (true, true));
}

#[test]
fn a_path_that_fills_the_address_is_one_byte_longer_than_it() {
    let found = in_both(|world| {
        let folder = std::env::temp_dir().join(String::from_utf8_lossy(&unique(0)[1..]).into_owned());
        std::fs::create_dir(&folder).unwrap();
        let mut name = folder.as_os_str().as_encoded_bytes().to_vec();
        name.push(b'/');
        name.resize(108, b'p');
        let told = told(world, SOCK_STREAM, Some(&name), 128);
        std::fs::remove_dir_all(folder).unwrap();
        told
    });
    assert_eq!(found, (1, 111, true));
}

#[test]
fn both_ends_of_a_pair_are_nameless() {
    let found = in_both(|world| {
        let (near, far) = world.pair(SOCK_SEQPACKET);
        world.send(near, b"x", 0).unwrap();
        world.receive_message(far, Room { name: 110, ..plain(&[8], MSG_DONTWAIT) }).unwrap().name.1
    });
    assert_eq!(found, 0);
}

//! Addresses in the C library's form, held against what the kernel takes for one.

use super::*;
use crate::sockaddr::{abstract_name, bound_address, check, is_connected, peer_address, read, Encoded};
use libc::{AF_INET, AF_INET6};
use shunt_segment::address::Address;
use std::os::fd::AsRawFd;

/// bind(2) of a fresh TCP socket.
fn bind(family: i32, bytes: &[u8], length: usize) -> Result<(), i32> {
    let fd = calls::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).unwrap();
    let bound = calls::bind(fd, bytes.as_ptr().cast(), length as u32);
    calls::close(fd).unwrap();
    bound.map_err(|error| error.0)
}

#[test]
fn an_address_is_one_where_the_kernel_takes_it_for_one() {
    for (family, loopback) in [(AF_INET, Address::v4([127, 0, 0, 1], 0)), (AF_INET6, Address::v6([0; 16], 0))] {
        let mut bytes = [0u8; 200];
        bytes[..28].copy_from_slice(&{
            let encoded = Encoded::new(family, &loopback);
            let mut whole = [0u8; 28];
            whole[..encoded.length as usize].copy_from_slice(encoded.bytes());
            whole
        });
        for length in 0..=130 {
            // SAFETY: a longer array.
            let known = unsafe { read(bytes.as_ptr().cast(), length as u32) };
            assert_eq!(known.is_some(), bind(family, &bytes, length).is_ok(), "{length} bytes of family {family}");
            // SAFETY: as above.
            let checked = unsafe { check(bytes.as_ptr().cast(), length as u32) };
            assert_eq!(checked.is_err(), length > 128);
            assert!(known.is_none_or(|known| known == (family, loopback)));
        }
    }
}

#[test]
fn no_other_family_is_an_internet_address() {
    let mut bytes = [0u8; 28];
    for family in (0..100u16).filter(|family| ![AF_INET as u16, AF_INET6 as u16].contains(family)) {
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        // SAFETY: an array of that length.
        assert_eq!(unsafe { read(bytes.as_ptr().cast(), 28) }, None);
    }
    // SAFETY: null is looked at first.
    assert_eq!(unsafe { read(core::ptr::null(), 28) }, None);
}

#[test]
fn what_is_encoded_is_read_back() {
    let mut random = random_numbers(0x1234_5678_9abc_def1);
    for _ in 0..500 {
        let mut ip = [0u8; 16];
        ip.iter_mut().for_each(|byte| *byte = random() as u8);
        let link_local = random() & 1 == 0;
        if link_local {
            (ip[0], ip[1]) = (0xfe, 0x80 | ip[1] & 0x3f);
        }
        let (port, scope) = (random() as u16, random() as u32);
        let six = Address { ip, port, scope };
        let four = Address::v4([ip[0], ip[1], ip[2], ip[3]], port);
        for (family, address) in [(AF_INET6, six), (AF_INET6, four), (AF_INET, four)] {
            let encoded = Encoded::new(family, &address);
            // SAFETY: as many bytes as it says.
            let (told, back) = unsafe { read(encoded.pointer(), encoded.length) }.unwrap();
            let is_local = back.ip[0] == 0xfe && back.ip[1] & 0xc0 == 0x80;
            assert_eq!((told, back), (family, Address { scope: if is_local { address.scope } else { 0 }, ..address }));
        }
    }
}

#[test]
fn an_address_is_told_as_far_as_there_is_room() {
    let encoded = Encoded::new(AF_INET, &Address::v4([1, 2, 3, 4], 0x506));
    for room in 0..20u32 {
        let (mut bytes, mut length) = ([0xaau8; 20], room);
        // SAFETY: an array that is longer.
        unsafe { encoded.write(bytes.as_mut_ptr().cast(), &mut length) }.unwrap();
        let told = room.min(16) as usize;
        assert_eq!(length, 16);
        assert_eq!(bytes[..told], encoded.bytes()[..told]);
        assert!(bytes[told..].iter().all(|byte| *byte == 0xaa));
    }
    let mut negative = -5i32 as u32;
    // SAFETY: the length is looked at first.
    assert_eq!(unsafe { encoded.write(core::ptr::null_mut(), &mut negative) }, Err(Errno(libc::EINVAL)));
}

#[test]
fn names_of_sockets_are_the_kernel_s() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_eq!(bound_address(listener.as_raw_fd()), Address::v4([127, 0, 0, 1], port));
    assert!(!is_connected(listener.as_raw_fd()));
    let client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(peer_address(client.as_raw_fd()), Some(Address::v4([127, 0, 0, 1], port)));
    assert_eq!(bound_address(-1), Address::default());
    let [unix, other] = pair();
    assert_eq!((bound_address(unix), peer_address(unix)), (Address::default(), None));
    [unix, other].into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn an_abstract_name_is_the_kernel_s_to_the_byte() {
    let name = format!("shunt-\0-{}", std::process::id());
    let fd = calls::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).unwrap();
    let (address, length) = abstract_name(name.as_bytes());
    calls::bind(fd, (&raw const address).cast(), length).unwrap();
    let mut told = libc::sockaddr_un { sun_family: 0, sun_path: [0; 108] };
    let mut room = size_of_val(&told) as u32;
    calls::getsockname(fd, (&raw mut told).cast(), &mut room).unwrap();
    let path: Vec<u8> = told.sun_path[..room as usize - 2].iter().map(|byte| *byte as u8).collect();
    assert_eq!((path[0], &path[1..]), (0, name.as_bytes()));
    calls::close(fd).unwrap();
}

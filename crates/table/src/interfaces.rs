//! The network interfaces that there are: rtnetlink(7), RTM_GETLINK.

use shunt_sys::libc::{self, MSG_DONTWAIT};
use shunt_sys::{calls, Result};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const IFLA_IFNAME: u16 = 3;
const IFLA_EXT_MASK: u16 = 29;
const RTEXT_FILTER_SKIP_STATS: u32 = 8;
/// struct nlmsghdr, struct ifinfomsg.
const HEAD: usize = 16 + 16;
/// A dump comes in parts, none of which the kernel makes longer than what was asked with, or a page.
const PART: usize = 8192;

/// The first interface, by number and name, of which `is_wanted`; the loopback interface is none.
///
/// Errors: those of netlink sockets.
pub fn find(mut is_wanted: impl FnMut(u32, &[u8]) -> bool) -> Result<Option<u32>> {
    // One of its own: what a dump leaves unread would be the answer to the next question about a route.
    let fd = calls::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)?;
    let found = dump(fd, &mut is_wanted);
    let _ = calls::close(fd);
    found
}

fn dump(fd: i32, is_wanted: &mut impl FnMut(u32, &[u8]) -> bool) -> Result<Option<u32>> {
    let mut request = [0u8; HEAD + 8];
    let length = request.len();
    request[0..4].copy_from_slice(&(length as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
    request[HEAD..HEAD + 2].copy_from_slice(&8u16.to_ne_bytes());
    request[HEAD + 2..HEAD + 4].copy_from_slice(&IFLA_EXT_MASK.to_ne_bytes());
    request[HEAD + 4..].copy_from_slice(&RTEXT_FILTER_SKIP_STATS.to_ne_bytes());
    calls::sendto(fd, request.as_ptr().cast(), length, MSG_DONTWAIT, core::ptr::null(), 0)?;
    let mut part = [0u8; PART];
    loop {
        let (data, none) = (part.as_mut_ptr().cast(), core::ptr::null_mut());
        let got = calls::recvfrom(fd, data, PART, MSG_DONTWAIT, none, core::ptr::null_mut())?;
        match read(&part[..got.min(PART)], is_wanted) {
            Read::Found(interface) => return Ok(Some(interface)),
            Read::End => return Ok(None),
            Read::More => {}
        }
    }
}

/// What a part of the dump brought.
#[derive(PartialEq, Eq, Debug)]
enum Read {
    Found(u32),
    More,
    End,
}

fn read(mut rest: &[u8], is_wanted: &mut impl FnMut(u32, &[u8]) -> bool) -> Read {
    while rest.len() >= 16 {
        let length = (word(rest, 0) as usize).clamp(16, rest.len());
        let message = &rest[..length];
        if half(message, 4) != RTM_NEWLINK || length < HEAD {
            return Read::End;
        }
        let (number, flags) = (word(message, 20), word(message, 24));
        if flags & libc::IFF_LOOPBACK as u32 == 0 && name(message).is_some_and(|name| is_wanted(number, name)) {
            return Read::Found(number);
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Read::More
}

/// The name in a message, without the zero byte behind it.
fn name(message: &[u8]) -> Option<&[u8]> {
    let mut at = HEAD;
    while at + 4 <= message.len() {
        let length = usize::from(half(message, at)).max(4);
        if half(message, at + 2) == IFLA_IFNAME {
            return message.get(at + 4..at + length).and_then(|name| name.split(|byte| *byte == 0).next());
        }
        at += length.next_multiple_of(4);
    }
    None
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_but_the_loopback_interface_are_found() {
        let mut found = std::vec::Vec::new();
        let none = find(|number, name| {
            found.push((number, std::string::String::from_utf8(name.to_vec()).unwrap()));
            false
        });
        assert_eq!(none, Ok(None));
        let names = std::fs::read_dir("/sys/class/net").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: std::vec::Vec<_> = names.filter(|name| name != "lo" && name != "bonding_masters").collect();
        let mut listed: std::vec::Vec<_> = found.iter().map(|(_, name)| name.clone()).collect();
        names.sort();
        listed.sort();
        assert_eq!(listed, names);
        if let Some((number, name)) = found.first() {
            assert_eq!(find(|_, other| other == name.as_bytes()), Ok(Some(*number)));
        }
    }

    #[test]
    fn whatever_comes_is_read() {
        for length in 0..200 {
            for fill in [0u8, 1, 16, 255] {
                let bytes = std::vec![fill; length];
                let _ = read(&bytes, &mut |_, _| false);
            }
        }
    }
}

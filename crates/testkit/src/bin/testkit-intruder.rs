//! Abuses the rendezvous: knocks at a listener's abstract name with everything but an honest link, or squats on the
//! name of a listener that belongs to another process. The names come from `shunt-segment`; nothing here is under shunt.
//!
//! ```text
//! testkit-intruder knock PORT SEED MILLISECONDS   says `done KNOCKS`
//! testkit-intruder squat PORT                     says `squatting`, then `heard BYTES` for every visitor
//! ```

use shunt_segment::address::Address;
use shunt_segment::area::{CHANNEL_PAGES, CLOSED_SIZE, LINK_SIZE, PAGE};
use shunt_segment::channel::life;
use shunt_segment::name::{listener, Hello};
use shunt_segment::{link, CHANNELS, VERSION};
use shunt_testkit::{wait_until, Random, SECOND};
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    match words[..] {
        ["knock", port, seed, milliseconds] => {
            knock(number(port) as u16, Random::seeded(number(seed)), Duration::from_millis(number(milliseconds)))
        }
        ["squat", port] => squat(number(port) as u16),
        _ => panic!("usage: knock PORT SEED MILLISECONDS | squat PORT"),
    }
}

/// The inode of the TCP socket that listens on `port`, which its rendezvous is named after.
fn listening_inode(port: u16) -> Option<u64> {
    let table = fs::read_to_string("/proc/self/net/tcp").expect("/proc is mounted");
    let suffix = format!(":{port:04X}");
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
    table.lines().skip(1).find_map(|row| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        (fields[1].ends_with(&suffix) && fields[3] == "0A").then(|| fields[9].parse().expect("an inode"))
    })
}

fn address_of(port: u16) -> SocketAddr {
    let inode = wait_until(30 * SECOND, || listening_inode(port)).expect("something listens");
    SocketAddr::from_abstract_name(listener(inode).as_slice()).expect("a name")
}

fn squat(port: u16) {
    let squatter = UnixListener::bind_addr(&address_of(port)).expect("the name is free: the listener is a plain one");
    println!("squatting");
    for visitor in squatter.incoming() {
        let mut bytes = Vec::new();
        let _ = visitor.expect("accept").read_to_end(&mut bytes);
        println!("heard {}", bytes.len());
    }
}

fn knock(port: u16, mut random: Random, duration: Duration) {
    let address = address_of(port);
    let end = Instant::now() + duration;
    let mut kept: Vec<UnixStream> = Vec::new();
    let mut knocks = 0_u64;
    while Instant::now() < end {
        if let Ok(stream) = knock_once(&address, port, &mut random) {
            knocks += 1;
            // Some leave at once, some stay and say nothing.
            if random.below(3) == 0 {
                kept.push(stream);
            }
            if kept.len() > 20 {
                kept.remove(0);
            }
        }
        // The backlog is for others as well.
        std::thread::sleep(Duration::from_micros(random.below(3000)));
    }
    println!("done {knocks}");
}

/// One visit. Half of them break one thing about the link that they bring, so that every check is met.
fn knock_once(address: &SocketAddr, port: u16, random: &mut Random) -> io::Result<UnixStream> {
    let kind = random.below(12);
    let mut hello = Hello {
        version: VERSION,
        nonce: random.word(),
        sequence: random.word() as u32,
        channel: random.below(CHANNELS as u64) as u16,
        link_follows: 1,
        generation: 0,
        client: Address::v4([127, 0, 0, 1], random.below(65536) as u16),
        server: Address::v4([127, 0, 0, 1], port),
    };
    let name = match kind {
        0 => None,
        1 => {
            let length = 1 + random.below(100) as usize;
            Some(random.bytes(length))
        }
        2 => {
            hello.link_follows = 0;
            Some(hello.encode().as_slice().to_vec())
        }
        3 => {
            let mut garbled = hello.encode().as_slice().to_vec();
            let place = random.below(garbled.len() as u64) as usize;
            garbled[place] ^= 1 << random.below(8);
            Some(garbled)
        }
        _ => Some(hello.encode().as_slice().to_vec()),
    };
    let stream = connect(address, name.as_deref())?;
    match kind {
        0..=4 => {}
        5 => send_descriptors(&stream, &[File::open("/")?.as_raw_fd()])?,
        6 => send_descriptors(&stream, &[stream.as_raw_fd()])?,
        7 => {
            let honest = segment(LINK_SIZE as u64, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)?;
            send_descriptors(&stream, &[honest.as_raw_fd(); 10])?;
        }
        _ => send_descriptors(&stream, &[garbled_segment(&hello, random)?.as_raw_fd()])?,
    }
    Ok(stream)
}

/// A segment that is wrong in size, seals or contents, or right in all that can be checked and wrong behind.
fn garbled_segment(hello: &Hello, random: &mut Random) -> io::Result<File> {
    let right = libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    let seals = match random.below(6) {
        0 => 0,
        1 => libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
        2 => right | libc::F_SEAL_WRITE,
        3 => right | libc::F_SEAL_GROW,
        _ => right,
    };
    let size = match random.below(8) {
        0 => 0,
        1 => PAGE as u64,
        2 => LINK_SIZE as u64 - 1,
        3 => CLOSED_SIZE as u64,
        _ => LINK_SIZE as u64,
    };
    let file = segment(size, 0)?;
    let headers = random.bytes((size as usize).min(CHANNEL_PAGES + CHANNELS * PAGE));
    file.write_all_at(&headers, 0)?;
    if random.below(4) != 0 && size >= LINK_SIZE as u64 {
        // What is looked at before the link is believed; see `LinkHeader` and `Head`.
        file.write_all_at(&link::MAGIC.to_le_bytes(), 0)?;
        file.write_all_at(&VERSION.to_le_bytes(), 8)?;
        file.write_all_at(&(CHANNELS as u32).to_le_bytes(), 12)?;
        if random.below(4) != 0 {
            file.write_all_at(&[0; 8], std::mem::offset_of!(link::LinkHeader, server) as u64)?;
        }
        let page = CHANNEL_PAGES as u64 + u64::from(hello.channel) * PAGE as u64;
        file.write_all_at(&life::OFFERED.to_le_bytes(), page)?;
        file.write_all_at(&hello.generation.to_le_bytes(), page + 4)?;
    }
    // SAFETY: takes integers.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    if seals & libc::F_SEAL_SHRINK == 0 && random.below(2) == 0 {
        file.set_len(0)?;
    }
    Ok(file)
}

fn segment(size: u64, seals: libc::c_int) -> io::Result<File> {
    // SAFETY: the name ends in a zero byte; the descriptor returned is ours alone.
    let file = unsafe {
        let descriptor = libc::memfd_create(c"intruder".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        check(descriptor)?;
        File::from_raw_fd(descriptor)
    };
    file.set_len(size)?;
    // SAFETY: takes integers.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file)
}

/// Connects from the abstract name `name`, without blocking where the backlog is full.
fn connect(to: &SocketAddr, name: Option<&[u8]>) -> io::Result<UnixStream> {
    // SAFETY: the descriptor is ours alone; addresses are built below and outlive the calls.
    unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        check(descriptor)?;
        let socket = OwnedFd::from_raw_fd(descriptor);
        if let Some(name) = name {
            let (address, length) = abstract_address(name);
            check(libc::bind(descriptor, (&raw const address).cast(), length))?;
        }
        let (address, length) = abstract_address(to.as_abstract_name().expect("abstract"));
        check(libc::connect(descriptor, (&raw const address).cast(), length))?;
        Ok(UnixStream::from(socket))
    }
}

fn abstract_address(name: &[u8]) -> (libc::sockaddr_un, libc::socklen_t) {
    // SAFETY: `sockaddr_un` is plain data for which zero is valid.
    let mut address: libc::sockaddr_un = unsafe { zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path[1..].iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    (address, (size_of::<libc::sa_family_t>() + 1 + name.len()) as libc::socklen_t)
}

fn send_descriptors(stream: &UnixStream, descriptors: &[RawFd]) -> io::Result<()> {
    // SAFETY: the control buffer holds one message with the descriptors, aligned as `cmsghdr` asks, and everything
    // outlives the call.
    unsafe {
        let mut byte = 1_u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        let mut control = [0_u64; 16];
        let bytes = size_of_val(descriptors);
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(bytes as u32) as usize;
        assert!(message.msg_controllen <= size_of_val(&control));
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes as u32) as usize;
        std::ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), bytes);
        check(libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_NOSIGNAL) as libc::c_int)
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

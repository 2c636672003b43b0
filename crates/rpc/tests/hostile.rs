//! Callers and servers that do not keep to anything. What they spoil is their own.

mod common;

use common::*;
use shunt_am::port::{config_for, memory, Port};
use shunt_am::{Config, Dispatch, Message, Offer, Replier};
use shunt_endpoint::device::shm::{self, Shm};
use shunt_endpoint::{Endpoint, Tags};
use shunt_rpc::wire::{Card, Hello, Purpose, Welcome, PROTOCOL, RECORD_BYTES};
use shunt_rpc::*;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::Duration;

const WINDOW: usize = 1 << 16;

/// Answers that came, or requests.
#[derive(Default)]
struct Seen(Vec<Vec<u64>>);

impl Dispatch for Seen {
    fn request(&mut self, message: Message<'_>, _: Replier<'_>) {
        self.0.push(message.words.to_vec());
    }
    fn reply(&mut self, message: Message<'_>) {
        self.0.push(message.words.to_vec());
    }
}

/// An end without any of the crate's code.
struct Raw {
    port: Port<'static, Shm>,
    tag: shunt_endpoint::Tag,
}

impl Raw {
    fn new() -> Self {
        let end = Shm::new(shm::Options { channels: 1, segment: 4096 }).unwrap();
        let config = Config { channels: 0, window: 256, replies: 128, ..config_for(&end, 1) };
        let mut port = Port::new(end, Box::leak(memory(&config).into_boxed_slice()), &config).unwrap();
        let tag = port.endpoint().new_tag().unwrap();
        Self { port, tag }
    }

    fn card(&mut self) -> Card {
        let Offer(offer) = self.port.engine().offer(0).unwrap();
        Card { address: self.port.endpoint().address(), tag: self.tag, offer: Offer(offer) }
    }

    fn adopt(&mut self, card: &Card) {
        self.port.open(&card.address, Tags { receive: self.tag, send: card.tag }).unwrap();
        let now = self.port.now();
        self.port.engine().adopt(now, 0, &card.offer, &mut Seen::default()).unwrap();
    }
}

fn sealed(size: usize, seals: i32) -> OwnedFd {
    // SAFETY: a string that ends in 0; the descriptor is new.
    let descriptor = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"hostile".as_ptr(), libc::MFD_ALLOW_SEALING)) };
    // SAFETY: numbers only.
    unsafe {
        assert_eq!(libc::ftruncate(descriptor.as_raw_fd(), size as i64), 0);
        assert_eq!(libc::fcntl(descriptor.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
    }
    descriptor
}

fn name_of(address: &Address) -> SocketAddr {
    let Address::Memory(name) = address else { panic!("{address}") };
    SocketAddr::from_abstract_name(format!("shunt-rpc/{name}")).unwrap()
}

/// A record with a descriptor on it.
fn send(socket: &UnixStream, record: &[u8], descriptor: Option<&OwnedFd>) {
    let Some(descriptor) = descriptor else {
        let mut socket = socket;
        return socket.write_all(record).unwrap();
    };
    let mut part = libc::iovec { iov_base: record.as_ptr().cast_mut().cast(), iov_len: record.len() };
    let mut control = [0u64; 3];
    // SAFETY: plain data, and all of it lives until the call returns.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = 24;
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        libc::CMSG_DATA(header).cast::<i32>().write_unaligned(descriptor.as_raw_fd());
        assert_eq!(libc::sendmsg(socket.as_raw_fd(), &message, 0), record.len() as isize);
    }
}

fn welcome(mut socket: &UnixStream) -> Option<Welcome> {
    let mut record = [0; RECORD_BYTES];
    socket.read_exact(&mut record).ok()?;
    Welcome::parse(&record)
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

fn bound(address: &Address) -> (Raw, UnixStream) {
    bound_with(address, &sealed(WINDOW, SEALS))
}

fn bound_with(address: &Address, window: &OwnedFd) -> (Raw, UnixStream) {
    let socket = UnixStream::connect_addr(&name_of(address)).unwrap();
    let mut raw = Raw::new();
    let card = raw.card();
    let hello = Hello { purpose: Purpose::Call, program: PROGRAM, lowest: 1, highest: 2, window: WINDOW as u64, card };
    send(&socket, &hello.emit(), Some(window));
    let Some(Welcome::Bound { card, .. }) = welcome(&socket) else { panic!("not bound") };
    raw.adopt(&card);
    (raw, socket)
}

fn head(slot: u16, procedure: u16, flags: u16) -> u64 {
    u64::from(slot) | u64::from(procedure) << 32 | u64::from(flags) << 48
}

fn chance(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_caller_spoils_its_own_calls_alone() {
    let server = server("hostile-caller", ServerOptions::default());
    let honest = client(server.address());
    let mut state = 88_172_645_463_325_252;
    for round in 0..20 {
        let (mut raw, _socket) = bound(server.address());
        let mut seen = Seen::default();
        let mut asked = 0;
        for _ in 0..500 {
            let random = chance(&mut state);
            let procedure = [NULL, ADD, ECHO, SORT, FILL, 99][random as usize % 6];
            let words: Vec<u64> = (0..random >> 8 & 7).map(|_| chance(&mut state) >> (random >> 16 & 63)).collect();
            let mut all =
                vec![head(random as u16, procedure, (random >> 40) as u16 & [63, 1, 24, 0xffff][random as usize >> 4 & 3])];
            all.extend(words);
            all.truncate(8);
            let data = vec![random as u8; (random >> 24 & 127) as usize * usize::from(random & 7 == 0)];
            let handler = if random >> 50 & 7 == 0 { (random >> 33) as u8 } else { 1 };
            match raw.port.try_request(0, handler, &all, &data) {
                Ok(()) => asked += 1,
                Err(_) => {
                    raw.port.poll(&mut seen);
                }
            }
        }
        assert!(asked > 0);
        assert_eq!(honest.call::<_, i32>(ADD, &(round, 1)).unwrap(), round + 1);
    }
    // One that calls, and never looks at an answer.
    let (mut raw, _socket) = bound(server.address());
    while raw.port.try_request(0, 1, &[head(1, NULL, 0)], &[]).is_ok() {}
    assert_eq!(honest.call::<_, i32>(ADD, &(1, 1)).unwrap(), 2);
}

#[test]
fn references_outside_the_window_are_refused() {
    let server = server("hostile-window", ServerOptions::default());
    let (mut raw, _socket) = bound(server.address());
    let size = WINDOW as u32;
    let pieces =
        [(0, 64), (4095, 4), (4097, 4), (4096, size - 4092), (size, 4), (u32::MAX - 3, 8), (4096, 5), (4096, u32::MAX - 3)];
    for (offset, length) in pieces {
        let mut words = [0u8; 8];
        words[..4].copy_from_slice(&u32::to_be_bytes(offset));
        words[4..].copy_from_slice(&u32::to_be_bytes(length));
        let mut seen = Seen::default();
        while raw.port.try_request(0, 1, &[head(1, SORT, 0), u64::from_ne_bytes(words)], &[]).is_err() {
            raw.port.poll(&mut seen);
        }
        while seen.0.is_empty() {
            raw.port.wait(&mut seen, Duration::from_millis(10));
        }
        assert_eq!(seen.0[0][0] >> 32 & 0xffff, 2, "{offset} {length}: {:x?}", seen.0);
    }
}

/// A window's pages, mapped once more.
struct Mapped(*mut u32);

// SAFETY: memory that all sides may write; by this test with atomics.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(window: &OwnedFd) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which stays.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), WINDOW, protection, libc::MAP_SHARED, window.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    fn unit(&self, at: usize) -> &AtomicU32 {
        assert!(at < WINDOW / 4);
        // SAFETY: within the mapping, and aligned; others change it by stores of whole units, or are the test's server.
        unsafe { AtomicU32::from_ptr(self.0.add(at)) }
    }
}

/// Ends a thread also where an assertion fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Arguments, results and memory by reference change all the time while they are decoded, encoded and sorted.
#[test]
fn a_window_that_changes_all_the_time_is_read_once() {
    const ARGUMENTS: (u64, u64) = (4096, 2048);
    const ROOM: (u64, u64) = (16384, 4096);
    const LARGE: u16 = 8;
    const ROOMS: u16 = 16;
    let server = server("hostile-writer", ServerOptions::default());
    let honest = client(server.address());
    let window = sealed(WINDOW, SEALS);
    let mapped = Mapped::new(&window);
    let (mut raw, _socket) = bound_with(server.address(), &window);
    // Twenty entries whose bytes have 3, and zeros, which are more of them, or nothing.
    let first = |at: usize| [20, 7, 3, 0x6162_6300, 0][if at == 0 { 0 } else { 1 + (at - 1) % 4 }] * u32::from(at <= 80);
    (0..512).for_each(|at| mapped.unit(ARGUMENTS.0 as usize / 4 + at).store(first(at).to_be(), Relaxed));
    let over = AtomicBool::new(false);
    let mut statuses = [0; 16];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 88_172_645_463_325_252;
            let units = [0, 1, 2, 19, 20, 21, 100, 101, 2040, 2044, 2045, u32::MAX, 0x0101_0101];
            while !over.load(Relaxed) {
                let random = chance(&mut state);
                // A unit is another for a moment: the first one, on which all else depends, as often as all others; results, too.
                let at = (random >> 32) as usize % 80 * usize::from(random & 2 == 0);
                let begin = if random & 12 == 12 { ROOM.0 } else { ARGUMENTS.0 };
                let unit = mapped.unit(begin as usize / 4 + at);
                unit.store(u32::to_be(units[(random >> 8) as usize % units.len()]), Relaxed);
                (0..random >> 40 & 7).for_each(|_| std::hint::spin_loop());
                unit.store(first(at).to_be(), Relaxed);
                (0..random >> 43 & 15).for_each(|_| std::hint::spin_loop());
            }
        });
        let _over = Ends(&over);
        let piece = |(offset, length): (u64, u64)| offset | length << 32;
        let mut reference = [0u8; 8];
        reference[..4].copy_from_slice(&(ARGUMENTS.0 as u32).to_be_bytes());
        reference[4..].copy_from_slice(&(ARGUMENTS.1 as u32).to_be_bytes());
        let mut seen = Seen::default();
        for turn in 0..9000u16 {
            // Sorting leaves other arguments.
            if turn % 3 == 0 {
                (0..=80).for_each(|at| mapped.unit(ARGUMENTS.0 as usize / 4 + at).store(first(at).to_be(), Relaxed));
            }
            let words = match turn % 3 {
                0 => vec![head(1, JUDGE, LARGE), piece(ARGUMENTS)],
                1 => vec![head(1, ECHO, LARGE | ROOMS), piece(ARGUMENTS), piece(ROOM)],
                _ => vec![head(1, SORT, 0), u64::from_ne_bytes(reference)],
            };
            while raw.port.try_request(0, 1, &words, &[]).is_err() {
                raw.port.wait(&mut seen, Duration::from_millis(1));
            }
            while seen.0.is_empty() {
                raw.port.wait(&mut seen, Duration::from_millis(10));
            }
            for answer in seen.0.drain(..) {
                statuses[(answer[0] >> 32) as usize & 15] += 1;
                if answer[0] >> 48 & u64::from(LARGE) != 0 {
                    assert!(answer[1] >> 32 <= ROOM.1 && answer[1] as u32 == ROOM.0 as u32, "{answer:x?}");
                }
            }
            if turn % 1000 == 0 {
                assert_eq!(honest.call::<_, i32>(ADD, &(i32::from(turn), 1)).unwrap(), i32::from(turn) + 1);
            }
        }
    });
    println!("{statuses:?}");
    // Results, or arguments that were none; and no panic.
    assert_eq!(statuses[0] + statuses[2], 9000, "{statuses:?}");
    assert!(statuses[0] > 3000 && statuses[2] > 0, "{statuses:?}");
}

#[test]
fn whoever_does_not_say_what_it_wants_is_let_go() {
    let server = server("hostile-greeting", ServerOptions { callers: 3, ..ServerOptions::default() });
    let honest = client(server.address());
    let card = Raw::new().card();
    let hello = Hello { purpose: Purpose::Call, program: PROGRAM, lowest: 1, highest: 2, window: WINDOW as u64, card };
    let greet = |record: &[u8], descriptor: Option<OwnedFd>| {
        let socket = UnixStream::connect_addr(&name_of(server.address())).unwrap();
        send(&socket, record, descriptor.as_ref());
        welcome(&socket)
    };
    for _ in 0..10 {
        assert_eq!(greet(&[7; RECORD_BYTES], None), Some(Welcome::Protocol { version: PROTOCOL }));
        assert_eq!(greet(&hello.emit(), None), Some(Welcome::Denied), "no window");
        assert_eq!(greet(&hello.emit(), Some(sealed(WINDOW, 0))), Some(Welcome::Denied), "it could shrink");
        assert_eq!(greet(&hello.emit(), Some(sealed(4096, SEALS))), Some(Welcome::Denied), "shorter than it says");
        let huge = Hello { window: 1 << 40, ..hello };
        assert_eq!(greet(&huge.emit(), Some(sealed(WINDOW, SEALS))), Some(Welcome::Denied));
    }
    // As many as there may be that say nothing: others have to wait, until they are let go.
    let silent: Vec<_> = (0..64).map(|_| UnixStream::connect_addr(&name_of(server.address())).unwrap()).collect();
    honest.call::<_, ()>(NULL, &()).unwrap();
    let late = loop {
        match Client::connect(server.address(), PROGRAM, 1..=2, Options::default()) {
            Ok(client) => break client,
            Err(error) => assert_eq!(error.kind(), Kind::Busy, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
        honest.call::<_, ()>(NULL, &()).unwrap();
    };
    late.call::<_, ()>(NULL, &()).unwrap();
    drop(silent);
}

#[test]
fn a_server_spoils_its_own_answers_alone() {
    let address = name("hostile-server");
    let listener = UnixListener::bind_addr(&name_of(&address)).unwrap();
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut record = [0; RECORD_BYTES];
        (&socket).read_exact(&mut record).unwrap();
        let hello = Hello::parse(&record).unwrap();
        let mut raw = Raw::new();
        let card = raw.card();
        raw.adopt(&hello.card);
        (&socket).write_all(&Welcome::Bound { version: 1, card }.emit()).unwrap();
        /// Answers whatever comes with something else.
        struct Liar(u64, u64);
        impl Dispatch for Liar {
            fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
                self.1 += 1;
                let asked = message.words[0];
                let random = chance(&mut self.0);
                let words = match self.1 % 8 {
                    // A place, or a generation, that is not meant.
                    0 => vec![asked ^ 1 << (random & 31)],
                    1 => vec![random, random, random],
                    // Unknown flags; an unknown status.
                    2 => vec![asked & 0xffff_ffff | 1 << 62],
                    3 => vec![asked & 0xffff_ffff | 99 << 32],
                    // Results in the window where no room was made.
                    4 => vec![asked & 0xffff_ffff | 8 << 48, 4096 | 64 << 32],
                    5 => vec![],
                    // Results of another type.
                    6 => vec![asked & 0xffff_ffff, 1, 2, 3],
                    _ => vec![asked & 0xffff_ffff | 1 << 48, 7 << 24],
                };
                let _ = replier.reply(4, &words, &[]);
            }
            fn reply(&mut self, _: Message<'_>) {}
        }
        let mut liar = Liar(99, 0);
        socket.set_nonblocking(true).unwrap();
        while !matches!((&socket).read(&mut [0]), Ok(0)) {
            raw.port.wait(&mut liar, Duration::from_millis(1));
        }
    });
    let client = Client::connect(&address, PROGRAM, 1..=1, Options::default()).unwrap();
    let how = How { deadline: Some(Duration::from_millis(5)), ..How::default() };
    let mut right = 0;
    for _ in 0..400 {
        match client.call_with::<_, i32>(ADD, &(3, 4), &how) {
            Ok(sum) => {
                assert_eq!(sum, 7);
                right += 1;
            }
            Err(error) => {
                assert!(matches!(error.kind(), Kind::TimedOut | Kind::Protocol | Kind::BadResults | Kind::Busy), "{error:?}")
            }
        }
    }
    assert!(right >= 40, "{right}");
    assert!(client.strangers() > 0);
    drop(client);
    thread.join().unwrap();
}

//! A segment and a companion that came from elsewhere: by an exec, in a message, or from a client. Both are whatever a
//! stranger made, down to the size and the seals of the file; they are refused, or used without harm.

use crate::input::Input;
use shunt_config::Options;
use shunt_handover::inherit;
use shunt_link as link;
use shunt_poll::poll;
use shunt_segment::area::{CHANNEL_PAGES, LINK_SIZE, PAGE};
use shunt_segment::name::Hello;
use shunt_segment::{link as layout, CHANNELS, VERSION};
use shunt_stream as stream;
use shunt_stream::socket::Socket;
use shunt_sys::{calls, libc};
use shunt_table::table::Kind;
use shunt_table::upcalls::operations;
use shunt_table::{global, table};
use std::sync::{Mutex, MutexGuard, Once};

/// The engine's state is the process's: each thread that uses it has its turn.
pub fn started() -> MutexGuard<'static, ()> {
    static STARTED: Once = Once::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: nothing of the engine is used before.
    STARTED.call_once(|| unsafe { shunt_sockets::start(Options::default(), core::ptr::null_mut(), None) });
    turn
}

/// The number that the next descriptor gets.
pub fn lowest_free() -> i32 {
    let fd = calls::fcntl(0, libc::F_DUPFD_CLOEXEC, 0).expect("a descriptor");
    calls::close(fd).expect("an open descriptor");
    fd
}

/// What of the segment is as it should be, by bits of the first byte.
mod honest {
    pub const SIZE: u8 = 1;
    pub const SEALS: u8 = 2;
    pub const MAGIC: u8 = 4;
    pub const NAME: u8 = 8;
    pub const GENERATION: u8 = 16;
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

pub fn run(data: &[u8]) {
    let _turn = started();
    let before = lowest_free();
    let _ = play(Input(data));
    assert_eq!(lowest_free(), before, "nothing is left open");
}

fn play(mut input: Input) -> Option<()> {
    let honest = input.byte()?;
    let (nonce, sequence, channel) = (input.word()?, u32::from(input.half()?), input.half()? % CHANNELS as u16);
    let generation = u32::from(input.half()?);
    let fd = segment(honest, nonce, sequence, &mut input)?;
    let _ = put(fd, 0, input.bytes(48), honest & honest::MAGIC == 0);
    let page = CHANNEL_PAGES + channel as usize * PAGE;
    if honest & honest::GENERATION != 0 {
        let _ = put(fd, page + core::mem::offset_of!(shunt_segment::channel::Head, pair), &generation.to_le_bytes(), true);
    }
    // The channel's page, as another process left it.
    for _ in 0..input.byte().unwrap_or(0) % 32 {
        let (Some(at), Some(word)) = (input.half(), input.word()) else { break };
        let at = (at as usize % PAGE) & !7;
        let _ = put(fd, page + at, &word.to_le_bytes(), true);
    }
    let mut appended = inherit::Appended::new();
    if !appended.take(fd) {
        let _ = calls::close(fd);
    }
    let hello = Hello {
        version: VERSION,
        nonce: nonce ^ u64::from(honest & honest::NAME == 0),
        sequence,
        channel,
        link_follows: 0,
        generation,
        client: Default::default(),
        server: Default::default(),
    };
    let (client, server) = companions(&hello)?;
    for end in [client, server] {
        appended.serve(end, inherit::Received::Taken);
        use_it(end, &mut input);
    }
    drop(appended);
    for end in [client, server] {
        operations::closing(end);
        let _ = calls::close(end);
    }
    let _setup = global::SETUP.lock()?;
    link::drop_unused();
    Some(())
}

/// A file that may be a segment.
fn segment(honest: u8, nonce: u64, sequence: u32, input: &mut Input) -> Option<i32> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends with a NUL.
    let fd = unsafe { shunt_sys::syscall!(libc::SYS_memfd_create, layout::NAME.as_ptr(), flags) } as i32;
    let size = if honest & honest::SIZE != 0 { LINK_SIZE } else { input.length(1 << 20).unwrap_or(0) };
    calls::ftruncate(fd, size as i64).expect("a sparse file");
    let seals = if honest & honest::SEALS != 0 { SEALS } else { i32::from(input.byte().unwrap_or(0)) & 0x1f };
    if honest & honest::MAGIC != 0 {
        let mut head = Vec::new();
        head.extend(layout::MAGIC.to_le_bytes());
        head.extend(VERSION.to_le_bytes());
        head.extend((CHANNELS as u32).to_le_bytes());
        head.extend(nonce.to_le_bytes());
        head.extend(sequence.to_le_bytes());
        let _ = put(fd, 0, &head, true);
    }
    let _ = calls::fcntl(fd, libc::F_ADD_SEALS, seals as usize);
    Some(fd)
}

fn put(fd: i32, at: usize, bytes: &[u8], wanted: bool) -> Option<()> {
    if wanted && !bytes.is_empty() {
        // SAFETY: the whole of `bytes`.
        let put = unsafe { shunt_sys::syscall!(libc::SYS_pwrite64, fd, bytes.as_ptr(), bytes.len(), at) };
        return (put == bytes.len() as isize).then_some(());
    }
    Some(())
}

/// Two connected sockets of which the first has the name of `hello`.
fn companions(hello: &Hello) -> Option<(i32, i32)> {
    let open = || calls::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).expect("a socket");
    let (listener, client) = (open(), open());
    let bind = |fd: i32, name: &[u8]| {
        let (address, length) = shunt_table::sockaddr::abstract_name(name);
        calls::bind(fd, (&raw const address).cast(), length).map(|()| (address, length))
    };
    let name = format!("shunt-fuzzing-{}", calls::getpid());
    let named = bind(listener, name.as_bytes()).expect("a name of our own");
    let made = bind(client, hello.encode().as_slice()).is_ok()
        && calls::listen(listener, 1).is_ok()
        && calls::connect(client, (&raw const named.0).cast(), named.1).is_ok();
    let server = calls::accept4(listener, core::ptr::null_mut(), core::ptr::null_mut(), libc::SOCK_CLOEXEC);
    calls::close(listener).expect("an open descriptor");
    match (made, server) {
        (true, Ok(server)) => Some((client, server)),
        _ => {
            calls::close(client).expect("an open descriptor");
            None
        }
    }
}

/// Some calls on what was taken up.
fn use_it(fd: i32, input: &mut Input) {
    let Some(socket) = table::get(fd).object::<Socket>().filter(|_| table::get(fd).kind() == Kind::Stream) else { return };
    let mut bytes = [0u8; 4096];
    for _ in 0..4 {
        let length = input.length(bytes.len()).unwrap_or(100);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | i32::from(input.byte().unwrap_or(0)) & libc::MSG_PEEK;
        // SAFETY: within the buffer.
        let got = unsafe { stream::receive(socket, fd, bytes.as_mut_ptr(), length, flags) };
        assert!(got.is_ok_and(|got| got as usize <= length) || got.is_err());
        // SAFETY: as above.
        let sent = unsafe { stream::send(socket, fd, bytes.as_ptr(), length, flags & !libc::MSG_PEEK) };
        assert!(sent.is_ok_and(|sent| sent as usize <= length) || sent.is_err());
        let mut entries = [libc::pollfd { fd, events: libc::POLLIN | libc::POLLOUT, revents: 0 }];
        let _ = poll::Query::new(&mut entries[..], 0, core::ptr::null(), usize::MAX).poll();
    }
}

//! Peers that would hold others up: a server that sends for ever, one that tells a byte at a time, a host that does not answer, and a
//! caller that asks for an answer of any length.

mod common;

use common::*;
use shunt_rpc::wire::{Welcome, RECORD_BYTES};
use shunt_rpc::xdr::{self, Decoder, List};
use shunt_rpc::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A reply of RFC 5531: accepted, success, no results.
fn reply(number: u32) -> Vec<u8> {
    words(&[number, 1, 0, 0, 0, 0])
}

/// Datagrams that lie there: one look takes some of them and comes back, to see the clock.
#[test]
fn a_look_takes_so_many_answers_by_sunrpc_at_most() {
    const STRANGERS: u32 = 100;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address: Address = format!("sunrpc+udp://{}", socket.local_addr().unwrap()).parse().unwrap();
    let server = std::thread::spawn(move || {
        let mut call = [0; 256];
        let (_, from) = socket.recv_from(&mut call).unwrap();
        socket.send_to(&reply(u32::from_be_bytes(*call.first_chunk().unwrap())), from).unwrap();
        (socket, from)
    });
    let client = Client::connect(&address, PROGRAM, 1..=1, Options::default()).unwrap();
    let (socket, from) = server.join().unwrap();
    // Numbers that no call has: those of a caller begin anywhere, so the opposite ones of the null call's are not near.
    let mut call = [0; 256];
    client.tell(NULL, &()).unwrap();
    socket.recv_from(&mut call).unwrap();
    let far = u32::from_be_bytes(*call.first_chunk().unwrap()) ^ 1 << 31;
    for number in 0..STRANGERS {
        socket.send_to(&reply(far.wrapping_add(number)), from).unwrap();
    }
    client.progress();
    let first = client.strangers();
    assert!(first > 0 && first < u64::from(STRANGERS), "{first} at one look");
    (0..STRANGERS).for_each(|_| client.progress());
    assert_eq!(client.strangers(), u64::from(STRANGERS));
}

/// What it tells would be right, if it were waited for.
#[test]
fn a_server_that_tells_a_byte_at_a_time_is_given_up() {
    let address = name("slow-teller");
    let Address::Memory(text) = &address else { panic!() };
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("shunt-rpc/{text}")).unwrap()).unwrap();
    let list = xdr::to_bytes(&List::<Listed, 4096>(vec![Listed::from(&interface(1)); 4]));
    let all = list.len();
    let sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_exact(&mut [0; RECORD_BYTES]).unwrap();
            socket.write_all(&Welcome::List { bytes: all as u32 }.emit()).unwrap();
            for byte in list {
                std::thread::sleep(Duration::from_millis(20));
                if socket.write_all(&[byte]).is_err() {
                    return;
                }
                sent.fetch_add(1, SeqCst);
            }
        });
        let hasty = Options { patience: Duration::from_millis(200), ..Options::default() };
        let error = look(&address, &hasty).unwrap_err();
        assert_eq!(error.kind(), Kind::Protocol, "{error}");
        assert!(error.to_string().contains("does not come"), "{error}");
    });
    assert!(sent.load(SeqCst) < all);
}

/// A port whose queue of connections is full says nothing, as a host that is off.
#[test]
fn a_host_that_does_not_answer_has_as_long_as_the_caller_has_patience() {
    // SAFETY: numbers; the descriptor is new.
    let listener = unsafe {
        let socket = TcpListener::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0));
        let mut any: libc::sockaddr_in = std::mem::zeroed();
        any.sin_family = libc::AF_INET as u16;
        any.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        let length = size_of::<libc::sockaddr_in>() as u32;
        assert_eq!(libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&any).cast(), length), 0);
        assert_eq!(libc::listen(socket.as_raw_fd(), 0), 0);
        socket
    };
    let at = listener.local_addr().unwrap();
    let _waiting: Vec<_> = (0..4).map_while(|_| TcpStream::connect_timeout(&at, Duration::from_millis(100)).ok()).collect();
    let address: Address = format!("udp:{at}").parse().unwrap();
    let hasty = Options { patience: Duration::from_millis(200), ..Options::default() };
    let (tell, hear) = channel();
    // The kernel itself gives up after two minutes.
    std::thread::spawn(move || tell.send(Client::connect(&address, PROGRAM, 1..=1, hasty).map(|_| ()).unwrap_err().kind()));
    assert_eq!(hear.recv_timeout(Duration::from_secs(30)), Ok(Kind::Unreachable));
}

/// Gives as many bytes as there is room for.
struct Giver;

impl Service for Giver {
    fn interfaces(&self) -> Vec<Interface> {
        let procedures = &[Procedure { number: FILL, name: "FILL", definition: "void FILL(OUT opaque into<>)" }];
        vec![Interface { program: PROGRAM, version: 1, name: "GIVER", procedures, text: "" }]
    }
    fn call(&mut self, context: &Context<'_>, _: u16, from: Decoder<'_>, answer: &mut Answer<'_>) -> Result<(), Refusal> {
        serve(from, answer, |into: Reference<u8>| {
            context.shared(into, u32::MAX)?;
            Ok(())
        })
    }
}

/// A call of some forty bytes says how much it has room for; that much is not made where no answer may be so long.
#[test]
fn an_answer_by_sunrpc_is_as_long_as_a_record_may_be() {
    const RECORD: u32 = 64 << 10;
    let options = ServerOptions { record: RECORD as usize, ..ServerOptions::default() };
    let server = Server::bind(&"sunrpc+tcp://127.0.0.1:0".parse().unwrap(), options).unwrap().spawn(|| Giver).unwrap();
    let at = server.address().to_string();
    let mut stream = TcpStream::connect(at.strip_prefix("sunrpc+tcp://").unwrap()).unwrap();
    let mut ask = |room: u32| {
        let call = words(&[7, 0, 2, PROGRAM, 1, FILL.into(), 0, 0, 0, 0, room]);
        stream.write_all(&words(&[1 << 31 | call.len() as u32])).unwrap();
        stream.write_all(&call).unwrap();
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).unwrap();
        let mut answer = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        stream.read_exact(&mut answer).unwrap();
        answer
    };
    let header = reply(7).len();
    assert_eq!(ask(1000).len(), header + 4 + 1000);
    assert_eq!(ask(RECORD * 2), words(&[7, 1, 0, 0, 0, 4]), "GARBAGE_ARGS");
    assert_eq!(ask(48 << 20), words(&[7, 1, 0, 0, 0, 4]), "GARBAGE_ARGS");
}

/// Callers that begin long calls and do not end them have so much of a server's memory together, however many they are, and short calls of
/// others go on.
#[test]
fn calls_by_sunrpc_that_do_not_end_have_so_many_bytes_together() {
    const MEMORY: usize = 1 << 20;
    const PART: usize = 400 << 10;
    let options = ServerOptions { memory: MEMORY as u64, ..ServerOptions::default() };
    let server = Server::bind(&"sunrpc+tcp://127.0.0.1:0".parse().unwrap(), options).unwrap().spawn(Test::default).unwrap();
    let at = server.address().to_string();
    let connect = || TcpStream::connect(at.strip_prefix("sunrpc+tcp://").unwrap()).unwrap();
    let call = |length: usize| {
        let mut call = words(&[7, 0, 2, PROGRAM, 1, ECHO.into(), 0, 0, 0, 0, length as u32]);
        call.extend(vec![9; length]);
        [&words(&[1 << 31 | call.len() as u32])[..], &call].concat()
    };
    let answered = |stream: &mut TcpStream, length: usize| {
        stream.write_all(&call(length)).unwrap();
        let mut answer = vec![0; 4 + reply(7).len() + 4 + length];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer[28..].ends_with(&vec![9; length]));
    };
    let mut holders: Vec<TcpStream> = (0..10).map(|_| connect()).collect();
    for holder in &mut holders {
        // One that is refused may end the connection while it is told.
        let _ = holder.write_all(&call(MEMORY)[..PART]);
    }
    // More than are let in end; these are answered, or told by a reset.
    let ended = |holder: &mut TcpStream| {
        holder.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut answer = [0; 64];
        match holder.read(&mut answer) {
            Ok(0) => true,
            Ok(count) => {
                assert_eq!(answer[4..count], words(&[7, 1, 0, 0, 0, 5]), "SYSTEM_ERR");
                true
            }
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    };
    let let_in = MEMORY / (PART - (64 << 10));
    let begun = std::time::Instant::now();
    let mut left = holders;
    while left.len() > let_in {
        left.retain_mut(|holder| !ended(holder));
        assert!(begun.elapsed() < Duration::from_secs(20), "{} hold on", left.len());
    }
    assert_eq!(left.len(), let_in, "and no more than that");
    answered(&mut connect(), 60_000);
    // What they held is free with them.
    drop(left);
    while !long_call_goes(&mut connect(), &call(MEMORY - 4096)) {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing became free");
    }
}

/// Whether a call is answered with results.
fn long_call_goes(stream: &mut TcpStream, call: &[u8]) -> bool {
    let mut answer = vec![0; 4 + 24];
    let done = stream.write_all(call).and_then(|()| stream.read_exact(&mut answer));
    done.is_ok() && answer[4..] == words(&[7, 1, 0, 0, 0, 0])
}

/// A server that says that it will tell more than any has: nothing is set aside for it.
#[test]
fn a_server_that_has_too_much_to_tell_is_given_up() {
    let address = name("long-teller");
    let Address::Memory(text) = &address else { panic!() };
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(format!("shunt-rpc/{text}")).unwrap()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut socket, _) = listener.accept().unwrap();
            socket.read_exact(&mut [0; RECORD_BYTES]).unwrap();
            socket.write_all(&Welcome::List { bytes: (1 << 20) + 1 }.emit()).unwrap();
        });
        let error = look(&address, &Options::default()).unwrap_err();
        assert!(error.kind() == Kind::Protocol && error.to_string().contains("is too long"), "{error}");
    });
}

/// A server by SunRPC that reads no calls: those that are not sent yet are bounded, and the next one waits until its deadline.
#[test]
fn calls_by_sunrpc_that_are_not_taken_are_so_many_bytes() {
    const PART: usize = 64 << 10;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = format!("sunrpc+tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut call = [0; 44];
        stream.read_exact(&mut call).unwrap();
        stream.write_all(&words(&[1 << 31 | 24])).unwrap();
        stream.write_all(&reply(u32::from_be_bytes(call[4..8].try_into().unwrap()))).unwrap();
        stream
    });
    let client = Client::connect(&address, PROGRAM, 1..=1, Options::default()).unwrap();
    let _silent = server.join().unwrap();
    let how = How { deadline: Some(Duration::from_millis(500)), ..How::default() };
    let data = Data::from(vec![7; PART]);
    let mut calls = vec![];
    let error = loop {
        match client.begin_with::<_, Data>(ECHO, &data, &how) {
            Ok(call) => calls.push(call),
            Err(error) => break error,
        }
    };
    assert_eq!((error.kind(), error.ran()), (Kind::TimedOut, Ran::No), "{error} behind {}", calls.len());
}

/// Windows of callers on other hosts are memory of the server's: so many bytes together, and each so many at most.
#[test]
fn windows_of_other_hosts_have_so_many_bytes_together() {
    let at: Address = "udp:127.0.0.1:0".parse().unwrap();
    let options = ServerOptions { memory: 6 << 20, window: 5 << 20, ..ServerOptions::default() };
    let server = Server::bind(&at, options).unwrap().spawn(Test::default).unwrap();
    let connect = |window: usize| {
        let options = Options { window, ..Options::default() };
        Client::connect(server.address(), PROGRAM, 1..=1, options).map_err(|error| error.kind())
    };
    let first = connect(4 << 20).unwrap();
    assert_eq!(connect(4 << 20).err(), Some(Kind::Busy));
    assert_eq!(connect(6 << 20).err(), Some(Kind::Denied), "more than the server's options let one have");
    let second = connect(1 << 20).unwrap();
    assert_eq!(second.call::<_, i32>(ADD, &(1, 2)).unwrap(), 3);
    // What the first had is free once the server has seen its end.
    drop(first);
    let begun = std::time::Instant::now();
    while connect(4 << 20).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing became free");
    }
}

#[test]
fn a_call_has_so_many_parameters_by_reference() {
    let server = server("references", ServerOptions::default());
    let client = client(server.address());
    let buffers: Vec<_> = (0..12).map(|_| client.buffer::<u32>(4).unwrap()).collect();
    let lent: Vec<Lent> = buffers.iter().map(|buffer| buffer.lend(true, true).unwrap()).collect();
    let call = |lent: &[Lent]| client.call_with::<_, ()>(NULL, &(), &How { lent, ..How::default() });
    let error = call(&lent).unwrap_err();
    assert!(error.kind() == Kind::TooLong && error.to_string().contains("too many parameters by reference"), "{error}");
    // None of them is lent any more.
    call(&lent[..8]).unwrap();
    call(&lent[4..]).unwrap();
    assert_eq!(client.outstanding(), 0);
}

/// The same of one host: a name whose queue of callers is full.
#[test]
fn a_server_that_takes_nobody_in_has_as_long_as_the_caller_has_patience() {
    let address = name("full-queue");
    let Address::Memory(text) = &address else { panic!() };
    let at = SocketAddr::from_abstract_name(format!("shunt-rpc/{text}")).unwrap();
    let listener = UnixListener::bind_addr(&at).unwrap();
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let _waiting = UnixStream::connect_addr(&at).unwrap();
    let hasty = Options { patience: Duration::from_millis(200), ..Options::default() };
    let (tell, hear) = channel();
    // The kernel itself never gives up.
    std::thread::spawn(move || tell.send(Client::connect(&address, PROGRAM, 1..=1, hasty).map(|_| ()).unwrap_err().kind()));
    assert_eq!(hear.recv_timeout(Duration::from_secs(30)), Ok(Kind::Unreachable));
}

#[test]
fn names_of_others_do_not_keep_servers_from_being_listed() {
    let server = server("listed", ServerOptions::default());
    let Address::Memory(ours) = server.address() else { panic!() };
    let strange: [&[u8]; 3] = [b"x\xff\xfe", b"shunt-rpc/\xff", b"shunt-rpc/one\nline"];
    let held: Vec<_> = strange
        .iter()
        .map(|name| UnixListener::bind_addr(&SocketAddr::from_abstract_name([name, &b""[..]].concat()).unwrap()))
        .collect();
    let names = names().unwrap();
    assert!(names.contains(ours), "{names:?}");
    assert!(names.iter().all(|name| !name.contains(char::REPLACEMENT_CHARACTER)), "{names:?}");
    drop(held);
}

#[test]
fn a_buffer_is_lent_to_one_call_and_by_its_own_client() {
    let server = server("lent", ServerOptions::default());
    let (one, other) = (client(server.address()), client(server.address()));
    let buffer = one.buffer::<u32>(4).unwrap();
    let (lent, name) = (buffer.lend(true, true).unwrap(), buffer.reference());
    let refused = |client: &Client, lent: &[Lent]| {
        let how = How { lent, ..How::default() };
        client.call_with::<_, ()>(SORT, &name, &how).unwrap_err().kind()
    };
    assert_eq!(refused(&one, &[lent, lent]), Kind::Busy, "twice");
    assert_eq!(refused(&other, &[lent]), Kind::Busy, "none of its own");
    one.call_with::<_, ()>(SORT, &name, &How { lent: &[lent], ..How::default() }).unwrap();
    drop(buffer);
    assert_eq!(refused(&one, &[lent]), Kind::Busy, "given back");
    // Buffers that come later have places of their own.
    let (first, second) = (one.buffer::<u32>(4).unwrap(), one.buffer::<u32>(4).unwrap());
    assert_ne!(first.name(), second.name());
}

#[test]
fn any_duration_is_a_duration() {
    let server = server("durations", ServerOptions { spin: Duration::MAX, ..ServerOptions::default() });
    let endless = Options { patience: Duration::MAX, deadline: Some(Duration::MAX), spin: Duration::MAX, ..Options::default() };
    let client = Client::connect(server.address(), PROGRAM, 1..=1, endless.clone()).unwrap();
    assert_eq!(client.call::<_, i32>(ADD, &(3, 4)).unwrap(), 7);
    assert!(!client.call::<_, bool>(SLEEP, &1u32).unwrap());
    let server = Server::bind(&"sunrpc+tcp://127.0.0.1:0".parse().unwrap(), ServerOptions::default()).unwrap();
    let server = server.spawn(Test::default).unwrap();
    let client = Client::connect(server.address(), PROGRAM, 1..=1, endless).unwrap();
    assert_eq!(client.call::<_, i32>(ADD, &(3, 4)).unwrap(), 7);
}

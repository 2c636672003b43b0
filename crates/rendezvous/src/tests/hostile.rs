//! Strangers at the rendezvous: what is no honest client is sent away, and the next one is accepted.

use super::*;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_segment::address::Address;
use shunt_segment::area::{BASE_SIZE, LINK_SIZE};
use shunt_segment::channel::life;
use shunt_segment::link::{MAGIC, NAME};
use shunt_segment::name::{self, Hello};
use shunt_segment::{CHANNELS, VERSION};
use shunt_sys::{calls, mapping};
use shunt_table::{fd_passing, sockaddr};

/// A listener that does not block.
fn listener() -> Fd {
    start();
    let listener = World::Engine.listener();
    listener.set_nonblocking(true);
    listener
}

/// Connects to the rendezvous under this name, and sends what a client sends with it.
fn stranger(listener: &Fd, own: &[u8], sent: &[i32]) -> i32 {
    let fd = calls::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).unwrap();
    if !own.is_empty() {
        let (address, length) = sockaddr::abstract_name(own);
        calls::bind(fd, (&raw const address).cast(), length).unwrap();
    }
    let (to, length) =
        sockaddr::abstract_name(name::listener(listener.object().listening.inode.load(Ordering::Relaxed)).as_slice());
    calls::connect(fd, (&raw const to).cast(), length).unwrap();
    fd_passing::send(fd, sent, libc::MSG_NOSIGNAL).unwrap();
    fd
}

/// What a client of this listener would say. No two have one name.
fn hello(listener: &Fd) -> Hello {
    use core::sync::atomic::AtomicU32;
    static SEQUENCE: AtomicU32 = AtomicU32::new(1);
    let there = listener.name().unwrap();
    Hello {
        version: VERSION,
        nonce: u64::from(calls::getpid()) << 32 | 0xbad,
        sequence: SEQUENCE.fetch_add(1, Ordering::Relaxed),
        channel: 3,
        link_follows: 1,
        generation: 9,
        client: loopback(40_000),
        server: there,
    }
}

/// The segment that belongs to a name, whose channel offers a connection.
fn segment(of: &Hello) -> i32 {
    let fd = calls::memfd_create(NAME, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).unwrap();
    calls::ftruncate(fd, LINK_SIZE as i64).unwrap();
    calls::fcntl(fd, libc::F_ADD_SEALS, (libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL) as usize).unwrap();
    let base = mapping::shared(fd, BASE_SIZE).unwrap();
    let (header, page) = (link::header(base), link::page(base, usize::from(of.channel)));
    header.magic.store(MAGIC, Ordering::Relaxed);
    header.version.store(VERSION, Ordering::Relaxed);
    header.channels.store(CHANNELS as u32, Ordering::Relaxed);
    header.nonce.store(of.nonce, Ordering::Relaxed);
    header.sequence.store(of.sequence, Ordering::Relaxed);
    page.head.generation.store(of.generation, Ordering::Relaxed);
    page.head.pair.store(of.generation, Ordering::Relaxed);
    page.head.state.store(life::OFFERED, Ordering::Relaxed);
    calls::munmap(base, BASE_SIZE).unwrap();
    fd
}

/// Whether the listener has closed its end.
fn is_sent_away(stranger: i32) -> bool {
    calls::poll_one(stranger, 0, 0).is_ok_and(|events| events & libc::POLLHUP != 0)
}

/// The stranger is refused, and a client that comes next is not.
#[track_caller]
fn refused(listener: &Fd, stranger: i32) {
    assert_eq!(error(listener.accept()), libc::EAGAIN);
    assert!(is_sent_away(stranger));
    calls::close(stranger).unwrap();
    let client = World::Engine.tcp();
    client.connect(&listener.name().unwrap()).unwrap();
    client.expect_stream();
    assert_eq!(listener.accept().unwrap().peer(), client.name());
}

#[test]
fn a_client_made_by_hand_is_accepted_where_all_is_as_it_should_be() {
    let listener = listener();
    let hello = hello(&listener);
    let fd = segment(&hello);
    let companion = stranger(&listener, hello.encode().as_slice(), &[fd]);
    let (server, from) = listener.accept_from().unwrap();
    server.expect_stream();
    assert_eq!((from, server.name()), (hello.client, Ok(hello.server)));
    [fd, companion].into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn a_stranger_without_a_name_is_sent_away() {
    let listener = listener();
    refused(&listener, stranger(&listener, b"", &[]));
}

#[test]
fn names_that_are_almost_a_client_s_are_sent_away() {
    let listener = listener();
    let right = hello(&listener);
    let fd = segment(&right);
    let whole = right.encode();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for turn in 0..60 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut bytes = whole.as_slice().to_vec();
        match turn % 3 {
            0 => bytes.truncate(1 + state as usize % (bytes.len() - 1)),
            1 => bytes.extend([state as u8; 3]),
            // In front of the generation: of that the segment says what is right.
            _ => bytes[state as usize % 30] ^= 1 << (state >> 60 & 7),
        }
        let companion = stranger(&listener, &bytes, &[fd]);
        let accepted = listener.accept();
        let said = Hello::decode(&bytes);
        // By which name a client calls its own segment concerns that client alone, and so does whether it says that the link follows.
        let as_right = |said: Hello| Hello { link_follows: 1, nonce: right.nonce, sequence: right.sequence, ..said };
        assert!(accepted.is_err() || said.is_some_and(|said| as_right(said) == right), "{said:?}");
        calls::close(companion).unwrap();
    }
    calls::close(fd).unwrap();
}

#[test]
fn a_client_of_another_host_or_of_another_port_is_sent_away() {
    let listener = listener();
    let right = hello(&listener);
    let far = Address::v4([192, 0, 2, 7], 40_000);
    let other_port = Address { port: right.server.port ^ 1, ..right.server };
    for wrong in [
        Hello { client: far, ..right },
        Hello { server: Address { port: right.server.port, ..far }, ..right },
        Hello { server: other_port, ..right },
    ] {
        let fd = segment(&wrong);
        refused(&listener, stranger(&listener, wrong.encode().as_slice(), &[fd]));
        calls::close(fd).unwrap();
    }
}

#[test]
fn an_offer_of_another_generation_or_none_is_no_connection() {
    let listener = listener();
    for wrong in [|hello: &mut Hello| hello.generation += 1, |hello: &mut Hello| hello.channel += 1] {
        let right = hello(&listener);
        let fd = segment(&right);
        let mut said = right;
        wrong(&mut said);
        refused(&listener, stranger(&listener, said.encode().as_slice(), &[fd]));
        calls::close(fd).unwrap();
    }
}

#[test]
fn what_comes_in_place_of_a_segment_is_refused() {
    let listener = listener();
    let plain = calls::memfd_create(NAME, libc::MFD_CLOEXEC).unwrap();
    let small = calls::memfd_create(NAME, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).unwrap();
    calls::fcntl(small, libc::F_ADD_SEALS, (libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL) as usize).unwrap();
    let foreign = segment(&hello(&listener)); // of another name
    calls::pwrite(foreign, [0u64].as_ptr().cast(), 8, 0).unwrap();
    for sent in [&[][..], &[listener.number], &[plain], &[small], &[foreign]] {
        refused(&listener, stranger(&listener, hello(&listener).encode().as_slice(), sent));
    }
    [plain, small, foreign].into_iter().for_each(|fd| calls::close(fd).unwrap());
}

#[test]
fn a_queue_of_nonsense_offers_nothing_and_holds_no_acceptor() {
    let listener = listener();
    let (client, server) = World::Engine.connection_to(&listener);
    let header = link::header(client.object().link());
    for count in [1, CHANNELS as u32, 1 << 20, u32::MAX / 2] {
        for (place, word) in header.offers.published.channels.iter().enumerate() {
            word.store((place as u32).wrapping_mul(0x9e37_79b9) ^ count, Ordering::Relaxed);
        }
        header.offers.published.count.fetch_add(count, Ordering::Release);
        assert_eq!(error(listener.accept()), libc::EAGAIN);
    }
    client.send(b"the connection goes on").unwrap();
    assert_eq!(server.receive().unwrap(), "the connection goes on");
}

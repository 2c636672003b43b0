//! Both ends of a connection that is announced, in one process, each with a hostile other end.

use crate::again::Came;
use crate::announced::{self, Announced};
use crate::connect::Attempt;
use crate::messages::{Proof, Token};
use crate::pair::{put, Pair};
use crate::waiting::look_for_proof;
use core::sync::atomic::Ordering;
use shunt_link::peers::{self, Guest};
use shunt_link::{self as link, companion_cache};
use shunt_ring::claim;
use shunt_segment::address::Address;
use shunt_segment::channel::{announced as state, life, release, ChannelPage};
use shunt_segment::reason::Reason;
use shunt_stream::socket;
use shunt_sys::{calls, clock, libc};
use shunt_table::global::SETUP;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard};

/// Processes that the servers of these tests call themselves.
const PROCESS: u64 = 0x7fff_0001_0900;
const PATIENCE: u64 = 100_000_000;

/// A pair that both ends have kept, and a TCP connection.
struct Room {
    _alone: MutexGuard<'static, ()>,
    client: TcpStream,
    server: TcpStream,
    addresses: (Address, Address),
    /// The client's link, the server's mapping of it, the channel.
    links: [usize; 2],
    channel: usize,
}

fn of(address: std::net::SocketAddr) -> Address {
    let std::net::SocketAddr::V4(address) = address else { panic!("of IPv4") };
    Address::v4(address.ip().octets(), address.port())
}

fn duplicate(fd: i32) -> i32 {
    calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0).expect("a descriptor")
}

impl Room {
    fn new() -> Room {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let client = TcpStream::connect(listener.local_addr().expect("its address")).expect("a connection");
        let server = listener.accept().expect("it").0;
        let addresses = (of(client.local_addr().expect("its")), of(client.peer_addr().expect("its")));
        let _setup = SETUP.lock().expect("no handler");
        shunt_table::process::user::is_now(calls::geteuid());
        let (offer, _) = peers::offer(PROCESS).expect("a link");
        link::enter(offer.index);
        peers::proved(offer.index);
        let guest = Guest { process: 0, user: 4001, address: addresses.0 };
        let (theirs, _) = match peers::known(offer.link.nonce, offer.link.sequence, &guest) {
            Some(known) => known,
            None => {
                peers::take_in(duplicate(offer.link.fd), offer.link.nonce, offer.link.sequence, &guest).expect("it is taken in")
            }
        };
        let mut ends = [-1; 2];
        calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()).expect("a pair");
        for (index, fd) in [offer.index, theirs].into_iter().zip(ends) {
            companion_cache::forget(index, offer.channel);
            assert!(companion_cache::keep(index, offer.channel, fd, false, addresses), "there is room");
            calls::close(fd).expect("it is open");
        }
        let page = link::page(offer.link.base, offer.channel);
        page.sides.iter().for_each(|side| side.released.store(release::KEPT, Ordering::Relaxed));
        link::leave(offer.index, offer.channel, false, true);
        Room { _alone: alone, client, server, addresses, links: [offer.index, theirs], channel: offer.channel }
    }

    fn page(&self) -> &'static ChannelPage {
        let _setup = SETUP.lock();
        link::page(link::at(self.links[0]).base, self.channel)
    }

    /// The pair, as a client has it that is about to connect.
    fn pair(&self) -> Pair {
        let _setup = SETUP.lock();
        Pair::choose(PROCESS, &self.addresses.0, (1331, [9; 16])).expect("the pair that was kept")
    }

    fn attempt<'a>(&self, server: &'a Address) -> Attempt<'a> {
        let socket = socket::allocate(libc::AF_INET).expect("a socket");
        let (fd, client) = (self.client.as_raw_fd(), self.addresses.0);
        Attempt {
            fd,
            socket,
            server,
            client,
            directory: b"/nowhere",
            name: None,
            mark: 1331,
            nonblocking: false,
            patience: PATIENCE,
            near_by: PATIENCE,
            is_known: true,
        }
    }

    /// What the client's wait comes to, when the other end does this once the connection is announced.
    fn wait(&self, other: impl FnOnce(&Pair)) -> (Came, Pair) {
        let pair = self.pair();
        let attempt = self.attempt(&self.addresses.1);
        pair.announce(&self.addresses.0, &self.addresses.1, attempt.socket).expect("it is coming");
        other(&pair);
        (attempt.await_server(&pair), pair)
    }

    fn say(&self, word: u32) {
        self.page().head.announced.store(word, Ordering::Release);
    }

    fn writes(&self, token: Token) {
        let proof = Proof { token, secret: [5; 16], peer: 0 };
        (&self.server).write_all(&proof.encode()).expect("it is written");
    }

    /// Nothing is left in the TCP connection.
    fn is_empty(&self) -> bool {
        self.client.set_nonblocking(true).expect("it");
        (&self.client).read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Whether another connection may have the pair.
    fn is_kept(&self) -> bool {
        let _setup = SETUP.lock();
        peers::pairs(PROCESS).any(|pair| pair == (self.links[0], self.channel))
    }

    fn find(&self) -> Option<Announced> {
        announced::find(&self.addresses.0, &self.addresses.1, clock::monotonic_ns() + PATIENCE)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _setup = SETUP.lock();
        peers::abandon(self.links[0]);
        self.links.iter().for_each(|index| companion_cache::forget_all(*index));
    }
}

#[test]
fn a_server_that_is_the_right_one() {
    let room = Room::new();
    let (came, pair) = room.wait(|_| {
        room.say(state::CLAIMED);
        room.writes([9; 16]);
    });
    assert!(matches!(came, Came::Proof(secret) if secret == [5; 16]));
    assert!(room.is_empty(), "the proof is taken off");
    drop(pair);
    assert!(!room.is_kept(), "its other end may be in use");
}

#[test]
fn a_server_that_comes_never_leaves_the_pair() {
    let room = Room::new();
    let (came, pair) = room.wait(|_| {});
    assert!(matches!(came, Came::Nothing));
    assert!(room.find().is_none(), "nothing is announced any more");
    drop(pair);
    assert!(room.is_kept());
    let (came, pair) = room.wait(|_| room.say(state::REFUSED));
    assert!(matches!(came, Came::Refused));
    drop(pair);
    assert!(!room.is_kept(), "it has none of the pair");
}

/// A proof with another token, as one that was seen before, or for which nobody has said that it comes.
#[test]
fn a_proof_that_is_none() {
    for (word, token) in [(state::CLAIMED, [8; 16]), (state::ANNOUNCED, [9; 16])] {
        let room = Room::new();
        let (came, _pair) = room.wait(|_| {
            room.say(word);
            room.writes(token);
        });
        assert!(matches!(came, Came::Unclear), "{word}");
        assert!(room.is_empty());
    }
}

#[test]
fn a_proof_that_is_promised_and_does_not_come() {
    let room = Room::new();
    let began = clock::monotonic_ns();
    let (came, _pair) = room.wait(|_| room.say(state::CLAIMED));
    assert!(matches!(came, Came::Unclear) && clock::monotonic_ns() - began > PATIENCE);
}

/// Whatever the process says that serves no longer there: the program has the other one's bytes.
#[test]
fn bytes_of_the_programs_are_left() {
    for word in [state::CLAIMED, state::ANNOUNCED] {
        let room = Room::new();
        let (came, _pair) = room.wait(|_| {
            room.say(word);
            (&room.server).write_all(b"220 ready\r\n").expect("it is written");
        });
        assert!(matches!(came, Came::Nothing));
        let mut read = [0; 11];
        (&room.client).read_exact(&mut read).expect("it is there");
        assert_eq!(&read, b"220 ready\r\n");
    }
    let room = Room::new();
    let (came, _pair) = room.wait(|_| room.server.shutdown(std::net::Shutdown::Both).expect("it"));
    assert!(matches!(came, Came::Nothing), "the connection's end");
}

/// What a client does when the proof has come.
fn answers(page: &ChannelPage, secret: Token, generation: u32) {
    put(&page.head.secret, &secret);
    assert!(claim::accept(&page.head, generation));
}

#[test]
fn a_client_that_is_the_right_one() {
    let room = Room::new();
    let pair = room.pair();
    let generation =
        pair.announce(&room.addresses.0, &room.addresses.1, room.attempt(&room.addresses.1).socket).expect("it is coming");
    let announced = room.find().expect("it is announced");
    assert_eq!((announced.generation, announced.user, announced.channel), (generation, 4001, room.channel));
    let proved = std::thread::scope(|scope| {
        let server = scope.spawn(|| announced.prove(room.server.as_raw_fd(), clock::monotonic_ns() + 10 * PATIENCE));
        let mut bytes = [0; 56];
        (&room.client).read_exact(&mut bytes).expect("the proof");
        let crate::messages::First::Proof(proof) = Proof::begin(&bytes) else { panic!("no proof") };
        assert!(proof.token == [9; 16] && pair.is(state::CLAIMED));
        answers(room.page(), proof.secret, generation);
        server.join().expect("no panic")
    });
    assert_eq!(proved, Ok(()));
    assert!(room.find().is_none(), "it is no other connection's");
}

/// It is read by nobody, and said by nobody: a client that has not read this connection's proof knows that of an earlier one at most.
#[test]
fn an_answer_that_is_none() {
    let room = Room::new();
    let pair = room.pair();
    let generation =
        pair.announce(&room.addresses.0, &room.addresses.1, room.attempt(&room.addresses.1).socket).expect("it is coming");
    let announced = room.find().expect("it is announced");
    answers(room.page(), [5; 16], generation);
    assert_eq!(announced.prove(room.server.as_raw_fd(), clock::monotonic_ns() + PATIENCE), Err(Reason::NearRefused));
    drop((announced, pair));
    assert!(!room.is_kept());
}

#[test]
fn a_client_that_is_silent_or_has_gone() {
    let room = Room::new();
    let announce = || {
        let pair = room.pair();
        let _ = pair.announce(&room.addresses.0, &room.addresses.1, room.attempt(&room.addresses.1).socket);
        pair
    };
    let until = || clock::monotonic_ns() + PATIENCE;
    let pair = announce();
    let announced = room.find().expect("it is announced");
    assert_eq!(announced.prove(room.server.as_raw_fd(), until()), Err(Reason::NearRefused));
    assert_eq!(room.page().head.state.load(Ordering::Relaxed), life::FREE, "it accepts nothing any more");
    drop((announced, pair));
    drop(room);
    let room = Room::new();
    let pair = room.pair();
    let _ = pair.announce(&room.addresses.0, &room.addresses.1, room.attempt(&room.addresses.1).socket);
    let announced = room.find().expect("it is announced");
    drop(pair);
    assert_eq!(announced.prove(room.server.as_raw_fd(), until()), Err(Reason::ClientLeft), "recalled");
    assert!(matches!(look_for_proof(room.client.as_raw_fd()), crate::waiting::Looked::First(crate::messages::First::Part)));
    drop(announced);
    drop(room);
    // Killed: its end of the pair hangs up.
    let room = Room::new();
    let pair = room.pair();
    let _ = SETUP.lock().map(|_setup| companion_cache::forget(room.links[0], room.channel));
    let began = clock::monotonic_ns();
    assert!(announced::find(&room.addresses.0, &room.addresses.1, began + 100 * PATIENCE).is_none());
    assert!(clock::monotonic_ns() - began < 10 * PATIENCE, "and never comes");
    drop(pair);
}

/// What does not come is refused, as nobody waits for it a second time.
#[test]
fn an_announcement_that_comes_late() {
    let room = Room::new();
    let pair = room.pair();
    assert!(room.find().is_none() && pair.is(state::REFUSED));
    let socket = room.attempt(&room.addresses.1).socket;
    assert_eq!(pair.announce(&room.addresses.0, &room.addresses.1, socket), None);
    drop(pair);
    assert!(!room.is_kept());
}

/// Another connection's, another client's, and that of a process that has kept nothing, as a child of the server.
#[test]
fn announcements_for_others() {
    let room = Room::new();
    let pair = room.pair();
    let (client, server) = room.addresses;
    let _ = pair.announce(&client, &server, room.attempt(&room.addresses.1).socket);
    let find = |client: Address, server: Address| announced::find(&client, &server, clock::monotonic_ns() + PATIENCE).is_some();
    assert!(!find(Address { port: client.port ^ 1, ..client }, server), "of another port");
    assert!(!find(client, Address { port: server.port ^ 1, ..server }), "to another listener");
    assert!(!find(Address::v4([127, 0, 0, 2], client.port), server), "of another host");
    let elsewhere = Address::v4([127, 0, 0, 2], client.port);
    shunt_rendezvous::attach::describe(room.page(), &elsewhere, &server);
    assert!(!find(elsewhere, server), "that its client has no link from");
    shunt_rendezvous::attach::describe(room.page(), &client, &server);
    let _ = SETUP.lock().map(|_setup| companion_cache::forget(room.links[1], room.channel));
    assert!(!find(client, server));
}

//! Both ends of a connection that is announced, in one process, each with a hostile other end.

use crate::again::Came;
use crate::announced::{self, Announced, Proved, Shown};
use crate::connect::Attempt;
use crate::known::servers;
use crate::messages::{Proof, Token};
use crate::pair::{put, Pair};
use crate::waiting::{await_any, look_for_proof};
use core::sync::atomic::Ordering;
use shunt_link::peers::{self, Guest};
use shunt_link::{self as link, companion_cache};
use shunt_rendezvous::carriers::Outcome;
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
/// The mark that each connection shows.
const MARK: u16 = 1321;

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
        shunt_rendezvous::attach::describe(page, &addresses.0, &addresses.1);
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
        Pair::choose(PROCESS, &self.addresses.0, self.addresses, (MARK, [9; 16])).expect("the pair that was kept")
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
            mark: MARK,
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
        assert!(pair.announce(self.addresses.0.port, attempt.socket), "it is coming");
        other(&pair);
        (attempt.await_server(&pair), pair)
    }

    /// The other end changes the word of what is announced.
    fn say(&self, to: u32) {
        let word = &self.page().head.announced;
        word.store(state::with(word.load(Ordering::Relaxed), to), Ordering::Release);
    }

    fn announce(&self) -> Pair {
        let pair = self.pair();
        assert!(pair.announce(self.addresses.0.port, self.attempt(&self.addresses.1).socket), "it is coming");
        pair
    }

    fn shown(&self) -> Shown {
        Shown { client: self.addresses.0, server: self.addresses.1, mark: MARK }
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
        announced::find(&self.shown(), clock::monotonic_ns() + PATIENCE)
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
fn answers(pair: &Pair, secret: Token) {
    put(&pair.page().head.secret, &secret);
    assert!(claim::accept(&pair.page().head, pair.generation) && pair.answer(state::TAKEN));
}

#[test]
fn a_client_that_is_the_right_one() {
    let room = Room::new();
    let pair = room.announce();
    let mut announced = room.find().expect("it is announced");
    assert_eq!((announced.generation, announced.user, announced.channel), (pair.generation, 4001, room.channel));
    let proved = std::thread::scope(|scope| {
        let server = scope.spawn(|| announced.prove(room.server.as_raw_fd(), clock::monotonic_ns() + 10 * PATIENCE));
        let mut bytes = [0; 56];
        (&room.client).read_exact(&mut bytes).expect("the proof");
        let crate::messages::First::Proof(proof) = Proof::begin(&bytes) else { panic!("no proof") };
        assert!(proof.token == [9; 16] && pair.is(state::CLAIMED));
        answers(&pair, proof.secret);
        server.join().expect("no panic")
    });
    assert_eq!(proved, Proved::Taken);
    assert!(room.find().is_none(), "it is no other connection's");
}

/// It is read by nobody, and said by nobody: a client that has not read this connection's proof knows that of an earlier one at most.
#[test]
fn an_answer_that_is_none() {
    let room = Room::new();
    let pair = room.announce();
    let mut announced = room.find().expect("it is announced");
    let proved = std::thread::scope(|scope| {
        let server = scope.spawn(|| announced.prove(room.server.as_raw_fd(), clock::monotonic_ns() + 10 * PATIENCE));
        while !pair.is(state::CLAIMED) {
            std::thread::yield_now();
        }
        answers(&pair, [5; 16]);
        server.join().expect("no panic")
    });
    assert_eq!(proved, Proved::Doubtful(Reason::NearRefused));
    drop((announced, pair));
    assert!(!room.is_kept());
}

#[test]
fn a_client_that_is_silent_or_has_gone() {
    let room = Room::new();
    let until = || clock::monotonic_ns() + PATIENCE;
    let pair = room.announce();
    let mut announced = room.find().expect("it is announced");
    assert_eq!(announced.prove(room.server.as_raw_fd(), until()), Proved::Doubtful(Reason::NearRefused));
    assert!(pair.is(state::REFUSED) && !pair.answer(state::TAKEN), "it takes nothing any more");
    drop((announced, pair));
    drop(room);
    let room = Room::new();
    let pair = room.announce();
    let mut announced = room.find().expect("it is announced");
    drop(pair);
    assert_eq!(announced.prove(room.server.as_raw_fd(), until()), Proved::Left(Reason::ClientLeft), "recalled");
    assert!(matches!(look_for_proof(room.client.as_raw_fd()), crate::waiting::Looked::First(crate::messages::First::Part)));
    drop(announced);
    drop(room);
    // Killed: its end of the pair hangs up.
    let room = Room::new();
    let pair = room.pair();
    let _ = SETUP.lock().map(|_setup| companion_cache::forget(room.links[0], room.channel));
    let began = clock::monotonic_ns();
    assert!(announced::find(&room.shown(), began + 100 * PATIENCE).is_none());
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
    assert!(!pair.announce(room.addresses.0.port, socket));
    drop(pair);
    assert!(!room.is_kept());
}

/// Another connection's, another client's, and that of a process that has kept nothing, as a child of the server.
#[test]
fn announcements_for_others() {
    let room = Room::new();
    let _pair = room.announce();
    let (client, server) = room.addresses;
    let find = |client: Address, server: Address, mark: u16| {
        announced::find(&Shown { client, server, mark }, clock::monotonic_ns() + PATIENCE).is_some()
    };
    assert!(!find(Address { port: client.port ^ 1, ..client }, server, MARK), "of another port");
    assert!(!find(client, Address { port: server.port ^ 1, ..server }, MARK), "to another listener");
    assert!(!find(client, server, MARK - 8), "of another mark");
    assert!(!find(Address::v4([127, 0, 0, 2], client.port), server, MARK), "of another host");
    let elsewhere = Address::v4([127, 0, 0, 2], client.port);
    shunt_rendezvous::attach::describe(room.page(), &elsewhere, &server);
    assert!(!find(elsewhere, server, MARK), "that its client has no link from");
    shunt_rendezvous::attach::describe(room.page(), &client, &server);
    let _ = SETUP.lock().map(|_setup| companion_cache::forget(room.links[1], room.channel));
    assert!(!find(client, server, MARK));
}

/// The server found an announcement, and slept; its client recalled it, and announced another connection on the same pair. No proof of the second goes into the
/// first, and the second is another thread's to claim.
#[test]
fn an_announcement_that_was_followed_by_another() {
    let room = Room::new();
    let first = room.announce();
    let mut found = room.find().expect("it is announced");
    assert!(first.recall());
    drop(first);
    let second = room.announce();
    assert_eq!(found.prove(room.server.as_raw_fd(), clock::monotonic_ns() + PATIENCE), Proved::Left(Reason::ClientLeft));
    assert!(room.is_empty() && second.is(state::ANNOUNCED));
    drop(found);
    // Between the look at the word and that at the generation.
    room.page().head.generation.fetch_add(1, Ordering::Relaxed);
    assert!(room.find().is_none(), "addresses of one, generation of the other");
    room.page().head.generation.fetch_sub(1, Ordering::Relaxed);
    assert!(second.is(state::ANNOUNCED) && room.find().is_some(), "it is whole, and so is what the server has kept for it");
}

/// A server that has no time refuses what is coming, and then accepts the connection, which another one has announced as its own: its proof is taken off.
#[test]
fn a_proof_in_a_connection_that_was_refused() {
    for is_proved in [false, true] {
        let room = Room::new();
        let pair = room.pair();
        room.say(state::REFUSED);
        if is_proved {
            room.writes([8; 16]);
            await_any([room.client.as_raw_fd()], u64::MAX);
        }
        let came = room.attempt(&room.addresses.1).announce(&pair);
        assert!(room.is_empty() && if is_proved { matches!(came, Came::Unclear) } else { matches!(came, Came::Refused) });
    }
}

/// Behind the claim: what the next connection on the channel does is no answer to this one.
#[test]
fn the_next_connection_s_answer_is_none() {
    let room = Room::new();
    let pair = room.announce();
    let mut found = room.find().expect("it is announced");
    room.page().head.generation.fetch_add(1, Ordering::Relaxed);
    room.page().head.state.store(life::ACCEPTED, Ordering::Relaxed);
    room.page().head.announced.store(state::word(state::ANNOUNCED, pair.generation), Ordering::Relaxed);
    let proved = found.prove(room.server.as_raw_fd(), clock::monotonic_ns() + PATIENCE);
    assert_eq!(proved, Proved::Doubtful(Reason::NearRefused));
}

/// One that has announced another one's connection is not waited for: that one has read the proof, and has ended the connection.
#[test]
fn a_proof_that_another_one_has_read() {
    let room = Room::new();
    let pair = room.announce();
    let mut announced = room.find().expect("it is announced");
    let mut client = &room.client;
    let proved = std::thread::scope(|scope| {
        let server = scope.spawn(|| announced.prove(room.server.as_raw_fd(), u64::MAX));
        client.read_exact(&mut [0; 56]).expect("the proof");
        let nowhere = [0u64; 2]; // AF_UNSPEC: a reset
        calls::connect(client.as_raw_fd(), nowhere.as_ptr().cast(), 16).expect("it");
        server.join().expect("no panic")
    });
    assert_eq!(proved, Proved::Doubtful(Reason::ClientLeft));
    assert!(pair.is(state::REFUSED) && !pair.answer(state::TAKEN));
}

/// The server's address is translated: it finds what its client announces by what the last connection looked like to it, and not by what the client sees.
#[test]
fn a_translated_connection() {
    let room = Room::new();
    let (client, server) = room.addresses;
    let seen = Address::v4([10, 9, 9, 9], 80);
    let choose = |from: Address| SETUP.lock().and_then(|_setup| Pair::choose(PROCESS, &client, (from, seen), (MARK, [9; 16])));
    assert!(choose(Address::v4([127, 0, 0, 2], 0)).is_none(), "its link is one of another address's");
    let pair = choose(Address { port: 0, ..client }).expect("the pair that was kept");
    let find =
        |server: Address| announced::find(&Shown { client, server, mark: MARK }, clock::monotonic_ns() + PATIENCE).is_some();
    assert!(!find(server) && pair.is(state::COMING), "to another listener");
    assert!(pair.announce(client.port, room.attempt(&server).socket));
    assert!(!find(server) && find(seen));
}

/// Both leave the connection to TCP, or neither: the server by the secret, the client by the word that it took its offer back with.
#[test]
fn a_client_that_has_read_the_proof_and_leaves_it() {
    for shows in [true, false] {
        let room = Room::new();
        let pair = room.announce();
        let mut announced = room.find().expect("it is announced");
        let proved = std::thread::scope(|scope| {
            let server = scope.spawn(|| announced.prove(room.server.as_raw_fd(), clock::monotonic_ns() + 10 * PATIENCE));
            let mut bytes = [0; 56];
            (&room.client).read_exact(&mut bytes).expect("the proof");
            let crate::messages::First::Proof(proof) = Proof::begin(&bytes) else { panic!("no proof") };
            if shows {
                put(&room.page().head.secret, &proof.secret);
            }
            assert!(pair.answer(state::LEFT));
            server.join().expect("no panic")
        });
        let wanted = if shows { Proved::Left(Reason::ClientLeft) } else { Proved::Doubtful(Reason::NearRefused) };
        assert_eq!(proved, wanted);
    }
}

/// The client: where the server has taken the offer back it resets the connection, and another one is to be made.
#[test]
fn a_proof_that_is_read_too_late() {
    for is_late in [false, true] {
        let room = Room::new();
        let pair = room.announce();
        let attempt = room.attempt(&room.addresses.1);
        // No end of the pair is there, so that it leaves the connection to TCP.
        let _ = SETUP.lock().map(|_setup| companion_cache::forget(room.links[0], room.channel));
        room.say(if is_late { state::REFUSED } else { state::CLAIMED });
        let settled = attempt.settle_again(pair, &[5; 16]);
        assert_eq!(settled.is_none(), is_late);
        assert_eq!(room.page().head.secret[0].load(Ordering::Relaxed), u64::from_le_bytes([5; 8]), "shown, whatever comes of it");
    }
}

/// connect(2) may take minutes: other connections of the same client do not wait for it, nor do those to other addresses.
#[test]
fn what_is_coming_is_waited_for_by_its_own_connection_and_for_a_moment() {
    let room = Room::new();
    let pair = room.pair();
    let (client, server) = room.addresses;
    let find = |server: Address, mark: u16| {
        let none = announced::find(&Shown { client, server, mark }, clock::monotonic_ns() + PATIENCE).is_none();
        none && pair.is(state::COMING)
    };
    assert!(
        find(Address { port: server.port ^ 1, ..server }, MARK) && find(server, MARK - 8),
        "it is not refused for another's sake"
    );
    room.page().head.began.fetch_sub(clock::ticks_for_ns(1_000_000_000), Ordering::Relaxed);
    assert!(find(server, MARK), "it is old");
    assert!(pair.announce(client.port, room.attempt(&room.addresses.1).socket) && room.find().is_some());
}

/// A SYN that is under way, and shows a mark that nobody waits by any more, does not go on.
#[test]
fn a_connection_that_is_not_there_in_time_is_begun_anew() {
    let mut room = Room::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    calls::listen(listener.as_raw_fd(), 0).expect("it listens");
    room.addresses.1 = of(listener.local_addr().expect("its address"));
    let socket =
        || calls::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0).expect("a socket");
    let address = shunt_table::sockaddr::Encoded::new(libc::AF_INET, &room.addresses.1);
    // Until its queue is full.
    let others: Vec<i32> = (0..4).map(|_| socket()).collect();
    others.iter().for_each(|other| _ = calls::connect(*other, address.pointer(), address.length));
    let server = room.addresses.1;
    let mut attempt = room.attempt(&server);
    (attempt.fd, attempt.nonblocking) = (socket(), true);
    let outcome = attempt.make_again(room.pair());
    assert!(matches!(outcome, Outcome::Done(Err(shunt_sys::Errno(libc::EINPROGRESS)), Reason::NearUnclaimed)));
    assert!(room.is_kept(), "no server has had a part in it");
    let own = shunt_table::sockaddr::bound_address(attempt.fd);
    let mut came = || listener.accept().expect("one of them");
    let (it, _) = std::iter::repeat_with(&mut came).find(|(_, from)| from.port() == own.port).expect("one of them");
    assert_ne!(shunt_rendezvous::shown::look(it.as_raw_fd(), 40).segment, u32::from(MARK), "nobody waits by a mark");
    others.iter().chain([&attempt.fd]).for_each(|fd| calls::close(*fd).expect("it is open"));
}

/// A process that promises a proof and writes none is not believed for ever; one that refuses is busy, and serves there still.
#[test]
fn a_process_that_takes_no_connection_has_missed_one() {
    for word in [state::REFUSED, state::CLAIMED] {
        let mut room = Room::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        room.addresses.1 = of(listener.local_addr().expect("its address"));
        let server = room.addresses.1;
        (0..4).for_each(|_| servers(|servers| servers.claimed_by(&server, PROCESS, room.addresses)));
        assert_eq!(servers(|servers| servers.process(&server)), Some((PROCESS, room.addresses)));
        let pair = room.pair();
        let mut attempt = room.attempt(&server);
        attempt.fd = calls::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).expect("a socket");
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let is_announced = || state::state(room.page().head.announced.load(Ordering::Acquire)) == state::ANNOUNCED;
                while !is_announced() {
                    std::thread::yield_now();
                }
                room.say(word);
            });
            attempt.make_again(pair)
        });
        assert!(matches!(outcome, Outcome::Done(Ok(_), Reason::NearRefused)), "{word}");
        let is_believed = (word == state::REFUSED).then_some((PROCESS, room.addresses));
        assert_eq!(servers(|servers| servers.process(&server)), is_believed, "{word}");
        let first = listener.accept().expect("it").0;
        if word == state::CLAIMED {
            let read = (&first).read(&mut [0]);
            assert!(read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
            listener.accept().expect("another one");
        }
        calls::close(attempt.fd).expect("it is open");
    }
}

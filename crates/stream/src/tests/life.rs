//! The graph of a stream's life: everything that two ends can do to each other, done, drawn as one side of them sees it, and held
//! against the kernel's TCP.
//!
//! `life.txt` is the graph as it should be. After a change that is meant to alter it: `RENEW=1 cargo test -p shunt-stream life`, and
//! look at the difference.

use super::*;
use crate::waiting::readiness;
use core::sync::atomic::Ordering;
use shunt_segment::channel::{state, word};
use shunt_sys::libc::{MSG_NOSIGNAL, SHUT_RD, SHUT_WR};
use shunt_table::table;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// What a program can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Send,
    Receive,
    ShutWrite,
    ShutRead,
    Error,
    Close,
    /// close(2) with SO_LINGER of no time.
    Reset,
    /// The process ends.
    Killed,
}

use Call::*;

/// A call of the near end's, or of its peer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Own(Call),
    Peer(Call),
}

const ACTS: [Act; 12] = [
    Act::Own(Send),
    Act::Own(Receive),
    Act::Own(ShutWrite),
    Act::Own(ShutRead),
    Act::Own(Error),
    Act::Peer(Send),
    Act::Peer(Receive),
    Act::Peer(ShutWrite),
    Act::Peer(ShutRead),
    Act::Peer(Close),
    Act::Peer(Reset),
    Act::Peer(Killed),
];

/// Two connected ends.
trait Ends {
    /// Makes the call, and tells its result.
    fn act(&mut self, act: Act) -> String;
}

fn told(result: Result<usize, i32>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(libc::EPIPE) => "EPIPE".into(),
        Err(libc::ECONNRESET) => "ECONNRESET".into(),
        Err(libc::EAGAIN) => "EAGAIN".into(),
        Err(libc::ENOTCONN) => "ENOTCONN".into(),
        Err(other) => format!("error {other}"),
    }
}

/// Ours.
struct World {
    pair: Pair,
    lives: bool,
}

impl Ends for World {
    fn act(&mut self, act: Act) -> String {
        let (end, call) = match act {
            Act::Own(call) => (self.pair.near, call),
            Act::Peer(call) => (self.pair.far, call),
        };
        self.lives &= !matches!(call, Close | Reset | Killed);
        let result = match call {
            Send => end.send(b"x", MSG_NOSIGNAL | NOW),
            Receive => end.receive(&mut [0; 4], NOW),
            ShutWrite => end.shut(SHUT_WR).map(|_| 0),
            ShutRead => end.shut(SHUT_RD).map(|_| 0),
            Call::Error => end.take_error().map_or(Ok(0), |error| Err(Errno(error))),
            Close | Reset => {
                end.close(call == Reset);
                Ok(0)
            }
            Killed => {
                table::take(end.fd);
                shunt_sys::calls::close(end.fd).map(|()| 0)
            }
        };
        // The near end asks the kernel for its peer, as each wait does.
        crate::waiting::wake::ask_peer(self.pair.near.socket, self.pair.near.fd);
        told(result.map_err(|error| error.0))
    }
}

impl World {
    fn after(path: &[Act]) -> World {
        let mut world = World { pair: Pair::new(), lives: true };
        for act in path {
            world.act(*act);
        }
        world
    }

    /// The near side's state, as it is drawn.
    fn near(&self) -> String {
        let socket = self.pair.near.socket;
        let phase = readiness::phase(socket);
        let (peer, waiting) = socket.incoming().look();
        let own = socket.own().receive.state.load(Ordering::Relaxed);
        let marks = [
            ("unread", waiting > 0),
            ("read-shut", own & state::SHUT_RD != 0),
            ("peer-closed", peer & word::CLOSED != 0 || own & state::PEER_GONE != 0),
            ("ECONNRESET", own & state::RESET_DUE != 0),
            ("EPIPE", own & state::PIPE_DUE != 0),
        ];
        marks.iter().filter(|(_, holds)| *holds).fold(format!("{phase:?}"), |text, (name, _)| text + "," + name)
    }

    /// Both, as far as what follows can differ.
    fn both(&self) -> String {
        let (near, far) = (self.pair.near.socket, self.pair.far.socket);
        let ends = word::FIN | word::CLOSED | word::RST | word::LATE;
        let sides = [near, far].map(|socket| {
            let state = socket.own().receive.state.load(Ordering::Relaxed);
            format!("{state:x} {:x} {}", socket.outgoing().announced() & ends, socket.incoming().look().1 > 0)
        });
        format!("{} {sides:?} {}", self.near(), self.lives)
    }

    /// Whether `act` is possible, and leads anywhere new: one byte in each direction shows all.
    fn allows(&self, act: Act) -> bool {
        let full = |end: &End| end.socket.incoming().look().1 > 0;
        match act {
            Act::Own(Send) => !full(&self.pair.far) || !self.lives,
            Act::Peer(Send) => self.lives && !full(&self.pair.near),
            Act::Peer(_) => self.lives,
            Act::Own(_) => true,
        }
    }
}

/// The kernel's, over loopback.
struct Kernel {
    near: TcpStream,
    far: Option<TcpStream>,
}

impl Kernel {
    fn new(listener: &TcpListener) -> Kernel {
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (far, _) = listener.accept().expect("its other end");
        for stream in [&near, &far] {
            stream.set_nonblocking(true).expect("a mode");
        }
        Kernel { near, far: Some(far) }
    }
}

fn set_linger(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of_val(&linger) as u32;
    // SAFETY: a structure of that size.
    unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size) };
}

impl Ends for Kernel {
    fn act(&mut self, act: Act) -> String {
        let (stream, call) = match act {
            Act::Own(call) => (&self.near, call),
            Act::Peer(call) => (self.far.as_ref().expect("a peer that lives"), call),
        };
        let mut stream = stream;
        let result = match call {
            Send => stream.write(b"x"),
            Receive => stream.read(&mut [0; 4]),
            ShutWrite => stream.shutdown(Shutdown::Write).map(|()| 0),
            ShutRead => stream.shutdown(Shutdown::Read).map(|()| 0),
            Call::Error => stream.take_error().and_then(|error| error.map_or(Ok(0), Err)),
            Close | Reset | Killed => {
                if call == Reset {
                    set_linger(stream);
                }
                self.far = None;
                Ok(0)
            }
        };
        told(result.map_err(|error| error.raw_os_error().unwrap_or(0)))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        set_linger(&self.near); // no port is kept in TIME_WAIT
    }
}

/// What is known: state before, call and result, states after. And each way that leads to a state, with one call more.
struct Graph {
    edges: BTreeMap<(String, String), BTreeSet<String>>,
    ways: Vec<Vec<Act>>,
}

fn explore() -> Graph {
    let mut graph = Graph { edges: BTreeMap::new(), ways: Vec::new() };
    let mut known = BTreeSet::new();
    let mut open: VecDeque<Vec<Act>> = VecDeque::from([Vec::new()]);
    while let Some(path) = open.pop_front() {
        let world = World::after(&path);
        if !known.insert(world.both()) {
            continue;
        }
        let before = world.near();
        for act in ACTS.into_iter().filter(|act| world.allows(*act)) {
            let mut next = World::after(&path);
            let result = next.act(act);
            let way: Vec<Act> = path.iter().copied().chain([act]).collect();
            let label = match act {
                Act::Own(call) => format!("{call:?} = {result}"),
                Act::Peer(call) => format!("peer: {call:?}"),
            };
            graph.edges.entry((before.clone(), label)).or_default().insert(next.near());
            if !known.contains(&next.both()) {
                open.push_back(way.clone());
            }
            graph.ways.push(way);
        }
    }
    graph
}

fn draw(graph: &Graph) -> String {
    let mut text = String::new();
    let mut last = "";
    for ((before, label), after) in &graph.edges {
        if before != last {
            text += &format!("{before}\n");
            last = before;
        }
        let after: Vec<&str> = after.iter().map(|state| if state == before { "=" } else { state }).collect();
        text += &format!("    {label:<22} -> {}\n", after.join(" | "));
    }
    text
}

#[test]
fn the_graph_is_the_one_that_is_drawn() {
    let drawn = draw(&explore());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/life.txt");
    if std::env::var_os("RENEW").is_some() {
        std::fs::write(path, &drawn).expect("a file of the tree");
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    for (at, (is, should)) in drawn.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, should, "line {} of life.txt", at + 1);
    }
    assert_eq!(drawn.lines().count(), expected.lines().count(), "life.txt has other lines at its end");
}

#[test]
fn the_kernel_says_the_same_on_each_way() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let ways = explore().ways;
    let mut differ = Vec::new();
    // Where both ends have shut their receiving halves, the kernel's companion says what it says of a peer that is gone: a row of
    // docs/SEMANTICS.md.
    let said_to_differ = |way: &[Act]| way.contains(&Act::Own(ShutRead)) && way.contains(&Act::Peer(ShutRead));
    for way in ways.iter().filter(|way| !said_to_differ(way)) {
        let (mut ours, mut kernels) = (World::after(&[]), Kernel::new(&listener));
        for act in way {
            let (our, kernel) = (ours.act(*act), kernels.act(*act));
            if our != kernel {
                differ.push(format!("{way:?}: {act:?} gives {our}, the kernel {kernel}"));
                break;
            }
        }
    }
    assert!(differ.is_empty(), "{} of {} ways differ:\n{}", differ.len(), ways.len(), differ.join("\n"));
}

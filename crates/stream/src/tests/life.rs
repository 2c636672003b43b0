//! The graph of a stream's life: everything that two ends can do to each other, done, and drawn as one side of them sees it.
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

/// What one of the ends can do, and what is told of it.
type Action = (&'static str, fn(&mut World) -> String);

/// Both ends, and whether the far one still exists.
struct World {
    pair: Pair,
    lives: bool,
}

fn told<T>(result: shunt_sys::Result<T>, tell: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => tell(value),
        Err(error) => match error.0 {
            libc::EPIPE => "EPIPE".into(),
            libc::ECONNRESET => "ECONNRESET".into(),
            libc::EAGAIN => "EAGAIN".into(),
            libc::ENOTCONN => "ENOTCONN".into(),
            other => format!("error {other}"),
        },
    }
}

fn send(end: &End) -> String {
    told(end.send(b"x", MSG_NOSIGNAL | NOW), |sent| format!("{sent}"))
}

fn receive(end: &End) -> String {
    told(end.receive(&mut [0; 4], NOW), |got| if got == 0 { "end".into() } else { "bytes".into() })
}

fn shut(end: &End, how: i32) -> String {
    told(end.shut(how), |_| "0".into())
}

fn error(end: &End) -> String {
    told(end.take_error().map_or(Ok(()), |error| Err(shunt_sys::Errno(error))), |()| "0".into())
}

/// Of this end.
const OWN: &[Action] = &[
    ("shutdown(WR)", |world| shut(&world.pair.near, SHUT_WR)),
    ("shutdown(RD)", |world| shut(&world.pair.near, SHUT_RD)),
    ("send", |world| send(&world.pair.near)),
    ("recv", |world| receive(&world.pair.near)),
    ("SO_ERROR", |world| error(&world.pair.near)),
];

/// Of the peer, as long as it lives.
const PEERS: &[Action] = &[
    ("peer: shutdown(WR)", |world| shut(&world.pair.far, SHUT_WR)),
    ("peer: shutdown(RD)", |world| shut(&world.pair.far, SHUT_RD)),
    ("peer: send", |world| send(&world.pair.far)),
    ("peer: recv", |world| receive(&world.pair.far)),
    ("peer: close", |world| {
        world.lives = false;
        world.pair.far.close(false);
        String::new()
    }),
    ("peer: reset", |world| {
        world.lives = false;
        world.pair.far.close(true);
        String::new()
    }),
    ("peer: killed", |world| {
        world.lives = false;
        let fd = world.pair.far.fd;
        table::take(fd);
        shunt_sys::calls::close(fd).expect("an open descriptor");
        String::new()
    }),
];

impl World {
    fn after(path: &[Action]) -> World {
        let mut world = World { pair: Pair::new(), lives: true };
        for (_, act) in path {
            act(&mut world);
            world.notice();
        }
        world
    }

    /// The near end asks the kernel for its peer, as each wait does.
    fn notice(&self) {
        crate::waiting::wake::ask_peer(self.pair.near.socket, self.pair.near.fd);
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
        let own = far.own().receive.state.load(Ordering::Relaxed);
        let unread = far.incoming().look().1 > 0;
        let told = near.outgoing().announced() & (word::FIN | word::CLOSED | word::RST | word::LATE);
        let heard = far.outgoing().announced() & (word::FIN | word::CLOSED | word::RST | word::LATE);
        let near_state = near.own().receive.state.load(Ordering::Relaxed);
        format!("{} {near_state:x} {told:x} {heard:x} {own:x} {unread} {}", self.near(), self.lives)
    }

    /// Whether `action` leads anywhere new: one byte in each direction shows all.
    fn allows(&self, name: &str) -> bool {
        let full = |end: &End| end.socket.incoming().look().1 > 0;
        match name {
            "send" => !full(&self.pair.far) || !self.lives,
            "peer: send" => !full(&self.pair.near),
            _ => true,
        }
    }
}

/// What is known of one edge's ends: state before, action and its result.
type Edges = BTreeMap<(String, String), BTreeSet<String>>;

fn explore() -> Edges {
    let mut edges = Edges::new();
    let mut known = BTreeSet::new();
    let mut open: VecDeque<Vec<Action>> = VecDeque::from([Vec::new()]);
    while let Some(path) = open.pop_front() {
        let world = World::after(&path);
        if !known.insert(world.both()) {
            continue;
        }
        let before = world.near();
        let peers = if world.lives { PEERS } else { &[] };
        for action in OWN.iter().chain(peers).filter(|(name, _)| world.allows(name)) {
            let mut next = World::after(&path);
            let result = action.1(&mut next);
            next.notice();
            let label = if action.0.starts_with("peer") { action.0.to_string() } else { format!("{} = {result}", action.0) };
            edges.entry((before.clone(), label)).or_default().insert(next.near());
            if !known.contains(&next.both()) {
                open.push_back(path.iter().chain([action]).copied().collect());
            }
        }
    }
    edges
}

fn draw(edges: &Edges) -> String {
    let mut text = String::new();
    let mut last = "";
    for ((before, label), after) in edges {
        if before != last {
            text += &format!("{before}\n");
            last = before;
        }
        let after: Vec<&str> = after.iter().map(|state| if state == before { "=" } else { state }).collect();
        text += &format!("    {label:<26} -> {}\n", after.join(" | "));
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
    let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
    for (at, (is, should)) in lines(&drawn).into_iter().zip(lines(&expected)).enumerate() {
        assert_eq!(is, should, "line {} of life.txt", at + 1);
    }
    assert_eq!(drawn.lines().count(), expected.lines().count(), "life.txt has other lines at its end");
}

//! A server that never stops sending what no call asked for: it keeps nobody from going on.

use super::{Binding, LAST_LOOKS};
use crate::address::Address;
use crate::client::route::Route;
use crate::client::{Client, Options, LOOKS};
use crate::device::{Any, End};
use crate::rendezvous::Socket;
use crate::window::Window;
use shunt_endpoint::device::shm::{self, Shm};
use shunt_endpoint::{
    Address as At, Area, Arrival, Backlog, Capabilities, Channel, Counters, Endpoint, Message, OpenError, PostError, Segment,
    SendError, Tag, Tags, Ticket,
};
use std::cell::RefCell;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

/// Frames that a port takes at one look, at most.
const BATCH: u64 = 64;

/// The server's side: how many frames it still sends, and through what.
struct Flood {
    left: u64,
    server: Option<(End, Channel)>,
}

/// The caller's endpoint: before it looks, the server has sent another frame.
struct Endless {
    inner: Shm,
    flood: Arc<Mutex<Flood>>,
}

/// Methods that are the inner endpoint's.
macro_rules! inner {
    ($(fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self $(, $argument: $type)*) -> $result { self.inner.$name($($argument),*) })*
    };
    ($(mut fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&mut self $(, $argument: $type)*) -> $result { self.inner.$name($($argument),*) })*
    };
}

impl Endpoint for Endless {
    inner! {
        fn capabilities(&self) -> &Capabilities;
        fn segment(&self) -> Segment;
        fn address(&self) -> At;
        fn descriptor(&self) -> i32;
        fn counters(&self) -> &Counters;
    }
    inner! {
        mut fn new_tag() -> Result<Tag, shunt_sys::Errno>;
        mut fn open(remote: &At, tags: Tags) -> Result<Channel, OpenError>;
        mut fn close(channel: Channel) -> ();
        mut fn send(message: &Message<'_>) -> Result<Ticket, SendError>;
        mut fn flush() -> Result<bool, SendError>;
        mut fn injected() -> Ticket;
        mut fn post(buffer: Area) -> Result<(), PostError>;
        mut fn release(arrival: &mut Arrival) -> ();
        mut fn backlog() -> Backlog;
        mut fn arm() -> bool;
        mut fn disarm() -> ();
    }

    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        let mut flood = self.flood.lock().unwrap();
        if let Flood { left: left @ 1.., server: Some((end, channel)) } = &mut *flood {
            *left -= 1;
            end.endpoint().send(&Message::small(*channel, &[0xff; 32])).unwrap();
        }
        self.inner.receive(arrival)
    }
}

/// A caller, bound to a server that will send so many frames.
fn bound(frames: u64) -> (Binding, Arc<Mutex<Flood>>, UnixStream) {
    let address: Address = "endless".parse().unwrap();
    let flood = Arc::new(Mutex::new(Flood { left: 0, server: None }));
    let inner = Shm::new(shm::Options { channels: 1, segment: 4096 }).unwrap();
    let mut end = End::on(Any::Other(Box::new(Endless { inner, flood: flood.clone() }))).unwrap();
    let mut server = End::new(&address, None).unwrap();
    let (here, there) = (end.card().unwrap(), server.card().unwrap());
    let (socket, held) = UnixStream::pair().unwrap();
    let window = Window::create(8192).unwrap();
    let said = (address.to_string(), None, 1, crate::forks::watch());
    let binding = Binding::assemble(Socket::local(socket), end, window, &there, &Options::default(), said).unwrap();
    let channel = server.endpoint().open(&here.address, Tags { receive: there.tag, send: here.tag }).unwrap();
    *flood.lock().unwrap() = Flood { left: frames, server: Some((server, channel)) };
    (binding, flood, held)
}

#[test]
fn progress_ends_though_the_server_goes_on() {
    let (binding, flood, _held) = bound(u64::from(LOOKS) * BATCH * 2);
    let client = Client {
        route: RefCell::new(Route::Own(Box::new(binding))),
        address: "endless".parse().unwrap(),
        program: 1,
        versions: 1..=1,
        options: Options::default(),
    };
    let before = flood.lock().unwrap().left;
    client.progress();
    let left = flood.lock().unwrap().left;
    assert!(left > 0, "it took all {before} frames");
    assert!(left < before, "and looks at what comes");
}

#[test]
fn the_end_of_a_binding_ends_though_the_server_goes_on() {
    let (mut binding, flood, held) = bound(u64::from(LAST_LOOKS) * BATCH * 2);
    // As over the device of one host: what came before the end is taken.
    binding.calls.direct = true;
    let before = flood.lock().unwrap().left;
    drop(held);
    binding.look_after();
    let left = flood.lock().unwrap().left;
    assert!(binding.dead.is_some());
    assert!(left > 0, "it took all {before} frames");
    assert!(left < before, "and looks at what came");
}

//! The keeper: serves what ranks of other hosts ask for, in the agent's process, and sleeps while nothing comes.

use super::device;
use super::hello::{Answer, Card, Hello};
use super::hosts::Hosts;
use super::shown::{Done, Shown};
use super::wire::{Request, DONE, REFUSED};
use crate::layout::Layout;
use crate::memory::Memory;
use shunt_am::port::{memory, Port};
use shunt_am::{Access, Dispatch, Message, Replier};
use shunt_endpoint::{Endpoint, Tags};
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// How long it looks without sleeping after something came.
const SPIN: Duration = Duration::from_micros(50);
/// Looks in vain between two offers of the processor to ranks, which need it: an offer takes as long as a look.
const LOOKS: u32 = 8;
/// The same where ranks share processors.
const CROWDED_SPIN: Duration = Duration::from_micros(10);
/// Strangers that may be listened to at one time, and for how long each.
const STRANGERS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
/// Frames that may wait.
const DEPTH: u32 = 1024;

/// A rank that has come, and where it is to be answered.
type Guest = (Hello, TcpStream);

type KeeperPort = Port<'static, Box<dyn Endpoint + Send>>;

/// The listener of a host, before it is known where the others are.
pub(crate) fn listen() -> io::Result<TcpListener> {
    TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))
}

/// Handlers, and what they work on.
struct Server {
    shown: Shown,
    out: Vec<u8>,
}

struct Keeper {
    port: KeeperPort,
    server: Server,
    hosts: Hosts,
    own: usize,
    peers: u32,
    /// By rank: its peer, if it has come.
    known: Vec<Option<u32>>,
    guests: Receiver<Guest>,
    bell: OwnedFd,
    spin: Duration,
    looks: u32,
}

/// Starts the keeper of the host that has these ranks. It ends with the process.
///
/// # Errors
/// If there is no endpoint to be had, or no memory.
pub(crate) fn start(
    listener: TcpListener,
    hosts: Hosts,
    own: usize,
    (memory_of_job, layout): (Memory, Layout),
    crowded: bool,
) -> io::Result<()> {
    let host = hosts.list[own];
    let shown = Shown::new(memory_of_job, layout, host.first, host.ranks)?;
    // A program may be followed by another one under the same rank, some times.
    let peers = ((layout.ranks - host.ranks) * 4).clamp(8, 4096) as u32;
    let endpoint = device::open(hosts.device, host.address, peers, DEPTH)?;
    let config = super::config(&endpoint, peers);
    let port = Port::new(endpoint, memory(&config).leak(), &config).map_err(io::Error::other)?;
    // SAFETY: the result is a new descriptor or an error.
    let bell = unsafe {
        let descriptor = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    let (sender, guests) = channel();
    let (secret, ring) = (hosts.secret, bell.try_clone()?);
    std::thread::Builder::new().name("welcome".into()).spawn(move || welcome(&listener, secret, &sender, &Arc::new(ring)))?;
    let known = vec![None; layout.ranks];
    let server = Server { shown, out: vec![0; 1 << 16] };
    let (spin, looks) = if crowded { (CROWDED_SPIN, 1) } else { (SPIN, LOOKS) };
    let mut keeper = Keeper { port, server, hosts, own, peers: 0, known, guests, bell, spin, looks };
    std::thread::Builder::new().name("keeper".into()).spawn(move || {
        // Without a keeper ranks of other hosts would wait for ever; an agent that is gone ends the job.
        let _end = Abort;
        keeper.run();
    })?;
    Ok(())
}

struct Abort;

impl Drop for Abort {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Listens to each stranger by itself and for a short time.
fn welcome(listener: &TcpListener, secret: [u64; 2], to: &Sender<Guest>, bell: &Arc<OwnedFd>) {
    let strangers = Arc::new(Strangers::default());
    for number in 0.. {
        let Ok((mut stream, _)) = listener.accept() else {
            // Out of descriptors, say: others may be given back.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let limits = [stream.set_read_timeout(Some(PATIENCE)), stream.set_write_timeout(Some(PATIENCE))];
        if limits.iter().any(Result::is_err) || !strangers.come(number, &stream) {
            continue;
        }
        let (to, bell, others) = (to.clone(), bell.clone(), strangers.clone());
        // Without a thread to be had the connection ends, and a rank comes again.
        let _ = std::thread::Builder::new().spawn(move || {
            let hello = Hello::read(&mut stream).ok();
            others.go(number);
            if let Some(hello) = hello.filter(|hello| hello.knows(secret)) {
                let _ = to.send((hello, stream));
                // SAFETY: eight bytes of ours.
                unsafe { libc::write(bell.as_raw_fd(), (&raw const ONE).cast(), 8) };
            }
        });
    }
}

/// Connections that have not said yet who they are. A rank says so at once: where there are too many, the one that has been silent longest ends.
#[derive(Default)]
struct Strangers(Mutex<VecDeque<(u64, TcpStream)>>);

impl Strangers {
    fn all(&self) -> MutexGuard<'_, VecDeque<(u64, TcpStream)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// False if there is no descriptor to be had.
    fn come(&self, number: u64, stream: &TcpStream) -> bool {
        let Ok(other) = stream.try_clone() else { return false };
        let mut all = self.all();
        all.push_back((number, other));
        if let Some((_, oldest)) = if all.len() > STRANGERS { all.pop_front() } else { None } {
            // Its thread reads the end.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        true
    }

    fn go(&self, number: u64) {
        self.all().retain(|(other, _)| *other != number);
    }
}

static ONE: u64 = 1;

impl Keeper {
    fn run(&mut self) {
        let (mut last, mut looks) = (Instant::now(), 0);
        loop {
            if self.port.poll(&mut self.server) > 0 {
                (last, looks) = (Instant::now(), 0);
                continue;
            }
            looks += 1;
            if looks % self.looks != 0 {
                continue;
            }
            while let Ok((hello, stream)) = self.guests.try_recv() {
                self.admit(&hello, stream);
            }
            if last.elapsed() < self.spin {
                std::thread::yield_now();
                continue;
            }
            self.sleep();
        }
    }

    fn sleep(&mut self) {
        let Some(pause) = self.port.arm() else { return };
        let descriptors = [self.port.endpoint().descriptor(), self.bell.as_raw_fd()];
        let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let pause = pause.min(Duration::from_secs(1));
        let pause = libc::timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        // SAFETY: two descriptors and a time of ours.
        unsafe {
            libc::ppoll(polled.as_mut_ptr(), 2, &pause, std::ptr::null());
            if polled[1].revents != 0 {
                let mut count = 0u64;
                libc::read(self.bell.as_raw_fd(), (&raw mut count).cast(), 8);
            }
        }
        self.port.disarm();
    }

    /// A peer for a rank of another host that knows the secret.
    fn admit(&mut self, hello: &Hello, mut stream: TcpStream) {
        let rank = usize::try_from(hello.rank).unwrap_or(usize::MAX);
        if rank >= self.known.len() || self.hosts.of(rank) == self.own {
            return;
        }
        let known = self.server.shown.data_bytes(hello.data_bytes);
        let answer = match known == hello.data_bytes {
            true => self.open(hello, rank).map_or(Answer::Full, Answer::Welcome),
            false => Answer::Program(known),
        };
        // A rank that is gone meanwhile needs no answer.
        let _ = answer.write(&mut stream);
    }

    fn open(&mut self, hello: &Hello, rank: usize) -> Option<Card> {
        if let Some(peer) = self.known[rank].take() {
            self.port.disconnect(peer, &mut self.server);
        }
        let tag = self.port.endpoint().new_tag().ok()?;
        let offer = self.port.engine().offer(self.peers).ok()?;
        let peer = self.port.open(&hello.card.address, Tags { receive: tag, send: hello.card.tag }).ok()?;
        self.peers += 1;
        let now = self.port.now();
        self.port.engine().adopt(now, peer, &hello.card.offer, &mut self.server).ok()?;
        self.known[rank] = Some(peer);
        Some(Card { address: self.port.endpoint().address(), tag, offer })
    }
}

impl Dispatch for Server {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let Some(request) = Request::decode(message.handler, message.words) else { return replier.refuse() };
        if let Some((place, length)) = message.bulk {
            self.shown.arrived(place, length);
        }
        let token = request.token();
        // An answer that does not fit its packet is a mistake of the asker's, which waits no longer then than for a lost host.
        let _ = match (self.shown.serve(&request, message.data, &mut self.out), token) {
            (Some(_), 0) => Ok(()),
            (None, 0) => {
                replier.refuse();
                Ok(())
            }
            (Some(Done::Nothing), _) => replier.reply(DONE, &[token, 0], &[]),
            (Some(Done::Value(value)), _) => replier.reply(DONE, &[token, value], &[]),
            (Some(Done::Bytes(bytes)), _) => replier.reply(DONE, &[token, 0], &self.out[..bytes]),
            (None, _) => replier.reply(REFUSED, &[token], &[]),
        };
    }

    fn reply(&mut self, _: Message<'_>) {}

    fn segment(&mut self, _: u32) -> &mut [u8] {
        &mut []
    }

    fn place(&mut self, _: u32, access: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        match access {
            Access::Store | Access::Get => self.shown.slice(at, length),
            Access::Fetch => None,
        }
    }
}

//! A server: one or several threads, each with its own callers and its own service.
//!
//! Each caller has an end of its own, so that what it breaks is its own. A thread looks at the ends that were busy lately, and sleeps
//! on the others: an idle caller costs nothing.

use crate::address::{Address, Place as Host};
use crate::calls::one_line;
use crate::clock::now;
use crate::device::{End, PEER};
use crate::error::Fault;
use crate::onc::{self, server::Door};
use crate::rendezvous::{Listener, Process, Socket};
use crate::service::{Answer, Context, Interface, Listed, Place, Refusal, Service};
use crate::trace::{Journal, Outcome, Subject, Watchers};
use crate::window::Window;
use crate::wire::{flag, handler, status, Call, Head, Hello, Name, Purpose, Welcome, LINE, PROTOCOL, RECORD_BYTES};
use crate::xdr::{self, Bytes, Decoder, List};
use shunt_am::{Dispatch, Event, Message, Replier};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Rounds over the busy callers in which nothing came, between two looks at the clock; with something, so many times as many.
const LOOKS: u32 = 1024;
const CROWD: u32 = 4;
/// How often a thread that is busy looks at its sleeping callers and at the sockets.
const GLANCE: u64 = 50_000;
/// How long a caller may take to say what it wants, and how many may take it.
const GREETING: u64 = 2_000_000_000;
const GREETINGS: usize = 64;

/// How a server serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads; each has a service of its own. 1 at first.
    pub threads: usize,
    /// Callers at most. 1,024 at first.
    pub callers: usize,
    /// Users that may call; empty, as at first: this one, and root. Of no meaning between hosts, where each client that reaches the
    /// port may.
    pub users: Vec<u32>,
    /// Any user of this host may call.
    pub everyone: bool,
    /// How long a thread looks for calls before it sleeps. 50 microseconds at first.
    pub spin: Duration,
    /// The largest window that a caller may have. 64 MiB at first.
    pub window: u64,
    /// Bytes of a call or an answer by SunRPC at most. 4 MiB at first.
    pub record: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 1,
            callers: 1024,
            users: vec![],
            everyone: false,
            spin: Duration::from_micros(50),
            window: 64 << 20,
            record: 4 << 20,
        }
    }
}

/// Where callers come in.
enum Entrance {
    Own(Listener),
    Onc(Door, Host),
}

/// A server that listens.
pub struct Server {
    entrance: Entrance,
    address: Address,
    options: Options,
    stop: Stopper,
}

/// Ends a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Stop>);

#[derive(Debug)]
struct Stop {
    stopped: AtomicBool,
    /// An eventfd that stays readable.
    bell: OwnedFd,
}

fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and of no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn ring(bell: &OwnedFd) {
    // SAFETY: eight bytes.
    unsafe { libc::write(bell.as_raw_fd(), 1u64.to_ne_bytes().as_ptr().cast(), 8) };
}

impl Stopper {
    /// Callers are told that the server is gone; [`Server::run`] returns.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        ring(&self.0.bell);
    }
}

impl Server {
    /// Listens at an address.
    ///
    /// # Errors
    /// What the system answers: `AddrInUse` where another server has the name.
    pub fn bind(address: &Address, options: Options) -> io::Result<Self> {
        let (entrance, address) = match address {
            Address::SunRpc(place) => {
                let door = Door::bind(place)?;
                // Without a port it is rpcbind that tells callers.
                let port = place.port.map(|_| door.address().map(|at| at.port())).transpose()?;
                (Entrance::Onc(door, place.clone()), Address::SunRpc(Host { port, ..place.clone() }))
            }
            _ => {
                let listener = Listener::bind(address)?;
                let address = listener.address(address);
                (Entrance::Own(listener), address)
            }
        };
        let stop = Stopper(Arc::new(Stop { stopped: AtomicBool::new(false), bell: eventfd()? }));
        Ok(Self { entrance, address, options, stop })
    }

    /// Where callers find it.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What ends it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Serves until it is stopped. `make` gives each thread its service.
    ///
    /// # Errors
    /// What the system answers at the beginning.
    pub fn run<S: Service>(self, make: impl Fn() -> S + Sync) -> io::Result<()> {
        self.run_and_say(make, &|| ())
    }

    /// Calls `up` when callers can find it.
    fn run_and_say<S: Service>(self, make: impl Fn() -> S + Sync, up: &dyn Fn()) -> io::Result<()> {
        match &self.entrance {
            Entrance::Own(listener) => {
                up();
                self.run_own(listener, make)
            }
            Entrance::Onc(door, place) => self.run_onc(door, place, make, up),
        }
    }

    fn run_onc<S: Service>(&self, door: &Door, place: &Host, make: impl Fn() -> S + Sync, up: &dyn Fn()) -> io::Result<()> {
        let first = make();
        // Until this ends, and the registration with it.
        let _registered = onc::server::register(place, door, &first.interfaces())?;
        up();
        let common = onc::server::Common {
            door,
            callers: self.options.callers,
            record: self.options.record,
            window: self.options.window,
            stopped: &self.stop.0.stopped,
            bell: self.stop.0.bell.as_raw_fd(),
            connections: AtomicUsize::new(0),
            duplicates: Mutex::default(),
        };
        std::thread::scope(|scope| {
            for _ in 1..self.options.threads {
                scope.spawn(|| onc::server::work(&common, make()));
            }
            onc::server::work(&common, first)
        })
    }

    fn run_own<S: Service>(&self, listener: &Listener, make: impl Fn() -> S + Sync) -> io::Result<()> {
        let count = self.options.threads.max(1);
        let shared: Vec<Shared> = (0..count).map(|_| Shared::new()).collect::<io::Result<_>>()?;
        let (doors, inlets): (Vec<Sender<_>>, Vec<Receiver<_>>) = (0..count).map(|_| channel()).unzip();
        let watchers = Watchers::default();
        let mut inlets = inlets.into_iter();
        let first = inlets.next().expect("one thread at least");
        std::thread::scope(|scope| {
            for (number, inlet) in inlets.enumerate() {
                let (shared, settings, stop, make, watchers) =
                    (&shared, (&self.address, &self.options), &self.stop.0, &make, &watchers);
                scope.spawn(move || {
                    if let Ok(mut worker) = Worker::new(number + 1, settings, stop, (shared, watchers), inlet, make()) {
                        worker.run(None);
                    }
                });
            }
            let mut worker = Worker::new(0, (&self.address, &self.options), &self.stop.0, (&shared, &watchers), first, make())?;
            worker.run(Some(Hall { listener, doors, greetings: HashMap::new(), tellings: HashMap::new() }));
            Ok(())
        })
    }

    /// Serves on a thread of its own.
    ///
    /// # Errors
    /// What the system answers; `AddrInUse` where rpcbind has another server of the program that answers.
    pub fn spawn<S: Service>(self, make: impl Fn() -> S + Send + Sync + 'static) -> io::Result<Running> {
        let (address, stopper) = (self.address.clone(), self.stopper());
        let (tell, hear) = channel();
        let thread = std::thread::Builder::new().name("shunt-rpc".into()).spawn(move || {
            let said = tell.clone();
            let up = move || {
                let _ = said.send(Ok(()));
            };
            let result = self.run_and_say(make, &up);
            let _ = tell.send(result);
        })?;
        hear.recv().unwrap_or_else(|_| Err(io::Error::other("the server's thread ended")))?;
        Ok(Running { address, stopper, thread: Some(thread) })
    }
}

/// A server on a thread of its own. Dropped, it is stopped.
#[derive(Debug)]
pub struct Running {
    address: Address,
    stopper: Stopper,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    /// Where callers find it.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What threads know of each other.
struct Shared {
    callers: AtomicUsize,
    bell: OwnedFd,
}

impl Shared {
    fn new() -> io::Result<Self> {
        Ok(Self { callers: AtomicUsize::new(0), bell: eventfd()? })
    }
}

/// A client that has said what it wants, for the thread that will serve it.
struct Guest {
    socket: Socket,
    hello: Hello,
    window: Option<OwnedFd>,
}

/// A client that has not said it yet.
struct Greeting {
    socket: Socket,
    record: [u8; RECORD_BYTES],
    filled: usize,
    window: Option<OwnedFd>,
    since: u64,
}

/// Where callers come in: the first thread's.
struct Hall<'a> {
    listener: &'a Listener,
    doors: Vec<Sender<Guest>>,
    greetings: HashMap<u64, Greeting>,
    tellings: HashMap<u64, Telling>,
}

/// A tool that asked, and is being told.
struct Telling {
    socket: Socket,
    bytes: Vec<u8>,
    since: u64,
}

/// A caller, as its thread sees it.
struct Caller {
    end: End,
    socket: Socket,
    serial: u64,
    state: CallerState,
    /// When it last had something, by the clock.
    busy: u64,
    wake_at: u64,
}

/// What a call needs beside the service.
struct CallerState {
    interface: usize,
    process: Option<Process>,
    window: Window,
    direct: bool,
    /// Usual calls go the short way: memory is shared, and nobody watches.
    straight: bool,
    scratch: Vec<u8>,
    copied: Vec<u8>,
    over: bool,
}

/// What an event of the epoll set is about: in its upper byte.
mod token {
    pub const LISTENER: u64 = 1 << 56;
    pub const BELL: u64 = 2 << 56;
    pub const STOP: u64 = 3 << 56;
    pub const GREETING: u64 = 4 << 56;
    pub const SOCKET: u64 = 5 << 56;
    pub const END: u64 = 6 << 56;
    pub const TELLING: u64 = 7 << 56;
    pub const WATCHER: u64 = 8 << 56;
    pub const KIND: u64 = 0xff << 56;
}

struct Worker<'a, S> {
    number: usize,
    address: &'a Address,
    options: &'a Options,
    stop: &'a Stop,
    shared: &'a [Shared],
    inlet: Receiver<Guest>,
    service: S,
    interfaces: Vec<Interface>,
    watchers: &'a Watchers,
    journal: Journal<'a>,
    epoll: OwnedFd,
    /// Boxed: they go to and fro between the two, and are some kilobytes.
    #[allow(clippy::vec_box)]
    active: Vec<Box<Caller>>,
    sleeping: HashMap<u64, Box<Caller>>,
    serial: u64,
}

/// Runs the calls of one caller.
struct Serving<'a, 'w, S> {
    service: &'a mut S,
    interfaces: &'a [Interface],
    caller: &'a mut CallerState,
    journal: &'a mut Journal<'w>,
}

impl<S: Service> Dispatch for Serving<'_, '_, S> {
    #[inline(always)]
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        if message.handler == handler::CALL {
            self.call(message, replier);
        } else {
            self.other(message, replier);
        }
    }

    /// Servers are answered nothing.
    fn reply(&mut self, _: Message<'_>) {}

    fn segment(&mut self, _: u32) -> &mut [u8] {
        if self.caller.direct {
            return &mut [];
        }
        // SAFETY: where memory is not shared, the window is this process's alone; the engine has it while it copies.
        unsafe { self.caller.window.bytes() }
    }

    fn event(&mut self, _: u32, event: Event) {
        if matches!(event, Event::Lost(_)) {
            self.caller.over = true;
        }
    }
}

impl<S: Service> Serving<'_, '_, S> {
    #[inline(never)]
    fn other(&mut self, message: Message<'_>, replier: Replier<'_>) {
        match (message.handler, message.words) {
            (handler::CANCEL, &[word]) => {
                let name = Head::from_word(word).name;
                self.caller.window.set_cancelled(name.slot, name.generation);
            }
            (handler::PART, _) => {}
            _ => replier.refuse(),
        }
    }

    /// What almost all calls are: a line, an answer wanted, no deadline.
    #[inline(always)]
    fn call(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let head = Head::from_word(message.words.first().copied().unwrap_or(u64::from(flag::ONE_WAY) << 48));
        let words = message.words.get(1..).unwrap_or(&[]);
        let half = usize::from(head.flags) * 4;
        let usual = head.flags & !flag::HALF == 0 && message.data.is_empty() && self.caller.straight && words.len() * 8 >= half;
        if !usual || self.caller.window.is_cancelled(head.name.slot, head.name.generation) {
            return self.call_in_general(message, replier);
        }
        let arguments: &[u8] = bytemuck::cast_slice(words);
        let arguments = Decoder::new(&arguments[..arguments.len() - half]);
        let CallerState { window, scratch, process, interface, .. } = &mut *self.caller;
        let interface = &self.interfaces[*interface];
        let context = Context { interface, caller: *process, window, name: head.name, deadline: None, claim: None };
        let mut answer = Answer { line: [0; LINE / 8], length: 0, scratch, room: None, window, place: Place::Line, grows: 0 };
        let mut answering = Answering { replier: Some(replier), name: head.name };
        let result = self.service.call(&context, head.code, arguments, &mut answer);
        let Some(replier) = answering.replier.take() else { return };
        if result.is_ok() && answer.place == Place::Line {
            let (words, count) = one_line(Head { code: status::OK, flags: 0, ..head }, answer.line, answer.length);
            let _ = replier.reply(handler::ANSWER, &words[..count], &[]);
            return;
        }
        let call = Call { head, deadline: None, large: None, room: None, inline: &[] };
        answer_in_general(replier, &call, Ok(result), &answer);
    }

    #[inline(never)]
    fn call_in_general(&mut self, message: Message<'_>, replier: Replier<'_>) {
        if self.journal.wants == 0 {
            self.serve_in_general(message, replier);
            return;
        }
        let begun = now();
        let head = Head::from_word(message.words.first().copied().unwrap_or(0));
        let bytes = crate::wire::judge(message.words, message.data).map_or(0, |(_, _, bytes)| bytes);
        let (outcome, results) = self.serve_in_general(message, replier);
        let interface = &self.interfaces[self.caller.interface];
        let (program, version) = (interface.program, interface.version);
        let subject = Subject { program, version, procedure: head.code, outcome: Outcome(outcome) };
        let caller = self.caller.process.map_or(0, |process| process.pid);
        self.journal.note(subject, begun, now() - begun, caller, bytes, results);
    }

    /// Gives the status of the answer, and the bytes of its results.
    #[inline(always)]
    fn serve_in_general(&mut self, message: Message<'_>, replier: Replier<'_>) -> (u16, usize) {
        let Some(call) = Call::parse(message.words, message.data) else {
            refuse_words(&message, replier);
            return (status::PROTOCOL, 0);
        };
        let name = call.head.name;
        let deadline = match call.deadline {
            Some(time) if !self.caller.direct => Some(now().saturating_add(time)),
            other => other,
        };
        if self.caller.window.is_cancelled(name.slot, name.generation) {
            answer_status(replier, &call, status::CANCELLED, "");
            return (status::CANCELLED, 0);
        }
        if deadline.is_some_and(|deadline| now() >= deadline) {
            answer_status(replier, &call, status::DEADLINE, "");
            return (status::DEADLINE, 0);
        }
        let CallerState { window, scratch, copied, process, interface, .. } = &mut *self.caller;
        let arguments = match call.large {
            None => call.inline,
            // Judged as a private copy.
            Some(piece) if window.copy_out(piece, copied) => &copied[..],
            Some(_) => {
                answer_status(replier, &call, status::BAD_ARGUMENTS, "they do not lie in the window");
                return (status::BAD_ARGUMENTS, 0);
            }
        };
        let context = Context { interface: &self.interfaces[*interface], caller: *process, window, name, deadline, claim: None };
        let mut answer =
            Answer { line: [0; LINE / 8], length: 0, scratch, room: call.room, window, place: Place::Line, grows: 0 };
        let service = &mut *self.service;
        let result =
            catch_unwind(AssertUnwindSafe(|| service.call(&context, call.head.code, Decoder::new(arguments), &mut answer)));
        let told = (outcome(&result, answer.place), if matches!(result, Ok(Ok(()))) { answer.length } else { 0 });
        if call.head.flags & flag::ONE_WAY == 0 {
            answer_in_general(replier, &call, result, &answer);
        }
        told
    }
}

type Outcomes = Result<Result<(), Refusal>, Box<dyn std::any::Any + Send>>;

/// The status of an answer.
fn outcome(result: &Outcomes, place: Place) -> u16 {
    match (result, place) {
        (Ok(Ok(())), Place::Line | Place::Scratch | Place::Window(_)) => status::OK,
        (Ok(Ok(())), Place::TooLong(_) | Place::Over) => status::TOO_LONG,
        (Ok(Err(Refusal::NoProcedure)), _) => status::NO_PROCEDURE,
        (Ok(Err(Refusal::BadArguments(_))), _) => status::BAD_ARGUMENTS,
        (Ok(Err(Refusal::Fault(_))), _) => status::APPLICATION,
        (Err(_), _) => status::PANICKED,
    }
}

/// What a caller is told of a panic.
const PANIC: &str = "the server's standard error says more";

/// The answer to a call that is being served, should its procedure panic. Messages of a line leave nothing half done behind in the
/// engine and the device, so for these the panic is caught far outside: catching it here would cost a twelfth of a call.
struct Answering<'r> {
    replier: Option<Replier<'r>>,
    name: Name,
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        if let Some(replier) = self.replier.take() {
            let data = xdr::to_bytes(&Bytes::<4096>(PANIC.into()));
            let head = Head { name: self.name, code: status::PANICKED, flags: 0 };
            let _ = replier.reply(handler::ANSWER, &[head.word()], &data);
        }
    }
}

/// A request that breaks the format: its name is where one is looked for.
#[cold]
fn refuse_words(message: &Message<'_>, replier: Replier<'_>) {
    match message.words.first() {
        Some(&word) => {
            let words = [Head { code: status::PROTOCOL, flags: 0, ..Head::from_word(word) }.word()];
            let _ = replier.reply(handler::ANSWER, &words, &[]);
        }
        None => replier.refuse(),
    }
}

fn head(call: &Call<'_>, code: u16, flags: u16) -> u64 {
    Head { name: call.head.name, code, flags }.word()
}

/// An answer without results, with words for people.
#[cold]
fn answer_status(replier: Replier<'_>, call: &Call<'_>, code: u16, text: &str) {
    if call.head.flags & flag::ONE_WAY != 0 {
        return;
    }
    let data = if text.is_empty() { vec![] } else { xdr::to_bytes(&Bytes::<4096>(cut(text))) };
    let _ = replier.reply(handler::ANSWER, &[head(call, code, 0)], &data);
}

fn cut(text: &str) -> Vec<u8> {
    text.as_bytes()[..text.len().min(1024)].to_vec()
}

#[inline(never)]
fn answer_in_general(replier: Replier<'_>, call: &Call<'_>, result: Outcomes, answer: &Answer<'_>) {
    match (result, answer.place) {
        (Ok(Ok(())), Place::Scratch | Place::Line) => {
            let line = bytemuck::cast_slice(&answer.line);
            let data = if answer.place == Place::Line { &line[..answer.length] } else { &answer.scratch[..answer.length] };
            let _ = replier.reply(handler::ANSWER, &[head(call, status::OK, 0)], data);
        }
        (Ok(Ok(())), Place::Window(piece)) => {
            let words = [head(call, status::OK, flag::LARGE), piece.word()];
            let _ = replier.reply(handler::ANSWER, &words, &[]);
        }
        (Ok(Ok(())), Place::TooLong(bytes)) => {
            let room = call.room.map_or(answer.scratch.len(), |room| room.length as usize);
            let text = format!("results of {bytes} bytes, and room for {room}: Options::room sets more aside");
            answer_status(replier, call, status::TOO_LONG, &text);
        }
        (Ok(Ok(())), Place::Over) => {
            answer_status(replier, call, status::TOO_LONG, "a result has more elements than its definition allows");
        }
        (Ok(Err(Refusal::NoProcedure)), _) => {
            answer_status(replier, call, status::NO_PROCEDURE, &format!("number {}", call.head.code));
        }
        (Ok(Err(Refusal::BadArguments(error))), _) => {
            answer_status(replier, call, status::BAD_ARGUMENTS, &error.to_string());
        }
        (Ok(Err(Refusal::Fault(Fault { code, text }))), _) => {
            let data = xdr::to_bytes(&(code, Bytes::<4096>(cut(&text))));
            let _ = replier.reply(handler::ANSWER, &[head(call, status::APPLICATION, 0)], &data);
        }
        (Err(_), _) => answer_status(replier, call, status::PANICKED, PANIC),
    }
}

impl<'a, S: Service> Worker<'a, S> {
    fn new(
        number: usize,
        (address, options): (&'a Address, &'a Options),
        stop: &'a Stop,
        (shared, watchers): (&'a [Shared], &'a Watchers),
        inlet: Receiver<Guest>,
        service: S,
    ) -> io::Result<Self> {
        // SAFETY: a number.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and of no other owner.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let interfaces = service.interfaces();
        let (active, sleeping) = (vec![], HashMap::new());
        let journal = Journal::new(watchers, number);
        let worker = Self {
            number,
            address,
            options,
            stop,
            shared,
            inlet,
            service,
            interfaces,
            watchers,
            journal,
            epoll,
            active,
            sleeping,
            serial: 0,
        };
        worker.watch(stop.bell.as_raw_fd(), token::STOP, libc::EPOLLIN)?;
        worker.watch(shared[number].bell.as_raw_fd(), token::BELL, libc::EPOLLIN)?;
        Ok(worker)
    }

    fn control(&self, operation: i32, descriptor: RawFd, token: u64, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: descriptors of ours, and an event.
        if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn watch(&self, descriptor: RawFd, token: u64, events: i32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, descriptor, token, events)
    }

    fn run(&mut self, mut hall: Option<Hall<'_>>) {
        if let Some(hall) = &hall {
            if self.watch(hall.listener.as_fd().as_raw_fd(), token::LISTENER, libc::EPOLLIN).is_err() {
                return;
            }
        }
        let mut glanced = 0;
        while !self.stop.stopped.load(Ordering::Relaxed) {
            if self.active.is_empty() {
                self.journal.tell(now());
                let pause = self.pause(hall.as_ref());
                self.events(&mut hall, pause);
                continue;
            }
            // A procedure that panics ends the looks, and nothing else: its call was answered on the way.
            let _ = catch_unwind(AssertUnwindSafe(|| self.looks()));
            // Here and not at each look: a pause is as long as a third of a call.
            std::hint::spin_loop();
            let time = now();
            if time >= glanced + GLANCE {
                glanced = time;
                self.journal.tell(time);
                self.events(&mut hall, Some(Duration::ZERO));
                self.put_to_sleep(time);
            }
        }
    }

    /// Looks at the busy callers until a glance at the clock is due.
    #[inline(always)]
    fn looks(&mut self) {
        let watched = self.journal.wants != 0;
        self.active.iter_mut().for_each(|caller| caller.state.straight = caller.state.direct && !watched);
        let mut rounds = 0;
        while rounds < LOOKS * CROWD {
            rounds += if self.look() { 1 } else { CROWD };
        }
    }

    /// One look at each busy caller.
    #[inline(always)]
    fn look(&mut self) -> bool {
        let mut came = false;
        for at in 0..self.active.len() {
            let caller = &mut self.active[at];
            let (service, interfaces, journal) = (&mut self.service, &self.interfaces, &mut self.journal);
            let mut serving = Serving { service, interfaces, caller: &mut caller.state, journal };
            if caller.end.poll(&mut serving) > 0 {
                caller.busy = 0;
                came = true;
            }
        }
        came
    }

    /// Callers that had nothing for a while are slept on; those that ended are let go.
    fn put_to_sleep(&mut self, time: u64) {
        let spin = self.options.spin.as_nanos() as u64;
        let mut at = 0;
        while at < self.active.len() {
            let caller = &mut self.active[at];
            if caller.state.over {
                let caller = self.active.swap_remove(at);
                self.part(caller);
                continue;
            }
            if caller.busy == 0 {
                caller.busy = time;
            }
            if time - caller.busy < spin {
                at += 1;
                continue;
            }
            match caller.end.arm() {
                Some(pause) if !pause.is_zero() => {
                    let mut caller = self.active.swap_remove(at);
                    caller.wake_at = time.saturating_add(pause.as_nanos().min(u128::from(u64::MAX)) as u64);
                    let (descriptor, token) = (caller.end.endpoint_descriptor(), token::END | caller.serial);
                    let events = libc::EPOLLIN | libc::EPOLLONESHOT;
                    if self.control(libc::EPOLL_CTL_MOD, descriptor, token, events).is_err() {
                        self.part(caller);
                        continue;
                    }
                    self.sleeping.insert(caller.serial, caller);
                }
                Some(_) => {
                    caller.end.disarm();
                    at += 1;
                }
                None => at += 1,
            }
        }
    }

    fn wake(&mut self, serial: u64) {
        if let Some(mut caller) = self.sleeping.remove(&serial) {
            caller.end.disarm();
            caller.busy = 0;
            self.active.push(caller);
        }
    }

    /// How long to sleep: until the first timer of a caller, or the end of a greeting.
    fn pause(&self, hall: Option<&Hall<'_>>) -> Option<Duration> {
        let timers = self.sleeping.values().map(|caller| caller.wake_at).filter(|&at| at != u64::MAX);
        let greetings = hall.into_iter().flat_map(|hall| hall.greetings.values()).map(|greeting| greeting.since + GREETING);
        let tellings = hall.into_iter().flat_map(|hall| hall.tellings.values()).map(|telling| telling.since + GREETING);
        let first = timers.chain(greetings).chain(tellings).chain(self.journal.due()).min()?;
        Some(Duration::from_nanos(first.saturating_sub(now())))
    }

    fn events(&mut self, hall: &mut Option<Hall<'_>>, pause: Option<Duration>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let pause = pause.map_or(-1, |pause| pause.as_nanos().div_ceil(1_000_000).min(60_000) as i32);
        // SAFETY: room for 64 events.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 64, pause) };
        for event in &events[..count.max(0) as usize] {
            let (kind, serial) = (event.u64 & token::KIND, event.u64 & !token::KIND);
            match kind {
                token::LISTENER => self.accept(hall),
                token::GREETING => self.greet(hall, serial),
                token::BELL => self.take_guests(),
                token::END => self.wake(serial),
                token::SOCKET => self.look_after(serial),
                token::TELLING => self.go_on_telling(hall, serial),
                token::WATCHER => self.watchers.look_after(),
                _ => {}
            }
        }
        let timed = |hall: &Hall<'_>| !hall.greetings.is_empty() || !hall.tellings.is_empty();
        let time = if pause != 0 || hall.as_ref().is_some_and(timed) { now() } else { return };
        let due: Vec<u64> = self.sleeping.values().filter(|one| one.wake_at <= time).map(|one| one.serial).collect();
        due.into_iter().for_each(|serial| self.wake(serial));
        if let Some(hall) = hall {
            hall.greetings.retain(|_, greeting| greeting.since + GREETING > time);
            hall.tellings.retain(|_, telling| telling.since + GREETING > time);
        }
    }

    /// Something happened at a caller's socket: it ended. What it sent before is still served.
    fn look_after(&mut self, serial: u64) {
        self.wake(serial);
        if let Some(caller) = self.active.iter_mut().find(|caller| caller.serial == serial) {
            if caller.socket.is_over() {
                caller.state.over = true;
            }
        }
    }

    /// A caller is gone: its end and its window go, too.
    fn part(&self, caller: Box<Caller>) {
        self.shared[self.number].callers.fetch_sub(1, Ordering::Relaxed);
        drop(caller);
    }

    fn accept(&mut self, hall: &mut Option<Hall<'_>>) {
        let Some(hall) = hall else { return };
        while let Ok(mut socket) = hall.listener.accept() {
            if !self.may_call(&socket) {
                let _ = socket.send(&Welcome::Denied.emit(), None);
                continue;
            }
            if hall.greetings.len() >= GREETINGS {
                let _ = socket.send(&Welcome::Full.emit(), None);
                continue;
            }
            self.serial += 1;
            if self.watch(socket.as_raw_fd(), token::GREETING | self.serial, libc::EPOLLIN).is_err() {
                continue;
            }
            let greeting = Greeting { socket, record: [0; RECORD_BYTES], filled: 0, window: None, since: now() };
            hall.greetings.insert(self.serial, greeting);
        }
    }

    fn may_call(&self, socket: &Socket) -> bool {
        let Some(process) = socket.process() else { return true };
        // SAFETY: it only asks.
        let own = unsafe { libc::geteuid() };
        let usual = self.options.users.is_empty() && (process.uid == own || process.uid == 0);
        self.options.everyone || usual || self.options.users.contains(&process.uid)
    }

    fn greet(&mut self, hall: &mut Option<Hall<'_>>, serial: u64) {
        let Some(hall) = hall else { return };
        let Some(greeting) = hall.greetings.get_mut(&serial) else { return };
        match greeting.socket.receive(&mut greeting.record[greeting.filled..], &mut greeting.window) {
            Ok(count) if count > 0 => greeting.filled += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            _ => {
                hall.greetings.remove(&serial);
                return;
            }
        }
        if greeting.filled < RECORD_BYTES {
            return;
        }
        let Some(mut greeting) = hall.greetings.remove(&serial) else { return };
        let _ = self.control(libc::EPOLL_CTL_DEL, greeting.socket.as_raw_fd(), 0, 0);
        let Some(hello) = Hello::parse(&greeting.record) else {
            let _ = greeting.socket.send(&Welcome::Protocol { version: PROTOCOL }.emit(), None);
            return;
        };
        match hello.purpose {
            Purpose::Call => {}
            Purpose::List => {
                let list = List::<Listed, 4096>(self.interfaces.iter().map(Listed::from).collect());
                return self.tell(hall, greeting.socket, xdr::to_bytes(&list));
            }
            Purpose::Describe => {
                match self.choose(&hello) {
                    Ok(number) => self.tell(hall, greeting.socket, self.interfaces[number].text.into()),
                    Err(welcome) => drop(greeting.socket.send(&welcome.emit(), None)),
                }
                return;
            }
            Purpose::Watch => return self.be_watched(greeting.socket, hello.lowest),
        }
        let load = |shared: &Shared| shared.callers.load(Ordering::Relaxed);
        if self.shared.iter().map(load).sum::<usize>() >= self.options.callers {
            let _ = greeting.socket.send(&Welcome::Full.emit(), None);
            return;
        }
        // To the thread that has the fewest.
        let thread = (0..self.shared.len()).min_by_key(|&thread| load(&self.shared[thread])).unwrap_or(0);
        self.shared[thread].callers.fetch_add(1, Ordering::Relaxed);
        let guest = Guest { socket: greeting.socket, hello, window: greeting.window };
        if thread == self.number {
            self.take_in(guest);
        } else if hall.doors[thread].send(guest).is_ok() {
            ring(&self.shared[thread].bell);
        }
    }

    /// Tells a tool what it asked for, as fast as it takes it.
    fn tell(&mut self, hall: &mut Hall<'_>, socket: Socket, told: Vec<u8>) {
        let mut bytes = Welcome::List { bytes: told.len() as u32 }.emit().to_vec();
        bytes.extend(told);
        self.serial += 1;
        let serial = self.serial;
        if hall.tellings.len() < GREETINGS && self.watch(socket.as_raw_fd(), token::TELLING | serial, libc::EPOLLOUT).is_ok() {
            hall.tellings.insert(serial, Telling { socket, bytes, since: now() });
        }
    }

    fn go_on_telling(&mut self, hall: &mut Option<Hall<'_>>, serial: u64) {
        let Some(telling) = hall.as_mut().and_then(|hall| hall.tellings.get_mut(&serial)) else { return };
        match telling.socket.send_some(&telling.bytes) {
            Ok(count) => drop(telling.bytes.drain(..count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return,
            Err(_) => telling.bytes.clear(),
        }
        if telling.bytes.is_empty() {
            hall.as_mut().map(|hall| hall.tellings.remove(&serial));
        }
    }

    /// Tells of calls from now on: this server's user, and root, on this host.
    fn be_watched(&mut self, mut socket: Socket, what: u32) {
        // SAFETY: it only asks.
        let own = unsafe { libc::geteuid() };
        if !socket.process().is_some_and(|process| process.uid == own || process.uid == 0) {
            let _ = socket.send(&Welcome::Denied.emit(), None);
            return;
        }
        let _ = socket.send(&Welcome::Watching.emit(), None);
        if let Some(descriptor) = self.watchers.admit(socket, what) {
            let _ = self.watch(descriptor, token::WATCHER, libc::EPOLLRDHUP | libc::EPOLLOUT | libc::EPOLLET);
            // The other threads look when they wake.
            self.shared.iter().for_each(|shared| ring(&shared.bell));
        }
    }

    fn take_guests(&mut self) {
        let mut count = [0u8; 8];
        // SAFETY: room for eight bytes.
        unsafe { libc::read(self.shared[self.number].bell.as_raw_fd(), count.as_mut_ptr().cast(), 8) };
        while let Ok(guest) = self.inlet.try_recv() {
            self.take_in(guest);
        }
    }

    fn take_in(&mut self, mut guest: Guest) {
        let refused = match self.choose(&guest.hello) {
            Err(welcome) => welcome,
            Ok(interface) => match self.bind(&mut guest, interface) {
                Ok((end, window, welcome)) => return self.serve_from_now(guest, interface, end, window, welcome),
                Err(welcome) => welcome,
            },
        };
        let _ = guest.socket.send(&refused.emit(), None);
        self.shared[self.number].callers.fetch_sub(1, Ordering::Relaxed);
    }

    fn serve_from_now(&mut self, mut guest: Guest, interface: usize, mut end: End, window: Window, welcome: Welcome) {
        self.serial += 1;
        let serial = self.serial;
        let said = guest.socket.send(&welcome.emit(), None);
        let watched = said.and_then(|()| {
            self.watch(guest.socket.as_raw_fd(), token::SOCKET | serial, libc::EPOLLIN | libc::EPOLLRDHUP)?;
            self.watch(end.endpoint_descriptor(), token::END | serial, libc::EPOLLONESHOT)
        });
        if watched.is_err() {
            self.shared[self.number].callers.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let direct = end.is_direct();
        let scratch = vec![0; end.engine().medium_maximum()];
        let process = guest.socket.process();
        let state = CallerState { interface, process, window, direct, straight: false, scratch, copied: vec![], over: false };
        self.active.push(Box::new(Caller { end, socket: guest.socket, serial, state, busy: 0, wake_at: u64::MAX }));
    }

    /// The highest version that both have.
    fn choose(&self, hello: &Hello) -> Result<usize, Welcome> {
        let there = || self.interfaces.iter().enumerate().filter(|(_, one)| one.program == hello.program);
        let wanted = hello.lowest..=hello.highest;
        let best = there().filter(|(_, one)| wanted.contains(&one.version)).max_by_key(|(_, one)| one.version);
        match best {
            Some((number, _)) => Ok(number),
            None if there().next().is_none() => Err(Welcome::Program),
            None => Err(Welcome::Versions {
                lowest: there().map(|(_, one)| one.version).min().unwrap_or(0),
                highest: there().map(|(_, one)| one.version).max().unwrap_or(0),
            }),
        }
    }

    fn bind(&mut self, guest: &mut Guest, interface: usize) -> Result<(End, Window, Welcome), Welcome> {
        let hello = &guest.hello;
        if hello.window > self.options.window {
            return Err(Welcome::Denied);
        }
        let end = guest.socket.over().and_then(|over| End::new(self.address, over));
        let mut end = end.map_err(|_| Welcome::NoEnd)?;
        let denied = |_: io::Error| Welcome::Denied;
        let window = match (end.is_direct(), guest.window.take()) {
            (true, Some(descriptor)) => Window::adopt(descriptor, hello.window).map_err(denied)?,
            (true, None) => return Err(Welcome::Denied),
            (false, _) => Window::mirror(hello.window).map_err(denied)?,
        };
        let card = end.card().map_err(denied)?;
        end.adopt(&hello.card, &mut Nobody).map_err(denied)?;
        debug_assert!(end.engine().is_up(PEER));
        let welcome = Welcome::Bound { version: self.interfaces[interface].version, card };
        Ok((end, window, welcome))
    }
}

/// While a connection is adopted nothing arrives.
struct Nobody;

impl Dispatch for Nobody {
    fn request(&mut self, _: Message<'_>, replier: Replier<'_>) {
        replier.refuse();
    }
    fn reply(&mut self, _: Message<'_>) {}
}

//! Calls between two processes beside what they stand on: the bare endpoint and active messages, in turns of some hundred
//! microseconds each, one after the other, because the distance of two processors of a virtual machine is another one from second to second.

mod onc;
pub(crate) mod service;

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::unistd::{fork, ForkResult};
use shunt_am::port::{config_for, memory, Port};
use shunt_am::{Dispatch, Message as Active, Replier};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::{Address, Arrival, Body, Endpoint, Message, SendError, Tags};
use shunt_rpc::{Client, How, Options, Pending, Server, ServerOptions};

use crate::contenders::{Carrier, Contender};
use crate::hosts::contender::{first_of_all, pin};
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Collector, Figure, Unit};
use crate::output::say;
use crate::statistics::median;
use service::{procedure, Called, PROGRAM};

/// Round trips of a turn; those before are not counted: a side that slept wakes meanwhile.
const TRIPS: usize = 1000;
const WARM: usize = 200;
/// Turns of each kind in a round of the cell.
const TURNS: usize = 60;
/// Bytes of what is passed by reference.
const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 40;
/// Calls that are outstanding, and calls of a turn.
const OUTSTANDING: usize = 64;
const MANY: usize = 20_000;

/// Turns between hosts, and how long each is.
const HOSTS: (usize, Duration) = (9, Duration::from_millis(300));

/// The cell.
#[derive(Debug)]
pub struct Rpc;

/// Its rows: name, words, unit.
const ROWS: [(&str, &str, Unit); 10] = [
    ("endpoint", "bare endpoint, 32 B", Unit::Nanoseconds),
    ("messages", "active messages, one word", Unit::Nanoseconds),
    ("null", "null call", Unit::Nanoseconds),
    ("word", "call, one word each way", Unit::Nanoseconds),
    ("null/p50", "null call, each timed: p50", Unit::Nanoseconds),
    ("null/p99", "null call, each timed: p99", Unit::Nanoseconds),
    ("outstanding", "null calls, 64 outstanding", Unit::PerSecond),
    ("block/endpoint", "64 KiB through the bare endpoint, one copy in and one out", Unit::Nanoseconds),
    ("block/reference", "64 KiB by reference, in-out: Shared::update", Unit::Nanoseconds),
    ("block/elements", "64 KiB by reference, in-out: each element read and written", Unit::Nanoseconds),
];

impl Cell for Rpc {
    fn name(&self) -> &'static str {
        "rpc"
    }

    fn about(&self) -> &'static str {
        "calls between two processes beside the bare endpoint and active messages: null, one word, 64 outstanding, 64 KiB by reference; null calls of \
         libtirpc's programs beside their bytes"
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[]
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let figures = measure((instrument.machine.client_core, instrument.machine.server_core))?;
        let mut text = String::new();
        for ((name, words, unit), value) in ROWS.iter().zip(figures) {
            let figure = Figure::new(format!("rpc/{name}"), *words, *unit, value);
            collector.add_floor("shared memory", vec![figure]);
            let _ = match unit {
                Unit::PerSecond => writeln!(text, "{words:<60}{:>10.2} M/s", value / 1e6),
                _ => writeln!(text, "{words:<60}{value:>10.1} ns"),
            };
        }
        let [bare, messages, null, word, p50, p99, _, copied, reference, elements] = figures;
        let _ = writeln!(
            text,
            "null / endpoint {:.3}, / active message {:.3}; word / endpoint {:.3}; active message / endpoint {:.3}; p99 / p50 {:.2}; block {:.2}, by elements {:.2}",
            null / bare,
            null / messages,
            word / bare,
            messages / bare,
            p99 / p50,
            reference / copied,
            elements / copied
        );
        say(&text);
        onc::round(instrument, collector)?;
        between_hosts(collector);
        Ok(())
    }

    fn turn(&mut self, _: &mut Instrument, _: &Contender, _: usize) -> io::Result<Turn> {
        Ok(Turn::default())
    }
}

/// The same beside active messages over `udp` and `xdp`, between two hosts that are made for it; where that cannot be it is said.
fn between_hosts(collector: &mut Collector) {
    let Some(shunt) = crate::contenders::shunt_beside_us() else {
        return say("calls between hosts are left out: no shunt command beside this one\n");
    };
    for (device, carrier) in [("udp", crate::hosts::Carrier::Udp), ("xdp", crate::hosts::Carrier::Own)] {
        match crate::hosts::calls::beside_messages(carrier, &shunt, HOSTS, PROGRAM, || Called) {
            Ok([message, call]) => {
                let rows = [("messages", "active messages, one word", message), ("null", "null call", call)];
                for (name, words, value) in rows {
                    let figure =
                        Figure::new(format!("rpc/{device}/{name}"), format!("{device}: {words}"), Unit::Nanoseconds, value);
                    collector.add_floor("between hosts", vec![figure]);
                }
                let ratio = call / message;
                say(&format!(
                    "{device}: active message {message:.0} ns, null call {call:.0} ns, null / active message {ratio:.3}\n"
                ));
            }
            Err(sentence) => say(&format!("calls over {device} are left out: {sentence}\n")),
        }
    }
}

/// An end that has not been opened yet.
pub(crate) type Loose = (Shm, Tags, Address);

pub(crate) fn ends() -> io::Result<[Loose; 2]> {
    let failed = |errno: shunt_endpoint::OpenError| io::Error::other(format!("an endpoint: {errno:?}"));
    let make = || Shm::new(Default::default()).map_err(|errno| failed(errno.into()));
    let (mut a, mut b) = (make()?, make()?);
    let (for_a, for_b) = (a.new_tag().map_err(|errno| failed(errno.into()))?, b.new_tag().map_err(|errno| failed(errno.into()))?);
    let (at_a, at_b) = (a.address(), b.address());
    Ok([(a, Tags { receive: for_a, send: for_b }, at_b), (b, Tags { receive: for_b, send: for_a }, at_a)])
}

pub(crate) fn push(end: &mut Shm, message: &Message<'_>) {
    while let Err(error) = end.send(message) {
        assert_eq!(error, SendError::NoResource);
    }
}

pub(crate) fn pull(end: &mut Shm, arrival: &mut Arrival) {
    while !end.receive(arrival) {}
    end.release(arrival);
}

/// Counts, and answers.
#[derive(Default)]
struct Counter {
    requests: usize,
    replies: usize,
}

impl Dispatch for Counter {
    #[inline]
    fn request(&mut self, message: Active<'_>, replier: Replier<'_>) {
        self.requests += 1;
        let _ = replier.reply(1, message.words, message.data);
    }
    #[inline]
    fn reply(&mut self, _: Active<'_>) {
        self.replies += 1;
    }
}

/// The ends of one process.
struct Ends<'m> {
    bare: Shm,
    channel: shunt_endpoint::Channel,
    port: Port<'m, Shm>,
    counter: Counter,
    arrival: Arrival,
}

impl<'m> Ends<'m> {
    fn new((mut bare, tags, at): Loose, (end, port_tags, port_at): Loose, space: &'m mut Vec<u64>) -> io::Result<Self> {
        let channel = bare.open(&at, tags).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let config = config_for(&end, 1);
        *space = memory(&config);
        let mut port = Port::new(end, space, &config).map_err(io::Error::other)?;
        port.open(&port_at, port_tags).map_err(|error| io::Error::other(format!("{error:?}")))?;
        Ok(Self { bare, channel, port, counter: Counter::default(), arrival: Arrival::empty() })
    }

    fn echo_bare(&mut self) {
        for _ in 0..WARM + TRIPS {
            pull(&mut self.bare, &mut self.arrival);
            push(&mut self.bare, &Message::small(self.channel, &[7; 32]));
        }
    }

    fn echo_messages(&mut self) {
        let until = self.counter.requests + WARM + TRIPS;
        while self.counter.requests < until {
            self.port.poll(&mut self.counter);
        }
    }

    fn echo_blocks(&mut self, target: &mut [u8]) {
        let segment = self.bare.segment();
        for _ in 0..BLOCKS {
            let mut taken = 0;
            while taken < BLOCK {
                while !self.bare.receive(&mut self.arrival) {}
                let length = self.arrival.len();
                self.arrival.copy_to(&segment, 0, &mut target[taken..taken + length]);
                taken += length;
                self.bare.release(&mut self.arrival);
            }
            push(&mut self.bare, &Message::small(self.channel, &[7; 32]));
        }
    }
}

/// The other process: an end that answers turns it is told of, and a server, both on one processor.
fn other(core: usize, bare: Loose, messages: Loose, mut told: UnixStream, address: &str) -> io::Result<()> {
    pin(core);
    let address = address.parse().map_err(io::Error::other)?;
    let server = Server::bind(&address, ServerOptions::default())?.spawn(|| {
        first_of_all();
        Called
    })?;
    first_of_all();
    let mut space = vec![];
    let mut ends = Ends::new(bare, messages, &mut space)?;
    ends.port.accept(0, &mut ends.counter, std::time::Duration::from_secs(5)).map_err(io::Error::other)?;
    let mut target = vec![0; BLOCK];
    let mut what = [0];
    while told.read(&mut what)? == 1 {
        match what[0] {
            b'b' => ends.echo_bare(),
            b'm' => ends.echo_messages(),
            _ => ends.echo_blocks(&mut target),
        }
    }
    drop(server);
    Ok(())
}

/// Nanoseconds of each of so many acts, after some to get warm.
fn timed(mut act: impl FnMut()) -> f64 {
    (0..WARM).for_each(|_| act());
    let begun = Instant::now();
    (0..TRIPS).for_each(|_| act());
    begun.elapsed().as_nanos() as f64 / TRIPS as f64
}

fn measure(cores: (usize, usize)) -> io::Result<[f64; ROWS.len()]> {
    let ([bare, their_bare], [messages, their_messages]) = (ends()?, ends()?);
    let (mut tell, told) = UnixStream::pair()?;
    let address = format!("bench-{}", std::process::id());
    // SAFETY: the child uses what is made for it, and ends.
    if let ForkResult::Child = unsafe { fork()? } {
        drop((bare, messages, tell));
        let result = other(cores.1, their_bare, their_messages, told, &address);
        std::process::exit(i32::from(result.is_err()));
    }
    drop((their_bare, their_messages, told));
    let thread = std::thread::spawn(move || -> io::Result<[f64; ROWS.len()]> {
        pin(cores.0);
        let address = address.parse().map_err(io::Error::other)?;
        let client = Client::connect(&address, PROGRAM, 1..=1, Options::default()).map_err(io::Error::other)?;
        first_of_all();
        let mut space = vec![];
        let mut ends = Ends::new(bare, messages, &mut space)?;
        ends.port.connect(0, &mut ends.counter).map_err(io::Error::other)?;
        turns(&client, &mut ends, &mut tell)
    });
    let result = thread.join().map_err(|_| io::Error::other("the calling thread panicked"))?;
    let _ = nix::sys::wait::wait();
    result
}

fn turns(client: &Client, ends: &mut Ends<'_>, tell: &mut UnixStream) -> io::Result<[f64; ROWS.len()]> {
    let mut all: [Vec<f64>; ROWS.len()] = Default::default();
    let mut block = vec![7u8; BLOCK];
    let mut buffer = client.buffer::<u64>(BLOCK / 8).map_err(io::Error::other)?;
    let words: Vec<u64> = (0..BLOCK as u64 / 8).collect();
    for turn in 0..TURNS {
        tell.write_all(b"b")?;
        all[0].push(timed(|| {
            push(&mut ends.bare, &Message::small(ends.channel, &[7; 32]));
            pull(&mut ends.bare, &mut ends.arrival);
        }));
        tell.write_all(b"m")?;
        all[1].push(timed(|| {
            let replies = ends.counter.replies;
            ends.port.request(0, 1, &[7], &[], &mut ends.counter).expect("a request");
            while ends.counter.replies == replies {
                ends.port.poll(&mut ends.counter);
            }
        }));
        all[2].push(timed(|| client.call(procedure::NULL, &()).expect("a call")));
        all[3].push(timed(|| assert_eq!(client.call::<u64, u64>(procedure::WORD, &7).expect("a call"), 7)));
        if turn % 4 == 0 {
            let mut times: Vec<f64> = (0..TRIPS * 4)
                .map(|_| {
                    let begun = Instant::now();
                    client.call::<(), ()>(procedure::NULL, &()).expect("a call");
                    begun.elapsed().as_nanos() as f64
                })
                .collect();
            times.sort_by(f64::total_cmp);
            all[4].push(times[times.len() / 2]);
            all[5].push(times[times.len() * 99 / 100]);
            all[6].push(outstanding(client));
            tell.write_all(b"k")?;
            let begun = Instant::now();
            for _ in 0..BLOCKS {
                send_block(ends, &mut block);
            }
            all[7].push(begun.elapsed().as_nanos() as f64 / BLOCKS as f64);
            for (row, procedure) in [(8, procedure::UPDATE), (9, procedure::ELEMENTS)] {
                let begun = Instant::now();
                for _ in 0..BLOCKS {
                    buffer.view().copy_from(&words);
                    let lent = [buffer.lend(true, true).map_err(io::Error::other)?];
                    let how = How { lent: &lent, ..How::default() };
                    client.call_with::<_, ()>(procedure, &buffer.reference(), &how).map_err(io::Error::other)?;
                }
                all[row].push(begun.elapsed().as_nanos() as f64 / BLOCKS as f64);
            }
        }
    }
    Ok(all.map(|values| median(&values).unwrap_or(f64::NAN)))
}

/// Calls in a second with so many outstanding.
fn outstanding(client: &Client) -> f64 {
    let begin = || client.begin::<(), ()>(procedure::NULL, &()).expect("a call");
    let mut calls: Vec<Option<Pending<'_, ()>>> = (0..OUTSTANDING).map(|_| Some(begin())).collect();
    let begun = Instant::now();
    for at in 0..MANY {
        let call = calls[at % OUTSTANDING].replace(begin());
        call.expect("a call").wait().expect("an answer");
    }
    MANY as f64 / begun.elapsed().as_secs_f64()
}

fn send_block(ends: &mut Ends<'_>, block: &mut [u8]) {
    let largest = ends.bare.capabilities().largest as usize;
    for part in block.chunks(largest) {
        let (head, rest) = part.split_at(part.len().min(shunt_endpoint::INLINE));
        let body = if rest.is_empty() { Body::None } else { Body::Bytes(rest.into()) };
        push(&mut ends.bare, &Message { channel: ends.channel, head, body });
    }
    pull(&mut ends.bare, &mut ends.arrival);
}

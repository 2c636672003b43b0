//! Handlers that panic, of each kind of message: each message is handled once all the same, and the port goes on, whether the panic ends at
//! the caller of the poll or leaves the thread's lock behind.

use shunt_am::port::{config_for, join, memory, Port};
use shunt_am::{Access, Config, Data, Dispatch, Event, Get, Message, Replier, Store};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::Endpoint;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);
const LONG: usize = 200_000;

/// Handlers of the asked side: answers, and then panics; panics and answers nothing; answers.
const ANSWERED: u8 = 1;
const UNANSWERED: u8 = 2;
const CALM: u8 = 3;

/// What was handled, and whether handlers panic.
#[derive(Default)]
struct Program {
    panics: bool,
    requests: u64,
    replies: u64,
    returned: u64,
    streamed: Vec<u8>,
    segment: Vec<u8>,
    lost: bool,
}

impl Program {
    /// Without the hook, which would write to the standard error.
    fn may_panic(&self) {
        if self.panics {
            resume_unwind(Box::new("as it was asked to"));
        }
    }
}

impl Dispatch for Program {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        self.requests += 1;
        if message.handler != UNANSWERED {
            let words = &message.words[..message.words.len().min(4)];
            replier.reply(0, words, message.data).expect("as long as what came");
        }
        if message.handler != CALM {
            self.may_panic();
        }
    }
    fn reply(&mut self, _: Message<'_>) {
        self.replies += 1;
        self.may_panic();
    }
    fn returned(&mut self, _: Message<'_>) {
        self.returned += 1;
        self.may_panic();
    }
    fn stream(&mut self, _: u32, _: u16, data: Data<'_>) {
        let from = self.streamed.len();
        self.streamed.resize(from + data.len(), 0);
        assert!(data.copy_to(0, &mut self.streamed[from..]));
        self.may_panic();
    }
    fn segment(&mut self, _: u32) -> &mut [u8] {
        &mut self.segment
    }
    fn place(&mut self, _: u32, _: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        shunt_am::within(&mut self.segment, at, length)
    }
    fn event(&mut self, _: u32, event: Event) {
        self.lost |= matches!(event, Event::Lost(_));
        self.may_panic();
    }
}

type Both<'m, E> = (Port<'m, E>, Program);

/// One poll, whose panic ends here.
fn poll<E: Endpoint>((port, program): &mut Both<'_, E>) -> u64 {
    catch_unwind(AssertUnwindSafe(|| port.poll(program))).is_err().into()
}

/// Polls until something is so.
fn until<E: Endpoint>(both: &mut Both<'_, E>, what: &str, so: impl Fn(&Program) -> bool) -> u64 {
    let (begun, mut panics) = (Instant::now(), 0);
    while !so(&both.1) {
        panics += poll(both);
        assert!(begun.elapsed() < SOON, "{what}: {} requests, {} replies", both.1.requests, both.1.replies);
    }
    panics
}

fn pattern(seed: usize) -> Vec<u8> {
    (0..LONG).map(|at| (at.wrapping_mul(seed) >> 3) as u8).collect()
}

/// Asks in each way of a side whose handlers panic, and gives how many of its own handlers did.
fn ask<E: Endpoint>(asker: &mut Both<'_, E>, reliable: bool) -> (u64, Wanted) {
    let (mut wanted, mut panics) = (Wanted::default(), 0);
    let longest = asker.0.engine().medium_maximum();
    for round in 0..60 {
        // Lines, two lines, bodies in the device's buffers; more of each than windows, credits and buffers would bear if one were lost.
        for length in [0, 20, 300, longest] {
            for count in 0..=8 {
                let (port, program) = asker;
                program.panics = false;
                let handler = if count % 3 == 2 { UNANSWERED } else { ANSWERED };
                port.request(0, handler, &[round; 8][..count], &vec![7; length], program).expect("it is taken");
                wanted.requests += 1;
                wanted.replies += u64::from(handler == ANSWERED);
                program.panics = true;
                panics += poll(asker);
            }
        }
        let (port, program) = asker;
        program.panics = false;
        if round % 10 == 0 {
            let bytes = pattern(round as usize + 3);
            port.store(0, &Store { offset: 0, handler: ANSWERED, words: &[1] }, &bytes, program).expect("it is taken");
            port.request_on(0, 1, ANSWERED, &[2], &[], program).expect("it is taken");
            port.send(0, 2, &bytes, program).expect("there is room");
            wanted.streamed.extend(&bytes);
            wanted.requests += 2;
            wanted.replies += 2;
            // Out of bounds: it comes back.
            port.store(0, &Store { offset: LONG as u64, handler: CALM, words: &[] }, &bytes, program).expect("it is taken");
            wanted.returned += 1;
            port.get(0, &Get { from: 0, to: 0, length: LONG as u64, handler: 0, words: &[] }, program).expect("it is taken");
            wanted.replies += 1;
        }
        program.panics = true;
        let (replies, returned) = (wanted.replies, wanted.returned);
        panics += until(asker, "answers", |program| program.replies >= replies && program.returned >= returned);
    }
    assert_eq!((asker.1.replies, asker.1.returned), (wanted.replies, wanted.returned));
    // A frame over a device that joins messages may have several, and their panics are one.
    assert!(panics > 0 && (!reliable || panics <= wanted.replies + wanted.returned), "{panics}");
    (panics, wanted)
}

#[derive(Default)]
struct Wanted {
    requests: u64,
    replies: u64,
    returned: u64,
    streamed: Vec<u8>,
}

fn judge<E: Endpoint + Send>(a: E, b: E, change: impl Fn(Config) -> Config, threads: usize) {
    let config = change(Config { channels: 2, ..config_for(&a, 1) });
    let (mut for_a, mut for_b) = (memory(&config), memory(&config));
    let with = |panics| Program { segment: vec![0; LONG], panics, ..Program::default() };
    let mut asker = (Port::new(a, &mut for_a, &config).unwrap(), with(false));
    let mut asked = (Port::new(b, &mut for_b, &config).unwrap(), with(false));
    join((&mut asker.0, &mut asker.1), (&mut asked.0, &mut asked.1)).unwrap();
    asked.0.engine().grant(0, 2, u64::MAX >> 1, 1).unwrap();
    asked.1.panics = true;
    let (over, caught, asked) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::new(asked));
    let wanted = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    // The lock is poisoned by the first panic.
                    let act = || {
                        let (port, program) = &mut *asked.lock().unwrap_or_else(PoisonError::into_inner);
                        port.poll(program)
                    };
                    match catch_unwind(AssertUnwindSafe(act)) {
                        Ok(0) => std::thread::yield_now(),
                        Ok(_) => {}
                        Err(_) => drop(caught.fetch_add(1, Relaxed)),
                    }
                }
            });
        }
        let end = End(&over);
        let (_, wanted) = ask(&mut asker, config.reliable != 0);
        // From now on nobody panics, and everything goes as it did before.
        asker.1.panics = false;
        asked.lock().unwrap_or_else(PoisonError::into_inner).1.panics = false;
        let (before, (port, program)) = (asker.1.replies, &mut asker);
        for round in 0..2000 {
            port.request(0, CALM, &[round], &[], program).expect("it is taken");
            port.wait_until(0, program, SOON, |program| program.replies == before + round + 1).expect("an answer");
        }
        drop(end);
        wanted
    });
    assert!(asker.1.segment == pattern(53) && !asker.1.lost, "what the last get brought");
    let (mut port, mut program) = asked.into_inner().unwrap_or_else(PoisonError::into_inner);
    // What the last one-way calls asked for may still lie there.
    while port.poll(&mut program) > 0 {}
    assert_eq!((program.requests, program.lost), (wanted.requests + 2000, false));
    assert!(program.streamed == wanted.streamed, "each byte once, in order");
    let status = port.status(0).unwrap();
    assert!(status.up && status.counters.violations == 0, "{status:?}");
    assert!(caught.load(Relaxed) > 0);
    // The end is an event, whose handler may panic, too.
    program.panics = true;
    let ended = catch_unwind(AssertUnwindSafe(|| port.disconnect(0, &mut program)));
    assert!(ended.is_err() && program.lost && !port.engine().is_up(0));
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn shm() -> Shm {
    Shm::new(Default::default()).unwrap()
}

fn udp() -> Udp {
    Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap()
}

#[test]
fn over_shared_memory() {
    judge(shm(), shm(), |config| config, 1);
    judge(shm(), shm(), |config| Config { combine: 1, ..config }, 1);
}

#[test]
fn over_udp() {
    judge(udp(), udp(), |config| config, 1);
    judge(udp(), udp(), |config| Config { combine: 1, ..config }, 1);
}

#[test]
fn by_several_threads() {
    judge(shm(), shm(), |config| config, 3);
    judge(udp(), udp(), |config| config, 3);
}

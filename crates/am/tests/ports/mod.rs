//! What two ports must do over any device: two threads, each with its own.

use shunt_am::port::{config_for, join, memory, Port, Table, Trouble};
use shunt_am::{Config, Get, Reason, Store};
use shunt_endpoint::{Address, Endpoint, Tags};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Seen {
    answers: Vec<u64>,
    data: usize,
    stop: bool,
}

fn table() -> Table<Seen> {
    let mut table = Table::new(Seen::default());
    table.segment = vec![0; 1 << 20];
    table
        .on_request(1, |_, message, replier| replier.reply(2, message.words, message.data).unwrap())
        .on_request(3, |seen, _, _| seen.stop = true)
        .on_reply(2, |seen, message| {
            seen.answers.push(message.words[0]);
            seen.data += message.data.len();
        });
    table
}

/// Runs `first` against a server that answers until it is told to stop.
pub fn with_server<E: Endpoint + Send>(
    mut a: E,
    mut b: E,
    config: impl Fn(Config) -> Config + Sync,
    first: impl FnOnce(&mut Port<'_, E>),
) {
    let (for_a, for_b) = (a.new_tag().unwrap(), b.new_tag().unwrap());
    let (at_a, at_b): (Address, Address) = (a.address(), b.address());
    let config = &config;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let config = config(config_for(&b, 1));
            let mut space = memory(&config);
            let mut port = Port::new(b, &mut space, &config).unwrap();
            let peer = port.open(&at_a, Tags { receive: for_b, send: for_a }).unwrap();
            let mut table = table();
            port.accept(peer, &mut table, SOON).unwrap();
            port.wait_until(peer, &mut table, SOON, |table| table.context.stop).unwrap();
            let _ = port.drain(peer, &mut table);
        });
        let config = config(config_for(&a, 1));
        let mut space = memory(&config);
        let mut port = Port::new(a, &mut space, &config).unwrap();
        assert_eq!(port.open(&at_b, Tags { receive: for_a, send: for_b }).unwrap(), 0);
        port.connect(0, &mut table()).unwrap();
        first(&mut port);
        port.request(0, 3, &[], &[], &mut table()).unwrap();
        let _ = port.drain(0, &mut table());
    });
}

/// All verbs, against a server that has the same table.
pub fn exercise<E: Endpoint>(port: &mut Port<'_, E>) {
    let mut table = table();
    let most = port.engine().medium_maximum();
    for name in 0..300u64 {
        port.request(0, 1, &[name, 1, 2, 3, 4, 5, 6, 7], &vec![name as u8; most * (name as usize % 2)], &mut table).unwrap();
    }
    port.wait_until(0, &mut table, SOON, |table| table.context.answers.len() == 300).unwrap();
    table.context.answers.sort_unstable();
    assert_eq!(table.context.answers, (0..300).collect::<Vec<_>>());
    assert_eq!(table.context.data, 150 * most);

    let block: Vec<u8> = (0..300_000u32).map(|at| ((at * 7) >> 4) as u8).collect();
    port.store(0, &Store { offset: 1000, handler: 1, words: &[900] }, &block, &mut table).unwrap();
    port.wait_until(0, &mut table, SOON, |table| table.context.answers.last() == Some(&900)).unwrap();
    let get = Get { from: 1000, to: 500, length: block.len() as u64, handler: 2, words: &[901] };
    port.get(0, &get, &mut table).unwrap();
    port.wait_until(0, &mut table, SOON, |table| table.context.answers.last() == Some(&901)).unwrap();
    assert!(table.segment[500..][..block.len()] == block);

    let too_long = port.request(0, 1, &[], &vec![0; most + 65], &mut table);
    assert_eq!(too_long, Err(Trouble::Refused(shunt_am::Refused::TooLong)));
}

/// The server's endpoint is gone in mid-conversation: whoever waits hears of it within the declared time.
pub fn server_that_vanishes<E: Endpoint + Send>(mut a: E, mut b: E) {
    const DECLARED: u32 = 1_000;
    let (for_a, for_b) = (a.new_tag().unwrap(), b.new_tag().unwrap());
    let (at_a, at_b) = (a.address(), b.address());
    let (vanish, now) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let config = config_for(&b, 1);
            let mut space = memory(&config);
            let mut port = Port::new(b, &mut space, &config).unwrap();
            port.open(&at_a, Tags { receive: for_b, send: for_a }).unwrap();
            let mut table = table();
            port.accept(0, &mut table, SOON).unwrap();
            while now.try_recv().is_err() {
                port.wait(&mut table, Duration::from_millis(1));
            }
        });
        let config = Config { lost_after: DECLARED, ..config_for(&a, 1) };
        let mut space = memory(&config);
        let mut port = Port::new(a, &mut space, &config).unwrap();
        port.open(&at_b, Tags { receive: for_a, send: for_b }).unwrap();
        let mut table = table();
        port.connect(0, &mut table).unwrap();
        vanish.send(()).unwrap();
        let began = Instant::now();
        let trouble = loop {
            if let Err(trouble) = port.request(0, 3, &[], &[], &mut table) {
                break trouble;
            }
            assert!(began.elapsed() < SOON);
            port.wait(&mut table, Duration::from_millis(10));
        };
        assert!(matches!(trouble, Trouble::Lost | Trouble::TimedOut), "{trouble:?}");
        let waited = port.wait_until(0, &mut table, SOON, |_| false);
        assert_eq!(waited, Err(Trouble::Lost));
        assert!(table.events.iter().any(|(_, event)| matches!(event, shunt_am::Event::Lost(Reason::Silent | Reason::Closed))));
    });
}

/// A peer that lives and takes nothing ends the calls that wait for it, also while another one sends all the time: without room on
/// a channel; without credit, if it is `asleep`.
pub fn stalled_among_others<E: Endpoint + Send>(new: impl Fn() -> E, asleep: bool) {
    const DECLARED: u32 = 300;
    let (a, b, c) = (new(), new(), new());
    let (config, one) = (Config { lost_after: DECLARED, ..config_for(&a, 2) }, config_for(&b, 1));
    let (mut for_a, mut for_b, mut for_c) = (memory(&config), memory(&one), memory(&one));
    let mut port = Port::new(a, &mut for_a, &config).unwrap();
    let (mut stalled, mut busy) = (Port::new(b, &mut for_b, &one).unwrap(), Port::new(c, &mut for_c, &one).unwrap());
    let (mut at_a, mut at_b, mut at_c) = (table(), table(), table());
    let (there, _) = join((&mut port, &mut at_a), (&mut stalled, &mut at_b)).unwrap();
    let (_, back) = join((&mut port, &mut at_a), (&mut busy, &mut at_c)).unwrap();
    let (over, flood_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            while !over.load(SeqCst) && began.elapsed() < SOON {
                let _ = busy.request(back, 1, &[1], &[], &mut at_c);
                if !asleep {
                    stalled.poll(&mut at_b);
                }
            }
            flood_ended.store(true, SeqCst);
        });
        assert_eq!(port.send(there, 1, b"no room", &mut at_a), Err(Trouble::TimedOut));
        if asleep {
            let trouble = (0..).find_map(|_| port.request(there, 1, &[1], &[], &mut at_a).err());
            assert!(matches!(trouble, Some(Trouble::Lost | Trouble::TimedOut)), "{trouble:?}");
        }
        assert!(!flood_ended.load(SeqCst), "it ended with the noise");
        over.store(true, SeqCst);
    });
}

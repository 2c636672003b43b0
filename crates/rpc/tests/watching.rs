//! A tool that watches a server hears of each call, and of nothing else; a server that is not watched, or whose watcher does not listen,
//! serves as ever.

mod common;

use common::*;
use shunt_rpc::trace::{Histogram, Outcome, Record, Watch, CALLS, SUMS};
use shunt_rpc::*;
use std::collections::BTreeMap;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

fn watched(at: &Address, what: u32) -> Watch {
    let watch = watch(at, &Options::default(), what).unwrap();
    // The server's threads look at who watches at least every 50 microseconds.
    std::thread::sleep(Duration::from_millis(200));
    watch
}

#[test]
fn each_call_is_told_with_its_outcome() {
    let server = server("told", ServerOptions::default());
    let client = client(server.address());
    client.call::<_, ()>(NULL, &()).unwrap();
    let mut watch = watched(server.address(), CALLS);
    client.call::<_, i32>(ADD, &(1, 2)).unwrap();
    client.call::<_, ()>(FAIL, &3i32).unwrap_err();
    client.call::<_, ()>(PANIC, &()).unwrap_err();
    client.call::<_, ()>(99, &()).unwrap_err();
    client.call::<_, ()>(ADD, &()).unwrap_err();
    client.tell(COUNT, &()).unwrap();
    client.call::<_, bool>(SLEEP, &20u32).unwrap();
    client.call::<_, Data>(ECHO, &Data::from(vec![1; 100_000])).unwrap();
    let mut told = vec![];
    while told.len() < 8 {
        let Some(Record::Call { subject, took, caller, arguments, results, .. }) = watch.next(PATIENCE).unwrap() else {
            panic!()
        };
        assert_eq!((subject.program, subject.version, caller), (PROGRAM, 2, std::process::id()));
        assert!(subject.procedure != SLEEP || took > 19_000_000, "{took}");
        told.push((subject.procedure, subject.outcome.to_string(), arguments, results));
    }
    let line = |procedure, outcome: &str, arguments, results| (procedure, outcome.to_string(), arguments, results);
    let all = [
        line(ADD, "ok", 8, 4),
        line(FAIL, "fault", 4, 0),
        line(PANIC, "panicked", 0, 0),
        line(99, "no-procedure", 0, 0),
        line(ADD, "bad-arguments", 0, 0),
        line(COUNT, "ok", 0, 4),
        line(SLEEP, "ok", 4, 4),
        line(ECHO, "ok", 100_004, 100_004),
    ];
    assert_eq!(told, all);
    drop(server);
    assert_eq!(watch.next(PATIENCE).unwrap(), None, "its end is told");
}

#[test]
fn sums_count_every_call_once() {
    let server = server("sums", ServerOptions { threads: 2, ..ServerOptions::default() });
    let mut watch = watched(server.address(), SUMS);
    let address = server.address();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = client(address);
                (0..20_000i32).for_each(|round| assert_eq!(client.call::<_, i32>(ADD, &(round, 1)).unwrap(), round + 1));
                client.call::<_, ()>(FAIL, &3i32).unwrap_err();
            });
        }
    });
    let mut sums: BTreeMap<(u16, Outcome), Histogram> = BTreeMap::new();
    while sums.values().map(|sum| sum.calls).sum::<u64>() < 40_002 {
        let record = watch.next(PATIENCE).unwrap_or_else(|error| {
            panic!("{error}, after {:?}", sums.iter().map(|(of, sum)| (of, sum.calls)).collect::<Vec<_>>())
        });
        let Some(Record::Sum { subject, bucket, calls, took }) = record else { panic!("{record:?}") };
        sums.entry((subject.procedure, subject.outcome)).or_default().add(bucket, calls, took);
    }
    let counts: Vec<_> = sums.iter().map(|((procedure, outcome), sum)| (*procedure, outcome.0, sum.calls)).collect();
    assert_eq!(counts, [(ADD, 0, 40_000), (FAIL, 7, 2)]);
    let sum = &sums[&(ADD, Outcome(0))];
    assert!(sum.took > 0 && sum.quantile(0.5) <= sum.quantile(0.99), "{sum:?}");
    assert!(watch.next(Duration::from_millis(300)).is_err(), "and no call more");
}

#[test]
fn a_watcher_that_does_not_listen_holds_nobody_up_and_learns_what_it_missed() {
    let server = server("deaf", ServerOptions::default());
    let mut watch = watched(server.address(), CALLS);
    let client = client(server.address());
    // More than its socket, what is kept for it, and what a thread keeps hold together.
    let calls = 40_000u64;
    (0..calls).for_each(|_| client.call::<_, ()>(NULL, &()).unwrap());
    let (mut heard, mut missing) = (0, 0);
    while heard + missing < calls {
        match watch.next(PATIENCE).unwrap() {
            Some(Record::Call { .. }) => heard += 1,
            Some(Record::Missing { records }) => missing += records,
            other => panic!("{other:?}"),
        }
    }
    assert!(missing > 0 && heard > 1000, "{heard} {missing}");
}

#[test]
fn nobody_watches_from_another_host() {
    let server = Server::bind(&"udp:127.0.0.1:0".parse().unwrap(), ServerOptions::default()).unwrap();
    let server = server.spawn(Test::default).unwrap();
    let refused = watch(server.address(), &Options::default(), CALLS).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind(), Kind::Denied);
}

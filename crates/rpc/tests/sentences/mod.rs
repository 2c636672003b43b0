//! What a caller may rely on, over every device: the sentences, and how a device is judged by them.
#![allow(dead_code, reason = "each test program has devices of its own")]

use super::common::*;
use shunt_rpc::*;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server at an address, on a thread of this process.
pub fn listening(address: &Address, options: ServerOptions) -> Running {
    loop {
        match Server::bind(address, options.clone()) {
            // Between fork and exec, a child that another test starts has what the last server here listened with.
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => std::thread::sleep(Duration::from_millis(1)),
            server => return server.unwrap().spawn(Test::default).unwrap(),
        }
    }
}

/// Where servers and callers of a device are.
pub trait Device {
    /// Where the server of a test listens.
    fn address(&self, test: &str) -> Address;

    /// A server at an address, on a thread of this process.
    fn serve(&self, address: &Address, options: ServerOptions) -> Running {
        listening(address, options)
    }

    /// A command where servers are.
    fn beside_servers(&self, program: &std::path::Path) -> Command {
        Command::new(program)
    }

    /// A command where callers are.
    fn beside_callers(&self, program: &std::path::Path) -> Command {
        Command::new(program)
    }

    /// A server for a test.
    fn server(&self, test: &str, options: ServerOptions) -> Running {
        self.serve(&self.address(test), options)
    }
}

/// The tests of a device, in a module: `$make` runs what it is given with the device, or says why there is none.
#[macro_export]
macro_rules! sentences {
    ($module:ident, $make:path) => {
        mod $module {
            $crate::sentences! { @each $make;
                calls_return_what_procedures_answer
                long_arguments_and_results_go_through_the_window
                servers_work_on_memory_of_callers
                many_calls_are_outstanding
                errors_say_what_and_who
                procedures_that_panic_leave_everything_in_order
                a_caller_whose_calls_panic_holds_up_no_other
                one_way_calls_run_once_each
                deadlines_end_calls
                a_cancelled_call_frees_its_place_when_it_is_answered
                versions_are_agreed_on
                a_server_that_stops_ends_its_calls
                full_tables_say_so
                callers_have_threads_of_their_own
                servers_tell_what_they_have
                a_killed_server_ends_its_calls
                a_killed_caller_leaves_its_place
            }
        }
    };
    (@each $make:path; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            $make(|device| $crate::sentences::$name(device));
        })*
    };
}

/// This program again, as a side that is to be killed: the test `the_other_side` of each program is that.
pub fn other(mut command: Command, role: &str, address: &Address) -> Child {
    command.args(["--exact", "the_other_side", "--nocapture", "--test-threads=1"]);
    command.env("RPC_ROLE", role).env("RPC_AT", address.to_string()).stdout(Stdio::piped()).spawn().unwrap()
}

/// What the other side tells, behind a word.
pub fn told(child: &mut Child, word: &str) -> String {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find_map(|line| line.split_once(word).map(|(_, rest)| rest.trim().to_string()));
    line.unwrap_or_else(|| panic!("the other side ended without {word:?}"))
}

/// The other side, if this program was started as one.
pub fn be_the_other_side() {
    let (Ok(role), Ok(at)) = (std::env::var("RPC_ROLE"), std::env::var("RPC_AT")) else { return };
    // SAFETY: it goes with its parent.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let at = at.parse().unwrap();
    if role == "server" {
        let server = Server::bind(&at, ServerOptions::default()).unwrap();
        println!("listens {}", server.address());
        return server.run(Test::default).unwrap();
    }
    // The caller before, in its parent, has let go of its place; the server may not have heard of it yet.
    let client = loop {
        match Client::connect(&at, PROGRAM, 1..=2, Options::default()) {
            Err(error) if error.kind() == Kind::Busy => std::thread::sleep(Duration::from_millis(1)),
            made => break made.unwrap(),
        }
    };
    client.call::<_, ()>(NULL, &()).unwrap();
    println!("calls from now on");
    loop {
        let calls: Vec<_> = (0..64).map(|at| client.begin::<_, i32>(ADD, &(at, 1)).unwrap()).collect();
        calls.into_iter().zip(1..).for_each(|(call, sum)| assert_eq!(call.wait().unwrap(), sum));
    }
}

pub fn a_killed_server_ends_its_calls(device: &impl Device) {
    let program = std::env::current_exe().unwrap();
    let mut server = other(device.beside_servers(&program), "server", &device.address("killed"));
    let client = client(&told(&mut server, "listens ").parse().unwrap());
    client.call::<_, ()>(NULL, &()).unwrap();
    let running = client.begin::<_, bool>(SLEEP, &60_000u32).unwrap();
    let calls: Vec<_> = (0..64).map(|at| client.begin::<_, i32>(ADD, &(at, 1)).unwrap()).collect();
    server.kill().unwrap();
    for error in calls.into_iter().map(|call| call.wait().unwrap_err()).chain([running.wait().unwrap_err()]) {
        assert_eq!((error.kind(), error.ran()), (Kind::Lost, Ran::Maybe), "{error}");
    }
    let error = client.call::<_, ()>(NULL, &()).unwrap_err();
    assert_eq!((error.kind(), error.ran()), (Kind::Lost, Ran::No), "{error}");
    assert_eq!(client.outstanding(), 0);
    server.wait().unwrap();
}

pub fn a_killed_caller_leaves_its_place(device: &impl Device) {
    let server = device.server("killed-caller", ServerOptions { callers: 2, ..ServerOptions::default() });
    let bystander = client(server.address());
    let program = std::env::current_exe().unwrap();
    for _ in 0..3 {
        let mut caller = other(device.beside_callers(&program), "caller", server.address());
        told(&mut caller, "calls from");
        bystander.call::<_, ()>(NULL, &()).unwrap();
        caller.kill().unwrap();
        caller.wait().unwrap();
        // Its place is free when the server has heard of it.
        loop {
            bystander.call::<_, ()>(NULL, &()).unwrap();
            match Client::connect(server.address(), PROGRAM, 1..=2, Options::default()) {
                Ok(next) => break next.call::<_, ()>(NULL, &()).unwrap(),
                Err(error) => assert_eq!(error.kind(), Kind::Busy, "{error}"),
            }
        }
    }
}

pub fn calls_return_what_procedures_answer(device: &impl Device) {
    let server = device.server("answers", ServerOptions::default());
    let client = client(server.address());
    for round in 0..2000i32 {
        client.call::<_, ()>(NULL, &()).unwrap();
        assert_eq!(client.call::<_, i32>(ADD, &(round, 7)).unwrap(), round + 7);
    }
    // All lengths around those at which the way changes.
    for length in [0, 1, 16, 19, 20, 21, 24, 25, 60, 64, 100, 112, 1000, 1300, 1400, 1500] {
        let data = Data::from(vec![length as u8; length]);
        assert_eq!(client.call::<_, Data>(ECHO, &data).unwrap(), data, "{length}");
    }
    assert_eq!((client.outstanding(), client.strangers()), (0, 0));
}

fn with_window(server: &Running, window: usize) -> Client {
    Client::connect(server.address(), PROGRAM, 1..=2, Options { window, ..Options::default() }).unwrap()
}

pub fn long_arguments_and_results_go_through_the_window(device: &impl Device) {
    let server = device.server("long", ServerOptions::default());
    let client = with_window(&server, 4 << 20);
    for length in [32_000, 32_700, 33_000, 100_000, 1_000_000] {
        let data = Data::from((0..length).map(|at| ((at * 7) >> 3) as u8).collect::<Vec<_>>());
        assert!(client.call::<_, Data>(ECHO, &data).unwrap() == data, "{length}");
    }
    let error = client.call::<_, Data>(ECHO, &Data::from(vec![1; 1_500_000])).unwrap_err();
    assert_eq!((error.kind(), error.side(), error.ran()), (Kind::TooLong, Side::Server, Ran::Yes), "{error}");
    let error = client.call::<_, Data>(ECHO, &Data::from(vec![1; 5 << 20])).unwrap_err();
    assert_eq!((error.kind(), error.side(), error.ran()), (Kind::TooLong, Side::Caller, Ran::No), "{error}");
    assert_eq!(client.outstanding(), 0);
    let all = client.buffer::<u8>((4 << 20) - 4096).expect("all of the window is free again");
    // Then the messages have room for what they can carry.
    let data = shunt_rpc::xdr::Bytes::<1200>::from(vec![3; 1000]);
    assert_eq!(client.call::<_, shunt_rpc::xdr::Bytes<1200>>(ECHO, &data).unwrap(), data);
    drop(all);
}

pub fn servers_work_on_memory_of_callers(device: &impl Device) {
    let server = device.server("reference", ServerOptions::default());
    let client = client(server.address());
    for count in [0, 1, 1000, 16_384, 200_000] {
        let mut keys = client.buffer::<u32>(count).unwrap();
        (0..count).for_each(|at| keys.view().set(at, (at as u32).wrapping_mul(2_654_435_761)));
        let lent = [keys.lend(true, true).unwrap()];
        client.call_with::<_, ()>(SORT, &keys.reference(), &How { lent: &lent, ..How::default() }).unwrap();
        assert!(keys.view().to_vec().is_sorted(), "{count}");
    }
    let mut into = client.buffer::<u8>(50_000).unwrap();
    let lent = [into.lend(false, true).unwrap()];
    let how = How { lent: &lent, ..How::default() };
    assert_eq!(client.call_with::<_, u32>(FILL, &(into.reference(), 9u32), &how).unwrap(), 50_000);
    assert!(into.view().to_vec().iter().all(|&byte| byte == 9));
}

pub fn many_calls_are_outstanding(device: &impl Device) {
    let server = device.server("many", ServerOptions::default());
    let client = client(server.address());
    for _ in 0..20 {
        let calls: Vec<_> = (0..500).map(|at| (at, client.begin::<_, i32>(ADD, &(at, 1)).unwrap())).collect();
        for (at, call) in calls.into_iter().rev() {
            assert_eq!(call.wait().unwrap(), at + 1);
        }
    }
    assert_eq!(client.outstanding(), 0);
}

pub fn errors_say_what_and_who(device: &impl Device) {
    let server = device.server("errors", ServerOptions::default());
    let client = client(server.address());
    let error = client.call::<_, ()>(FAIL, &-3i32).unwrap_err();
    assert_eq!((error.kind(), error.ran()), (Kind::Application, Ran::Yes));
    assert_eq!(error.fault(), Some(&Fault::new(-3, "as it was asked to")));
    let error = client.call::<_, ()>(99, &()).unwrap_err();
    assert_eq!((error.kind(), error.side(), error.ran()), (Kind::NoProcedure, Side::Server, Ran::No));
    let error = client.call::<_, ()>(ADD, &1i32).unwrap_err();
    assert_eq!((error.kind(), error.side(), error.ran()), (Kind::BadArguments, Side::Server, Ran::No));
    assert!(error.to_string().contains("at byte 4"), "{error}");
    assert!(error.to_string().contains(&server.address().to_string()), "{error}");
    let error = client.call::<_, ()>(ADD, &(1i32, 2i32)).unwrap_err();
    assert_eq!((error.kind(), error.ran()), (Kind::BadResults, Ran::Yes));
    let error = client.call::<_, ()>(PANIC, &()).unwrap_err();
    assert_eq!((error.kind(), error.side()), (Kind::Panicked, Side::Server));
    client.call::<_, ()>(NULL, &()).unwrap();
    // However many do, the server lives.
    for _ in 0..1000 {
        assert_eq!(client.call::<_, ()>(PANIC, &()).unwrap_err().kind(), Kind::Panicked);
    }
    client.call::<_, ()>(NULL, &()).unwrap();
}

pub fn procedures_that_panic_leave_everything_in_order(device: &impl Device) {
    let server = device.server("broken", ServerOptions { threads: 2, ..ServerOptions::default() });
    std::thread::scope(|scope| {
        // More callers than threads: those of one thread are polled by turns, and a panic ends a turn.
        for _ in 0..4 {
            scope.spawn(|| {
                let client = client(server.address());
                let keys = client.buffer::<u32>(10_000).unwrap();
                for round in 0..20u32 {
                    // Lines, two lines, a message's data, the window; waited for, begun beside others, of one way.
                    for length in [0, 12, 20, 30, 50, 100, 1000, 30_000, 100_000] {
                        let data = Data::from(vec![7; length]);
                        let begun = client.begin::<_, ()>(BREAK, &data).unwrap();
                        let beside = client.begin::<_, i32>(ADD, &(round as i32, 1)).unwrap();
                        assert_eq!(client.call::<_, ()>(BREAK, &data).unwrap_err().kind(), Kind::Panicked, "{length}");
                        assert_eq!(begun.wait().unwrap_err().kind(), Kind::Panicked, "{length}");
                        assert_eq!(beside.wait().unwrap(), round as i32 + 1, "{length}");
                        client.tell(BREAK, &data).unwrap();
                    }
                    let lent = [keys.lend(true, true).unwrap()];
                    let how = How { lent: &lent, ..How::default() };
                    let error = client.call_with::<_, ()>(BREAK_ON, &keys.reference(), &how).unwrap_err();
                    assert_eq!((error.kind(), error.ran()), (Kind::Panicked, Ran::Maybe), "{error}");
                }
                while client.outstanding() > 0 {
                    client.progress();
                }
                drop(keys);
                assert!(client.buffer::<u8>((4 << 20) - 4096).is_ok(), "all of the window is free again");
                assert_eq!(client.call::<_, i32>(ADD, &(1, 2)).unwrap(), 3);
                assert_eq!(client.strangers(), 0);
            });
        }
    });
}

pub fn a_caller_whose_calls_panic_holds_up_no_other(device: &impl Device) {
    let server = device.server("flood", ServerOptions::default());
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let (over, server) = (&over, &server);
        scope.spawn(move || {
            let client = client(server.address());
            let mut begun = std::collections::VecDeque::new();
            let nothing = Data::from(vec![]);
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                while begun.len() < 100 {
                    begun.push_back(client.begin::<_, ()>(BREAK, &nothing).unwrap());
                }
                let _ = tell.send(());
                assert_eq!(begun.pop_front().unwrap().wait().unwrap_err().kind(), Kind::Panicked);
            }
        });
        told.recv().unwrap();
        let client = client(server.address());
        let how = How { deadline: Some(Duration::from_secs(20)), ..How::default() };
        let answers = (0..100).map(|round| client.call_with::<_, i32>(ADD, &(round, 1), &how)).collect::<Result<Vec<_>, _>>();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(answers.unwrap(), (1..=100).collect::<Vec<_>>());
    });
}

pub fn one_way_calls_run_once_each(device: &impl Device) {
    let server = device.server("one-way", ServerOptions::default());
    let client = client(server.address());
    (0..5000).for_each(|_| client.tell(COUNT, &()).unwrap());
    // A call behind them; order is that of the device, so over one that loses frames some may come later.
    let mut counted = 0;
    for call in 1.. {
        counted = client.call::<_, u32>(COUNT, &()).unwrap();
        if counted == 5000 + call {
            break;
        }
        assert!(call < 100_000);
    }
    assert!(counted > 5000);
    client.tell(ECHO, &Data::from(vec![1; 100_000])).unwrap();
    while client.outstanding() > 0 {
        client.progress();
    }
}

pub fn deadlines_end_calls(device: &impl Device) {
    let server = device.server("deadline", ServerOptions::default());
    let client = client(server.address());
    let soon = How { deadline: Some(Duration::from_millis(20)), ..How::default() };
    let late = How { deadline: Some(Duration::from_secs(60)), ..How::default() };
    let error = client.call_with::<_, bool>(SLEEP, &300u32, &soon).unwrap_err();
    // A server that had no processor so long says that it did not begin.
    let refused = error.ran() == Ran::No && error.to_string().contains("before its turn came");
    assert!(error.kind() == Kind::TimedOut && (error.ran() == Ran::Maybe || refused), "{error}");
    // Behind a call that takes too long for it, one ends before it has begun.
    let first = client.begin::<_, bool>(SLEEP, &100u32).unwrap();
    let second = client.begin_with::<_, u32>(COUNT, &(), &soon).unwrap();
    let error = second.wait().unwrap_err();
    assert_eq!(error.kind(), Kind::TimedOut);
    assert!(!first.wait().unwrap());
    let counted = client.call_with::<_, u32>(COUNT, &(), &late).unwrap();
    assert!(counted <= 4, "{counted}");
    while client.outstanding() > 0 {
        client.progress();
    }
}

pub fn a_cancelled_call_frees_its_place_when_it_is_answered(device: &impl Device) {
    let server = device.server("cancel", ServerOptions::default());
    let client = client(server.address());
    for _ in 0..50 {
        drop(client.begin::<_, bool>(SLEEP, &20u32).unwrap());
        drop(client.begin::<_, u32>(COUNT, &()).unwrap());
    }
    assert_eq!(client.call::<_, i32>(ADD, &(1, 2)).unwrap(), 3);
    while client.outstanding() > 0 {
        client.progress();
    }
    assert_eq!(client.strangers(), 0);
}

pub fn versions_are_agreed_on(device: &impl Device) {
    let server = device.server("versions", ServerOptions::default());
    let bind = |program, versions| Client::connect(server.address(), program, versions, Options::default());
    for (asked, got) in [(1..=1, 1), (1..=9, 2), (2..=3, 2)] {
        assert_eq!(bind(PROGRAM, asked).unwrap().version(), got);
    }
    let error = bind(PROGRAM, 3..=4).unwrap_err();
    assert_eq!(error.kind(), Kind::Version);
    assert!(error.to_string().contains("versions 3 to 4 asked for, 1 to 2 there"), "{error}");
    assert_eq!(bind(7, 1..=1).unwrap_err().kind(), Kind::Version);
}

pub fn a_server_that_stops_ends_its_calls(device: &impl Device) {
    let server = device.server("stop", ServerOptions::default());
    let mut client = client(server.address());
    client.call::<_, ()>(NULL, &()).unwrap();
    let address = server.address().clone();
    drop(server);
    let error = client.call::<_, ()>(NULL, &()).unwrap_err();
    assert_eq!((error.kind(), error.side()), (Kind::Lost, Side::Between), "{error}");
    let error = client.call::<_, ()>(NULL, &()).unwrap_err();
    assert_eq!((error.kind(), error.ran()), (Kind::Lost, Ran::No), "{error}");
    // The next server of that name takes it in.
    let _server = device.serve(&address, ServerOptions::default());
    client.reconnect().unwrap();
    client.call::<_, ()>(NULL, &()).unwrap();
}

pub fn full_tables_say_so(device: &impl Device) {
    let server = device.server("full", ServerOptions::default());
    let client = with_window(&server, 4 << 20);
    let soon = How { deadline: Some(Duration::from_millis(50)), ..How::default() };
    // A server that is busy takes only so many more: back-pressure is felt as time.
    let slow = client.begin::<_, bool>(SLEEP, &500u32).unwrap();
    let mut calls = vec![];
    let error = loop {
        match client.begin_with::<_, u32>(COUNT, &(), &soon) {
            Ok(call) => calls.push(call),
            Err(error) => break error,
        }
        assert!(calls.len() < PLACES);
    };
    assert_eq!((error.kind(), error.ran()), (Kind::TimedOut, Ran::No), "{error}");
    let buffer = client.buffer::<u8>(4_000_000).unwrap();
    assert_eq!(client.buffer::<u8>(4_000_000).err().unwrap().kind(), Kind::Busy);
    assert_eq!(client.buffer::<u8>(5_000_000).err().unwrap().kind(), Kind::TooLong);
    drop((buffer, slow, calls));
    while client.outstanding() > 0 {
        client.progress();
    }
    let server = device.server("crowd", ServerOptions { callers: 2, ..ServerOptions::default() });
    let bound = [super::common::client(server.address()), super::common::client(server.address())];
    let error = Client::connect(server.address(), PROGRAM, 1..=1, Options::default()).unwrap_err();
    assert_eq!(error.kind(), Kind::Busy, "{error}");
    drop(bound);
}

pub fn callers_have_threads_of_their_own(device: &impl Device) {
    let server = device.server("threads", ServerOptions { threads: 2, ..ServerOptions::default() });
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let address = server.address();
            scope.spawn(move || {
                let client = client(address);
                for round in 0..20 {
                    let calls: Vec<_> = (0..64).map(|at| client.begin::<_, i32>(ADD, &(at, thread * round)).unwrap()).collect();
                    for (at, call) in calls.into_iter().enumerate() {
                        assert_eq!(call.wait().unwrap(), at as i32 + thread * round);
                    }
                }
            });
        }
    });
}

pub fn servers_tell_what_they_have(device: &impl Device) {
    let server = device.server("list", ServerOptions::default());
    let told = list(server.address(), &Options::default()).unwrap();
    assert_eq!(told, [Listed::from(&interface(1)), Listed::from(&interface(2))]);
    let options = Options::default();
    assert_eq!(describe(server.address(), &options, PROGRAM, 2).unwrap(), TEXT);
    assert_eq!(describe(server.address(), &options, PROGRAM, 3).unwrap_err().kind(), Kind::Version);
    assert_eq!(describe(server.address(), &options, 7, 1).unwrap_err().kind(), Kind::Version);
}

//! Either side is killed in the midst of calls: nobody hangs, each call ends, and no procedure runs twice. `KILLS=10000` for more of it,
//! as `make soak` asks; with `--nocapture` it tells how long after a kill the last call ended.

use shunt_rpc::{Client, Context, Fault, How, Kind, Options, Ran, Server, ServerOptions, Shared};
use shunt_rpc_examples::log::*;
use std::collections::HashSet;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Records that it was given are numbers; each comes once.
#[derive(Default)]
struct Once {
    seen: HashSet<Vec<u8>>,
}

impl LogV1 for Once {
    fn append(&mut self, _: &Context<'_>, record: OpaqueRecord) -> Result<Stat, Fault> {
        if !self.seen.insert(record.0) {
            return Err(Fault::new(1, "twice"));
        }
        Ok(Stat { bytes: 0, records: self.seen.len() as u32 })
    }

    fn read(&mut self, _: &Context<'_>, number: u32) -> Result<OpaqueRecord, Fault> {
        Ok(vec![7; number as usize].into())
    }

    fn sort(&mut self, _: &Context<'_>, mut keys: Shared<'_, u32>) -> Result<(), Fault> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        keys.copy_from(&sorted);
        Ok(())
    }
}

fn kills() -> u64 {
    std::env::var("KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(50)
}

/// This program again, as another side.
fn other(role: &str, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_side", "--nocapture", "--test-threads=1"])
        .env("RPC_ROLE", role)
        .env("RPC_NAME", name)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn the_other_side() {
    let (Ok(role), Ok(name)) = (std::env::var("RPC_ROLE"), std::env::var("RPC_NAME")) else { return };
    // SAFETY: it goes with its parent.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if role == "server" {
        Server::bind(&name.parse().unwrap(), ServerOptions::default()).unwrap().run(|| LogV1Server(Once::default())).unwrap();
    }
    let log = LogV1Client::connect(&name).unwrap();
    for round in 0u64.. {
        work(&log, round).unwrap();
    }
}

/// Calls of all kinds, some of them outstanding at once.
fn work(log: &LogV1Client, round: u64) -> Result<(), shunt_rpc::Error> {
    let name = |at: u64| format!("{} {round} {at}", std::process::id()).into_bytes().into();
    let calls: Vec<_> = (0..8).map(|at| log.append_begin(&name(at), None)).collect::<Result<_, _>>()?;
    drop(log.read_begin(&10, None)?);
    let keys = log.0.buffer::<u32>(1000)?;
    log.sort(&keys)?;
    log.read(&100_000)?;
    calls.into_iter().try_for_each(|call| call.wait().map(drop))
}

/// The next number of a sequence that looks like chance.
fn chance(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// A call that lasts so long after the death of its server hangs.
const HANGS: Duration = Duration::from_secs(60);

/// Descriptors of this process, and mappings of memory that it shares.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), maps.lines().filter(|line| line.contains("memfd:")).count())
}

/// How long after kills something happened: how that is distributed.
fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() - 1) * part / 1000];
    let [half, most, nearly, last] = [500, 990, 999, 1000].map(at);
    println!("{} kills; {what}: p50 {half:?}, p99 {most:?}, p99.9 {nearly:?}, longest {last:?}", times.len());
}

/// One at a time: descriptors are counted.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn a_killed_server_ends_all_calls() {
    let _alone = ALONE.lock();
    let name = format!("killed-server-{}", std::process::id());
    let mut state = 1;
    let (mut ends, mut times, mut notices, mut late) = ([0u64; 2], vec![], vec![], vec![]);
    let mut before = None;
    for kill in 0..kills() {
        let mut server = other("server", &name);
        let patient = Options { patience: Duration::from_secs(60), ..Options::default() };
        let log = LogV1Client::connect_with(&name.parse().unwrap(), patient).unwrap();
        let pause = Duration::from_nanos(chance(&mut state) % 2_000_000);
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::sleep(pause);
                let killed = Instant::now();
                server.kill().unwrap();
                // The kernel's own notice that the process is no more.
                server.wait().unwrap();
                (killed, Instant::now())
            });
            let error = (0..).find_map(|round| work(&log, round).err()).unwrap();
            assert_eq!(error.kind(), Kind::Lost, "kill {kill}: {error:?}");
            assert!(error.to_string().contains("process"), "{error}");
            ends[usize::from(error.ran() == Ran::Maybe)] += 1;
            let ended = Instant::now();
            let (killed, gone) = killer.join().unwrap();
            times.push(ended.saturating_duration_since(killed));
            notices.push(gone - killed);
            late.push(ended.saturating_duration_since(gone));
        });
        assert!(times[times.len() - 1] < HANGS, "kill {kill}: {:?}", times[times.len() - 1]);
        assert_eq!(log.read(&1).unwrap_err().ran(), Ran::No);
        assert_eq!(log.0.outstanding(), 0);
        drop(log);
        assert_eq!(*before.get_or_insert_with(held), held(), "kill {kill}: descriptors, mappings");
    }
    assert!(ends[1] > 0, "{ends:?}");
    tell("from a kill to the end of the last call", times);
    tell("from a kill to the process's end, as the kernel tells it", notices);
    tell("from that to the end of the last call", late);
}

#[test]
fn killed_callers_leave_nothing_behind() {
    let _alone = ALONE.lock();
    let name = format!("killed-callers-{}", std::process::id());
    let options = ServerOptions { callers: 4, ..ServerOptions::default() };
    let server = Server::bind(&name.parse().unwrap(), options).unwrap().spawn(|| LogV1Server(Once::default())).unwrap();
    let patient = Options { patience: Duration::from_secs(60), ..Options::default() };
    let log = LogV1Client::connect_with(server.address(), patient.clone()).unwrap();
    // Each direction's memory is handed over with the first messages.
    work(&log, u64::MAX).unwrap();
    let before = held();
    let (mut state, mut times, mut most) = (2, vec![], (0, 0));
    for round in 0..kills() {
        let mut caller = other("caller", &name);
        // Half of them in the midst of binding.
        std::thread::sleep(Duration::from_nanos(chance(&mut state) % 8_000_000));
        most = (most.0.max(held().0), most.1.max(held().1));
        let killed = Instant::now();
        caller.kill().unwrap();
        caller.wait().unwrap();
        // Its place, its descriptors and its memory come back, with nobody calling.
        while held().0 > before.0 || held().1 > before.1 {
            assert!(killed.elapsed() < HANGS, "kill {round}: {:?} are held, {before:?} before", held());
            std::thread::sleep(Duration::from_micros(50));
        }
        times.push(killed.elapsed());
        work(&log, round).unwrap();
    }
    assert!(most.0 > before.0, "no caller was there when it was killed");
    tell("from a caller's kill to the return of all that the server held for it", times);
    // All places are free again: three more callers fit.
    let more: Vec<Client> = (0..3)
        .map(|_| loop {
            match Client::connect(server.address(), 0x2000_0042, 1..=1, patient.clone()) {
                Ok(client) => break client,
                Err(error) => assert_eq!(error.kind(), Kind::Busy, "{error}"),
            }
        })
        .collect();
    drop(more);
    let how = How { deadline: Some(Duration::from_secs(60)), ..How::default() };
    while held().0 > before.0 || held().1 > before.1 {
        log.0.call_with::<(), ()>(0, &(), &how).unwrap();
    }
}

//! The same over paths that take their time, lose, double and overtake: what a delay of nothing hides. Bytes are compared, and counts with those of the same
//! load on the kernel, of the same server at a port that is not named; how long anything took decides nothing.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use shunt_testkit::{program, python_program, script};

use crate::site::{Running, Site};
use shunt_testkit::wire::{Counts, Path};

const TAKEN: u16 = 7000;
const KERNEL: u16 = 7001;

/// What came from one host.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Frames with bytes.
    frames: u64,
    /// Frames without.
    empty: u64,
    /// Frames with bytes that had come before.
    again: u64,
    /// Bytes of one connection that were under way at most.
    ahead: u64,
}

/// What a load cost.
#[derive(Debug)]
struct Cost {
    server: Sent,
    client: Sent,
    /// Hundredths of a second of the server's processor time.
    processor: u64,
    /// How often its threads slept.
    sleeps: u64,
    /// What the client's kernel says that it sent again, and of those by a probe since nothing was heard.
    retransmitted: [u64; 2],
    taken: u64,
}

fn processor(server: &Running) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/stat", server.child.id())).unwrap_or_default();
    // Behind the name in brackets: state is field 3, user and system time are 14 and 15 (proc_pid_stat(5)).
    let fields: Vec<&str> = text.rsplit_once(')').map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
    [12, 13].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum()
}

fn sleeps(server: &Running) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.child.id())).into_iter().flatten().flatten();
    let of =
        |text: String| text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok());
    tasks.filter_map(|task| of(std::fs::read_to_string(task.path().join("status")).ok()?)).sum()
}

/// proc_pid_net(5), `snmp` and `netstat`: pairs of lines, names and numbers.
fn retransmitted(site: &Site) -> [u64; 2] {
    let text = site.hosts[1].enter(|| {
        ["snmp", "netstat"]
            .map(|name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default())
            .concat()
    });
    let lines: Vec<&str> = text.lines().collect();
    ["RetransSegs", "TCPLossProbes"].map(|wanted| {
        let pairs = lines.chunks_exact(2).filter(|pair| pair[0].starts_with("Tcp"));
        let mut all = pairs.flat_map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
        all.find_map(|(name, value)| (name == wanted).then(|| value.parse().ok())?).unwrap_or(0)
    })
}

fn sent(site: &Site) -> [Sent; 2] {
    let counts = site.wire.as_ref().map(|wire| wire.counts.clone()).unwrap_or_default();
    let of = |counts: &Counts| {
        let [all, empty, again] = [&counts.frames, &counts.empty, &counts.again].map(|count| count.load(Relaxed));
        // The most of this load alone.
        Sent { frames: all - empty, empty, again, ahead: counts.ahead.swap(0, Relaxed) }
    };
    [of(&counts[0]), of(&counts[1])]
}

/// What `load` costs the server that runs on the first host.
fn cost(site: &Site, server: &Running, load: impl FnOnce()) -> Cost {
    let before = (sent(site), processor(server), sleeps(server), retransmitted(site));
    load();
    let after = (sent(site), processor(server), sleeps(server), retransmitted(site));
    let change = |end: usize| {
        let (now, then) = (after.0[end], before.0[end]);
        Sent { frames: now.frames - then.frames, empty: now.empty - then.empty, again: now.again - then.again, ahead: now.ahead }
    };
    Cost {
        server: change(0),
        client: change(1),
        processor: after.1 - before.1,
        sleeps: after.2 - before.2,
        retransmitted: [0, 1].map(|which| after.3[which] - before.3[which]),
        taken: site.count(server, "taken"),
    }
}

/// A load of the script's, on the kernel and taken.
fn both(site: &Site, load: &str, count: &str) -> [Cost; 2] {
    let (python, script) = (python_program(), script("plain_paths.py").display().to_string());
    let address = site.address(0);
    let [kernel, taken] = [KERNEL, TAKEN].map(|port| {
        let number = port.to_string();
        let server = site.start(0, TAKEN, &format!("{load}-{port}"), &python, &[&script, "serve", &address, &number]);
        site.wait_for_listener(0, port);
        cost(site, &server, || {
            assert_eq!(site.run(1, 0, &python, &[&script, load, &address, &number, count]), "fine\n", "{}", server.text());
        })
    });
    println!("{load} {count}\n  kernel {kernel:?}\n  taken  {taken:?}");
    assert!(kernel.taken == 0 && taken.taken > 0, "{load}: {taken:?}");
    [kernel, taken]
}

/// No more than the kernel, but for what else runs on the machine.
fn is_like(what: &str, taken: u64, kernel: u64, more: u64) {
    assert!(taken <= kernel + kernel / 5 + more, "{what}: {taken}, and {kernel} on the kernel");
}

fn slow(milliseconds: u64) -> Path {
    Path { delay: Duration::from_millis(milliseconds), ..Path::default() }
}

/// Requests, crowds, streams, ends and give-backs: as many frames, no more of them again, and no more of the processor than on the kernel.
#[test]
fn delays_cost_what_they_cost_on_the_kernel() {
    for (label, milliseconds, loads) in [
        (
            "near",
            5,
            &[("talk", "100"), ("crowd", "50"), ("back", "20"), ("up", "3000000"), ("down", "3000000"), ("both", "2000000")][..],
        ),
        ("far", 50, &[("talk", "20"), ("crowd", "50"), ("back", "10")][..]),
    ] {
        let Some(site) = Site::over(&format!("plain-{label}"), Some(slow(milliseconds))) else { return };
        for (load, count) in loads {
            let [kernel, taken] = both(&site, load, count);
            is_like("the server's frames", taken.server.frames, kernel.server.frames, 20);
            // The kernel answers several at once, the fewer the less the machine has to do; no end answers more than came.
            is_like("the server's frames without bytes", taken.server.empty, kernel.server.empty.max(taken.client.frames), 100);
            is_like("the server's frames again", taken.server.again, kernel.server.again, 8);
            is_like("the client's frames again", taken.client.again, kernel.client.again, 8);
            is_like("what the client's kernel sent again", taken.retransmitted[0], kernel.retransmitted[0], 8);
            is_like("processor time", taken.processor, 2 * kernel.processor, 15);
            is_like("sleeps", taken.sleeps, 2 * kernel.sleeps, 100);
        }
    }
}

/// Where a round trip is long, bulk has the kernel's windows.
#[test]
fn bulk_far_away_is_the_kernel_s() {
    let Some(site) = Site::over("plain-bulk", Some(slow(50))) else { return };
    let ([_, taken], [_, down]) = (both(&site, "up", "3000000"), both(&site, "down", "3000000"));
    // The engine promises 64 KiB, and sends ten packets ahead.
    assert!(taken.client.ahead > 2 * (64 << 10) && down.server.ahead > 4 * (14 << 10), "{taken:?} {down:?}");
}

/// What a program takes and does not answer is acknowledged before it computes.
#[test]
fn a_program_that_computes_has_acknowledged() {
    let Some(site) = Site::over("plain-sink", Some(slow(5))) else { return };
    let [kernel, taken] = both(&site, "sink", "6");
    is_like("what the client's kernel sent again", taken.retransmitted[0], kernel.retransmitted[0], 2);
    is_like("its probes", taken.retransmitted[1], kernel.retransmitted[1], 2);
}

/// Packets that are lost, doubled and overtaken: every byte is right, and not much more is sent again than on the kernel.
#[test]
fn losses_and_disorder_are_the_kernel_s_affair() {
    for (lost, doubled, overtaken) in [(10, 0, 0), (0, 50, 0), (0, 0, 100), (200, 100, 100)] {
        let path = Path { lost, doubled, overtaken, ..slow(5) };
        let Some(site) = Site::over("plain-bad", Some(path)) else { return };
        for (load, count) in [("talk", "60"), ("crowd", "30"), ("back", "10"), ("up", "400000"), ("both", "400000")] {
            let [kernel, taken] = both(&site, load, count);
            let again = |cost: &Cost| cost.server.again + cost.client.again;
            is_like("frames again", again(&taken), 3 * again(&kernel), 60);
            is_like("frames", taken.server.frames, kernel.server.frames, 100);
        }
    }
}

/// A real server and fifty clients.
#[test]
fn redis_over_a_path_that_takes_its_time() {
    let Some(site) = Site::over("plain-slow-redis", Some(slow(5))) else { return };
    let address = site.address(0);
    let benchmark = program("redis-benchmark", "redis-tools");
    for load in [
        &["-t", "get", "-n", "3000", "-c", "50"][..],
        &["-t", "set", "-n", "4000", "-c", "50", "-P", "8"],
        &["-t", "get", "-n", "400", "-c", "8", "-k", "0"],
    ] {
        let [kernel, taken] = [KERNEL, TAKEN].map(|port| {
            let number = port.to_string();
            let options = ["--port", &number, "--bind", &address, "--save", "", "--protected-mode", "no"];
            let server = site.start(0, TAKEN, &format!("redis-{port}"), &program("redis-server", "redis-server"), &options);
            site.wait_for_listener(0, port);
            cost(&site, &server, || {
                let said = site.run(1, 0, &benchmark, &[&["-h", &address, "-p", &number, "-q"][..], load].concat());
                assert!(said.contains("requests per second") && !said.to_lowercase().contains("error"), "{said}");
            })
        });
        println!("{load:?}\n  kernel {kernel:?}\n  taken  {taken:?}");
        assert!(taken.taken > 10);
        is_like("the server's frames", taken.server.frames, kernel.server.frames, 50);
        is_like("the server's frames again", taken.server.again, kernel.server.again, 8);
        is_like("the client's frames again", taken.client.again, kernel.client.again, 8);
        is_like("processor time", taken.processor, 2 * kernel.processor, 20);
    }
}

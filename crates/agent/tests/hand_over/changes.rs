//! What changes around a taken connection: one whose frames the kernel would send another way, or not at all, is the kernel's from then on.

use std::time::{Duration, Instant};

use shunt_xdp::cause::Cause;

use crate::agent::{pair, Agent};
use crate::client::{Line, Queue};
use crate::declines::{does, says};
use crate::peer::serve;
use crate::refusals::echo;

const PATIENCE: Duration = Duration::from_secs(20);

/// A connection that is taken, once nothing is in the way of one.
fn taken(queue: &mut Queue, line: &mut Line) {
    let until = Instant::now() + PATIENCE;
    while let Err(decline) = queue.take(line) {
        assert!(Instant::now() < until, "{decline:?}");
        echo(queue, std::slice::from_mut(line), b"by the kernel");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_would_leave_another_way_is_given_back() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = serve(&hosts[1], false);
    let (peer, device) = (server.ip(), &hosts[0].interface);
    let changes = [
        ("ip rule add from 192.0.2.1 lookup main".to_string(), "ip rule del from 192.0.2.1 lookup main".to_string()),
        (
            format!("tc qdisc add dev {device} root tbf rate 1gbit burst 100k latency 1s"),
            format!("tc qdisc del dev {device} root"),
        ),
        (format!("ip route add {peer} dev {device} mtu 1200"), format!("ip route del {peer}")),
        // The kernel has no way either, and takes it when there is one again.
        (format!("ip route add blackhole {peer}"), format!("ip route del blackhole {peer}")),
    ];
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut causes = Vec::new();
        for (change, undo) in changes {
            let mut line = Line::connect(server);
            taken(&mut queue, &mut line);
            echo(&mut queue, std::slice::from_mut(&mut line), b"at user level");
            if !does(&hosts[0], &change) {
                says(&change);
                continue;
            }
            // What waits for this client is an acknowledgement at most, which ends it sooner or not.
            let until = Instant::now() + PATIENCE;
            while line.taken.as_ref().is_some_and(|taken| !taken.is_closed()) {
                assert!(Instant::now() < until, "{change}: it stays taken");
                std::thread::sleep(Duration::from_millis(20));
            }
            causes.extend(line.taken.as_ref().and_then(|taken| taken.closed_by()));
            assert!(does(&hosts[0], &undo), "{undo}");
            echo(&mut queue, std::slice::from_mut(&mut line), b"by the kernel again");
            assert!(line.taken.is_none());
        }
        assert!(causes.iter().all(|cause| [Cause::Changed, Cause::Silent].contains(cause)), "{causes:?}");
        assert!(causes.contains(&Cause::Changed), "{causes:?}");
    });
}

//! The program costs each packet of the interface something, so it is there only while it is of use.

use std::time::{Duration, Instant};

use shunt_agent::report::{ask, NO_PROGRAM};

use crate::agent::{pair, Agent};
use crate::client::{Line, Queue};
use crate::refusals::echo;

const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than it lingers.
const LONG: Duration = Duration::from_secs(7);

#[test]
fn the_program_is_attached_while_something_is_taken() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let is_attached = || ask(&hosts[0].interface).expect("a report").attachment != NO_PROGRAM;
        let wait_detached = || {
            let until = Instant::now() + PATIENCE;
            while is_attached() {
                assert!(Instant::now() < until, "it stays");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        wait_detached();
        let mut queue = Queue::new(&hosts[0]);
        let mut lines = vec![Line::connect(server)];
        echo(&mut queue, &mut lines, b"by the kernel");
        for _ in 0..2 {
            let until = Instant::now() + PATIENCE;
            while queue.take(&mut lines[0]).is_err() {
                assert!(Instant::now() < until);
            }
            let since = Instant::now();
            while since.elapsed() < LONG {
                assert!(is_attached());
                echo(&mut queue, &mut lines, b"at user level");
                std::thread::sleep(Duration::from_millis(20));
                if lines[0].taken.is_none() {
                    // The agent found that it was not driven, on a crowded machine.
                    let until = Instant::now() + PATIENCE;
                    while queue.take(&mut lines[0]).is_err() {
                        assert!(Instant::now() < until);
                    }
                }
            }
            queue.give(&mut lines[0]);
            wait_detached();
            echo(&mut queue, &mut lines, b"by the kernel again");
        }
    });
}

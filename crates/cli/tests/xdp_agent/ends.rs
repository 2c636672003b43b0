//! What an agent or an endpoint leaves that ends.

use crate::agents::{attach, pair, status, Agent};
use crate::{attach_own, pass, program_of, until, DEADLINE};
use shunt_endpoint::conformance::{connect, provide};
use shunt_endpoint::{Endpoint, SendError};
use shunt_testkit::hosts::Joint;
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

/// Killed in mid-traffic: endpoints hear of it, the kernel detaches, a new agent serves at once.
#[test]
fn killed_agent_leaves_nothing() {
    let Some(hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let mut agent = Agent::start(&hosts[0], &["--lend", "1"]);
    let _other = Agent::start(&hosts[1], &["--lend", "1"]);
    for round in 0..3 {
        let mut own = attach_own(&hosts[0]);
        let mut emulated = attach(&hosts[0], Kind::Multiplexed, false);
        let mut peer = attach(&hosts[1], Kind::Multiplexed, false);
        provide(&mut peer, 64);
        let (one, _) = connect(&mut own, &mut peer);
        let (two, _) = connect(&mut emulated, &mut peer);
        pass(&mut own, &mut peer, one, b"one");
        pass(&mut emulated, &mut peer, two, b"two");
        assert!(own.arm() && emulated.arm());
        agent.signal(libc::SIGKILL);
        assert_eq!(agent.wait(), None);
        for endpoint in [&mut own, &mut emulated] {
            let events = shunt_sys::calls::poll_one(endpoint.descriptor(), libc::POLLIN, DEADLINE.as_nanos() as i64);
            assert!(events.is_ok_and(|events| events & libc::POLLIN != 0), "sleepers are woken");
            endpoint.disarm();
            assert!(matches!(endpoint.flush(), Err(SendError::Device(_))));
        }
        until("the program is detached", || program_of(&hosts[0]).is_none());
        // The endpoints of the dead agent are still open: the new one does not mind.
        agent = Agent::start(&hosts[0], &["--lend", "1"]);
        assert!(program_of(&hosts[0]).is_some());
        let again = attach(&hosts[0], Kind::Multiplexed, false);
        drop((own, emulated, again));
        assert_eq!(attach_own(&hosts[0]).kind(), Kind::Own, "round {round}: the queue can be lent again");
    }
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait(), Some(0));
    assert!(program_of(&hosts[0]).is_none(), "a signal detaches");
}

/// Endpoints that die take nothing with them: tags, queues and accounts come back.
#[test]
fn endpoints_that_end_give_everything_back() {
    let Some(hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let _agent = Agent::start(&hosts[0], &["--lend", "1", "--endpoints", "3"]);
    for _ in 0..5 {
        let mut all: Vec<Xdp> = (0..3).map(|_| attach(&hosts[0], Kind::Any, false)).collect();
        all.iter_mut().for_each(|endpoint| {
            endpoint.new_tag().expect("a tag");
        });
        assert!(
            all.iter().filter(|endpoint| endpoint.kind() == Kind::Own).count() <= 1,
            "one queue is lent, if it is free again"
        );
        let fourth = hosts[0].enter(|| Xdp::attach(&hosts[0].interface, Kind::Any, false, Sizes::default()));
        assert_eq!(fourth.err().map(|errno| errno.0), Some(libc::EDQUOT));
        let told = status(&hosts[0]);
        assert_eq!(told["agents"][0]["endpoints"].as_array().unwrap().len(), 3);
        assert_eq!(told["agents"][0]["endpoints"][0]["tags"], 1);
        drop(all);
        until("all is given back", || status(&hosts[0])["agents"][0]["endpoints"].as_array().unwrap().is_empty());
    }
}

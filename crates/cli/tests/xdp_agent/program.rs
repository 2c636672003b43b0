//! Where the program stands that sorts packets, and since when.

use crate::agents::{attach, pair, Agent};
use crate::{program_of, until};
use shunt_testkit::hosts::Joint;
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

/// Before the stack only where each frame is whole there, alone, and known by its queue.
#[test]
fn program_stands_where_frames_are_whole() {
    for (joint, arguments, place) in [
        (Joint::default(), &["--lend", "0"][..], "generic"),
        (Joint::default(), &["--attach", "native"][..], "native"),
        (Joint::default(), &["--port", "4000", "--lend", "0"][..], "native"),
        (Joint { queues: 2, mtu: 1500 }, &[][..], "native"),
        (Joint { queues: 1, mtu: 3400 }, &["--lend", "0"][..], "native"),
    ] {
        let Some(hosts) = pair(joint) else { return };
        let agent = Agent::start(&hosts[0], arguments);
        assert!(agent.said.contains(&format!("attached a program ({place})")), "{}", agent.said);
    }
}

/// While an agent only says that its host takes part, it is in no packet's way.
#[test]
fn program_waits_for_an_endpoint() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let has_program = || program_of(&hosts[0]).is_some();
    let agent = Agent::start(&hosts[0], &[]);
    assert!(agent.said.contains("will attach a program"), "{}", agent.said);
    let refused = hosts[0].enter(|| Xdp::attach("left0", Kind::Own, false, Sizes::default()).err().map(|errno| errno.0));
    assert_eq!((refused, has_program()), (Some(libc::EBUSY), false));
    drop(attach(&hosts[0], Kind::Any, false));
    assert!(has_program(), "it stays for a while");
    until("nobody to need it", || !has_program());
    let endpoint = attach(&hosts[0], Kind::Any, false);
    assert!(has_program());
    drop(agent);
    until("the program's end", || !has_program());
    drop(endpoint);
}

//! Users without privilege.

use std::net::SocketAddr;
use std::process::Command;

use crate::agents::{as_user, pair, Agent, SHUNT};
use shunt_endpoint::Endpoint;
use shunt_testkit::hosts::Joint;
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

/// Users without privilege: emulated endpoints, their own and within limits; no queue; no view of others.
#[test]
fn users_are_kept_apart() {
    let Some(hosts) = pair(Joint { queues: 2, mtu: 1500 }) else { return };
    let (one, two) = (61_001, 61_002);
    let _agent = Agent::start(&hosts[0], &["--lend", "1", "--trust", "61002", "--memory", "2"]);
    // The credentials of a connection are those of the thread that connected.
    let attach_as = |user: u32, kind: Kind, sizes: Sizes| {
        hosts[0].enter(|| {
            // SAFETY: the system call changes this thread alone, unlike the C library's function; the thread ends.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
            assert_eq!(changed, 0);
            Xdp::attach(&hosts[0].interface, kind, false, sizes)
        })
    };
    let small = Sizes { channels: 64, depth: 64, segment: 1 << 18 };
    let refused = |made: Result<Xdp, shunt_sys::Errno>| made.err().map(|errno| errno.0);
    assert_eq!(refused(attach_as(one, Kind::Own, small)), Some(libc::EACCES), "a queue is for those who are trusted");
    assert_eq!(refused(attach_as(one, Kind::Multiplexed, Sizes { segment: 4 << 20, ..small })), Some(libc::EDQUOT));
    // The registry counts: 65,536 channels have more than eight MiB of it.
    assert_eq!(refused(attach_as(one, Kind::Multiplexed, Sizes { channels: 1 << 16, ..small })), Some(libc::EDQUOT));
    for wrong in [
        Sizes { depth: 3, ..small },
        Sizes { depth: 1 << 20, ..small },
        Sizes { segment: 4097, ..small },
        Sizes { segment: u32::MAX, ..small },
        Sizes { channels: 0, ..small },
    ] {
        let errno = refused(attach_as(one, Kind::Multiplexed, wrong));
        assert!(matches!(errno, Some(libc::EINVAL | libc::EDQUOT)), "{wrong:?}: {errno:?}");
    }
    let mut mine = attach_as(one, Kind::Any, small).expect("an emulated endpoint");
    assert_eq!(mine.kind(), Kind::Multiplexed);
    let trusted = attach_as(two, Kind::Any, small).expect("an endpoint");
    assert_eq!(trusted.kind(), Kind::Own);
    let tag = mine.new_tag().expect("a tag");
    // Another user's tag cannot be registered, nor one that nobody was given.
    let mut other = attach_as(two, Kind::Multiplexed, small).expect("an endpoint");
    let remote = shunt_xdp::address::encode(&SocketAddr::new(hosts[1].addresses[0], 9), 0);
    for stolen in [tag, shunt_endpoint::Tag(12345)] {
        let tags = shunt_endpoint::Tags { receive: stolen, send: tag };
        assert_eq!(other.open(&remote, tags), Err(shunt_endpoint::OpenError::Tag));
    }
    // Addresses that are not reached by this interface.
    for elsewhere in ["127.0.0.1:9", "10.77.0.1:9", "192.0.2.1:9", "224.0.0.1:9", "10.77.0.2:0", "[fd77::2]:9"] {
        let remote = shunt_xdp::address::encode(&elsewhere.parse().unwrap(), 0);
        let receive = other.new_tag().expect("a tag");
        let opened = other.open(&remote, shunt_endpoint::Tags { receive, send: tag });
        assert_eq!(opened, Err(shunt_endpoint::OpenError::Address), "{elsewhere}");
    }
    let seen = |user: u32| {
        let output = hosts[0].enter(|| {
            let mut command = Command::new(SHUNT);
            as_user(command.args(["agent", "status", "--json"]), user).output().expect("it runs")
        });
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        told["agents"][0]["endpoints"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|endpoint| endpoint["user"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(one), [one]);
    assert_eq!(seen(two), [two, two]);
    assert_eq!(seen(0).len(), 3);
}

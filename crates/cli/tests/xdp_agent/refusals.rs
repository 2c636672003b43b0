//! What an agent says that does not start.

use std::process::Command;

use crate::agents::{as_user, foreign_program, pair, Agent, SHUNT};
use crate::{program_of, until};
use shunt_testkit::hosts::Joint;

/// Sentences: no root, no interface, an interface that is taken.
#[test]
fn refusals_say_what_to_do() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let run = |command: &mut Command| {
        let output = command.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let agent = |interface: &str| {
        let mut command = hosts[0].command(SHUNT);
        command.args(["agent", "--interface", interface]);
        command
    };
    let unprivileged = hosts[0].enter(|| {
        let mut command = Command::new(SHUNT);
        run(as_user(command.args(["agent", "--interface", "left0"]), 61_001))
    });
    let (code, said) = unprivileged;
    assert!(code == Some(1) && said.contains("needs root") && said.contains("udp"), "{said}");
    let (code, said) = run(&mut agent("nowhere0"));
    assert!(code == Some(1) && said.contains("no interface \"nowhere0\""), "{said}");
    let (code, said) = run(&mut agent("lo"));
    assert!(code == Some(1) && said.contains("Ethernet"), "{said}");
    let (code, said) = run(agent("left0").args(["--lend", "9"]));
    assert!(code == Some(1) && said.contains("1 receive queues"), "{said}");
    let (code, said) = run(agent("left0").args(["--lend", "x"]));
    assert!(code == Some(2) && said.contains("--lend"), "{said}");
    let first = Agent::start(&hosts[0], &["--lend", "0"]);
    // A veth of one queue is better served before the stack; the driver is for who asks for it.
    assert!(first.said.contains("left0: attached a program (generic)"), "{}", first.said);
    let (code, said) = run(&mut agent("left0"));
    assert!(code == Some(1) && said.contains(&format!("process {}", first.child.id())), "{said}");
    drop(first);
    let mut nobody = hosts[0].command(SHUNT);
    let (code, said) = run(nobody.args(["agent", "status", "--interface", "left0"]));
    assert!(code == Some(1) && said.contains("no agent serves left0"), "{said}");
    // Somebody else's program is left alone.
    let foreign = hosts[0].enter(|| foreign_program(&hosts[0].interface));
    let (code, said) = run(&mut agent("left0"));
    assert!(code == Some(1) && said.contains("somebody_else") && said.contains("leaves it alone"), "{said}");
    drop(foreign);
    // A child that another test forks has it for a moment, too.
    until("the program is gone", || program_of(&hosts[0]).is_none());
    Agent::start(&hosts[0], &[]);
}

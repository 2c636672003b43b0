//! Bytes that go by reference over a plain connection arrive as others do, whatever becomes of the two programs: received in pieces, looked
//! at, spliced; their sender killed, the receiver forked, replaced by exec, or another process that is passed the connection.
//!
//! A receiver that takes them where they lie holds them: no send of them is complete, and nothing is written over them, until it gives them
//! back, or has ended.
//!
//! The programs are in Python (`by_reference/`), and the sender makes its pool by hand, or sends out of a memfd as it is. What the kernel does with them is the measure.

use shunt_testkit::{in_every_mode, Host, Mode, Output};
use std::path::PathBuf;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

fn pass(host: &Host, what: &str) {
    let python = || PathBuf::from("/usr/bin/python3");
    let script = |name: &str| format!("{}/tests/by_reference/{name}.py", env!("CARGO_MANIFEST_DIR"));
    let (sender, receiver) = match what.strip_prefix("file_").unwrap_or(what) {
        lent if lent.starts_with("lent") => ("lender", "borrower"),
        held if held.starts_with("held") => ("sender", "holder"),
        _ => ("sender", "receiver"),
    };
    let server = host.server(python()).args(["-B", &script(receiver), what, "7000"]).start();
    host.wait_for_listener(&server, 7000);
    let client = host.client(python()).args(["-B", &script(sender), what, "7000"]).start().wait(DEADLINE);
    let ends = |process: Output, is_killed: bool| match is_killed {
        true => process.expect_signal(libc::SIGKILL).text(),
        false => process.expect_success().text(),
    };
    let said = ends(client, ["killed", "file_killed", "held_of_a_killed_sender"].contains(&what));
    let received = ends(server.wait(DEADLINE), ["held_and_killed", "held_by_a_killed_parent"].contains(&what));
    // A pool that cannot be mapped, and a file for which no number is left of those that are not the program's.
    let lacks = ["little_space", "held_little_space", "file_few_descriptors"].contains(&what);
    let expected = if host.mode() == Mode::Both && !lacks { "by reference" } else { "copied" };
    assert!(said.starts_with(expected), "{what}: {said}");
    if what == "held_stream" {
        assert_eq!(received == "0 in place\n", host.mode() != Mode::Both, "{received}");
    }
}

fn in_pieces(host: &Host) {
    pass(host, "stream");
}
in_every_mode!(in_pieces);

fn of_a_killed_sender(host: &Host) {
    pass(host, "killed");
}
in_every_mode!(of_a_killed_sender);

fn by_a_child(host: &Host) {
    pass(host, "forked");
}
in_every_mode!(by_a_child);

fn by_a_child_that_may_write_no_file(host: &Host) {
    pass(host, "forked_within_limits");
}
in_every_mode!(by_a_child_that_may_write_no_file);

/// Needs root.
fn by_a_child_that_becomes_another_user(host: &Host) {
    pass(host, "forked_as_another_user");
}
in_every_mode!(by_a_child_that_becomes_another_user);

/// Needs root.
fn by_a_process_that_becomes_another_user(host: &Host) {
    pass(host, "another_user");
}
in_every_mode!(by_a_process_that_becomes_another_user);

fn by_another_image(host: &Host) {
    pass(host, "replaced");
}
in_every_mode!(by_another_image);

fn by_another_process(host: &Host) {
    pass(host, "passed");
}
in_every_mode!(by_another_process);

fn of_a_file_in_pieces(host: &Host) {
    pass(host, "file_stream");
}
in_every_mode!(of_a_file_in_pieces);

fn of_a_file_of_a_killed_sender(host: &Host) {
    pass(host, "file_killed");
}
in_every_mode!(of_a_file_of_a_killed_sender);

fn of_a_file_by_a_child(host: &Host) {
    pass(host, "file_forked");
}
in_every_mode!(of_a_file_by_a_child);

/// Needs root.
fn of_a_file_by_another_user(host: &Host) {
    pass(host, "file_another_user");
}
in_every_mode!(of_a_file_by_another_user);

fn of_a_file_by_another_image(host: &Host) {
    pass(host, "file_replaced");
}
in_every_mode!(of_a_file_by_another_image);

fn of_a_file_by_another_process(host: &Host) {
    pass(host, "file_passed");
}
in_every_mode!(of_a_file_by_another_process);

fn held_in_any_order(host: &Host) {
    pass(host, "held_stream");
}
in_every_mode!(held_in_any_order);

fn held_and_given_back(host: &Host) {
    pass(host, "held");
}
in_every_mode!(held_and_given_back);

fn held_of_a_killed_sender(host: &Host) {
    pass(host, "held_of_a_killed_sender");
}
in_every_mode!(held_of_a_killed_sender);

fn held_and_closed(host: &Host) {
    pass(host, "held_and_closed");
}
in_every_mode!(held_and_closed);

fn held_and_killed(host: &Host) {
    pass(host, "held_and_killed");
}
in_every_mode!(held_and_killed);

fn held_and_forked(host: &Host) {
    pass(host, "held_and_forked");
}
in_every_mode!(held_and_forked);

fn held_by_a_killed_parent(host: &Host) {
    pass(host, "held_by_a_killed_parent");
}
in_every_mode!(held_by_a_killed_parent);

fn held_over_an_exec(host: &Host) {
    pass(host, "held_over_an_exec");
}
in_every_mode!(held_over_an_exec);

fn lent_by_plain_sends(host: &Host) {
    pass(host, "lent_stream");
}
in_every_mode!(lent_by_plain_sends);

fn lent_of_a_file(host: &Host) {
    pass(host, "file_lent_stream");
}
in_every_mode!(lent_of_a_file);

/// At any moment, forty times.
fn lent_by_a_killed_sender(host: &Host) {
    pass(host, "lent_killed");
}
in_every_mode!(lent_by_a_killed_sender);

/// Of which the parent has received the first half.
fn lent_to_a_child(host: &Host) {
    pass(host, "lent_to_a_child");
}
in_every_mode!(lent_to_a_child);

/// Needs root.
fn lent_to_another_user(host: &Host) {
    pass(host, "lent_as_another_user");
}
in_every_mode!(lent_to_another_user);

/// In a receiver that may map nothing more: of a file it needs no mapping.
fn within_little_address_space(host: &Host) {
    pass(host, "little_space");
    pass(host, "file_little_space");
    pass(host, "held_little_space");
}
in_every_mode!(within_little_address_space);

/// In one that may open next to nothing: a pool's descriptor is not kept.
fn with_few_descriptors(host: &Host) {
    pass(host, "few_descriptors");
    pass(host, "file_few_descriptors");
    pass(host, "held_few_descriptors");
}
in_every_mode!(with_few_descriptors);

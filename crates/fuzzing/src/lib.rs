//! What other processes can give us, each kind as a function that takes any bytes and must return.
//!
//! `fuzz/` hands them to libFuzzer (`make fuzz SECONDS=300`); `tests/corpora.rs` runs them over the corpora in
//! `fuzz/corpus` and over some thousand mutations of them, the same ones each time.
//!
//! A body panics where a promise is broken: a length out of bounds, a descriptor too many. What is outside the memory that
//! a peer shares is not mapped, or is watched by the fuzzer's sanitizer.
//!
//! ```
//! // What libFuzzer finds is run again by the target's name; a body that returns has kept its promises.
//! shunt_fuzzing::run("hello_name", b"shunt1-client-nonsense");
//! shunt_fuzzing::run("inherit_list", b"L902,R901,Q1,E1.2.3");
//! ```

mod frames;
mod gate;
mod handover;
mod hello;
mod hellos;
mod image;
mod inbox;
mod inet;
mod input;
mod instructions;
mod list;
mod meetings;
mod messages;
mod notes;
mod pipe;
mod references;
mod regions;
mod requests;
mod rights;
mod rpc;
mod runs;
mod shadow;
mod spmd_frames;
mod tirpc;
mod updates;

/// A target: its name, which is that of its corpus and of its program in `fuzz/`, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("hello_name", hello::run),
    ("ring_hostile", pipe::run),
    ("inbox_hostile", inbox::run),
    ("handover", handover::run),
    ("inherit_list", list::run),
    ("rights", rights::run),
    ("spmd_frames", spmd_frames::run),
    ("image", image::run),
    ("gate", gate::run),
    ("messages", messages::run),
    ("hellos", hellos::run),
    ("shadow", shadow::run),
    ("frames", frames::run),
    ("runs", runs::run),
    ("inet", inet::run),
    ("agent_requests", requests::run),
    ("updates", updates::run),
    ("instructions", instructions::run),
    ("rpc_records", rpc::records),
    ("rpc_values", rpc::values),
    ("rpc_definitions", rpc::definitions),
    ("rpc_onc", rpc::onc),
    ("tirpc", tirpc::run),
    ("regions", regions::run),
    ("references", references::run),
    ("meetings", meetings::run),
    ("capture_notes", notes::run),
];

/// Runs the target `name`.
///
/// # Panics
/// When there is none, or a promise is broken.
pub fn run(name: &str, data: &[u8]) {
    let (_, body) = TARGETS.iter().find(|(target, _)| *target == name).expect("a target of this name");
    body(data);
}

//! Lengths, flow and what registers get, against another decoder's.

use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, OpKind, Register};
use proptest::prelude::*;
use shunt_instructions::decode::{decode, Effect, Flow};
use shunt_instructions::survey::Room;

/// Instructions that this crate decodes must be as the other decoder's, if that knows them.
fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NO_INVALID_CHECK);
    let theirs = decoder.decode();
    if theirs.is_invalid() {
        return Ok(());
    }
    let Some(ours) = decode(bytes) else { return Ok(()) };
    prop_assert_eq!(ours.length, theirs.len(), "{:02x?}: {:?}", &bytes[..theirs.len()], theirs);
    let next = ours.length as i64;
    let flow = theirs.flow_control();
    match ours.flow {
        Flow::Branch(distance) => {
            prop_assert!(matches!(flow, FlowControl::ConditionalBranch), "{:02x?} {:?}", bytes, theirs);
            if theirs.op0_kind() == OpKind::NearBranch64 {
                prop_assert_eq!((next + i64::from(distance)) as u64, theirs.near_branch64());
            }
        }
        Flow::Jump(distance) => {
            prop_assert_eq!(flow, FlowControl::UnconditionalBranch);
            if theirs.op0_kind() == OpKind::NearBranch64 {
                prop_assert_eq!((next + i64::from(distance)) as u64, theirs.near_branch64());
            }
        }
        Flow::Computed => prop_assert_eq!(flow, FlowControl::IndirectBranch),
        _ => {
            let goes_elsewhere = [FlowControl::ConditionalBranch, FlowControl::UnconditionalBranch, FlowControl::IndirectBranch];
            prop_assert!(!goes_elsewhere.contains(&flow), "{:02x?} {:?}", bytes, theirs);
        }
    }
    let mut factory = InstructionInfoFactory::new();
    let mut written: Vec<u8> = Vec::new();
    for used in factory.info(&theirs).used_registers() {
        let (full, access) = (used.register().full_register(), used.access());
        let writes = !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        if writes && full.is_gpr64() && full != Register::RSP {
            written.push(full.number() as u8);
        }
    }
    let only = |registers: &[u8]| written.iter().all(|register| registers.contains(register));
    let fits = match ours.effect {
        Effect::None => only(&[]),
        Effect::Constant(register, value) => {
            let loaded = theirs.op_count() == 2 && theirs.op1_kind() != OpKind::Register;
            only(&[register]) && value == if loaded { theirs.immediate(1) as u32 } else { 0 }
        }
        Effect::Copy(to, from) => {
            only(&[to])
                && theirs.mnemonic() == iced_x86::Mnemonic::Mov
                && (theirs.op0_register().number() as u8, theirs.op1_register().number() as u8) == (to, from)
        }
        Effect::One(register) => only(&[register]),
        Effect::Call => matches!(flow, FlowControl::Call | FlowControl::IndirectCall),
        Effect::SystemCall => theirs.mnemonic() == iced_x86::Mnemonic::Syscall,
        Effect::Any => true,
    };
    prop_assert!(fits, "{:02x?}: {:?}, and {:?} writes {:?}", bytes, ours, theirs, written);
    Ok(())
}

const PREFIXES: &[u8] = &[0x66, 0x67, 0xf2, 0xf3, 0x2e, 0x40, 0x41, 0x44, 0x48, 0x49, 0x4c];
const ESCAPES: &[&[u8]] = &[&[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a], &[0xc5], &[0xc4], &[0x62], &[0x48, 0x0f]];

#[test]
fn one_opcode_of_two_makers() {
    for prefix in [0x66, 0xf2, 0x90] {
        compare(&[prefix, 0x0f, 0x78, 0xc0, 0x10, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    }
}

#[test]
fn a_hint_that_writes() {
    for bytes in [[0xf3, 0x0f, 0x1e, 0xc8], [0xf3, 0x0f, 0x1e, 0xfa]] {
        let mut padded = [0; 16];
        padded[..4].copy_from_slice(&bytes);
        compare(&padded).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200_000))]

    #[test]
    fn as_another_decoder_has_it(bytes in proptest::array::uniform16(any::<u8>())) {
        compare(&bytes)?;
    }

    #[test]
    fn with_prefixes(prefixes in proptest::collection::vec(proptest::sample::select(PREFIXES), 0..3),
                     rest in proptest::array::uniform16(any::<u8>())) {
        let bytes: Vec<u8> = prefixes.into_iter().chain(rest).collect();
        compare(&bytes)?;
    }

    #[test]
    fn with_escapes(escape in proptest::sample::select(ESCAPES),
                    rest in proptest::array::uniform16(any::<u8>())) {
        let bytes: Vec<u8> = escape.iter().copied().chain(rest).collect();
        compare(&bytes)?;
    }
}

/// All instructions of a real program's functions are decoded.
#[test]
fn this_program() {
    let bytes = std::fs::read("/proc/self/exe").expect("this program");
    let file = shunt_instructions::elf::File::new(&bytes).expect("an object");
    let mut texts = [const { 0..0 }; 8];
    let object = file.object(&mut texts);
    let mut found = Vec::new();
    assert!(shunt_instructions::survey::survey(&object, &mut Room::new(), &mut |site| {
        found.push(site);
        std::ops::ControlFlow::Continue(())
    }));
    // Nothing in it, as compiled by rustc, enters the kernel by itself, and nothing is undecided.
    assert_eq!(found, []);
}

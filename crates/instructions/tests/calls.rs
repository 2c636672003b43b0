//! What is found in code as compilers and people write it.

// An object with one text is meant.
#![allow(clippy::single_range_in_vec_init)]

use shunt_instructions::survey::{survey, Room, Site};
use shunt_instructions::Object;
use std::ops::ControlFlow;

/// Surveys one function, described as compilers describe it.
fn function(code: &[u8]) -> Vec<Site> {
    let mut memory = code.to_vec();
    memory.resize(code.len().next_multiple_of(16), 0xcc);
    let (description, header) = (memory.len() as u32, memory.len() as u32 + 16);
    // Its length, its class, where the function begins from here, how long it is.
    for word in [12, 0, (description + 8).wrapping_neg(), code.len() as u32] {
        memory.extend(u32::to_le_bytes(word));
    }
    memory.extend([1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 1, 0, 0, 0]);
    for word in [header.wrapping_neg(), description.wrapping_sub(header)] {
        memory.extend(u32::to_le_bytes(word));
    }
    let object = Object { memory: &memory[..], text: &[0..code.len() as u64], unwind: u64::from(header)..memory.len() as u64 };
    all(&object)
}

/// Surveys bytes that no function is said to hold.
fn bare(code: &[u8]) -> Vec<Site> {
    all(&Object { memory: code, text: &[0..code.len() as u64], unwind: 0..0 })
}

fn all(object: &Object<'_, [u8]>) -> Vec<Site> {
    let mut found = Vec::new();
    survey(object, &mut Box::new(Room::new()), &mut |site| {
        found.push(site);
        ControlFlow::Continue(())
    });
    found
}

fn numbers(sites: &[Site]) -> Vec<Option<u32>> {
    sites.iter().map(|site| site.number).collect()
}

#[test]
fn the_number_is_loaded_before() {
    // mov eax, 202; xor r10d, r10d; syscall; ret
    let futex = function(&[0xb8, 202, 0, 0, 0, 0x45, 0x31, 0xd2, 0x0f, 0x05, 0xc3]);
    assert_eq!(numbers(&futex), [Some(202)]);
    assert!(!futex[0].concerns());
    // xor eax, eax; syscall; ret: read
    let read = function(&[0x31, 0xc0, 0x0f, 0x05, 0xc3]);
    assert_eq!(numbers(&read), [Some(0)]);
    assert!(read[0].concerns());
    // mov rax, rdi; syscall; ret
    assert_eq!(numbers(&function(&[0x48, 0x89, 0xf8, 0x0f, 0x05, 0xc3])), [None]);
}

#[test]
fn two_ways_with_two_numbers() {
    // test edi, edi; je +7; mov eax, 202; jmp +5; mov eax, 1; syscall; ret
    let code = [0x85, 0xff, 0x74, 0x07, 0xb8, 202, 0, 0, 0, 0xeb, 0x05, 0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3];
    let found = function(&code);
    assert_eq!(numbers(&found), [None]);
    assert!(found[0].concerns());
}

#[test]
fn a_loop_keeps_what_was_loaded() {
    // mov ebp, 202; (loop:) mov eax, ebp; syscall; test eax, eax; jne loop; ret
    let code = [0xbd, 202, 0, 0, 0, 0x89, 0xe8, 0x0f, 0x05, 0x85, 0xc0, 0x75, 0xf8, 0xc3];
    assert_eq!(numbers(&function(&code)), [Some(202)]);
    // The same with a call in it, which keeps ebp; and with r9d, which no call keeps, so that nothing is known.
    let code = [0xbd, 202, 0, 0, 0, 0x89, 0xe8, 0x0f, 0x05, 0xe8, 0, 0, 0, 0, 0x85, 0xc0, 0x75, 0xf3, 0xc3];
    assert_eq!(numbers(&function(&code)), [Some(202)]);
}

#[test]
fn inside_another_instruction() {
    // mov eax, [rip + 0x050f0000]; ret
    assert_eq!(function(&[0x8b, 0x05, 0, 0, 0x0f, 0x05, 0xc3]), []);
    // mov eax, 0x050f; ret
    assert_eq!(function(&[0xb8, 0x0f, 0x05, 0, 0, 0xc3]), []);
}

#[test]
fn what_is_no_instruction_hides_nothing() {
    // An unknown byte, then syscall: not decided, so it counts.
    let found = function(&[0x06, 0x90, 0x0f, 0x05, 0xc3]);
    assert!(matches!(found[..], [Site { decided: false, .. }]) && found[0].concerns());
}

#[test]
fn code_without_a_description() {
    // Padding, then: mov rax, 1; syscall; ret
    let mut code = vec![0u8; 100];
    code.extend([0x48, 0xc7, 0xc0, 1, 0, 0, 0, 0x0f, 0x05, 0xc3]);
    assert_eq!(bare(&code).len(), 1);
    // Constants before it that are no instructions: the number alone tells.
    let mut code = vec![0x06u8; 100];
    code.extend([0xb8, 1, 0, 0, 0, 0x0f, 0x05, 0xc3]);
    assert_eq!(bare(&code).len(), 1);
    // Constants around it.
    let mut code = vec![0x06u8; 100];
    code.extend([0x0f, 0x05]);
    code.extend([0x06u8; 100]);
    assert_eq!(bare(&code), []);
}

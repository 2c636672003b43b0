//! clone(2), clone3(2) and vfork(2) by the program's own instruction, when the child does not go on in a copy of the handler's frame
//! (that is fork, which `direct` knows).

use crate::copies;
use core::arch::naked_asm;
use core::mem::{offset_of, size_of};
use shunt_calls::libc::{self, ucontext_t};
use shunt_sockets::process;
use shunt_sys::user;

/// Registers of the program that the child has when it goes on behind the instruction. They lie on its own stack, below what the
/// program may have put under the stack pointer.
#[derive(Clone, Copy)]
#[repr(C)]
struct Image {
    flags: i64,
    rip: i64,
    rdi: i64,
    rsi: i64,
    rdx: i64,
    r10: i64,
    r8: i64,
    r9: i64,
    rbx: i64,
    rbp: i64,
    r12: i64,
    r13: i64,
    r14: i64,
    r15: i64,
    /// Whether the child has memory of its own.
    copied: i64,
    /// The stack pointer stays a multiple of 16.
    _rest: i64,
}

const RED_ZONE: usize = 128;
/// How far below its stack pointer a child finds its image.
const BELOW: usize = RED_ZONE + size_of::<Image>();

/// What clone3(2) takes: structures of a page at most, and flags without a signal in them, without CLONE_DETACHED, and of those above 32
/// bits two (copy_clone_args_from_user, clone3_args_valid).
const LARGEST: usize = 4096;
const ALLOWED: u64 = 0x3_ffff_ff80 & !(libc::CLONE_DETACHED as u64);

/// Flags, stack pointer and whether the kernel gets them by clone3(2).
fn wanted(number: i64, first: usize, second: usize) -> Option<(u64, usize)> {
    match number {
        libc::SYS_vfork => Some(((libc::CLONE_VM | libc::CLONE_VFORK) as u64, 0)),
        libc::SYS_clone => Some((first as u64, second)),
        libc::SYS_clone3 if (64..=LARGEST).contains(&second) => {
            // struct clone_args: flags at 0, stack at 40 and its size behind (clone(2)).
            // SAFETY: the program's structure, which may fault: that is the kernel's to say.
            let word = |at: usize| unsafe { user::read((first + at) as *const u64) }.ok();
            if word(0)? & !ALLOWED != 0 {
                return None; // the kernel says what is wrong with it
            }
            let (stack, size) = (word(40)? as usize, word(48)? as usize);
            Some((word(0)?, if stack == 0 { 0 } else { stack.wrapping_add(size) }))
        }
        _ => None,
    }
}

/// Such a call. `None`: another, or one that is done like any.
///
/// # Safety
/// As the call itself; `context` is the kernel's.
pub unsafe fn call(number: i64, arguments: [usize; 6], context: *mut ucontext_t) -> Option<isize> {
    let (flags, stack) = wanted(number, arguments[0], arguments[1])?;
    let (shares, waits) = (flags & libc::CLONE_VM as u64 != 0, flags & libc::CLONE_VFORK as u64 != 0);
    // SAFETY: the program's stack may fault, which is the child's to find out; the rest is passed on.
    unsafe {
        if stack == 0 {
            // The child would return over the frame that its parent needs.
            return (shares && waits).then(|| {
                crate::errno::keeping_errno(|| match copies::vfork() {
                    -1 => -(crate::errno::errno() as isize),
                    child => child as isize,
                })
            });
        }
        let registers = &(*context).uc_mcontext.gregs;
        let of = |register: i32| registers[register as usize];
        let copied = !shares && flags & libc::CLONE_SETTLS as u64 == 0;
        let image = Image {
            flags: of(libc::REG_EFL),
            rip: of(libc::REG_RIP),
            rdi: of(libc::REG_RDI),
            rsi: of(libc::REG_RSI),
            rdx: of(libc::REG_RDX),
            r10: of(libc::REG_R10),
            r8: of(libc::REG_R8),
            r9: of(libc::REG_R9),
            rbx: of(libc::REG_RBX),
            rbp: of(libc::REG_RBP),
            r12: of(libc::REG_R12),
            r13: of(libc::REG_R13),
            r14: of(libc::REG_R14),
            r15: of(libc::REG_R15),
            copied: copied as i64,
            _rest: 0,
        };
        let _ = user::write(stack.wrapping_sub(BELOW) as *mut Image, image);
        if copied {
            process::before_fork();
        }
        let result = shunt_clone(number, arguments.as_ptr(), (*context).uc_mcontext.fpregs.cast());
        match result {
            _ if !copied => {}
            0.. => process::after_fork_parent(),
            _ => process::fork_failed(),
        }
        Some(result)
    }
}

unsafe extern "C" fn child_begins() {
    process::after_fork_child();
}

/// What the kernel writes into the state of a signal's frame that XSAVE made, and where (struct _fpx_sw_bytes): the second is a
/// mask of what the state holds.
const MAGIC_AT: usize = 464;
const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
const FEATURES_AT: usize = 472;

/// The call, with the floating-point and vector state that the program had. The parent returns; the child goes on where its image says.
#[unsafe(naked)]
unsafe extern "C" fn shunt_clone(number: i64, arguments: *const usize, state: *const u8) -> isize {
    naked_asm!(
        "mov rcx, rdx",
        "cmp dword ptr [rcx + {magic_at}], {magic}",
        "jne 4f",
        "mov eax, [rcx + {features_at}]",
        "mov edx, [rcx + {features_at} + 4]",
        "xrstor64 [rcx]",
        "jmp 5f",
        "4: fxrstor64 [rcx]",
        "5: mov rax, rdi",
        "mov r11, rsi",
        "mov rdi, [r11]",
        "mov rsi, [r11 + 8]",
        "mov rdx, [r11 + 16]",
        "mov r10, [r11 + 24]",
        "mov r8, [r11 + 32]",
        "mov r9, [r11 + 40]",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2: sub rsp, {below}",
        "cmp qword ptr [rsp + {copied}], 0",
        "je 3f",
        "mov rbx, rsp",
        "and rsp, -16",
        "call {begins}",
        "mov rsp, rbx",
        "3: push qword ptr [rsp + {flags}]",
        "popfq",
        "mov rcx, [rsp + {rip}]",
        "mov rdi, [rsp + {rdi}]",
        "mov rsi, [rsp + {rsi}]",
        "mov rdx, [rsp + {rdx}]",
        "mov r10, [rsp + {r10}]",
        "mov r8, [rsp + {r8}]",
        "mov r9, [rsp + {r9}]",
        "mov rbx, [rsp + {rbx}]",
        "mov rbp, [rsp + {rbp}]",
        "mov r12, [rsp + {r12}]",
        "mov r13, [rsp + {r13}]",
        "mov r14, [rsp + {r14}]",
        "mov r15, [rsp + {r15}]",
        "mov r11, [rsp + {flags}]",
        "mov eax, 0",
        "lea rsp, [rsp + {below}]",
        "jmp rcx",
        magic_at = const MAGIC_AT,
        magic = const FP_XSTATE_MAGIC1,
        features_at = const FEATURES_AT,
        below = const BELOW,
        begins = sym child_begins,
        copied = const offset_of!(Image, copied),
        flags = const offset_of!(Image, flags),
        rip = const offset_of!(Image, rip),
        rdi = const offset_of!(Image, rdi),
        rsi = const offset_of!(Image, rsi),
        rdx = const offset_of!(Image, rdx),
        r10 = const offset_of!(Image, r10),
        r8 = const offset_of!(Image, r8),
        r9 = const offset_of!(Image, r9),
        rbx = const offset_of!(Image, rbx),
        rbp = const offset_of!(Image, rbp),
        r12 = const offset_of!(Image, r12),
        r13 = const offset_of!(Image, r13),
        r14 = const offset_of!(Image, r14),
        r15 = const offset_of!(Image, r15),
    )
}

//! System calls that the program makes by instructions of its own (option `raw`).
//!
//! The kernel does not do them: it raises SIGSYS (`shunt_sys::dispatch`), and its handler does each as if the program had called
//! syscall(2), in the place and with the signal mask of the program. So it may sleep, be interrupted, and be left by a jump as
//! the instruction may. What the library has nothing to say about is the kernel's, with the program's own arguments.
//!
//! ```text
//! copies       clone(2) and its kin, whose child goes on elsewhere
//! contexts     SIGSYS stays unblocked where a program changes contexts
//! ```

mod contexts;
mod copies;

use crate::loader::objects;
use crate::raw_calls::{begin, code};
use crate::{direct, signals};
use core::arch::naked_asm;
use shunt_calls::libc::{self, siginfo_t, ucontext_t};
use shunt_config::Raw;
use shunt_sys::{calls, cancel, dispatch, raw, syscall};
use shunt_table::global;

/// Begins, if the option asks for it, or will when there is a reason.
pub fn start() {
    signals::answer_told_calls(arrived);
    let options = global::options();
    match options.raw {
        _ if !options.accelerate => {}
        Raw::Off => {}
        Raw::Trap => {
            objects::resolve();
            begin(objects::look().and_then(|objects| objects.range()));
            code::start();
        }
        Raw::Auto => {
            objects::resolve();
            code::start();
        }
    }
}

/// Registers that hold a call's arguments, in their order.
const ARGUMENTS: [i32; 6] = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];

/// What siginfo_t says of the call: where its architecture lies (struct _sigsys of the kernel), and this one.
const ARCHITECTURE_AT: usize = 28;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// arch_prctl(2): the thread pointer moves.
const ARCH_SET_FS: usize = 0x1002;

/// A call of the program's was not done. Does it, and leaves what the instruction would leave in the registers.
///
/// # Safety
/// What the kernel gave to the handler of SIGSYS.
unsafe fn arrived(information: *const siginfo_t, context: *mut ucontext_t) {
    // SAFETY: the kernel's structures; the arguments are the program's to vouch for.
    unsafe {
        let registers = &mut (*context).uc_mcontext.gregs;
        let number = registers[libc::REG_RAX as usize];
        let arguments = ARGUMENTS.map(|register| registers[register as usize] as usize);
        let architecture = information.cast::<u8>().add(ARCHITECTURE_AT).cast::<u32>().read();
        // A ring of liburing's, whose requests were looked at.
        if code::is_of_rings(registers[libc::REG_RIP as usize] as usize) {
            let [a, b, c, d, e, f] = arguments;
            return leave(registers, raw::call6(number, a, b, c, d, e, f));
        }
        if architecture != AUDIT_ARCH_X86_64 {
            return shunt_old_call(registers.as_mut_ptr());
        }
        if number == libc::SYS_rt_sigreturn {
            shunt_return_from_handler(registers[libc::REG_RSP as usize] as usize);
        }
        if number == libc::SYS_arch_prctl && arguments[0] == ARCH_SET_FS && dispatch::end() {
            // From here on nothing may ask for what is the thread's: it is no longer where it was.
            let [a, b, c, d, e, f] = arguments;
            let result = raw::call6(number, a, b, c, d, e, f);
            if result < 0 {
                dispatch::arm();
            }
            return leave(registers, result);
        }
        let result = match copies::call(number, arguments, context) {
            Some(result) => result,
            None => call(number, arguments),
        };
        match number {
            // What the return from this handler would undo.
            libc::SYS_rt_sigprocmask => {
                let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
                let _ = calls::sigprocmask(libc::SIG_BLOCK, core::ptr::null(), mask, calls::KERNEL_SIGSET);
            }
            libc::SYS_sigaltstack => {
                syscall!(libc::SYS_sigaltstack, 0, &raw mut (*context).uc_stack);
            }
            _ => {}
        }
        leave(registers, result);
    }
}

/// What the instruction leaves.
fn leave(registers: &mut [i64; 23], result: isize) {
    registers[libc::REG_RAX as usize] = result as i64;
    registers[libc::REG_RCX as usize] = registers[libc::REG_RIP as usize];
    registers[libc::REG_R11 as usize] = registers[libc::REG_EFL as usize];
}

/// A call by number, as the kernel answers it: errno is not touched, and no thread is cancelled in it.
unsafe fn call(number: i64, [a, b, c, d, e, f]: [usize; 6]) -> isize {
    // SAFETY: passed on; errno is this thread's.
    unsafe {
        // A socket that the program makes so is the kernel's. So is a ring, unless all such calls are to be seen to.
        let ring = number == libc::SYS_io_uring_setup && global::options().raw == Raw::Auto;
        let known = if ring || matches!(number, libc::SYS_socket | libc::SYS_socketpair) {
            None
        } else {
            crate::errno::keeping_errno(|| {
                let result = cancel::bare(|| direct::call(number, a, b, c, d, e, f));
                result.map(|value| if value == -1 { -(crate::errno::errno() as isize) } else { value })
            })
        };
        known.unwrap_or_else(|| raw::call6(number, a, b, c, d, e, f))
    }
}

/// The return from a handler whose frame lies at `frame`.
#[unsafe(naked)]
unsafe extern "C" fn shunt_return_from_handler(frame: usize) -> ! {
    naked_asm!("mov rsp, rdi", "mov eax, 15", "syscall", "ud2")
}

/// A call of 32-bit programs, with the registers that `registers` holds in the order of `gregs`.
#[unsafe(naked)]
unsafe extern "C" fn shunt_old_call(registers: *mut i64) {
    naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "mov r12, rdi",
        "mov rax, [r12 + 8 * {rax}]",
        "mov rbx, [r12 + 8 * {rbx}]",
        "mov rcx, [r12 + 8 * {rcx}]",
        "mov rdx, [r12 + 8 * {rdx}]",
        "mov rsi, [r12 + 8 * {rsi}]",
        "mov rdi, [r12 + 8 * {rdi}]",
        "mov rbp, [r12 + 8 * {rbp}]",
        "int 0x80",
        "mov [r12 + 8 * {rax}], rax",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
        rax = const libc::REG_RAX,
        rbx = const libc::REG_RBX,
        rcx = const libc::REG_RCX,
        rdx = const libc::REG_RDX,
        rsi = const libc::REG_RSI,
        rdi = const libc::REG_RDI,
        rbp = const libc::REG_RBP,
    )
}

//! What a filter of system calls (seccomp(2)) answers: asked of the program that is about to be installed, because once it is, a
//! call that it kills for cannot be tried.
//!
//! The program is that of bpf(4) in the dialect of Documentation/userspace-api/seccomp_filter.rst: it loads words of what it is
//! told of the call, computes, and jumps forward only.

use crate::user;
use core::sync::atomic::{AtomicU32, Ordering};
use libc::{sock_filter, sock_fprog};

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is done.
    Allowed,
    /// It fails, or another process decides.
    Refused,
    /// A signal, by default the process's end.
    Fatal,
}

/// A filter before it is installed.
#[derive(Clone, Copy, Debug)]
pub enum Filter {
    /// SECCOMP_MODE_STRICT: read, write, exit and the return from a handler.
    Strict,
    /// Instructions in the program's memory, which may fault, and their number.
    Program(*const sock_filter, usize),
}

/// AUDIT_ARCH_X86_64
const ARCHITECTURE: u32 = 0xc000_003e;
/// Words of `struct seccomp_data`: number, architecture, instruction pointer, six arguments.
const WORDS: usize = 16;
const SCRATCH: usize = 16;

impl Filter {
    /// The filter at `program`, if that can be read.
    ///
    /// # Safety
    /// `program` may be any address that is not ours.
    pub unsafe fn at(program: *const sock_fprog) -> Option<Filter> {
        // SAFETY: passed on; a fault is an error.
        let program = unsafe { user::read(program) }.ok()?;
        Some(Filter::Program(program.filter, program.len as usize))
    }

    /// What it answers to a call.
    pub fn answer(&self, number: i64, arguments: [u64; 6]) -> Answer {
        match *self {
            Filter::Strict => match number {
                libc::SYS_read | libc::SYS_write | libc::SYS_exit | libc::SYS_rt_sigreturn => Answer::Allowed,
                _ => Answer::Fatal,
            },
            // A program that the kernel will not take answers nothing.
            Filter::Program(start, length) => run(start, length, &told(number, arguments)).map_or(Answer::Allowed, meaning),
        }
    }
}

fn told(number: i64, arguments: [u64; 6]) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    (words[0], words[1]) = (number as u32, ARCHITECTURE);
    for (pair, argument) in words[4..].chunks_exact_mut(2).zip(arguments) {
        (pair[0], pair[1]) = (argument as u32, (argument >> 32) as u32);
    }
    words
}

fn meaning(value: u32) -> Answer {
    match value & libc::SECCOMP_RET_ACTION_FULL {
        libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG => Answer::Allowed,
        libc::SECCOMP_RET_ERRNO | libc::SECCOMP_RET_TRACE | libc::SECCOMP_RET_USER_NOTIF => Answer::Refused,
        _ => Answer::Fatal,
    }
}

/// The value that the program returns; `None`: it is none that the kernel takes.
fn run(start: *const sock_filter, length: usize, told: &[u32; WORDS]) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; SCRATCH]);
    let mut at = 0;
    while at < length {
        // SAFETY: within the program's array, which may fault.
        let sock_filter { code, jt, jf, k } = unsafe { user::read(start.wrapping_add(at)) }.ok()?;
        let code = u32::from(code);
        let operand = if code & libc::BPF_X != 0 { x } else { k };
        at += 1;
        match code & 7 {
            libc::BPF_LD | libc::BPF_LDX => {
                let value = match code & 0xe0 {
                    libc::BPF_IMM => k,
                    libc::BPF_ABS => *told.get(k as usize / 4).filter(|_| k % 4 == 0)?,
                    libc::BPF_MEM => *memory.get(k as usize)?,
                    libc::BPF_LEN => (WORDS * 4) as u32,
                    _ => return None,
                };
                *(if code & 7 == libc::BPF_LD { &mut a } else { &mut x }) = value;
            }
            libc::BPF_ST => *memory.get_mut(k as usize)? = a,
            libc::BPF_STX => *memory.get_mut(k as usize)? = x,
            libc::BPF_ALU => {
                a = match code & 0xf0 {
                    libc::BPF_ADD => a.wrapping_add(operand),
                    libc::BPF_SUB => a.wrapping_sub(operand),
                    libc::BPF_MUL => a.wrapping_mul(operand),
                    libc::BPF_DIV => a.checked_div(operand)?,
                    libc::BPF_AND => a & operand,
                    libc::BPF_OR => a | operand,
                    libc::BPF_XOR => a ^ operand,
                    libc::BPF_LSH => a.checked_shl(operand).unwrap_or(0),
                    libc::BPF_RSH => a.checked_shr(operand).unwrap_or(0),
                    libc::BPF_NEG => a.wrapping_neg(),
                    _ => return None,
                }
            }
            libc::BPF_JMP => {
                let holds = match code & 0xf0 {
                    libc::BPF_JA => {
                        at += k as usize;
                        continue;
                    }
                    libc::BPF_JEQ => a == operand,
                    libc::BPF_JGT => a > operand,
                    libc::BPF_JGE => a >= operand,
                    libc::BPF_JSET => a & operand != 0,
                    _ => return None,
                };
                at += usize::from(if holds { jt } else { jf });
            }
            libc::BPF_RET => return Some(if code & 0x18 == libc::BPF_A { a } else { k }),
            // BPF_MISC
            _ if code & 0xf8 == libc::BPF_TXA => a = x,
            _ => x = a,
        }
    }
    None
}

/// Calls that a filter refuses, where an older one serves, or none.
static AVOIDED: AtomicU32 = AtomicU32::new(0);

/// Of what is avoided: ppoll(2).
pub const PPOLL: u32 = 1;
/// accept4(2) without flags.
pub const ACCEPT4: u32 = 2;
/// epoll_pwait2(2).
pub const EPOLL_PWAIT2: u32 = 4;
/// sched_yield(2).
pub const SCHED_YIELD: u32 = 8;
/// clock_gettime(2), which the C library does without entering the kernel.
pub const CLOCK_GETTIME: u32 = 16;
/// epoll_wait(2), for which epoll_pwait(2) serves, too.
pub const EPOLL_WAIT: u32 = 32;

/// From now on these are not made.
pub fn avoid(calls: u32) {
    AVOIDED.fetch_or(calls, Ordering::Relaxed);
}

/// Whether this call is not to be made.
#[inline]
pub fn avoids(call: u32) -> bool {
    AVOIDED.load(Ordering::Relaxed) & call != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(code: u32, k: u32) -> sock_filter {
        jump(code, k, 0, 0)
    }

    fn jump(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
        sock_filter { code: code as u16, jt, jf, k }
    }

    fn answer(program: &[sock_filter], number: i64, arguments: [u64; 6]) -> Answer {
        Filter::Program(program.as_ptr(), program.len()).answer(number, arguments)
    }

    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

    #[test]
    fn a_list_of_numbers_allows_those() {
        let program = [
            statement(LOAD, 0),
            jump(EQUAL, libc::SYS_read as u32, 2, 0),
            jump(EQUAL, libc::SYS_close as u32, 1, 0),
            statement(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
            statement(RETURN, libc::SECCOMP_RET_ALLOW),
        ];
        assert_eq!(answer(&program, libc::SYS_read, [0; 6]), Answer::Allowed);
        assert_eq!(answer(&program, libc::SYS_close, [0; 6]), Answer::Allowed);
        assert_eq!(answer(&program, libc::SYS_write, [0; 6]), Answer::Fatal);
    }

    #[test]
    fn arguments_are_told_in_halves() {
        let program = [
            statement(LOAD, 16 + 8),
            statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xff),
            statement(libc::BPF_MISC | libc::BPF_TAX, 0),
            statement(LOAD, 16 + 8 + 4),
            statement(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X, 0),
            statement(libc::BPF_ST, 3),
            statement(libc::BPF_LD | libc::BPF_MEM, 3),
            jump(EQUAL, 7 + 2, 0, 1),
            statement(RETURN, libc::SECCOMP_RET_ALLOW),
            statement(RETURN, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        ];
        assert_eq!(answer(&program, 1, [0, 0x2_0000_0107, 0, 0, 0, 0]), Answer::Allowed);
        assert_eq!(answer(&program, 1, [0, 0x3_0000_0107, 0, 0, 0, 0]), Answer::Refused);
    }

    #[test]
    fn other_architectures_are_not_ours() {
        let program = [
            statement(LOAD, 4),
            jump(EQUAL, ARCHITECTURE, 1, 0),
            statement(RETURN, libc::SECCOMP_RET_KILL_THREAD),
            statement(RETURN, libc::SECCOMP_RET_ALLOW),
        ];
        assert_eq!(answer(&program, 1, [0; 6]), Answer::Allowed);
    }

    #[test]
    fn what_the_kernel_will_not_take_refuses_nothing() {
        let program = [statement(LOAD, 4096)];
        assert_eq!(answer(&program, 1, [0; 6]), Answer::Allowed);
    }
}

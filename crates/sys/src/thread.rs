//! One block of thread-local storage, reached without a call.
//!
//! `thread_local!` in a shared object goes through `__tls_get_addr`, which may allocate: not allowed in a signal
//! handler. A library that is loaded at start-up may use the initial-exec model instead: a constant offset from
//! the thread pointer. Stable Rust cannot ask for that model, so the block is declared in assembly.

use crate::{processor, syscall};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

global_asm!(
    ".pushsection .tbss.shunt_thread_block,\"awT\",@nobits",
    ".balign 64",
    ".globl shunt_thread_block",
    ".hidden shunt_thread_block",
    ".type shunt_thread_block, @object",
    ".size shunt_thread_block, 384",
    "shunt_thread_block:",
    ".zero 384",
    ".popsection",
);

/// What shunt remembers per thread. All-zero is the initial state.
#[repr(C)]
pub struct Block {
    /// Kernel thread id; 0 until first asked for, and again in the child after fork.
    tid: u32,
    /// Processor on which this thread last began to wait, plus one; 0: unknown.
    pub processor: u32,
    /// Expected length of the next wait in time-stamp ticks (moving average).
    pub expected_wait: u64,
    /// Waits to come that shall not spin, because spinning was found to steal from others.
    pub spin_penalty: u32,
    /// The last penalty given: the next one is larger, unless spinning pays meanwhile.
    pub penalty: u32,
    /// Waits that this thread began, to sample rare work.
    pub waits: u32,
    /// Nesting of sections in which no handler of the program may run, and [`crate::section::DUE`].
    pub section: u32,
    /// Notes about cancellation: see [`crate::cancel::bit`].
    pub cancel: u32,
    /// The thread's state for cheap pseudo-random choices.
    pub random: u32,
    /// A copy of the program's memory faulted, and 0 bytes were moved because of that.
    pub fault: u32,
    /// Handlers of the program that ran in this thread: all of them in the upper half, those installed without SA_RESTART
    /// in the lower one.
    pub handled: u64,
    /// What a long copy of the program's memory saved: see [`crate::user`]. 0: none is made.
    pub window: usize,
    /// A signal that came in a section, and the signal mask that it found.
    pub kept_mask: u64,
    /// Its siginfo_t.
    pub kept: [u64; 16],
    /// Process id, 0 until first asked for.
    pid: u32,
    /// Waits to come that shall not hand the processor over, because that took long.
    pub hand_over_penalty: u32,
    /// The innermost guard that is registered with the C library, and where a stopped unwinding goes on: see
    /// [`crate::cancel`].
    pub guard: usize,
    /// See [`Block::guard`].
    pub unwind_to: u64,
    /// The innermost account of a sleep: see [`crate::sleeper`].
    pub sleeper: usize,
    /// What the call at work keeps open; whose it is, is not known here.
    pub held: usize,
    /// Memory of calls at work, or of such that a handler left by a jump: a list.
    pub leases: usize,
    /// The calls of its own instructions are told to us: see [`crate::dispatch`].
    pub dispatched: u32,
    /// The program believes SIGSYS blocked, which it never is while calls are told by it.
    pub veiled: u32,
    /// Large sends of this thread: to how many streams they went of late, as a guess. 0: none yet.
    pub crowd: Crowd,
    /// The kernel has been asked to tell of them, whatever became of that.
    pub asked: u32,
    /// What poll and select asked the kernel about last, and when, in ticks, where that found nothing: the crate `poll` knows.
    pub polled: (u64, u64),
    /// Of this thread's last waits for several sockets of the kernel's, how many brought several answers at once: a moving average.
    pub gathered: u32,
    _reserved: [u32; 17],
    /// Ticks of looking in waits that are over, and that tools have not been told of yet.
    pub spun: u64,
}

const _: () = assert!(core::mem::size_of::<Block>() == 384);

/// To how many of its objects a thread turns, as a guess.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Crowd {
    /// The object that it turned to last.
    last: usize,
    /// Of each that it turned to since the guess was made, one bit of 64.
    seen: u64,
    /// How often it turned to another one since, in the lower half; how often to the same, in the upper one.
    turns: u32,
    /// The guess: whether they are many.
    many: u32,
}

impl Crowd {
    /// Objects of which each has no longer a large part of a processor's cache.
    const MANY: u32 = 8;
    /// Turns after which the guess is made anew.
    const TURNS: u32 = 32;
    /// After so many looks at the same object it is the only one.
    const ALONE: u32 = 1024;

    fn turn_to(&mut self, object: usize) -> bool {
        if self.last == object {
            self.turns += 1 << 16;
            if self.turns >> 16 >= Crowd::ALONE {
                (self.seen, self.turns, self.many) = (0, 0, 0);
            }
            return self.many != 0;
        }
        self.last = object;
        self.seen |= 1 << ((object as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58);
        self.turns = (self.turns & 0xffff) + 1;
        if self.turns >= Crowd::TURNS {
            self.many = (self.seen.count_ones() >= Crowd::MANY) as u32;
            (self.seen, self.turns) = (0, 0);
        }
        self.many != 0
    }
}

/// Whether `object` is one of many to which the calling thread turns again and again.
pub fn is_one_of_many(object: usize) -> bool {
    // SAFETY: the calling thread's own block. A handler that does the same in between spoils no more than the guess.
    unsafe { (*block()).crowd.turn_to(object) }
}

impl Block {
    /// The kernel's thread id, if it was asked for already; 0: not yet.
    #[inline(always)]
    pub fn tid(&self) -> u32 {
        self.tid
    }
}

/// The calling thread's block.
#[inline(always)]
pub fn block() -> *mut Block {
    let address: *mut Block;
    // SAFETY: reads the thread pointer and the link-time constant offset of the block; both are immutable.
    unsafe {
        asm!(
            "mov {address}, qword ptr [rip + shunt_thread_block@GOTTPOFF]",
            "add {address}, qword ptr fs:[0]",
            address = out(reg) address,
            options(nostack, pure, readonly)
        );
    }
    address
}

/// The calling thread's thread pointer.
#[inline]
pub fn pointer() -> usize {
    let value: usize;
    // SAFETY: the ABI keeps the thread pointer's own value at its address.
    unsafe { asm!("mov {value}, qword ptr fs:[0]", value = out(reg) value, options(nostack, pure, readonly)) };
    value
}

/// Where the block lies from the thread pointer.
#[inline(always)]
pub fn block_offset() -> usize {
    let offset: usize;
    // SAFETY: a link-time constant.
    unsafe {
        asm!(
            "mov {offset}, qword ptr [rip + shunt_thread_block@GOTTPOFF]",
            offset = out(reg) offset,
            options(nostack, pure, nomem, preserves_flags)
        );
    }
    offset
}

/// The handlers that ran in this thread so far, as [`Block::handled`] counts them. A call during which it changes was
/// interrupted, even if it was copying or spinning at that time and not asleep in the kernel. Not moved behind what
/// follows.
#[inline(always)]
pub fn handled() -> u64 {
    // SAFETY: the block belongs to this thread alone; a handler that changes it runs in this thread.
    unsafe { AtomicU64::from_ptr(&raw mut (*block()).handled) }.load(Ordering::Acquire)
}

/// Where [`handled`] lies, for sleeps that must not begin when it has changed.
pub fn handled_word() -> *const u64 {
    // SAFETY: an address inside the block.
    unsafe { &raw const (*block()).handled }
}

/// Counts a handler.
pub fn count_handler(restarts: bool) {
    let one = 1 << 32 | !restarts as u64;
    // SAFETY: as in `handled`.
    let counter = unsafe { AtomicU64::from_ptr(&raw mut (*block()).handled) };
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(one), Ordering::Relaxed);
}

/// Whether a call that began at `began` ends with EINTR before it sleeps: a handler without SA_RESTART ran since, or any
/// handler, where the call is one that the kernel never restarts (signal(7): poll and its kind, and calls with a limit of
/// time).
#[inline]
pub fn interrupted_since(began: u64, restartable: bool) -> bool {
    let now = handled();
    now != began && (!restartable || now as u32 != began as u32)
}

/// What a sleep of [`crate::sleeping::sleep6`] that gave EINTR means to its call, which began at `began` and looked for
/// handlers last at `looked`: go on, where only handlers with SA_RESTART ran, or EINTR. A handler that was installed past
/// us has no count: for it the kernel has decided.
pub fn resume(began: u64, looked: u64, restartable: bool) -> crate::Result<()> {
    if handled() == looked || interrupted_since(began, restartable) {
        return Err(crate::Errno(libc::EINTR));
    }
    Ok(())
}

/// When a call began that `began` at first and has moved nothing yet: handlers with SA_RESTART alone have run since, and the
/// kernel would have made the call anew behind each.
#[inline]
pub fn restarted(began: u64) -> u64 {
    let now = handled();
    if now as u32 == began as u32 {
        now
    } else {
        began
    }
}

/// Notes that a transfer moved nothing because the program's memory faulted.
#[cold]
pub fn note_fault() {
    // SAFETY: the calling thread's own block.
    unsafe { (*block()).fault = 1 };
}

/// Whether the transfer that just moved nothing did so because of a fault.
#[inline]
pub fn take_fault() -> bool {
    // SAFETY: the calling thread's own block.
    unsafe { core::mem::take(&mut (*block()).fault) != 0 }
}

/// Kernel thread id, cached per thread.
#[inline(always)]
pub fn id() -> u32 {
    // SAFETY: the block belongs to this thread alone.
    unsafe {
        let block = block();
        if (*block).tid == 0 {
            (*block).tid = syscall!(libc::SYS_gettid) as u32;
        }
        (*block).tid
    }
}

/// Process id, cached per thread.
pub fn process() -> u32 {
    // SAFETY: the block belongs to this thread alone.
    unsafe {
        let block = block();
        if (*block).pid == 0 {
            (*block).pid = syscall!(libc::SYS_getpid) as u32;
        }
        (*block).pid
    }
}

/// Forgets the cached ids: the child after fork is another thread of another process.
pub fn forget_id() {
    // SAFETY: the block belongs to this thread alone.
    unsafe {
        (*block()).tid = 0;
        (*block()).pid = 0;
    }
}

/// A cheap pseudo-random word (xorshift, seeded from the time stamp): for choices, never for secrets.
pub fn random() -> u32 {
    // SAFETY: the block belongs to this thread alone.
    unsafe {
        let block = block();
        let mut x = (*block).random;
        if x == 0 {
            x = (processor::ticks() as u32) | 1;
        }
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        (*block).random = x;
        x
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn blocks_differ_by_thread_and_ids_are_the_kernels() {
        let here = super::block() as usize;
        let mine = super::id();
        let (there, theirs) = std::thread::spawn(|| (super::block() as usize, super::id())).join().unwrap();
        assert_ne!(here, there);
        assert_ne!(mine, theirs);
        assert_eq!(mine, crate::calls::gettid());
    }
}

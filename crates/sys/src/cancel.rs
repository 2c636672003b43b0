//! Cancellation of threads (pthread_cancel(3)) that sleep in a call of ours.
//!
//! The C library's own cancellation points make the thread cancellable at once for the length of the system call; the
//! signal that pthread_cancel sends then unwinds the thread's stack from there. Our sleeps do the same, by the public
//! pthread_setcanceltype. But what our frames hold (counts of sleepers, memory for the call) must be given back first, and
//! they have no landing pads. So a sleep is [`guarded`]: it registers a clean-up buffer as `pthread_cleanup_push` of C does,
//! the unwinder stops there, and the call goes on with ECANCELED, out through its ordinary ends. The entry that the program
//! called then lets the unwinding go on ([`unwind`]), with nothing of ours on the stack.
//!
//! Notes about the thread are kept in its block ([`bit`]): what a hook has to do besides its work, in one word.

use crate::{section, thread};
use core::arch::global_asm;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};
use libc::{c_int, c_void, ECANCELED};

/// Bits of [`thread::Block::cancel`].
pub mod bit {
    /// The thread was cancelled: cancellation points are to ask the C library. Set by other threads, never cleared.
    pub const PENDING: u32 = 1 << 0;
    /// The program made the thread cancellable at any moment (PTHREAD_CANCEL_ASYNCHRONOUS).
    pub const ASYNCHRONOUS: u32 = 1 << 1;
    /// It is in a call of ours, in which it must not be so.
    pub const SHIELDED: u32 = 1 << 2;
    /// The unwinding was stopped at a sleep of ours and is to go on at the end of the call.
    pub const UNWINDING: u32 = 1 << 3;
    /// The call keeps something open to its end ([`crate::thread::Block::held`]).
    pub const HOLDING: u32 = 1 << 4;
    /// The thread is not cancellable for the time of the call, which is no cancellation point: see [`super::bare`].
    pub const BARE: u32 = 1 << 5;
}

/// PTHREAD_CANCEL_DEFERRED and PTHREAD_CANCEL_ASYNCHRONOUS.
pub const DEFERRED: c_int = 0;
/// See [`DEFERRED`].
pub const ASYNCHRONOUS: c_int = 1;

/// Functions of the C library, as addresses. All are part of its interface: macros of pthread.h call them.
#[repr(C)]
pub struct Functions {
    /// `__sigsetjmp`
    pub set_jump: AtomicUsize,
    /// `__pthread_register_cancel`
    pub register: AtomicUsize,
    /// `__pthread_unregister_cancel`
    pub unregister: AtomicUsize,
    /// `__pthread_unwind_next`
    pub unwind_next: AtomicUsize,
    /// `pthread_testcancel`
    pub test: AtomicUsize,
    /// `pthread_setcanceltype`, the C library's own
    pub set_type: AtomicUsize,
    /// `pthread_setcancelstate`
    pub set_state: AtomicUsize,
    /// `__libc_single_threaded`
    pub single_threaded: AtomicUsize,
}

/// Filled in at start-up; zeros: sleeps cannot be cancelled.
pub static FUNCTIONS: Functions = Functions {
    set_jump: AtomicUsize::new(0),
    register: AtomicUsize::new(0),
    unregister: AtomicUsize::new(0),
    unwind_next: AtomicUsize::new(0),
    test: AtomicUsize::new(0),
    set_type: AtomicUsize::new(0),
    set_state: AtomicUsize::new(0),
    single_threaded: AtomicUsize::new(0),
};

// shunt_guarded(frame, function, argument) -> 0, or 1 if an unwinding was stopped here.
//
// What setjmp returns twice to is this frame, in assembly, because no Rust function may be returned to twice. Registers
// that belong to the caller have their values back when longjmp comes.
global_asm!(
    ".pushsection .text.shunt_guarded,\"ax\",@progbits",
    ".balign 16",
    ".globl shunt_guarded",
    ".hidden shunt_guarded",
    ".type shunt_guarded, @function",
    "shunt_guarded:",
    ".cfi_startproc",
    "push rbx",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset rbx, 0",
    "push r12",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r12, 0",
    "push r13",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset r13, 0",
    "mov rbx, rdi",
    "mov r12, rsi",
    "mov r13, rdx",
    "xor esi, esi",
    "call qword ptr [rip + {functions}]",
    "test eax, eax",
    "jnz 2f",
    "mov rdi, rbx",
    "call {enter}",
    "mov rdi, r13",
    "call r12",
    "mov rdi, rbx",
    "call {leave}",
    "xor eax, eax",
    "jmp 3f",
    "2: mov rdi, rbx",
    "call {stopped}",
    "mov eax, 1",
    "3: pop r13",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r13",
    "pop r12",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore r12",
    "pop rbx",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_restore rbx",
    "ret",
    ".cfi_endproc",
    ".size shunt_guarded, . - shunt_guarded",
    ".popsection",
    functions = sym FUNCTIONS,
    enter = sym enter,
    leave = sym leave,
    stopped = sym stopped,
);

extern "C" {
    fn shunt_guarded(frame: *mut Frame, function: unsafe extern "C" fn(*mut c_void), argument: *mut c_void) -> c_int;
}

/// A clean-up buffer of the C library's (`__pthread_unwind_buf_t`: 104 bytes), and ours beside it.
#[repr(C)]
struct Frame {
    buffer: [u64; 16],
    /// The guard around this one.
    outer: *mut Frame,
    /// It made the thread cancellable at once.
    cancellable: bool,
}

/// Where `__pthread_unwind_buf_t` keeps the buffer that was registered before: behind the jump buffer (64 bytes) and the
/// flag for the signal mask.
const BEFORE: usize = 9;

type Function = unsafe extern "C" fn(*mut Frame);

/// Calls a function of the C library with a frame, whose first part is its buffer.
unsafe fn call(function: &AtomicUsize, frame: *mut Frame) {
    // SAFETY: an address of that prototype; guards exist only once it is known.
    unsafe { core::mem::transmute::<usize, Function>(function.load(Ordering::Relaxed))(frame) }
}

/// The guard's frame is registered. A section, so that a handler that jumps out finds it registered and noted, or neither.
unsafe extern "C" fn enter(frame: *mut Frame) {
    section::enter();
    // SAFETY: the trampoline's frame; the block is this thread's.
    unsafe {
        call(&FUNCTIONS.register, frame);
        (*thread::block()).guard = frame as usize;
    }
    section::leave();
}

unsafe extern "C" fn leave(frame: *mut Frame) {
    section::enter();
    // SAFETY: as above.
    unsafe {
        call(&FUNCTIONS.unregister, frame);
        (*thread::block()).guard = (*frame).outer as usize;
        // An unwinding that a guard inside has stopped goes on behind this one, whose frame is about to go.
        if noted() & bit::UNWINDING != 0 {
            (*thread::block()).unwind_to = (*frame).buffer[BEFORE];
        }
    }
    section::leave();
}

/// The unwinding was stopped here.
unsafe extern "C" fn stopped(frame: *mut Frame) {
    // SAFETY: as above.
    unsafe {
        let block = thread::block();
        (*block).guard = (*frame).outer as usize;
        (*block).unwind_to = (*frame).buffer[BEFORE];
        note(bit::UNWINDING);
    }
}

/// An unwinding came through a guard.
pub struct Cancelled;

/// Whether threads can be cancelled: there is more than one, and the C library is known.
#[inline]
fn possible() -> bool {
    let flag = FUNCTIONS.single_threaded.load(Ordering::Relaxed) as *const u8;
    // SAFETY: null, or the C library's `__libc_single_threaded`, which lives as long as the process.
    let single = !flag.is_null() && unsafe { flag.read_volatile() } != 0;
    !single && FUNCTIONS.set_type.load(Ordering::Acquire) != 0
}

/// Calls `body`; if the thread is unwound while it runs (cancelled in a cancellation point of the C library's, say), stops
/// that for the caller to give back what it holds. What `body` itself owns is lost then. The unwinding goes on by
/// [`unwind`].
pub fn guarded<T>(body: impl FnOnce() -> T) -> Result<T, Cancelled> {
    if !possible() {
        return Ok(body());
    }
    guarded_as(false, body)
}

fn guarded_as<T, F: FnOnce() -> T>(cancellable: bool, body: F) -> Result<T, Cancelled> {
    struct Work<F, T> {
        body: Option<F>,
        result: MaybeUninit<T>,
    }
    unsafe extern "C" fn run<T, F: FnOnce() -> T>(work: *mut c_void) {
        // SAFETY: what guarded_as passes.
        let work = unsafe { &mut *work.cast::<Work<F, T>>() };
        if let Some(body) = work.body.take() {
            work.result.write(body());
        }
    }
    // SAFETY: the block is this thread's.
    let outer = unsafe { (*thread::block()).guard } as *mut Frame;
    let mut frame = Frame { buffer: [0; 16], outer, cancellable };
    let mut work = Work { body: Some(body), result: MaybeUninit::uninit() };
    // SAFETY: the frame and the work outlive the call.
    unsafe {
        match shunt_guarded(&mut frame, run::<T, F>, (&raw mut work).cast()) {
            0 => Ok(work.result.assume_init()),
            _ => Err(Cancelled),
        }
    }
}

/// Makes the thread cancellable at any moment, or only at cancellation points; with the former, a cancellation that waits
/// unwinds at once. Gives what was so before.
pub fn set_type(kind: c_int) -> c_int {
    let address = FUNCTIONS.set_type.load(Ordering::Acquire);
    let mut old = DEFERRED;
    if address != 0 {
        // SAFETY: pthread_setcanceltype(3).
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(address)(kind, &mut old) };
    }
    old
}

/// PTHREAD_CANCEL_ENABLE and PTHREAD_CANCEL_DISABLE.
const ENABLED: c_int = 0;
const DISABLED: c_int = 1;

fn set_state(state: c_int) -> c_int {
    let address = FUNCTIONS.set_state.load(Ordering::Acquire);
    let mut old = DISABLED;
    if address != 0 {
        // SAFETY: pthread_setcancelstate(3).
        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(address)(state, &mut old) };
    }
    old
}

/// A call that is no cancellation point, as the program made it by an instruction. One that a handler interrupts may be one from
/// then on, because the handler may leave it by a jump.
pub fn bare<T>(body: impl FnOnce() -> T) -> T {
    if possible() && set_state(DISABLED) == ENABLED {
        note(bit::BARE);
    }
    let result = body();
    dressed();
    result
}

/// The end of [`bare`].
fn dressed() {
    if noted() & bit::BARE != 0 {
        forget(bit::BARE);
        set_state(ENABLED);
    }
}

/// A system call that sleeps, as a cancellation point: -ECANCELED when the thread was cancelled.
#[inline]
pub fn sleep(body: impl FnOnce() -> isize) -> isize {
    if !possible() {
        return body();
    }
    sleep_cancellable(body)
}

fn sleep_cancellable(body: impl FnOnce() -> isize) -> isize {
    if noted() & bit::UNWINDING != 0 {
        return -(ECANCELED as isize);
    }
    let slept = guarded_as(true, || {
        set_type(ASYNCHRONOUS);
        let value = body();
        set_type(DEFERRED);
        value
    });
    slept.unwrap_or(-(ECANCELED as isize))
}

/// A handler of the program is about to run, and may leave by a jump: the guards that it interrupts are taken down.
pub fn before_handler() {
    // SAFETY: the block is this thread's; noted frames are alive.
    unsafe {
        dressed();
        let block = thread::block();
        let mut frame = (*block).guard as *mut Frame;
        while !frame.is_null() {
            call(&FUNCTIONS.unregister, frame);
            if (*frame).cancellable {
                set_type(DEFERRED);
            }
            frame = (*frame).outer;
        }
        (*block).guard = 0;
    }
}

/// What is noted about the calling thread ([`bit`]); 0 nearly always.
#[inline(always)]
pub fn noted() -> u32 {
    // SAFETY: the block belongs to this thread; others set PENDING.
    unsafe { (&raw const (*thread::block()).cancel).read_volatile() }
}

/// Notes something.
pub fn note(bits: u32) {
    // SAFETY: as in `noted`; other threads write the word too.
    unsafe { core::sync::atomic::AtomicU32::from_ptr(&raw mut (*thread::block()).cancel) }.fetch_or(bits, Ordering::Relaxed);
}

/// Takes a note away.
pub fn forget(bits: u32) {
    // SAFETY: as above.
    unsafe { core::sync::atomic::AtomicU32::from_ptr(&raw mut (*thread::block()).cancel) }.fetch_and(!bits, Ordering::Relaxed);
}

/// Notes that thread `thread` (a `pthread_t`, which is its thread pointer) is being cancelled.
///
/// # Safety
/// The thread exists, or has not been joined.
pub unsafe fn note_pending(thread: usize) {
    // SAFETY: every thread's block lies at the same distance from its thread pointer.
    unsafe {
        let distance = (thread::block() as usize).wrapping_sub(thread::pointer());
        let block = thread.wrapping_add(distance) as *mut thread::Block;
        core::sync::atomic::AtomicU32::from_ptr(&raw mut (*block).cancel).fetch_or(bit::PENDING, Ordering::SeqCst);
    }
}

/// Lets the unwinding that a guard stopped go on. Does not return.
///
/// # Safety
/// [`bit::UNWINDING`] is noted, and no frame that the unwinding leaves holds anything.
pub unsafe fn unwind() {
    forget(bit::UNWINDING);
    let mut frame = Frame { buffer: [0; 16], outer: core::ptr::null_mut(), cancellable: false };
    // SAFETY: the buffer names the one that was registered before the guard's.
    unsafe {
        frame.buffer[BEFORE] = (*thread::block()).unwind_to;
        call(&FUNCTIONS.unwind_next, &mut frame);
    }
}

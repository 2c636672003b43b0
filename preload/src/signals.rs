//! The handler of ours that stands before each of the program's.
//!
//! It stands there for three reasons. A handler that interrupts a section of ours is deferred to its end
//! (`shunt_sys::section`). A handler that runs while a call copies or spins ends the call as if it had slept, so handlers
//! are counted. And a fault in a copy of the program's memory is EFAULT, not a signal (`shunt_sys::user`), which is why it
//! is installed for SIGSEGV and SIGBUS from the start.
//!
//! The program sees nothing of it: what it installed is kept here and told by `sigaction`, masks and flags go to the
//! kernel as they are, and the entry *jumps* to the program's handler, with the registers and the stack that the kernel
//! gave, so that not even a backtrace shows it.

use crate::{masks, real};
use core::arch::global_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use shunt_calls::libc::{self, siginfo_t, ucontext_t, SA_NODEFER, SA_RESETHAND, SA_RESTART, SIG_DFL, SIG_IGN};
pub use shunt_conventions::styles::Style;
use shunt_conventions::styles::{self, SA_RESTORER};
use shunt_stream::waiting::owner;
use shunt_stream::waiting::signals::changing;
use shunt_sys::action::Action;
use shunt_sys::section::Section;
use shunt_sys::{action, calls, cancel, dispatch, section, sleeper, sleeping, syscall, thread, user};

/// How many there are, and number 0.
const COUNT: usize = 65;

/// Signals that instructions raise. Such a one interrupts no call and waits for none.
const BY_INSTRUCTIONS: [c_int; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Signals whose handler is ours from the start.
const FAULTS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Whether the kernel keeps our handler of `number` whatever the program installs.
fn is_kept(number: c_int) -> bool {
    FAULTS.contains(&number) || (number == libc::SIGSYS && dispatch::begun())
}

/// All such signals.
fn kept() -> impl Iterator<Item = c_int> {
    FAULTS.into_iter().chain(dispatch::begun().then_some(libc::SIGSYS))
}

/// What the program asked for, for one signal.
struct Disposition {
    /// Its handler; 0: SIG_DFL, 1: SIG_IGN.
    handler: AtomicUsize,
    flags: AtomicU32,
    /// The first word of sa_mask: all signals that there are.
    mask: AtomicU64,
    /// 1: the kernel has our entry, and what it would tell is here.
    ours: AtomicU32,
}

/// Does a call that the kernel told of by SIGSYS.
pub type TellsOfCall = unsafe fn(*const siginfo_t, *mut ucontext_t);

/// What this file keeps.
struct Signals {
    /// By number.
    dispositions: [Disposition; COUNT],
    /// Those whose handlers, installed by signal(3), interrupt calls: siginterrupt(3) said so.
    interrupting: AtomicU64,
    /// A [`TellsOfCall`]; null until there is one.
    told_call: AtomicPtr<c_void>,
}

static SIGNALS: Signals = Signals {
    dispositions: [const {
        Disposition { handler: AtomicUsize::new(0), flags: AtomicU32::new(0), mask: AtomicU64::new(0), ours: AtomicU32::new(0) }
    }; COUNT],
    interrupting: AtomicU64::new(0),
    told_call: AtomicPtr::new(core::ptr::null_mut()),
};

/// From here on `act` does the calls that SIGSYS tells of. It stands above this file: it may do any call, sigaction(2) too.
pub fn answer_told_calls(act: TellsOfCall) {
    SIGNALS.told_call.store(act as *mut c_void, Ordering::Release);
}

/// # Safety
/// What the kernel gave to the handler of SIGSYS, which it has for calls only after [`answer_told_calls`].
unsafe fn told_call(information: *const siginfo_t, context: *mut ucontext_t) {
    let act = SIGNALS.told_call.load(Ordering::Acquire);
    if !act.is_null() {
        // SAFETY: a function of this type; promised by the caller.
        unsafe { core::mem::transmute::<*mut c_void, TellsOfCall>(act)(information, context) };
    }
}

// The entry: asks `arrived` for the handler, and jumps there as if the kernel had; or returns.
global_asm!(
    ".pushsection .text.shunt_signal_entry,\"ax\",@progbits",
    ".balign 16",
    ".globl shunt_signal_entry",
    ".hidden shunt_signal_entry",
    ".type shunt_signal_entry, @function",
    "shunt_signal_entry:",
    ".cfi_startproc",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "push rdx",
    ".cfi_adjust_cfa_offset 8",
    "call {arrived}",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "mov r11, rax",
    "xor eax, eax",
    "test r11, r11",
    "jz 2f",
    "jmp r11",
    "2: ret",
    ".cfi_endproc",
    ".size shunt_signal_entry, . - shunt_signal_entry",
    ".popsection",
    arrived = sym arrived,
);

extern "C" {
    fn shunt_signal_entry(number: c_int, information: *mut siginfo_t, context: *mut c_void);
}

fn entry() -> usize {
    shunt_signal_entry as *const () as usize
}

/// A signal arrived: the handler to jump to, or 0 to return.
unsafe extern "C" fn arrived(number: c_int, information: *mut siginfo_t, context: *mut ucontext_t) -> usize {
    let Some(disposition) = SIGNALS.dispositions.get(number as usize) else { return 0 };
    // SAFETY: the kernel's structures.
    unsafe {
        if number == libc::SIGSYS && (*information).si_code == dispatch::SYS_USER_DISPATCH && dispatch::armed() {
            told_call(information, context);
            return 0;
        }
        let raised = (*information).si_code > 0 && BY_INSTRUCTIONS.contains(&number);
        if raised && FAULTS.contains(&number) && user::resolve(information, context) {
            return 0;
        }
        if !raised {
            if section::inside() && section::defer(number, information, context) {
                return 0;
            }
            sleeping::leave_sleep(context);
            cancel::before_handler();
            sleeper::before_handler();
            if !BY_INSTRUCTIONS.contains(&number) && number != libc::SIGCHLD && !owner::say_cause(information) {
                return 0;
            }
            let restarts = disposition.flags.load(Ordering::Relaxed) & SA_RESTART as u32 != 0;
            if disposition.handler.load(Ordering::Relaxed) > SIG_IGN {
                thread::count_handler(restarts);
            }
        }
        let handler = disposition.handler.load(Ordering::Acquire);
        match handler {
            SIG_IGN if !raised => 0,
            SIG_DFL | SIG_IGN => {
                end(number, information, raised);
                0
            }
            _ => {
                if disposition.flags.load(Ordering::Relaxed) & SA_RESETHAND as u32 != 0 {
                    reset(number, disposition, handler);
                }
                if dispatch::begun() {
                    open_traps(number, disposition);
                }
                handler
            }
        }
    }
}

/// The program's handler is about to run: its calls may be told of by SIGSYS, which its mask, or one that it interrupted, may block.
/// That signal's own handler has its mask from here, because the kernel's must be empty.
fn open_traps(number: c_int, disposition: &Disposition) {
    if number == libc::SIGSYS {
        let itself = if disposition.flags.load(Ordering::Relaxed) & SA_NODEFER as u32 != 0 { 0 } else { action::bit(number) };
        let mask = disposition.mask.load(Ordering::Relaxed) | itself;
        let _ = calls::sigprocmask(libc::SIG_BLOCK, &mask, core::ptr::null_mut(), calls::KERNEL_SIGSET);
    }
    masks::open();
}

/// A handler for one time has come. Of a signal that is ignored by default the next one must interrupt nothing.
unsafe fn reset(number: c_int, disposition: &Disposition, handler: usize) {
    let _changing = changing().lock();
    if disposition.handler.compare_exchange(handler, SIG_DFL, Ordering::AcqRel, Ordering::Relaxed).is_err() || is_kept(number) {
        return; // another thread has changed it; our look at a fault stays
    }
    let (flags, mask) = (disposition.flags.load(Ordering::Relaxed), disposition.mask.load(Ordering::Relaxed));
    disposition.ours.store(0, Ordering::Release);
    // Nothing is returned from, so no restorer is needed.
    action::exchange(number, &Action { flags: flags as u64, mask, ..Action::of(SIG_DFL) });
}

/// The default action, which the program left in place, and which ends it: the kernel does it once our entry is out of
/// the way. A fault comes again by itself, with the registers of the fault; a call that a filter refused does not.
unsafe fn end(number: c_int, information: *const siginfo_t, raised: bool) {
    action::exchange(number, &Action::of(SIG_DFL));
    if !raised || number == libc::SIGSYS {
        let (process, thread) = (calls::getpid(), calls::gettid());
        // SAFETY: the kernel's structure.
        unsafe { syscall!(libc::SYS_rt_tgsigqueueinfo, process, thread, number, information) };
    }
}

/// Takes SIGSEGV and SIGBUS, whatever is installed for them.
pub fn start() {
    FAULTS.into_iter().for_each(take);
}

/// Takes a signal that is kept, whatever is installed for it.
pub fn take(number: c_int) {
    // SAFETY: structures of our own.
    unsafe {
        let mut now = core::mem::zeroed::<libc::sigaction>();
        if real::sigaction(number, core::ptr::null(), (&raw mut now).cast()) == 0 {
            tell(&SIGNALS.dispositions[number as usize], &mut now);
            install(number, (&raw const now).cast(), core::ptr::null_mut());
        }
    }
}

/// sigaction(2).
///
/// # Safety
/// As the function itself.
pub unsafe fn install(number: c_int, action: *const c_void, old: *mut c_void) -> c_int {
    // SAFETY: the caller's structures, null or valid.
    unsafe {
        let (wanted, told) = (action.cast::<libc::sigaction>(), old.cast::<libc::sigaction>());
        let Some(disposition) = SIGNALS.dispositions.get(number as usize) else { return real::sigaction(number, action, old) };
        let _section = Section::begin();
        let _changing = changing().lock();
        let mut before = core::mem::zeroed::<libc::sigaction>();
        let result = match wanted.as_ref() {
            None => real::sigaction(number, core::ptr::null(), (&raw mut before).cast()),
            Some(new) => {
                let mut copy = *new;
                let taken = new.sa_sigaction > SIG_IGN || (is_kept(number) && global_ready());
                if taken {
                    copy.sa_sigaction = entry();
                    let tells_calls = number == libc::SIGSYS && is_kept(number);
                    copy.sa_flags = styles::of_entry(new.sa_flags, new.sa_sigaction, tells_calls);
                    if tells_calls {
                        (&raw mut copy.sa_mask).cast::<u64>().write(0);
                    }
                }
                let result = real::sigaction(number, (&raw const copy).cast(), (&raw mut before).cast());
                if result == 0 {
                    tell(disposition, &mut before);
                    disposition.flags.store(styles::told(new.sa_flags), Ordering::Relaxed);
                    disposition.mask.store((&raw const new.sa_mask).cast::<u64>().read(), Ordering::Relaxed);
                    disposition.handler.store(new.sa_sigaction, Ordering::Release);
                    disposition.ours.store(taken as u32, Ordering::Release);
                }
                result
            }
        };
        if result == 0 {
            if wanted.is_null() {
                tell(disposition, &mut before);
            }
            if !told.is_null() {
                *told = before;
            }
        }
        result
    }
}

/// signal(3) and its relatives: the handler before, or SIG_ERR.
pub fn set(number: c_int, handler: usize, style: Style) -> usize {
    if handler == libc::SIG_ERR || !(1..COUNT as c_int).contains(&number) {
        crate::errno::set_errno(libc::EINVAL);
        return libc::SIG_ERR;
    }
    // SAFETY: structures of our own.
    unsafe {
        let mut new = core::mem::zeroed::<libc::sigaction>();
        let mut old = core::mem::zeroed::<libc::sigaction>();
        new.sa_sigaction = handler;
        let bit = action::bit(number);
        let (flags, mask) = style.action(bit, SIGNALS.interrupting.load(Ordering::Relaxed));
        new.sa_flags = flags;
        (&raw mut new.sa_mask).cast::<u64>().write(mask);
        if install(number, (&raw const new).cast(), (&raw mut old).cast()) != 0 {
            return libc::SIG_ERR;
        }
        old.sa_sigaction
    }
}

const SIG_HOLD: usize = 2;

/// sigset(3): SIG_HOLD blocks the signal, anything else installs a handler and unblocks it. The disposition before, or
/// SIG_HOLD if it was blocked.
pub fn set_and_unblock(number: c_int, handler: usize) -> usize {
    if !(1..COUNT as c_int).contains(&number) {
        crate::errno::set_errno(libc::EINVAL);
        return libc::SIG_ERR;
    }
    let bit = action::bit(number);
    let mut before = 0u64;
    let old = if handler == SIG_HOLD {
        // SAFETY: structures of our own; asks only.
        unsafe {
            let mut old = core::mem::zeroed::<libc::sigaction>();
            if install(number, core::ptr::null(), (&raw mut old).cast()) != 0 {
                return libc::SIG_ERR;
            }
            old.sa_sigaction
        }
    } else {
        match set(number, handler, Style::Plain) {
            libc::SIG_ERR => return libc::SIG_ERR,
            old => old,
        }
    };
    let how = if handler == SIG_HOLD { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    let _ = calls::sigprocmask(how, &bit, &mut before, calls::KERNEL_SIGSET);
    if before & bit != 0 {
        SIG_HOLD
    } else {
        old
    }
}

/// siginterrupt(3).
pub fn interrupts(number: c_int, interrupts: bool) -> c_int {
    // SAFETY: structures of our own.
    unsafe {
        let mut action = core::mem::zeroed::<libc::sigaction>();
        if install(number, core::ptr::null(), (&raw mut action).cast()) != 0 {
            return -1;
        }
        let bit = action::bit(number);
        if interrupts {
            SIGNALS.interrupting.fetch_or(bit, Ordering::Relaxed);
            action.sa_flags &= !SA_RESTART;
        } else {
            SIGNALS.interrupting.fetch_and(!bit, Ordering::Relaxed);
            action.sa_flags |= SA_RESTART;
        }
        install(number, (&raw const action).cast(), core::ptr::null_mut())
    }
}

/// rt_sigaction(2), called by number. `None`: the kernel shall say what is wrong, or has signals that no program has.
///
/// # Safety
/// As the call itself.
pub unsafe fn install_by_number(number: c_int, action: usize, old: usize, size: usize) -> Option<isize> {
    if size != calls::KERNEL_SIGSET || !(1..COUNT as c_int).contains(&number) || [32, 33].contains(&number) {
        return None;
    }
    // SAFETY: the program's structures may fault; ours are plain.
    unsafe {
        let mut new = core::mem::zeroed::<libc::sigaction>();
        let mut before = core::mem::zeroed::<libc::sigaction>();
        let mut given = core::ptr::null();
        if action != 0 {
            let wanted = user::read(action as *const Action).ok()?;
            new.sa_sigaction = wanted.handler;
            new.sa_flags = (wanted.flags & !SA_RESTORER) as c_int;
            (&raw mut new.sa_mask).cast::<u64>().write(wanted.mask);
            given = &raw const new;
        }
        if install(number, given.cast(), (&raw mut before).cast()) != 0 {
            return Some(-1);
        }
        if old != 0 {
            let told = Action {
                handler: before.sa_sigaction,
                flags: before.sa_flags as u32 as u64 | SA_RESTORER,
                restorer: before.sa_restorer.map_or(0, |f| f as usize),
                mask: (&raw const before.sa_mask).cast::<u64>().read(),
            };
            if user::write(old as *mut Action, told).is_err() {
                crate::errno::set_errno(libc::EFAULT);
                return Some(-1);
            }
        }
        Some(0)
    }
}

/// Before an exec: a signal that the program ignores stays ignored in the next one, where our entry would leave the
/// default.
pub fn before_exec() {
    for number in kept() {
        let disposition = &SIGNALS.dispositions[number as usize];
        if disposition.ours.load(Ordering::Acquire) != 0 && disposition.handler.load(Ordering::Relaxed) == SIG_IGN {
            action::exchange(number, &Action::of(SIG_IGN));
        }
    }
}

/// The exec failed.
pub fn after_exec() {
    for number in kept() {
        let disposition = &SIGNALS.dispositions[number as usize];
        if disposition.ours.load(Ordering::Acquire) != 0 && disposition.handler.load(Ordering::Relaxed) == SIG_IGN {
            set(number, SIG_IGN, Style::Plain);
        }
    }
}

fn global_ready() -> bool {
    shunt_table::global::ready()
}

/// Puts what the program installed in place of what the kernel told, if that is our entry.
fn tell(disposition: &Disposition, told: &mut libc::sigaction) {
    if told.sa_sigaction == entry() && disposition.ours.load(Ordering::Acquire) != 0 {
        told.sa_sigaction = disposition.handler.load(Ordering::Acquire);
        told.sa_flags = disposition.flags.load(Ordering::Relaxed) as c_int;
        // SAFETY: the first word of the set.
        unsafe { (&raw mut told.sa_mask).cast::<u64>().write(disposition.mask.load(Ordering::Relaxed)) };
    }
}

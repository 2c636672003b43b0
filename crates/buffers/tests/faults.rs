//! The program's own handlers of SIGSEGV are called as if this library had none, and the reverse.

mod common;

use common::{alone, joined, UNIT};
use shunt_buffers::fault;
use shunt_region::Limit;
use shunt_sys::{calls, libc as constants, mapping};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

static CALLS: AtomicUsize = AtomicUsize::new(0);
static STACK: AtomicUsize = AtomicUsize::new(0);
static OLD: AtomicUsize = AtomicUsize::new(0);
static MASKED: AtomicUsize = AtomicUsize::new(0);

/// Gives the guard page back; what a garbage collector does.
extern "C" fn own(_: i32, information: *mut libc::siginfo_t, _: *mut libc::c_void) {
    CALLS.fetch_add(1, SeqCst);
    let here = 0u8;
    STACK.store(&raw const here as usize, SeqCst);
    // SAFETY: asks for this thread's mask; gives back a page of this test's.
    unsafe {
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        let usual = libc::sigismember(&mask, libc::SIGUSR2) == 0 && libc::sigismember(&mask, libc::SIGTERM) == 0;
        assert!(usual, "what the program asked to be blocked, and no more");
        MASKED.store((libc::sigismember(&mask, libc::SIGUSR1) * 2 + libc::sigismember(&mask, libc::SIGSEGV)) as usize, SeqCst);
        let page = ((*information).si_addr() as usize & !4095) as *mut u8;
        assert_eq!(libc::mprotect(page.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE), 0);
    }
}

/// Goes on to whatever was there before it.
extern "C" fn chained(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    CALLS.fetch_add(1, SeqCst);
    // SAFETY: the old handler has this type.
    unsafe {
        let old: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = std::mem::transmute(OLD.load(SeqCst));
        old(signal, information, context);
    }
}

fn install(handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void), flags: i32) -> usize {
    // SAFETY: plain structures; the handlers above.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigaddset(&mut action.sa_mask, libc::SIGUSR1);
        let mut old: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, &mut old), 0);
        old.sa_sigaction
    }
}

fn guard() -> *mut u8 {
    mapping::range(4096).unwrap()
}

fn touch(page: *mut u8) {
    // SAFETY: the handler makes it writable.
    unsafe { page.write_volatile(1) };
}

/// One output under TCOW, overwritten while it is under way.
fn one_fault() {
    let (mut here, mut there, pool) = joined();
    let mut region = pool.allocate(UNIT).unwrap();
    region.bytes_mut().fill(1);
    here.send(region.bytes(), true).unwrap();
    assert_eq!(here.lent().1, 1);
    let before = fault::mended();
    region.bytes_mut()[7] = 2;
    assert_eq!(fault::mended(), before + 1);
    let mut bytes = vec![0; UNIT];
    there.receive(&mut bytes).unwrap();
    assert_eq!(bytes[7], 1);
}

#[test]
fn a_handler_that_was_there_gets_its_own_faults() {
    alone("a_handler_that_was_there_gets_its_own_faults", || {
        install(own, 0);
        one_fault();
        assert_eq!(CALLS.load(SeqCst), 0);
        touch(guard());
        assert_eq!((CALLS.load(SeqCst), MASKED.load(SeqCst)), (1, 3), "with its mask, and itself blocked");
        one_fault();
        // The mask of before has come back.
        touch(guard());
        assert_eq!(CALLS.load(SeqCst), 2);
    });
}

#[test]
fn an_alternate_stack_is_used_where_the_program_asked_for_it() {
    alone("an_alternate_stack_is_used_where_the_program_asked_for_it", || {
        let size = 64 << 10;
        let stack = mapping::reserve(size).unwrap();
        let alternate = libc::stack_t { ss_sp: stack.cast(), ss_flags: 0, ss_size: size };
        // SAFETY: memory of this test's.
        assert_eq!(unsafe { libc::sigaltstack(&alternate, std::ptr::null_mut()) }, 0);
        install(own, libc::SA_ONSTACK | libc::SA_NODEFER);
        one_fault();
        touch(guard());
        assert!((stack as usize..stack as usize + size).contains(&STACK.load(SeqCst)));
        assert_eq!(MASKED.load(SeqCst), 2);
    });
}

#[test]
fn a_handler_that_comes_later_may_go_on_to_ours() {
    alone("a_handler_that_comes_later_may_go_on_to_ours", || {
        install(own, 0);
        one_fault();
        OLD.store(install(chained, 0), SeqCst);
        // Ours is put over it, and neither goes round.
        one_fault();
        assert_eq!(CALLS.load(SeqCst), 0);
        touch(guard());
        assert_eq!(CALLS.load(SeqCst), 2, "the later one, and by ours the earlier one");
    });
}

#[test]
fn a_fault_of_nobodys_ends_the_process_as_ever() {
    alone("a_fault_of_nobodys_ends_the_process_as_ever", || {
        // SAFETY: the child writes where nothing is.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the action of a fresh program.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            one_fault();
            touch(guard());
            // SAFETY: not reached.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: a child of this test's.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status:x}");
    });
}

/// Blocks SIGSEGV in this thread, or takes it again.
fn block(how: i32) {
    let set = 1u64 << (constants::SIGSEGV - 1);
    calls::sigprocmask(how, &set, std::ptr::null_mut(), 8).unwrap();
}

#[test]
fn a_thread_that_blocks_the_signal_copies() {
    alone("a_thread_that_blocks_the_signal_copies", || {
        let (mut here, mut there, pool) = joined();
        let region = pool.allocate(UNIT).unwrap();
        block(constants::SIG_BLOCK);
        here.send(region.bytes(), true).unwrap();
        assert_eq!((here.copied(Limit::SignalBlocked), here.lent().1), (1, 0));
        assert_eq!(there.receive(&mut vec![0; UNIT]), Ok(UNIT));
        block(constants::SIG_UNBLOCK);
    });
}

/// It need not be the one that sends: a handler does not help whoever writes with the signal blocked.
#[test]
fn nothing_is_armed_while_another_thread_blocks_the_signal() {
    alone("nothing_is_armed_while_another_thread_blocks_the_signal", || {
        let (mut here, mut there, pool) = joined();
        let mut region = pool.allocate(UNIT).unwrap();
        let turns = std::sync::Barrier::new(2);
        let mut bytes = vec![0; UNIT];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                block(constants::SIG_BLOCK);
                turns.wait();
                turns.wait();
                block(constants::SIG_UNBLOCK);
                turns.wait();
                turns.wait();
            });
            turns.wait();
            here.send(region.bytes(), true).unwrap();
            assert_eq!((here.copied(Limit::SignalBlocked), here.lent().1), (1, 0));
            there.receive(&mut bytes).unwrap();
            turns.wait();
            turns.wait();
            here.send(region.bytes(), true).unwrap();
            assert_eq!((here.copied(Limit::SignalBlocked), here.lent().1), (1, 1));
            // As many outputs as there are threads go without a look.
            for _ in 0..8 {
                there.receive(&mut bytes).unwrap();
                here.progress().unwrap();
                here.send(region.bytes(), true).unwrap();
            }
            turns.wait();
        });
        // It has ended.
        region.bytes_mut()[0] = 1;
        there.receive(&mut bytes).unwrap();
        assert_eq!(bytes[0], 0);
    });
}

#[test]
fn a_region_that_was_given_away_is_not_given_back_by_a_fault() {
    alone("a_region_that_was_given_away_is_not_given_back_by_a_fault", || {
        install(own, 0);
        let (mut here, _there, pool) = joined();
        let region = pool.allocate(UNIT).unwrap();
        let place = region.pointer();
        here.send_region(region, UNIT, shunt_buffers::Semantics::EMULATED_MOVE).unwrap();
        one_fault();
        touch(place);
        assert_eq!(CALLS.load(SeqCst), 1, "the program's mistake is the program's");
    });
}

static PLACE: AtomicUsize = AtomicUsize::new(0);
const LARGE: usize = 2 << 20;

/// Units that take their time to be saved, and a new region for each round.
fn large(rounds: usize, mut round: impl FnMut(&mut shunt_buffers::port::Port, &shunt_region::Region)) {
    let (mut here, mut there) = shunt_buffers::port::Port::pair().unwrap();
    let shape = shunt_region::Shape { unit: LARGE, units: 4 };
    let pool = shunt_region::Pool::create(shape, shunt_region::Pages::Small, shunt_region::Audience::Anyone).unwrap();
    here.set_costs(shunt_buffers::costs::Costs::USUAL);
    here.offer(&pool).unwrap();
    here.policy().tcow_from = LARGE;
    let mut bytes = vec![0; LARGE];
    for _ in 0..rounds {
        let mut region = pool.allocate(LARGE).unwrap();
        region.bytes_mut().fill(1);
        here.send(region.bytes(), true).unwrap();
        assert_eq!(here.lent().1, 1);
        round(&mut here, &region);
        there.receive(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 1));
        PLACE.store(0, SeqCst);
        here.progress().unwrap();
    }
}

/// A profiler's counter, or a time stamp.
extern "C" fn tick(_: i32) {
    CALLS.fetch_add(1, SeqCst);
    if let Some(place) = std::ptr::NonNull::new(PLACE.load(SeqCst) as *mut u8) {
        // SAFETY: a region that its test has.
        unsafe { place.as_ptr().add(8).write_volatile(7) };
    }
}

#[test]
fn a_signals_handler_may_write_to_the_unit_that_is_being_mended() {
    alone("a_signals_handler_may_write_to_the_unit_that_is_being_mended", || {
        // SAFETY: plain structures; a handler that writes memory.
        unsafe {
            // What hangs is ended.
            let limit = libc::rlimit { rlim_cur: 30, rlim_max: 30 };
            assert_eq!(libc::setrlimit(libc::RLIMIT_CPU, &limit), 0);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = tick as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()), 0);
        }
        // Of this thread alone: in another one the handler might come when the region is the receiver's already.
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: plain structures.
        unsafe {
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = libc::SIGALRM;
            event.sigev_notify_thread_id = libc::gettid();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
        }
        let every = |nanoseconds| {
            let each = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
            let time = libc::itimerspec { it_interval: each, it_value: each };
            // SAFETY: the timer, and a structure.
            assert_eq!(unsafe { libc::timer_settime(timer, 0, &time, std::ptr::null_mut()) }, 0);
        };
        large(50, |_, region| {
            PLACE.store(region.pointer() as usize, SeqCst);
            every(50_000);
            // SAFETY: a page of the region's.
            unsafe { region.pointer().add(100).write_volatile(9) };
            every(0);
        });
        assert!(CALLS.load(SeqCst) > 0);
    });
}

#[test]
fn the_kernel_writes_to_a_unit_that_another_thread_mends() {
    let (go, done, end) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while end.load(SeqCst) == 0 {
                let now = go.load(SeqCst);
                if now != seen {
                    // SAFETY: the region of this round.
                    unsafe { (now as *mut u8).add(100).write_volatile(9) };
                    seen = now;
                    done.store(now, SeqCst);
                }
            }
        });
        let zero = std::fs::File::open("/dev/zero").unwrap();
        let mut failed = 0;
        let mut turn = 0usize;
        large(40, |_, region| {
            turn += 1;
            // Another address each time, inside the unit.
            let place = region.pointer() as usize;
            go.store(place + turn, SeqCst);
            for _ in 0..turn * 500 {
                std::hint::spin_loop();
            }
            shunt_region::before_kernel_writes(place, 64);
            // SAFETY: into the region.
            let count = unsafe { libc::read(std::os::fd::AsRawFd::as_raw_fd(&zero), place as *mut libc::c_void, 64) };
            failed += usize::from(count != 64);
            // Later the region is another message's, or hidden.
            while done.load(SeqCst) != place + turn {
                std::hint::spin_loop();
            }
        });
        end.store(1, SeqCst);
        assert_eq!(failed, 0);
    });
}

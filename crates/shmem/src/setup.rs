//! Start, end, questions about the job, and what is said when a call cannot be answered.

use crate::teams;
use shunt_pgas::{lock, pmix, Ended, Error, Result, World};
use std::ffi::{c_char, c_int, c_void};
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// As SHMEM_VENDOR_STRING of the header.
const NAME: &str = "shunt";
const THREAD_MULTIPLE: c_int = 3;

static LEVEL: AtomicI32 = AtomicI32::new(0);
static LEAVING: AtomicBool = AtomicBool::new(false);

/// Before `main`: static data is shared while no thread uses it yet.
#[used]
#[link_section = ".init_array"]
static EARLY: extern "C" fn() = early;

extern "C" fn early() {
    if std::env::var_os(shunt_pgas::VARIABLE).is_some() || pmix::is_here() {
        or_fail("start", World::join_early());
    }
    if pmix::is_used() {
        // A program that never asks to be a rank has a launcher that waits for its good-bye all the same.
        // SAFETY: as in `init`.
        unsafe { on_exit(at_exit_of_no_rank, std::process::id() as usize as *mut c_void) };
    }
}

/// The result, or the end of this process.
#[inline(always)]
pub fn or_fail<T>(name: &'static str, result: Result<T>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => fail(name, error),
    }
}

/// Says what is wrong and exits; the launcher ends the job then. Of a job that ends anyway the launcher speaks.
#[cold]
#[inline(never)]
pub fn fail(name: &'static str, error: Error) -> ! {
    let status = match &error {
        Error::Ended(cause) => {
            if pmix::is_used() && *cause != Ended::Gone {
                told_by_the_launcher(cause);
            }
            cause.status()
        }
        _ => {
            tell(name, error);
            World::current().fail();
            1
        }
    };
    LEAVING.store(true, Release);
    // SAFETY: flushes what the program has written, unless another thread is in the middle of that; the program's handlers of its end do not
    // run, since it is in the middle of a call.
    unsafe {
        for stream in [stdout, stderr] {
            if ftrylockfile(stream) == 0 {
                libc::fflush(stream);
                funlockfile(stream);
            }
        }
        libc::_exit(status)
    }
}

/// Says what is wrong.
pub fn tell(name: &'static str, error: Error) {
    let world = World::current();
    match world.ranks() {
        0 => say(format!("shunt: {name}: {error}\n")),
        _ => say(format!("shunt: rank {}: {name}: {error}\n", world.me())),
    }
}

/// In one piece, as other ranks may speak at the same time.
fn say(sentence: String) {
    let _ = std::io::stderr().write_all(sentence.as_bytes());
}

/// `mpirun` and its like name the rank that was the cause, and end the others; exits of those would hide it. One that does not is replaced.
fn told_by_the_launcher(cause: &Ended) {
    std::thread::sleep(std::time::Duration::from_secs(3));
    if !matches!(cause, Ended::Asked { .. }) {
        say(format!("shunt: {cause}; the job is over\n"));
    }
}

pub fn init(name: &'static str) {
    // A static library's constructor may be left out by the linker, unless something asks for it.
    std::hint::black_box(&EARLY);
    let world = or_fail(name, World::join());
    static ONCE: AtomicBool = AtomicBool::new(false);
    if !ONCE.swap(true, AcqRel) {
        // SAFETY: the handler is a function of this library, and has the type that is asked for.
        unsafe { on_exit(at_exit, std::process::id() as usize as *mut c_void) };
        if world.me() == 0 {
            introduce(world);
        }
    }
}

/// What SHMEM_VERSION and SHMEM_INFO ask for.
fn introduce(world: &World) {
    let mut told = String::new();
    let asked = |name: &str| std::env::var(name).is_ok_and(|value| value != "0");
    if asked("SHMEM_VERSION") || asked("SHMEM_INFO") {
        told += &format!("OpenSHMEM 1.5, {NAME} {}\n", env!("CARGO_PKG_VERSION"));
    }
    if asked("SHMEM_INFO") {
        told += &format!("SHMEM_SYMMETRIC_SIZE={} bytes of each of {} ranks\n", world.own_heap().1, world.ranks());
        told += "SHMEM_VERSION, SHMEM_INFO: print this\nSHMEM_DEBUG: ranks compare what they ask of the symmetric heap\n";
    }
    let _ = std::io::stdout().write_all(told.as_bytes());
}

extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
    fn ftrylockfile(stream: *mut libc::FILE) -> c_int;
    fn funlockfile(stream: *mut libc::FILE);
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// A program that returns from `main` has finalized. One that exits with another status than 0 ends the job, which is the launcher's.
extern "C" fn at_exit(status: c_int, process: *mut c_void) {
    if status == 0 && process as usize == std::process::id() as usize && !LEAVING.load(Acquire) && World::current().is_live() {
        teams::destroy_all();
        let _ = World::current().finalize();
    }
}

extern "C" fn at_exit_of_no_rank(status: c_int, process: *mut c_void) {
    if status == 0 && process as usize == std::process::id() as usize && !LEAVING.load(Acquire) && World::current().ranks() == 0 {
        pmix::leave();
    }
}

pub fn init_thread(name: &'static str, requested: c_int, provided: *mut c_int) -> c_int {
    init(name);
    LEVEL.store(requested.clamp(0, THREAD_MULTIPLE), Release);
    query_thread(provided);
    0
}

pub fn query_thread(provided: *mut c_int) {
    write(provided, LEVEL.load(Acquire));
}

pub fn query_initialized(initialized: *mut c_int) {
    write(initialized, c_int::from(World::current().ranks() > 0));
}

/// Stores a result where the program wants it.
pub fn write<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the program's pointer to a variable of this type.
        unsafe { to.write(value) };
    }
}

pub fn finalize(name: &'static str) {
    teams::destroy_all();
    or_fail(name, World::current().finalize());
}

pub fn global_exit(status: c_int) -> ! {
    LEAVING.store(true, Release);
    World::current().global_exit(status);
    // SAFETY: ends the process, with the program's own handlers.
    unsafe { libc::exit(status) }
}

pub fn pe_accessible(pe: c_int) -> c_int {
    c_int::from(pe >= 0 && (pe as usize) < World::current().ranks())
}

pub fn addr_accessible(address: usize, pe: c_int) -> c_int {
    c_int::from(World::current().place_of(pe as isize as usize, address, 1).is_some())
}

pub fn ptr(address: usize, pe: c_int) -> *mut c_void {
    let (world, rank) = (World::current(), pe as isize as usize);
    match world.remote(address, 1, rank) {
        // Static data is mapped at two places; the program knows one of them.
        Some(_) if rank == world.me() => address as *mut c_void,
        found => found.unwrap_or(0) as *mut c_void,
    }
}

pub fn version(major: *mut c_int, minor: *mut c_int) {
    write(major, 1);
    write(minor, 5);
}

pub fn name(name: *mut c_char) {
    if !name.is_null() {
        // SAFETY: the program has room for SHMEM_MAX_NAME_LEN bytes, which are more.
        unsafe {
            std::ptr::copy_nonoverlapping(NAME.as_ptr().cast(), name, NAME.len());
            name.add(NAME.len()).write(0);
        }
    }
}

pub fn set_lock(name: &'static str, address: usize) {
    or_fail(name, lock::set(World::current(), address));
}

pub fn clear_lock(name: &'static str, address: usize) {
    or_fail(name, lock::clear(World::current(), address));
}

/// 0 if it is taken now, 1 if it was.
pub fn test_lock(name: &'static str, address: usize) -> c_int {
    c_int::from(!or_fail(name, lock::test(World::current(), address)))
}

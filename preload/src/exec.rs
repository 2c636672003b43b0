//! The exec and spawn family: descriptors that stay open stay accelerated in the next program.

use crate::errno::answer;
use crate::real;
use crate::spawn::Request;
use core::ffi::{c_char, c_int, c_void, CStr};
use shunt_calls::libc::{SYS_execveat, AT_FDCWD, ENOMEM};
use shunt_conventions::arguments::List;
use shunt_conventions::environment::{self, Environment, Preload};
use shunt_handover as handover;
use shunt_handover::image::Start;
use shunt_handover::inherit::{Handed, Text, Way};
use shunt_handover::{image, inherit, HandOver};
use shunt_sys::{check, syscall, user, Result};
use shunt_table::global::LockedCell;

pub(crate) use shunt_conventions::environment::Strings;

extern "C" {
    pub(crate) static environ: Strings;
}

/// How this library came in, for programs that are started.
static PRELOAD: LockedCell<Preload> = LockedCell::new(Preload::none());

/// Remembers it.
pub fn start(preload: &[u8]) {
    // SAFETY: the constructor runs alone.
    unsafe { &mut *PRELOAD.get() }.note(preload);
}

/// The given environment, with `inherit` in it. Errors: ENOMEM, EFAULT.
///
/// # Safety
/// As execve(2).
unsafe fn with_text(given: Strings, inherit: &Text) -> Result<Environment> {
    let inherit = CStr::from_bytes_until_nul(inherit.with_nul()).unwrap_or(c"");
    // SAFETY: promised by the caller; what the constructor has written stays.
    unsafe { Environment::new(given, &*PRELOAD.get(), inherit) }
}

/// Runs `exec` with what the kept descriptors need; it returns only if it failed. `judge` tells what the program is.
unsafe fn with_inheritance(given: Strings, judge: impl FnOnce() -> Start, exec: impl Fn(Strings) -> c_int) -> c_int {
    // What faults is the kernel's to refuse. It is found here, where a fault is still told (`signals::before_exec`).
    // SAFETY: any address.
    if !shunt_table::global::ready() || unsafe { environment::count(given) }.is_err() {
        return exec(given);
    }
    crate::signals::before_exec();
    shunt_pipes::kept_pipes::settle_all();
    // SAFETY: passed on.
    let result = unsafe { with_descriptors(given, judge, exec) };
    crate::errno::keeping_errno(crate::signals::after_exec);
    result
}

unsafe fn with_descriptors(given: Strings, judge: impl FnOnce() -> Start, exec: impl Fn(Strings) -> c_int) -> c_int {
    let way = Way::Exec;
    inherit::prepare(&way);
    let ends = inherit::any_ends();
    // A program without the library must be given nothing of ours, not even what only tells of ends.
    let start = if ends || way.concerns_us() { judge() } else { Start::Shunt };
    if start == Start::Fails {
        return exec(given);
    }
    let start = if way.keeps_narrowed() { Start::Plain } else { start };
    inherit::leave();
    let result = if start == Start::Plain {
        let handed = handover::before_exec();
        let result = exec(given);
        crate::errno::keeping_errno(|| handed.map(HandOver::undo));
        result
    } else {
        let mut handed = Handed::empty();
        inherit::hand(&way, ends, &mut handed);
        if handed.text.is_empty() {
            exec(given)
        } else {
            inherit::let_through(&handed.text);
            // SAFETY: the caller's environment.
            let result = match unsafe { with_text(given, &handed.text) } {
                Ok(environment) => exec(environment.strings()),
                // A program that is told of nothing would lose what it inherits.
                Err(error) => answer(Err(error)) as c_int,
            };
            crate::errno::keeping_errno(inherit::failed);
            result
        }
    };
    crate::errno::keeping_errno(inherit::come_back);
    result
}

#[no_mangle]
pub unsafe extern "C" fn execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: as execve(2); a path that faults is the kernel's to refuse.
    unsafe {
        if user::read(path).is_err() {
            return real::execve(path, arguments, environment);
        }
        with_inheritance(environment, || image::judge(AT_FDCWD, path), |e| real::execve(path, arguments, e))
    }
}

#[no_mangle]
unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as execv(3).
    unsafe { with_inheritance(environ, || image::judge(AT_FDCWD, path), |e| real::execve(path, arguments, e)) }
}

#[no_mangle]
unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: as execvp(3).
    unsafe { with_inheritance(environ, || in_path(file), |e| real::execvpe(file, arguments, e)) }
}

#[no_mangle]
pub unsafe extern "C" fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: as execvpe(3).
    unsafe { with_inheritance(environment, || in_path(file), |e| real::execvpe(file, arguments, e)) }
}

#[no_mangle]
unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: as fexecve(3).
    unsafe { with_inheritance(environment, || image::judge(fd, c"".as_ptr()), |e| real::fexecve(fd, arguments, e)) }
}

#[no_mangle]
pub unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: as execveat(2).
    unsafe {
        let kernel = |e: Strings| {
            answer(check(syscall!(SYS_execveat, directory, path, arguments, e, flags)).map(|value| value as isize)) as c_int
        };
        if !path.is_null() && user::read(path).is_err() {
            return kernel(environment); // which refuses it
        }
        with_inheritance(environment, || image::judge(directory, path), kernel)
    }
}

/// As execvp(3) finds it: by this process's PATH.
unsafe fn in_path(file: *const c_char) -> Start {
    // SAFETY: a C string.
    unsafe { image::judge_in_path(file, crate::environment::variable("PATH")) }
}

/// `spawn` is given the environment and the file actions.
///
/// # Safety
/// As posix_spawn(3).
pub unsafe fn spawn(
    request: &Request,
    given: Strings,
    judge: impl FnOnce() -> Start,
    spawn: impl Fn(Strings, *const c_void) -> c_int,
) -> c_int {
    if !shunt_table::global::ready() {
        return spawn(given, request.actions);
    }
    // The child has the kernel's pipes.
    shunt_pipes::kept_pipes::settle_all();
    // SAFETY: the caller's file actions.
    let keeps = |fd| unsafe { request.keeps(fd) };
    let way = Way::Spawn(&keeps);
    inherit::prepare(&way);
    if way.concerns_us() {
        match judge() {
            Start::Fails => return spawn(given, request.actions),
            // SAFETY: the caller's request.
            Start::Plain => return unsafe { crate::spawn::plain(request, given) },
            // SAFETY: as before.
            Start::Shunt if way.keeps_narrowed() || unsafe { request.disturbs() } => {
                // SAFETY: as before.
                return unsafe { crate::spawn::plain(request, given) };
            }
            Start::Shunt => {}
        }
    }
    let mut handed = Handed::empty();
    inherit::hand(&way, false, &mut handed);
    if handed.text.is_empty() {
        return spawn(given, request.actions);
    }
    // SAFETY: the caller's environment and file actions.
    let made = unsafe { (with_text(given, &handed.text), request.letting_through(&handed.text)) };
    let result = match &made {
        (Ok(environment), Some(actions)) => spawn(environment.strings(), actions.address()),
        (Err(error), _) => error.0,
        _ => ENOMEM,
    };
    if result != 0 {
        handed.take_back();
    }
    result
}

#[no_mangle]
unsafe extern "C" fn posix_spawn(
    pid: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: as posix_spawn(3).
    unsafe {
        let request = Request { pid, file: path, searched: false, actions, attributes, arguments };
        let judge = || image::judge(AT_FDCWD, path);
        spawn(&request, environment, judge, |e, actions| real::posix_spawn(pid, path, actions, attributes, arguments, e))
    }
}

#[no_mangle]
unsafe extern "C" fn posix_spawnp(
    pid: *mut c_int,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: as posix_spawnp(3).
    unsafe {
        let request = Request { pid, file, searched: true, actions, attributes, arguments };
        let judge = || in_path(file);
        spawn(&request, environment, judge, |e, actions| real::posix_spawnp(pid, file, actions, attributes, arguments, e))
    }
}

/// An entry point with a variable argument list: arguments in rsi, rdx, rcx, r8, r9, then on the stack.
macro_rules! list_call {
    ($name:ident, $target:ident) => {
        #[no_mangle]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "sub rsp, 56",
                "mov [rsp], rsi",
                "mov [rsp + 8], rdx",
                "mov [rsp + 16], rcx",
                "mov [rsp + 24], r8",
                "mov [rsp + 32], r9",
                "mov rsi, rsp",
                "lea rdx, [rsp + 64]",
                "call {target}",
                "add rsp, 56",
                "ret",
                target = sym $target,
            )
        }
    };
}
list_call!(execl, list_execl);
list_call!(execlp, list_execlp);
list_call!(execle, list_execle);

/// Calls `exec` with the arguments as an array, and the index behind the terminating null.
fn gather(list: &List, exec: impl FnOnce(Strings, usize) -> c_int) -> c_int {
    list.gather(exec).unwrap_or_else(|error| answer(Err(error)) as c_int)
}

unsafe extern "C" fn list_execl(path: *const c_char, saved: Strings, stack: Strings) -> c_int {
    // SAFETY: as execl(3).
    unsafe { gather(&List::new(saved, stack), |arguments, _| execv(path, arguments)) }
}

unsafe extern "C" fn list_execlp(file: *const c_char, saved: Strings, stack: Strings) -> c_int {
    // SAFETY: as execlp(3).
    unsafe { gather(&List::new(saved, stack), |arguments, _| execvp(file, arguments)) }
}

unsafe extern "C" fn list_execle(path: *const c_char, saved: Strings, stack: Strings) -> c_int {
    // SAFETY: as execle(3): the environment follows the terminating null.
    unsafe {
        let list = List::new(saved, stack);
        gather(&list, |arguments, next| execve(path, arguments, list.get(next).cast()))
    }
}

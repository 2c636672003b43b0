//! The exec and spawn family: descriptors that stay open stay accelerated in the next program.

use crate::errno::answer;
use crate::real;
use crate::spawn::Request;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::sync::atomic::{AtomicUsize, Ordering};
use shunt_calls::libc::{SYS_execveat, AT_FDCWD, ENOMEM};
use shunt_handover as handover;
use shunt_handover::image::Start;
use shunt_handover::inherit::{Text, Way, VARIABLE};
use shunt_handover::{image, inherit, HandOver};
use shunt_sys::{calls, check, mapping, syscall, user, Errno, Result};
use shunt_table::global::LockedCell;

pub(crate) type Strings = *const *const c_char;

extern "C" {
    pub(crate) static environ: Strings;
}

/// The variable LD_PRELOAD with which this program was started: given on to programs whose environment was cleaned
/// while they inherit descriptors that only this library can serve.
struct Preload {
    text: LockedCell<[u8; 4096]>,
    length: AtomicUsize,
}

static PRELOAD: Preload = Preload { text: LockedCell::new([0; 4096]), length: AtomicUsize::new(0) };

/// Remembers how this library came in.
pub fn start(preload: &[u8]) {
    if preload.len() + 12 < 4096 {
        // SAFETY: the constructor runs alone.
        let memory = unsafe { &mut *PRELOAD.text.get() };
        memory[..11].copy_from_slice(b"LD_PRELOAD=");
        memory[11..11 + preload.len()].copy_from_slice(preload);
        PRELOAD.length.store(11 + preload.len(), Ordering::Release);
    }
}

/// How many strings there are; all of them can be read. Errors: EFAULT.
unsafe fn count(strings: Strings) -> Result<usize> {
    let mut n = 0;
    // SAFETY: any address that is not ours.
    unsafe {
        while !strings.is_null() {
            let text = user::read(strings.wrapping_add(n))?;
            if text.is_null() {
                break;
            }
            measure(text)?;
            n += 1;
        }
    }
    Ok(n)
}

/// Bytes before the string's end. Errors: EFAULT.
unsafe fn measure(text: *const c_char) -> Result<usize> {
    let mut length = 0;
    // SAFETY: any address that is not ours.
    while unsafe { user::read(text.wrapping_add(length)) }? != 0 {
        length += 1;
    }
    Ok(length)
}

unsafe fn begins(text: *const c_char, prefix: &[u8]) -> bool {
    // SAFETY: a C string; reading stops at the first difference.
    prefix.iter().enumerate().all(|(i, byte)| unsafe { *text.add(i) } as u8 == *byte)
}

/// An environment for the next program.
struct Environment {
    memory: *mut *const c_char,
    size: usize,
}

/// The name of this library's file, as LD_PRELOAD has it.
const LIBRARY: &[u8] = b"libshunt";

/// The part of our own LD_PRELOAD that names this library.
fn own_entry() -> &'static [u8] {
    // SAFETY: written by the constructor alone.
    let all = unsafe { &(&*PRELOAD.text.get())[..PRELOAD.length.load(Ordering::Acquire)] };
    let all = all.strip_prefix(b"LD_PRELOAD=").unwrap_or(&[]);
    let names_us = |entry: &&[u8]| entry.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(LIBRARY));
    all.split(|byte| matches!(byte, b':' | b' ')).find(names_us).unwrap_or(&[])
}

impl Environment {
    /// The given environment with `inherit` in it, and LD_PRELOAD so that it names this library.
    ///
    /// Errors: ENOMEM, EFAULT.
    unsafe fn new(given: Strings, inherit: &Text) -> Result<Environment> {
        // SAFETY: the array ends with null; the new one has room for two more entries and the null, and behind them for
        // the given LD_PRELOAD and the own entry.
        unsafe {
            let n = count(given)?;
            let array = (n + 4) * core::mem::size_of::<*const c_char>();
            let own = own_entry();
            let other = (0..n).map(|i| CStr::from_ptr(*given.add(i)).to_bytes()).find(|entry| entry.starts_with(b"LD_PRELOAD="));
            let size = array + other.map_or(0, <[u8]>::len) + own.len() + 2;
            let memory = mapping::reserve(size).map_err(|_| Errno(ENOMEM))?.cast::<*const c_char>();
            let mut at = 0;
            let mut preloaded = false;
            for i in 0..n {
                let entry = *given.add(i);
                if begins(entry, VARIABLE.as_bytes()) {
                    continue;
                }
                memory.add(at).write(entry);
                if begins(entry, b"LD_PRELOAD=") {
                    preloaded = true;
                    let text = CStr::from_ptr(entry).to_bytes();
                    if !own.is_empty() && !text.windows(own.len()).any(|part| part == own) {
                        // The program's own library stays the first; ours serves what it inherits.
                        let target = memory.cast::<u8>().add(array);
                        core::ptr::copy_nonoverlapping(text.as_ptr(), target, text.len());
                        target.add(text.len()).write(b':');
                        core::ptr::copy_nonoverlapping(own.as_ptr(), target.add(text.len() + 1), own.len());
                        memory.add(at).write(target.cast());
                    }
                }
                at += 1;
            }
            memory.add(at).write(inherit.with_nul().as_ptr().cast());
            at += 1;
            if !preloaded && PRELOAD.length.load(Ordering::Acquire) > 11 {
                memory.add(at).write(PRELOAD.text.get().cast());
            }
            Ok(Environment { memory, size })
        }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        let _ = calls::munmap(self.memory.cast(), self.size);
    }
}

/// Runs `exec` with what the kept descriptors need; it returns only if it failed. `judge` tells what the program is.
unsafe fn with_inheritance(given: Strings, judge: impl FnOnce() -> Start, exec: impl Fn(Strings) -> c_int) -> c_int {
    // What faults is the kernel's to refuse. It is found here, where a fault is still told (`signals::before_exec`).
    // SAFETY: any address.
    if !shunt_table::global::ready() || unsafe { count(given) }.is_err() {
        return exec(given);
    }
    crate::signals::before_exec();
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
        let handed = inherit::hand(&way, ends);
        if handed.text.is_empty() {
            exec(given)
        } else {
            inherit::let_through(&handed.text);
            // SAFETY: the caller's environment.
            let result = match unsafe { Environment::new(given, &handed.text) } {
                Ok(environment) => exec(environment.memory.cast_const()),
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
    let mut handed = inherit::hand(&way, false);
    if handed.text.is_empty() {
        return spawn(given, request.actions);
    }
    // SAFETY: the caller's environment and file actions.
    let made = unsafe { (Environment::new(given, &handed.text), request.letting_through(&handed.text)) };
    let result = match &made {
        (Ok(environment), Some(actions)) => spawn(environment.memory.cast_const(), actions.address()),
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

/// Where a variable argument list lies: five in registers (saved), the rest on the stack.
struct List {
    saved: Strings,
    stack: Strings,
}

impl List {
    unsafe fn get(&self, i: usize) -> *const c_char {
        // SAFETY: the caller does not read behind the terminating null (and execle's environment).
        unsafe {
            if i < 5 {
                *self.saved.add(i)
            } else {
                *self.stack.add(i - 5)
            }
        }
    }

    /// Calls `exec` with the arguments as an array, and the index behind the terminating null.
    unsafe fn gather(&self, exec: impl FnOnce(Strings, usize) -> c_int) -> c_int {
        // SAFETY: the list ends with null.
        unsafe {
            let mut n = 0;
            while !self.get(n).is_null() {
                n += 1;
            }
            let size = (n + 1) * core::mem::size_of::<*const c_char>();
            let Ok(memory) = mapping::reserve(size) else {
                return answer(Err(Errno(ENOMEM))) as c_int;
            };
            let array = memory.cast::<*const c_char>();
            for i in 0..n {
                array.add(i).write(self.get(i));
            }
            let result = exec(array.cast_const(), n + 1);
            let _ = calls::munmap(memory, size);
            result
        }
    }
}

unsafe extern "C" fn list_execl(path: *const c_char, saved: Strings, stack: Strings) -> c_int {
    // SAFETY: as execl(3).
    unsafe { List { saved, stack }.gather(|arguments, _| execv(path, arguments)) }
}

unsafe extern "C" fn list_execlp(file: *const c_char, saved: Strings, stack: Strings) -> c_int {
    // SAFETY: as execlp(3).
    unsafe { List { saved, stack }.gather(|arguments, _| execvp(file, arguments)) }
}

unsafe extern "C" fn list_execle(path: *const c_char, saved: Strings, stack: Strings) -> c_int {
    // SAFETY: as execle(3): the environment follows the terminating null.
    unsafe {
        let list = List { saved, stack };
        list.gather(|arguments, next| execve(path, arguments, list.get(next).cast()))
    }
}

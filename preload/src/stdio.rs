//! stdio on streams. The C library's FILE reads and writes its descriptor by itself, past the exported symbols; on an
//! accelerated socket it gets a FILE whose reads and writes are ours (fopencookie), and fileno still tells the number.

use crate::slots::{List, Slot};
use crate::{hooks, real};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use shunt_calls::libc;
use shunt_sys::{calls, check, syscall, Errno};
use shunt_table::table;
use shunt_table::table::Kind;
use shunt_table::upcalls::operations;

#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> isize,
    write: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> isize,
    seek: unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut c_void;
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, list: *mut c_void) -> c_int;
    fn free(memory: *mut c_void);
    fn setvbuf(stream: *mut c_void, buffer: *mut c_char, mode: c_int, size: usize) -> c_int;
    fn __fpending(stream: *mut c_void) -> usize;
    fn __fpurge(stream: *mut c_void);
    fn fflush_unlocked(stream: *mut c_void) -> c_int;
    fn clearerr_unlocked(stream: *mut c_void);
    fn flockfile(stream: *mut c_void);
    fn funlockfile(stream: *mut c_void);
}

/// FILEs of ours.
static OURS: List = List::new();

/// What a FILE of ours carries: a standard one its number, any other its slot.
fn descriptor_of(cookie: *mut c_void) -> c_int {
    let number = cookie as usize;
    if number < STANDARD.len() {
        return number as c_int;
    }
    // SAFETY: a slot of the list, which is never given back.
    unsafe { &*cookie.cast::<Slot>() }.fd()
}

unsafe extern "C" fn cookie_read(cookie: *mut c_void, data: *mut c_void, length: usize) -> isize {
    // SAFETY: stdio's buffer.
    unsafe { hooks::read(descriptor_of(cookie), data, length) }
}

unsafe extern "C" fn cookie_write(cookie: *mut c_void, data: *const c_void, length: usize) -> isize {
    // SAFETY: stdio's buffer.
    unsafe { write_all(descriptor_of(cookie), data, length) }
}

/// All or an error: stdio takes a short count for one.
unsafe fn write_all(fd: c_int, data: *const c_void, length: usize) -> isize {
    let mut done = 0;
    while done < length {
        // SAFETY: the caller's buffer.
        let n = unsafe { hooks::write(fd, data.add(done), length - done) };
        if n <= 0 {
            break;
        }
        done += n as usize;
    }
    done as isize
}

/// ESPIPE for a socket; a FILE that was reopened may be a file.
unsafe extern "C" fn cookie_seek(cookie: *mut c_void, offset: *mut i64, whence: c_int) -> c_int {
    // SAFETY: stdio's variable.
    unsafe {
        match check(syscall!(libc::SYS_lseek, descriptor_of(cookie), *offset, whence)) {
            Ok(place) => {
                *offset = place as i64;
                0
            }
            Err(error) => {
                crate::set_errno(error.0);
                -1
            }
        }
    }
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    let fd = descriptor_of(cookie);
    // SAFETY: the slot of this very FILE, of whose descriptor there may be others; close(2).
    unsafe {
        OURS.leave(&*cookie.cast::<Slot>());
        hooks::close(fd)
    }
}

/// The end of a standard FILE of ours.
unsafe extern "C" fn standard_close(cookie: *mut c_void) -> c_int {
    let fd = cookie as usize as c_int;
    STANDARD[fd as usize].store(core::ptr::null_mut(), Ordering::Release);
    // SAFETY: as close(2).
    unsafe { hooks::close(fd) }
}

/// A FILE of ours, which carries `cookie` and whose end is `close`.
unsafe fn make(cookie: *mut c_void, mode: *const c_char, close: unsafe extern "C" fn(*mut c_void) -> c_int) -> *mut c_void {
    let functions = Functions { read: cookie_read, write: cookie_write, seek: cookie_seek, close };
    // SAFETY: the functions have the types that fopencookie(3) asks for.
    unsafe { fopencookie(cookie, mode, functions) }
}

/// A FILE of ours for `fd`; null without memory.
unsafe fn open(fd: c_int, mode: *const c_char) -> *mut c_void {
    let Some(slot) = OURS.reserve(fd) else { return core::ptr::null_mut() };
    // SAFETY: passed on.
    let stream = unsafe { make(core::ptr::from_ref(slot).cast_mut().cast(), mode, cookie_close) };
    if stream.is_null() {
        OURS.forsake(slot);
    } else {
        OURS.enter(slot, stream, 0);
    }
    stream
}

/// At the end of the process: sends what waits in FILEs on sockets, and before it what waits in standard output, which
/// others may expect when they see a connection end. Without the FILEs' locks, as the C library does at the end.
pub fn flush() {
    // SAFETY: FILEs that have not been closed; the variable is the C library's.
    unsafe {
        let standard = variable(1);
        let standard = if standard.is_null() { core::ptr::null_mut() } else { *standard };
        let opened = OURS.entered().map(Slot::stream);
        let ours = STANDARD.iter().map(|stream| stream.load(Ordering::Acquire)).chain(opened);
        for stream in core::iter::once(standard).chain(ours) {
            if !stream.is_null() && __fpending(stream) > 0 {
                fflush_unlocked(stream);
            }
        }
    }
}

fn number(stream: *mut c_void) -> Option<c_int> {
    if stream.is_null() {
        return None;
    }
    if let Some(fd) = STANDARD.iter().position(|ours| ours.load(Ordering::Acquire) == stream) {
        return Some(fd as c_int);
    }
    OURS.find(stream).map(Slot::fd)
}

#[no_mangle]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    // A socket that is not connected yet may become a stream later.
    let ours = matches!(table::get(fd).kind(), Kind::Stream | Kind::Tcp | Kind::Datagram);
    // SAFETY: as fdopen(3).
    unsafe {
        if ours {
            let stream = open(fd, mode);
            if !stream.is_null() {
                return stream;
            }
        }
        real::fdopen(fd, mode)
    }
}

/// How open(2) opens for a mode of fopen(3).
unsafe fn flags_of(mode: *const c_char) -> c_int {
    // SAFETY: a C string.
    let mode = unsafe { core::ffi::CStr::from_ptr(mode) }.to_bytes();
    let both = mode.contains(&b'+');
    let kind = match mode.first() {
        Some(b'r') => 0,
        Some(b'w') => libc::O_CREAT | libc::O_TRUNC,
        _ => libc::O_CREAT | libc::O_APPEND,
    };
    let access = match (both, mode.first()) {
        (true, _) => libc::O_RDWR,
        (false, Some(b'r')) => libc::O_RDONLY,
        _ => libc::O_WRONLY,
    };
    kind | access | if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 } | if mode.contains(&b'x') { libc::O_EXCL } else { 0 }
}

/// Bits of `_flags`, the first word of the C library's FILE (struct_FILE.h, libio.h): they have not changed since there were
/// inline functions that looked at them.
const NO_READS: c_int = 0x4;
const NO_WRITES: c_int = 0x8;
const IS_APPENDING: c_int = 0x1000;

/// What a FILE of ours has is sent or forgotten, and its direction is that of `mode` (freopen(3)).
unsafe fn begin_anew(stream: *mut c_void, mode: *const c_char) {
    // SAFETY: a FILE, whose lock is held.
    unsafe {
        fflush_unlocked(stream);
        __fpurge(stream);
        clearerr_unlocked(stream);
        let opens = flags_of(mode);
        let forbids = match opens & libc::O_ACCMODE {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        let appends = if opens & libc::O_APPEND != 0 { IS_APPENDING } else { 0 };
        let flags = stream.cast::<c_int>();
        *flags = *flags & !(NO_READS | NO_WRITES | IS_APPENDING) | forbids | appends;
    }
}

/// freopen(3). The C library cannot reopen a FILE of ours, and closes a descriptor past us.
#[no_mangle]
unsafe extern "C" fn freopen(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void {
    // SAFETY: as freopen(3).
    unsafe {
        let Some(fd) = number(stream) else {
            let fd = real::fileno(stream);
            if fd >= 0 && !matches!(table::get(fd).kind(), Kind::Foreign | Kind::Private) {
                operations::closing(fd);
                if fd < 3 {
                    standard(fd);
                }
            }
            return real::freopen(path, mode, stream);
        };
        flockfile(stream);
        begin_anew(stream, mode);
        funlockfile(stream);
        if fd < 3 && STANDARD[fd as usize].load(Ordering::Acquire) == stream {
            let original = ORIGINAL[fd as usize].load(Ordering::Acquire);
            if !original.is_null() {
                operations::closing(fd);
                standard(fd);
                return real::freopen(path, mode, original);
            }
        }
        // The FILE stays one of ours, whose reads and writes go to whatever lies at its number.
        let opened = if path.is_null() {
            Err(Errno(libc::ENXIO)) // a socket cannot be opened again
        } else {
            calls::openat(libc::AT_FDCWD, path.cast(), flags_of(mode) & !libc::O_CLOEXEC, 0o666)
        };
        match opened {
            Ok(opened) => {
                hooks::dup3(opened, fd, flags_of(mode) & libc::O_CLOEXEC);
                let _ = calls::close(opened);
                stream
            }
            Err(error) => {
                real::fclose(stream);
                crate::set_errno(error.0);
                core::ptr::null_mut()
            }
        }
    }
}

#[no_mangle]
unsafe extern "C" fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void {
    // SAFETY: as freopen(3); there is one kind of offset here.
    unsafe { freopen(path, mode, stream) }
}

#[no_mangle]
unsafe extern "C" fn fileno(stream: *mut c_void) -> c_int {
    // SAFETY: as fileno(3).
    number(stream).unwrap_or_else(|| unsafe { real::fileno(stream) })
}

#[no_mangle]
unsafe extern "C" fn fileno_unlocked(stream: *mut c_void) -> c_int {
    // SAFETY: as fileno_unlocked(3).
    number(stream).unwrap_or_else(|| unsafe { real::fileno_unlocked(stream) })
}

/// Whether the C library's own read and write would pass by what shared memory holds.
fn ours(fd: c_int) -> bool {
    table::get(fd).kind() == Kind::Stream || shunt_inbox::datagram::is(fd)
}

/// Formats first, then sends.
unsafe fn print(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int {
    let mut text = core::ptr::null_mut();
    // SAFETY: as vasprintf(3).
    unsafe {
        let length = vasprintf(&mut text, format, list);
        if length < 0 {
            return -1;
        }
        let sent = write_all(fd, text.cast(), length as usize);
        free(text.cast());
        if sent == length as isize {
            length
        } else {
            -1
        }
    }
}

#[no_mangle]
unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int {
    // SAFETY: as vdprintf(3).
    unsafe {
        match ours(fd) {
            true => print(fd, format, list),
            false => real::vdprintf(fd, format, list),
        }
    }
}

#[no_mangle]
unsafe extern "C" fn __vdprintf_chk(fd: c_int, level: c_int, format: *const c_char, list: *mut c_void) -> c_int {
    // SAFETY: as vdprintf(3).
    unsafe {
        match ours(fd) {
            true => print(fd, format, list),
            false => real::__vdprintf_chk(fd, level, format, list),
        }
    }
}

/// dprintf and __dprintf_chk: build a va_list (System V x86-64 ABI, figure 3.34) and call the v-forms.
macro_rules! print_call {
    ($name:ident, $named:literal, $register:literal, $target:ident) => {
        #[no_mangle]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "sub rsp, 216",
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                "mov dword ptr [rsp], {named} * 8",
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $register, ", rsp"),
                "call {target}",
                "add rsp, 216",
                "ret",
                named = const $named,
                target = sym $target,
            )
        }
    };
}
print_call!(dprintf, 2, "rdx", vdprintf);
print_call!(__dprintf_chk, 3, "rcx", __vdprintf_chk);

/// stdin, stdout and stderr as the C library made them, while ours stand in their places.
static ORIGINAL: [AtomicPtr<c_void>; 3] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 3];

/// FILEs of ours to stand there. They are made at the start, because dup2 must not allocate: a handler may call it, and so may
/// the child of a process whose other threads held the allocator's locks at the fork. Null: the program has closed it.
static STANDARD: [AtomicPtr<c_void>; 3] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 3];

fn variable(fd: c_int) -> *mut *mut c_void {
    VARIABLES[fd.clamp(0, 2) as usize].load(Ordering::Acquire)
}

/// Where the C library's variables are, looked up at the start: dlsym takes the loader's lock.
static VARIABLES: [AtomicPtr<*mut c_void>; 3] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 3];

/// A program that begins with a connection as standard input or output (inetd).
pub fn start() {
    if !shunt_table::global::options().accelerate {
        return;
    }
    for (place, name) in VARIABLES.iter().zip([&b"stdin\0"[..], b"stdout\0", b"stderr\0"]) {
        // SAFETY: NUL-terminated.
        place.store(unsafe { real::find(name) }.cast(), Ordering::Release);
    }
    for (fd, place) in (0..).zip(&STANDARD) {
        let mode = if fd == 0 { c"r" } else { c"w" };
        // SAFETY: as for `make`; stderr is unbuffered (_IONBF).
        unsafe {
            let stream = make(fd as usize as *mut c_void, mode.as_ptr(), standard_close);
            if fd == 2 && !stream.is_null() {
                setvbuf(stream, core::ptr::null_mut(), 2, 0);
            }
            place.store(stream, Ordering::Release);
        }
        if table::get(fd).kind() == Kind::Stream {
            standard(fd);
        }
    }
}

/// Descriptor `fd` (0 to 2) is another file now: its FILE follows if a stream is concerned.
pub fn standard(fd: c_int) {
    // SAFETY: the C library's variables, which programs may assign as well.
    unsafe {
        let place = variable(fd);
        if place.is_null() {
            return;
        }
        let original = &ORIGINAL[fd as usize];
        let standing = STANDARD[fd as usize].load(Ordering::Acquire);
        if ours(fd) {
            if number(*place) != Some(fd) && !standing.is_null() {
                let _ = original.compare_exchange(core::ptr::null_mut(), *place, Ordering::AcqRel, Ordering::Relaxed);
                *place = standing;
            }
        } else if !original.load(Ordering::Acquire).is_null() && !standing.is_null() && *place == standing {
            *place = original.load(Ordering::Acquire);
        }
    }
}

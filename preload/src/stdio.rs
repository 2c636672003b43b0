//! stdio on streams. The C library's FILE reads and writes its descriptor by itself, past the exported symbols; on an
//! accelerated socket it gets a FILE whose reads and writes are ours (fopencookie), and fileno still tells the number.

use crate::standard::{follow, number, ours, FILES};
use crate::{hooks, loader, real};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;
use shunt_calls::libc;
use shunt_conventions::files::Slot;
use shunt_conventions::modes;
use shunt_pipes::kept_pipes;
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
    fn __fpurge(stream: *mut c_void);
    fn fflush_unlocked(stream: *mut c_void) -> c_int;
    fn clearerr_unlocked(stream: *mut c_void);
    fn flockfile(stream: *mut c_void);
    fn funlockfile(stream: *mut c_void);
}

/// What a FILE of ours carries: a standard one its number, any other its slot.
fn descriptor_of(cookie: *mut c_void) -> c_int {
    let number = cookie as usize;
    if number < FILES.standing.len() {
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
                crate::errno::set_errno(error.0);
                -1
            }
        }
    }
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    let fd = descriptor_of(cookie);
    // SAFETY: the slot of this very FILE, of whose descriptor there may be others; close(2).
    unsafe {
        FILES.opened.leave(&*cookie.cast::<Slot>());
        hooks::close(fd)
    }
}

/// The end of a standard FILE of ours.
unsafe extern "C" fn standard_close(cookie: *mut c_void) -> c_int {
    let fd = cookie as usize as c_int;
    FILES.standing[fd as usize].store(core::ptr::null_mut(), Ordering::Release);
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
    let Some(slot) = FILES.opened.reserve(fd) else { return core::ptr::null_mut() };
    // SAFETY: passed on.
    let stream = unsafe { make(core::ptr::from_ref(slot).cast_mut().cast(), mode, cookie_close) };
    if stream.is_null() {
        FILES.opened.forsake(slot);
    } else {
        FILES.opened.enter(slot, stream, 0);
    }
    stream
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

/// How open(2) opens for a mode of fopen(3). `None`: it is none.
unsafe fn flags_of(mode: *const c_char) -> Option<c_int> {
    // SAFETY: a C string.
    modes::open_flags(unsafe { core::ffi::CStr::from_ptr(mode) }.to_bytes())
}

/// What a FILE of ours has is sent or forgotten, and its direction is that of a file opened with `opens` (freopen(3)).
unsafe fn begin_anew(stream: *mut c_void, opens: Option<c_int>) {
    // SAFETY: a FILE, whose lock is held.
    unsafe {
        fflush_unlocked(stream);
        __fpurge(stream);
        clearerr_unlocked(stream);
        let flags = stream.cast::<c_int>();
        *flags = opens.map_or(*flags, |opens| modes::directed(*flags, opens));
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
                    follow(fd);
                }
            }
            let stream = real::freopen(path, mode, stream);
            if !stream.is_null() && kept_pipes::are_any() {
                kept_pipes::opened(real::fileno(stream));
            }
            return stream;
        };
        let flags = flags_of(mode);
        flockfile(stream);
        begin_anew(stream, flags);
        funlockfile(stream);
        if fd < 3 && FILES.standing[fd as usize].load(Ordering::Acquire) == stream {
            let original = FILES.original[fd as usize].load(Ordering::Acquire);
            if !original.is_null() {
                operations::closing(fd);
                follow(fd);
                return real::freopen(path, mode, original);
            }
        }
        // The FILE stays one of ours, whose reads and writes go to whatever lies at its number.
        let opened = match flags {
            None => Err(Errno(libc::EINVAL)),
            Some(_) if path.is_null() => Err(Errno(libc::ENXIO)), // a socket cannot be opened again
            Some(flags) => calls::openat(libc::AT_FDCWD, path.cast(), flags & !libc::O_CLOEXEC, 0o666).map(|fd| (fd, flags)),
        };
        match opened {
            Ok((opened, flags)) => {
                kept_pipes::opened(opened);
                hooks::dup3(opened, fd, flags & libc::O_CLOEXEC);
                let _ = calls::close(opened);
                stream
            }
            Err(error) => {
                real::fclose(stream);
                crate::errno::set_errno(error.0);
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

/// A program that begins with a connection as standard input or output (inetd).
pub fn start() {
    if !shunt_table::global::options().accelerate {
        return;
    }
    for (place, name) in FILES.variables.iter().zip([&b"stdin\0"[..], b"stdout\0", b"stderr\0"]) {
        // SAFETY: NUL-terminated.
        place.store(unsafe { loader::find(name) }.cast(), Ordering::Release);
    }
    for (fd, place) in (0..).zip(&FILES.standing) {
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
            follow(fd);
        }
    }
}

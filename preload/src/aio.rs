//! POSIX AIO (aio(7)): threads of the C library read and write descriptors past the hooks, so what they are given must be
//! the kernel's.
//!
//! A socket with an inbox keeps what lies there when that happens. A read that finds something there is done at once, and told as the
//! C library tells of those that its threads have done.

use crate::errno::set_errno;
use crate::{datagrams, loader, real};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use shunt_calls::libc;
use shunt_handover::{convert_to_kernel, uring};
use shunt_inbox::datagram;
use shunt_inbox::datagram::Datagram;
use shunt_sys::{calls, mapping, syscall, user};

/// struct aiocb of the C library (aio.h), as far as it goes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    fd: c_int,
    operation: c_int,
    priority: c_int,
    buffer: *mut c_void,
    length: usize,
    event: Event,
    next: usize,
    absolute_priority: c_int,
    policy: c_int,
    error: c_int,
    result: isize,
}
const _: () = assert!(core::mem::offset_of!(Request, event) == 32 && core::mem::offset_of!(Request, result) == 120);

/// struct sigevent of the C library (sigevent(7)).
#[repr(C)]
#[derive(Clone, Copy)]
struct Event {
    value: usize,
    signal: c_int,
    notify: c_int,
    function: usize,
    attributes: *const c_void,
    rest: [u64; 4],
}
const _: () = assert!(core::mem::size_of::<Event>() == 64);

const SIGEV_SIGNAL: c_int = 0;
const SIGEV_THREAD: c_int = 2;
const LIO_WAIT: c_int = 0;
const LIO_READ: c_int = 0;
const LIO_NOP: c_int = 2;

/// AIO_PRIO_DELTA_MAX of bits/local_lim.h.
const HIGHEST_PRIORITY: c_int = 20;

/// What becomes of a request.
#[derive(PartialEq)]
enum Fate {
    /// The C library's.
    Theirs,
    /// It is done.
    Done,
    /// It cannot be, and errno tells.
    Refused,
}

/// The descriptor of a request is the kernel's from now on.
unsafe fn prepare(request: *mut c_void, reads: bool) -> Fate {
    // A request that faults is the C library's to find.
    // SAFETY: the program's structure; aio_fildes is its first field.
    let Ok(fd) = (unsafe { user::read(request.cast::<c_int>()) }) else { return Fate::Theirs };
    if let Some(socket) = shunt_table::table::find::<Datagram>(fd) {
        datagram::options::plain(socket, datagram::pin::ELSEWHERE);
        // SAFETY: as above.
        return if reads && unsafe { read_now(fd, socket, request.cast()) } { Fate::Done } else { Fate::Theirs };
    }
    let Some(socket) = shunt_stream::socket::stream(fd) else { return Fate::Theirs };
    match convert_to_kernel::carry(fd, socket) {
        Ok(()) => Fate::Theirs,
        Err(error) => {
            set_errno(error.0);
            Fate::Refused
        }
    }
}

/// Reads what lies in the inbox, where nothing new comes any more. False: nothing does.
unsafe fn read_now(fd: c_int, socket: &'static Datagram, place: *mut Request) -> bool {
    // SAFETY: the program's structure.
    let Ok(request) = (unsafe { user::read(place) }) else { return false };
    if !socket.has_waiting() || request.length == 0 || !(0..=HIGHEST_PRIORITY).contains(&request.priority) {
        return false;
    }
    let nobody = core::ptr::null_mut();
    // SAFETY: the program's buffer, which may fault; its structure, which was read above.
    unsafe {
        let got = datagrams::receive_from(
            fd,
            socket,
            request.buffer,
            request.length,
            libc::MSG_DONTWAIT,
            nobody,
            core::ptr::null_mut(),
            || real::recv(fd, request.buffer, request.length, libc::MSG_DONTWAIT),
        );
        let error = if got < 0 { crate::errno::errno() } else { 0 };
        if error == libc::EAGAIN {
            return false;
        }
        (*place).result = got;
        (&raw mut (*place).error).write_volatile(error);
    }
    true
}

/// Tells that a request is done, as its program wants it.
unsafe fn tell(event: &Event) {
    match event.notify {
        SIGEV_SIGNAL => {
            #[repr(C, align(8))]
            struct Information {
                signal: c_int,
                error: c_int,
                code: c_int,
                padding: c_int,
                process: c_int,
                user: u32,
                value: usize,
                rest: [u64; 12],
            }
            const SI_ASYNCIO: c_int = -4;
            let (process, user) = (calls::getpid(), calls::getuid());
            let information = Information {
                signal: event.signal,
                error: 0,
                code: SI_ASYNCIO,
                padding: 0,
                process: process as c_int,
                user,
                value: event.value,
                rest: [0; 12],
            };
            // SAFETY: a structure of our own, of the size of siginfo_t.
            unsafe { syscall!(libc::SYS_rt_sigqueueinfo, process, event.signal, &raw const information) };
        }
        // SAFETY: the program's function and attributes.
        SIGEV_THREAD => unsafe { tell_by_thread(event) },
        _ => {}
    }
}

/// Functions that are to be called by threads of their own: function and value.
static CALLS: [[AtomicUsize; 2]; 64] = [const { [const { AtomicUsize::new(0) }; 2] }; 64];

unsafe extern "C" fn call(place: *mut c_void) -> *mut c_void {
    // SAFETY: what `tell_by_thread` passes; a function of the program's.
    unsafe {
        let place = &*place.cast::<[AtomicUsize; 2]>();
        let value = place[1].load(Ordering::Relaxed);
        let function: extern "C" fn(usize) = core::mem::transmute(place[0].swap(0, Ordering::AcqRel));
        function(value);
    }
    core::ptr::null_mut()
}

unsafe fn tell_by_thread(event: &Event) {
    type Begin =
        unsafe extern "C" fn(*mut usize, *const c_void, unsafe extern "C" fn(*mut c_void) -> *mut c_void, *mut c_void) -> c_int;
    type Detach = unsafe extern "C" fn(usize) -> c_int;
    // SAFETY: the C library's functions, with their prototypes.
    unsafe {
        let (begin, detach) = (loader::find(b"pthread_create\0"), loader::find(b"pthread_detach\0"));
        let taken =
            |place: &&[AtomicUsize; 2]| place[0].compare_exchange(0, event.function, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let Some(place) = CALLS.iter().find(taken) else { return };
        place[1].store(event.value, Ordering::Relaxed);
        let mut thread = 0;
        let argument = place.as_ptr().cast_mut().cast::<c_void>();
        if begin.is_null()
            || core::mem::transmute::<*mut c_void, Begin>(begin)(&mut thread, event.attributes, call, argument) != 0
        {
            place[0].store(0, Ordering::Release);
        } else if event.attributes.is_null() && !detach.is_null() {
            let _ = core::mem::transmute::<*mut c_void, Detach>(detach)(thread);
        }
    }
}

macro_rules! requests {
    ($reads:literal: $($name:ident),*) => {
        $(
            #[no_mangle]
            unsafe extern "C" fn $name(request: *mut c_void) -> c_int {
                // SAFETY: as the function of this name.
                unsafe {
                    match prepare(request, $reads) {
                        Fate::Theirs => real::$name(request),
                        Fate::Refused => -1,
                        Fate::Done => {
                            tell(&(*request.cast::<Request>()).event);
                            0
                        }
                    }
                }
            }
        )*
    };
}
macro_rules! reads {
    ($($name:ident),*) => { requests!(true: $($name),*); };
}
macro_rules! writes {
    ($($name:ident),*) => { requests!(false: $($name),*); };
}
reads!(aio_read, aio_read64);
writes!(aio_write, aio_write64);

type Listing = unsafe fn(c_int, *const *mut c_void, c_int, *mut c_void) -> c_int;

/// lio_listio(3): the C library sees those requests that are not done yet. (It tells of the whole list only.)
unsafe fn list(listing: Listing, mode: c_int, list: *const *mut c_void, count: c_int, event: *mut c_void) -> c_int {
    // SAFETY: as lio_listio(3); requests may be null, and whatever faults is the C library's to find.
    unsafe {
        let mut rest = core::ptr::null_mut::<*mut c_void>();
        let length = count.max(0) as usize * core::mem::size_of::<*mut c_void>();
        let mut failed = false;
        for i in 0..count.max(0) as usize {
            let Ok(request) = user::read(list.wrapping_add(i)) else { continue };
            let operation =
                |request: *mut c_void| user::read(&raw const (*request.cast::<Request>()).operation).unwrap_or(LIO_NOP);
            if request.is_null() || operation(request) == LIO_NOP {
                continue;
            }
            match prepare(request, operation(request) == LIO_READ) {
                Fate::Theirs => continue,
                Fate::Refused => return -1,
                Fate::Done => failed |= (*request.cast::<Request>()).error != 0,
            }
            if rest.is_null() {
                let Ok(room) = mapping::reserve(length) else {
                    set_errno(libc::EAGAIN);
                    return -1;
                };
                rest = room.cast();
                core::ptr::copy_nonoverlapping(list, rest, count as usize);
            }
            rest.add(i).write(core::ptr::null_mut());
        }
        if rest.is_null() {
            return listing(mode, list, count, event);
        }
        let result = listing(mode, rest, count, event);
        let _ = calls::munmap(rest.cast(), length);
        if result == 0 && failed && mode == LIO_WAIT {
            set_errno(libc::EIO);
            return -1;
        }
        result
    }
}

macro_rules! lists {
    ($($name:ident),*) => {
        $(
            #[no_mangle]
            unsafe extern "C" fn $name(mode: c_int, requests: *const *mut c_void, count: c_int, event: *mut c_void) -> c_int {
                // SAFETY: as the function of this name.
                unsafe { list(real::$name, mode, requests, count, event) }
            }
        )*
    };
}
lists!(lio_listio, lio_listio64);

/// Where struct iocb of the kernel (linux/aio_abi.h) has its descriptor.
const IOCB_DESCRIPTOR: usize = 20;

/// io_submit(2), called by number with an array of `count` requests at `list`: what they name is the kernel's from now on.
///
/// # Errors
/// EAGAIN: it cannot be made so.
///
/// # Safety
/// As the call itself; the addresses may fault, which is the kernel's to say.
pub unsafe fn submitted(count: usize, list: usize) -> shunt_sys::Result<()> {
    let list = list as *const usize;
    for i in 0..count {
        // SAFETY: promised by the caller.
        let named = unsafe {
            let Ok(request) = user::read(list.wrapping_add(i)) else { break };
            user::read(request.wrapping_add(IOCB_DESCRIPTOR) as *const c_int)
        };
        let Ok(fd) = named else { break };
        uring::settle(fd)?;
    }
    Ok(())
}

//! liburing: the functions through which a program gives requests to its rings. Each request is looked at before the
//! kernel sees it, and what of ours it names is made the kernel's ([`shunt_handover::uring`]).
//!
//! A program fills requests in memory that it does not share yet; the library publishes them when one of these
//! functions is called. The layout of `struct io_uring` is the library's binary interface (liburing.so.2): its inline
//! functions, compiled into programs, depend on it.

use crate::errno::set_errno;
use crate::loader;
use core::ffi::{c_int, c_uint, c_void, CStr};
use shunt_calls::libc::{self, cmsghdr, msghdr};
use shunt_handover::uring;
use shunt_sys::{user, Errno, Result};
use shunt_table::global;

/// The beginning of `struct io_uring` (liburing.h): `struct io_uring_sq`, `struct io_uring_cq`, and what follows.
#[repr(C)]
struct Ring {
    /// khead, ktail.
    kernel: [*const c_uint; 2],
    mask: *const c_uint,
    others: [*const c_uint; 4],
    requests: *const Request,
    /// Requests in `head..tail` are filled, and not published.
    head: c_uint,
    tail: c_uint,
    size: usize,
    start: *const c_void,
    unused: [c_uint; 4],
    completion: [u64; 11],
    flags: c_uint,
    fd: c_int,
}
const _: () = assert!(core::mem::offset_of!(Ring, head) == 64 && core::mem::offset_of!(Ring, flags) == 192);

/// `struct io_uring_sqe` (linux/io_uring.h).
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    operation: u8,
    flags: u8,
    priority: u16,
    fd: c_int,
    offset: u64,
    address: u64,
    length: u32,
    more_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    /// Also file_index.
    other_fd: c_int,
    padding: [u64; 2],
}
const _: () = assert!(core::mem::size_of::<Request>() == 64);

/// Requests of 128 bytes (io_uring_setup(2)).
const SETUP_SQE128: c_uint = 1 << 10;
/// `fd` is an index of a registered file, which was looked at when it was registered.
const FIXED_FILE: u8 = 1;
/// The same of `splice_fd_in`.
const SPLICE_FIXED: u32 = 1 << 31;

/// Operations (enum io_uring_op) that need a look of their own.
mod operation {
    pub const SENDMSG: u8 = 9;
    pub const CLOSE: u8 = 19;
    pub const FILES_UPDATE: u8 = 20;
    pub const EPOLL_CTL: u8 = 29;
    pub const SPLICE: u8 = 30;
    pub const TEE: u8 = 33;
    pub const SENDMSG_ZC: u8 = 48;
    /// Those whose `fd` is no open file to work on: nothing, times, other requests, directories, domains, counts.
    pub const WITHOUT: [u8; 25] =
        [0, 7, 11, 12, 14, 15, 18, 21, 28, 31, 32, 35, 36, 37, 38, 39, 40, 42, 44, 45, 50, 51, 52, 53, 62];
}

/// io_uring_register(2)'s operations that name files.
const REGISTER_FILES: [c_uint; 4] = [2, 6, 13, 14];

/// Looks at what `ring` is about to be given.
///
/// # Safety
/// `ring` is one of the library's.
unsafe fn prepare(ring: *const c_void) -> Result<()> {
    if !global::ready() {
        return Ok(());
    }
    // SAFETY: the library is about to read the same memory.
    unsafe {
        let ring = ring.cast::<Ring>();
        let (head, tail) = ((*ring).head, (*ring).tail);
        if head == tail {
            return Ok(());
        }
        let (mask, shift) = (*(*ring).mask, u32::from((*ring).flags & SETUP_SQE128 != 0));
        // More than the ring holds there cannot be.
        for i in 0..tail.wrapping_sub(head).min(mask.saturating_add(1)) {
            let place = (head.wrapping_add(i) & mask) << shift;
            let place = (*ring).requests.add(place as usize);
            match look(&place.read_volatile()) {
                // A number of the library's own: to the program, and so to the kernel, there is nothing to close.
                Err(Errno(libc::EBADF)) => (*place.cast_mut()).fd = -1,
                looked => looked?,
            }
        }
        Ok(())
    }
}

unsafe fn look(request: &Request) -> Result<()> {
    let fixed = request.flags & FIXED_FILE != 0;
    // SAFETY: the program's memory, which may fault: that is the kernel's to say.
    unsafe {
        match request.operation {
            operation::CLOSE if request.other_fd == 0 => return uring::closing(request.fd),
            operation::CLOSE => return Ok(()),
            operation::FILES_UPDATE => return files(request.address as *const c_int, request.length),
            operation::EPOLL_CTL => uring::settle(request.offset as c_int)?,
            operation::SPLICE | operation::TEE if request.more_flags & SPLICE_FIXED == 0 => uring::settle(request.other_fd)?,
            operation::SENDMSG | operation::SENDMSG_ZC => rights(request.address as *const msghdr)?,
            other if operation::WITHOUT.contains(&other) => return Ok(()),
            _ => {}
        }
    }
    if fixed {
        Ok(())
    } else {
        uring::settle(request.fd)
    }
}

/// Files that a ring is to keep.
unsafe fn files(list: *const c_int, count: c_uint) -> Result<()> {
    if !global::ready() {
        return Ok(());
    }
    for i in 0..count as usize {
        // SAFETY: the program's memory, which may fault: that is the kernel's to say.
        let Ok(fd) = (unsafe { user::read(list.wrapping_add(i)) }) else { return Ok(()) };
        uring::settle(fd)?;
    }
    Ok(())
}

/// Descriptors that a message passes on.
unsafe fn rights(message: *const msghdr) -> Result<()> {
    // SAFETY: the program's memory, which may fault: that is the kernel's to say.
    unsafe {
        let Ok(message) = user::read(message) else { return Ok(()) };
        let (start, end) = (message.msg_control as usize, message.msg_controllen);
        let header = core::mem::size_of::<cmsghdr>();
        let mut at = 0usize;
        while start != 0 && at.saturating_add(header) <= end {
            let Ok(control) = user::read((start + at) as *const cmsghdr) else { return Ok(()) };
            let length = control.cmsg_len.min(end - at);
            if length < header {
                return Ok(());
            }
            if control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS {
                files((start + at + header) as *const c_int, ((length - header) / 4) as c_uint)?;
            }
            at += (length + 7) & !7;
        }
        Ok(())
    }
}

/// The library's own function, also where a plug-in brought the library along and no other object sees it.
unsafe fn function(name: &CStr) -> *mut c_void {
    // SAFETY: the names end with a NUL; dlopen's prototype.
    unsafe {
        let found = loader::following(name.to_bytes_with_nul());
        let open = if found.is_null() { loader::following(b"dlopen\0") } else { return found };
        if open.is_null() {
            return open;
        }
        let open: unsafe extern "C" fn(*const i8, c_int) -> *mut c_void = core::mem::transmute(open);
        let library = open(c"liburing.so.2".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() {
            library
        } else {
            loader::find_in(library, name.to_bytes_with_nul())
        }
    }
}

/// A function of the library behind a look at what it is given; -errno where that fails, or there is no such function.
macro_rules! behind {
    ($(fn $name:ident ( $($arg:ident : $ty:ty),* ) $look:block)*) => {
        $(
            #[no_mangle]
            unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
                // SAFETY: the program's ring and lists, as the library's function is promised them.
                #[allow(unused_unsafe)]
                let looked: Result<()> = unsafe { $look };
                if let Err(Errno(error)) = looked {
                    return -error;
                }
                // SAFETY: the library's function has this prototype.
                unsafe {
                    let found = function(c_name(concat!(stringify!($name), "\0")));
                    if found.is_null() {
                        return -libc::ENOSYS;
                    }
                    let function: unsafe extern "C" fn($($ty),*) -> c_int = core::mem::transmute(found);
                    function($($arg),*)
                }
            }
        )*
    };
}

const fn c_name(name: &str) -> &CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a name ends with a NUL"),
    }
}

type Entry = *mut *mut c_void;

behind! {
    fn io_uring_submit(ring: *mut c_void) { prepare(ring) }
    fn io_uring_submit_and_get_events(ring: *mut c_void) { prepare(ring) }
    fn io_uring_submit_and_wait(ring: *mut c_void, count: c_uint) { prepare(ring) }
    fn io_uring_submit_and_wait_timeout(ring: *mut c_void, entry: Entry, count: c_uint, time: *mut c_void, mask: *mut c_void) {
        prepare(ring)
    }
    fn io_uring_submit_and_wait_min_timeout(ring: *mut c_void, entry: Entry, count: c_uint, time: *mut c_void, least: c_uint, mask: *mut c_void) {
        prepare(ring)
    }
    fn io_uring_submit_and_wait_reg(ring: *mut c_void, entry: Entry, count: c_uint, index: c_int) { prepare(ring) }
    fn io_uring_wait_cqes(ring: *mut c_void, entry: Entry, count: c_uint, time: *mut c_void, mask: *mut c_void) {
        prepare(ring)
    }
    fn io_uring_wait_cqes_min_timeout(ring: *mut c_void, entry: Entry, count: c_uint, time: *mut c_void, least: c_uint, mask: *mut c_void) {
        prepare(ring)
    }
    fn io_uring_wait_cqe_timeout(ring: *mut c_void, entry: Entry, time: *mut c_void) { prepare(ring) }
    fn io_uring_register_files(ring: *mut c_void, list: *const c_int, count: c_uint) { files(list, count) }
    fn io_uring_register_files_tags(ring: *mut c_void, list: *const c_int, tags: *const u64, count: c_uint) {
        files(list, count)
    }
    fn io_uring_register_files_update(ring: *mut c_void, offset: c_uint, list: *const c_int, count: c_uint) {
        files(list, count)
    }
    fn io_uring_register_files_update_tag(ring: *mut c_void, offset: c_uint, list: *const c_int, tags: *const u64, count: c_uint) {
        files(list, count)
    }
    fn io_uring_enter(fd: c_uint, submit: c_uint, complete: c_uint, flags: c_uint, mask: *mut c_void) { unseen(submit > 0) }
    fn io_uring_enter2(fd: c_uint, submit: c_uint, complete: c_uint, flags: c_uint, mask: *mut c_void, size: usize) {
        unseen(submit > 0)
    }
    fn io_uring_register(fd: c_uint, operation: c_uint, argument: *const c_void, count: c_uint) {
        unseen(REGISTER_FILES.contains(&operation))
    }
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) {
        if global::ready() && !global::options().io_uring_allowed { Err(Errno(libc::ENOSYS)) } else { Ok(()) }
    }
    fn io_uring_close_ring_fd(ring: *mut c_void) { leave(ring) }
}

/// A request that is not looked at may name anything of ours.
fn unseen(there_is_one: bool) -> Result<()> {
    if there_is_one && global::ready() && !global::options().io_uring_allowed {
        uring::everything()
    } else {
        Ok(())
    }
}

/// io_uring_enter and io_uring_register by syscall(2), with its second argument. `None`: the kernel's to answer.
pub unsafe fn by_number(registers: bool, second: c_uint) -> Option<isize> {
    let looked = unseen(if registers { REGISTER_FILES.contains(&second) } else { second > 0 });
    looked.err().map(|Errno(error)| {
        set_errno(error);
        -1
    })
}

unsafe fn leave(ring: *const c_void) -> Result<()> {
    // SAFETY: the library is about to read the same memory.
    uring::gone(unsafe { (*ring.cast::<Ring>()).fd });
    Ok(())
}

/// A function that makes a ring, whose requests are seen from then on.
macro_rules! making {
    ($(fn $name:ident ( $entries:ident, $ring:ident $(, $arg:ident : $ty:ty)* );)*) => {
        $(
            #[no_mangle]
            unsafe extern "C" fn $name($entries: c_uint, $ring: *mut c_void $(, $arg: $ty)*) -> c_int {
                // SAFETY: the library's function has this prototype, and fills the ring if it succeeds.
                unsafe {
                    let found = function(c_name(concat!(stringify!($name), "\0")));
                    if found.is_null() {
                        return -libc::ENOSYS;
                    }
                    let function: unsafe extern "C" fn(c_uint, *mut c_void $(, $ty)*) -> c_int = core::mem::transmute(found);
                    let result = function($entries, $ring $(, $arg)*);
                    if result >= 0 {
                        uring::seen((*$ring.cast::<Ring>()).fd);
                    }
                    result
                }
            }
        )*
    };
}
making! {
    fn io_uring_queue_init(entries, ring, flags: c_uint);
    fn io_uring_queue_init_params(entries, ring, parameters: *mut c_void);
    fn io_uring_queue_init_mem(entries, ring, parameters: *mut c_void, memory: *mut c_void, size: usize);
}

#[no_mangle]
unsafe extern "C" fn io_uring_queue_exit(ring: *mut c_void) {
    // SAFETY: as above.
    unsafe {
        let _ = leave(ring);
        let found = function(c"io_uring_queue_exit");
        if !found.is_null() {
            let function: unsafe extern "C" fn(*mut c_void) = core::mem::transmute(found);
            function(ring);
        }
    }
}

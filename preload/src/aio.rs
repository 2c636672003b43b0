//! POSIX AIO (aio(7)): threads of the C library read and write descriptors past the hooks, so what they are given must be
//! the kernel's.

use crate::{real, set_errno};
use core::ffi::{c_int, c_void};
use shunt_sockets::sys::user;
use shunt_sockets::{carried, datagram, table};

/// The descriptor of a request is the kernel's from now on. False: it could not be made so, and errno tells.
unsafe fn prepare(request: *const c_void) -> bool {
    // aio_fildes is the first field of struct aiocb. One that faults is the C library's to find.
    // SAFETY: the program's structure.
    let Ok(fd) = (unsafe { user::read(request.cast::<c_int>()) }) else { return true };
    if let Some(socket) = table::datagram(fd) {
        datagram::options::plain(socket, datagram::pin::ELSEWHERE);
    }
    match table::stream(fd) {
        None => true,
        Some(socket) => match carried::carry(fd, socket) {
            Ok(()) => true,
            Err(error) => {
                set_errno(error.0);
                false
            }
        },
    }
}

macro_rules! requests {
    ($($name:ident),*) => {
        $(
            #[no_mangle]
            unsafe extern "C" fn $name(request: *mut c_void) -> c_int {
                // SAFETY: as the function of this name.
                unsafe {
                    if prepare(request) { real::$name(request) } else { -1 }
                }
            }
        )*
    };
}
requests!(aio_read, aio_read64, aio_write, aio_write64);

macro_rules! lists {
    ($($name:ident),*) => {
        $(
            #[no_mangle]
            unsafe extern "C" fn $name(mode: c_int, list: *const *mut c_void, count: c_int, event: *mut c_void) -> c_int {
                // SAFETY: as the function of this name; requests may be null.
                unsafe {
                    for i in 0..count.max(0) as usize {
                        match user::read(list.wrapping_add(i)) {
                            Ok(request) if !request.is_null() && !prepare(request) => return -1,
                            _ => {}
                        }
                    }
                    real::$name(mode, list, count, event)
                }
            }
        )*
    };
}
lists!(lio_listio, lio_listio64);

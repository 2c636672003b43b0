//! Clients, pending calls, buffers.

use crate::{bytes, number, Last, LAST};
use shunt_rpc::{Address, Buffer, Client, Error, How, Kind, Lent, Options, Pending, Raw};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::mem::transmute;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// `shunt_rpc`.
pub struct Handle {
    client: Client,
    results: Vec<u8>,
    last: Last,
}

/// `shunt_rpc_pending`: it borrows its client, which is closed after it.
pub struct Call {
    pending: Pending<'static, Raw>,
    handle: *mut Handle,
}

/// `shunt_rpc_buffer`: the same.
pub struct Memory {
    buffer: Buffer<'static, u8>,
}

/// `shunt_rpc_options`.
#[repr(C)]
pub struct Choices {
    patience_ms: u32,
    deadline_ms: u32,
    spin_us: u32,
    window: usize,
    room: usize,
}

/// `shunt_rpc_lent`.
#[repr(C)]
pub struct Loan {
    buffer: *mut Memory,
    to_server: c_int,
    from_server: c_int,
}

impl Choices {
    fn options(&self) -> Options {
        let mut options = Options::default();
        if self.patience_ms > 0 {
            options.patience = Duration::from_millis(self.patience_ms.into());
        }
        if self.deadline_ms > 0 {
            options.deadline = Some(Duration::from_millis(self.deadline_ms.into()));
        }
        if self.spin_us > 0 {
            options.spin = Duration::from_micros(self.spin_us.into());
        }
        if self.window > 0 {
            options.window = self.window.max(8192).next_multiple_of(4096).min(1 << 30);
        }
        if self.room > 0 {
            options.room = self.room;
        }
        options
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_connect(
    address: *const c_char,
    program: u32,
    lowest: u32,
    highest: u32,
    options: *const Choices,
    why: *mut c_int,
) -> *mut Handle {
    // SAFETY: the caller's string, and its options or NULL.
    let (address, options) = unsafe { (CStr::from_ptr(address), options.as_ref()) };
    let options = options.map_or_else(Options::default, Choices::options);
    let address = address.to_str().ok().and_then(|text| text.parse::<Address>().ok());
    let (client, number) = match address {
        None => {
            LAST.with_borrow_mut(|last| *last = Last { text: c"no address".into(), ..Last::default() });
            (None, -1)
        }
        Some(address) => match Client::connect(&address, program, lowest..=highest, options) {
            Ok(client) => (Some(client), 0),
            Err(error) => (None, LAST.with_borrow_mut(|last| last.note(&error))),
        },
    };
    if !why.is_null() {
        // SAFETY: the caller's place.
        unsafe { why.write(number) };
    }
    let handle = |client| Box::into_raw(Box::new(Handle { client, results: vec![], last: Last::default() }));
    client.map_or(std::ptr::null_mut(), handle)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_close(client: *mut Handle) {
    if !client.is_null() {
        // SAFETY: made by shunt_rpc_connect, and not used again.
        drop(unsafe { Box::from_raw(client) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_version(client: *mut Handle) -> u32 {
    // SAFETY: the caller's client.
    unsafe { &*client }.client.version()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_text(client: *mut Handle) -> *const c_char {
    // SAFETY: the caller's client, or NULL.
    match unsafe { client.as_ref() } {
        Some(handle) => handle.last.text.as_ptr(),
        None => LAST.with_borrow(|last| last.text.as_ptr()),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_ran(client: *mut Handle) -> c_int {
    // SAFETY: the caller's client.
    unsafe { &*client }.last.ran
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_fault(client: *mut Handle) -> i32 {
    // SAFETY: the caller's client.
    unsafe { &*client }.last.fault
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_buffer_new(client: *mut Handle, size: usize) -> *mut Memory {
    // SAFETY: the caller's client.
    let handle = unsafe { &mut *client };
    match handle.client.buffer::<u8>(size) {
        Ok(buffer) => {
            // SAFETY: freed before its client, says the header.
            let buffer = unsafe { transmute::<Buffer<'_, u8>, Buffer<'static, u8>>(buffer) };
            Box::into_raw(Box::new(Memory { buffer }))
        }
        Err(error) => {
            handle.last.note(&error);
            std::ptr::null_mut()
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_buffer_data(buffer: *mut Memory) -> *mut c_void {
    // SAFETY: the caller's buffer.
    unsafe { &mut *buffer }.buffer.view().as_ptr().cast()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_buffer_name(buffer: *mut Memory, name: *mut u32) {
    // SAFETY: the caller's buffer, and room for two.
    unsafe { name.cast::<[u32; 2]>().write_unaligned((*buffer).buffer.name()) };
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_buffer_free(buffer: *mut Memory) {
    if !buffer.is_null() {
        // SAFETY: made by shunt_rpc_buffer_new, and not used again.
        drop(unsafe { Box::from_raw(buffer) });
    }
}

/// # Safety
/// The caller's of [`shunt_rpc_begin`].
unsafe fn begin(
    handle: &Handle,
    procedure: u16,
    arguments: &[u8],
    most: usize,
    deadline_ms: u32,
    loans: *const Loan,
    count: usize,
) -> Result<Pending<'static, Raw>, Error> {
    let loans = if count == 0 {
        &[]
    } else {
        // SAFETY: so many lie there.
        unsafe { std::slice::from_raw_parts(loans, count) }
    };
    // SAFETY: buffers of this client.
    let lend = |loan: &Loan| unsafe { (*loan.buffer).buffer.lend(loan.to_server != 0, loan.from_server != 0) };
    let lent: Vec<Lent> = loans.iter().map(lend).collect::<Result<_, _>>()?;
    let deadline = (deadline_ms > 0).then(|| Duration::from_millis(deadline_ms.into()));
    let pending = handle.client.begin_raw(procedure, arguments, most, &How { deadline, lent: &lent })?;
    // SAFETY: ended before its client is closed, says the header.
    Ok(unsafe { transmute::<Pending<'_, Raw>, Pending<'static, Raw>>(pending) })
}

/// # Safety
/// The client is the caller's, with room for two results.
unsafe fn end(client: *mut Handle, result: Result<Raw, Error>, results: *mut *const c_void, length: *mut usize) -> c_int {
    // SAFETY: the caller's client.
    let handle = unsafe { &mut *client };
    match result {
        Ok(Raw(bytes)) => {
            handle.results = bytes;
            // SAFETY: the caller's places.
            unsafe {
                results.write(handle.results.as_ptr().cast());
                length.write(handle.results.len());
            }
            0
        }
        Err(error) => handle.last.note(&error),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_call(
    client: *mut Handle,
    procedure: u16,
    arguments: *const u8,
    length: usize,
    most: usize,
    deadline_ms: u32,
    lent: *const Loan,
    lent_count: usize,
    results: *mut *const c_void,
    results_length: *mut usize,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let begun = begin(&*client, procedure, bytes(arguments, length), most, deadline_ms, lent, lent_count);
        end(client, begun.and_then(Pending::wait), results, results_length)
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_not_encoded(client: *mut Handle) -> c_int {
    // SAFETY: the caller's client.
    let handle = unsafe { &mut *client };
    handle.last = Last {
        text: c"the arguments could not be encoded: one is longer than its definition says, or memory is short".into(),
        ..Last::default()
    };
    number(Kind::BadArguments)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_not_decoded(client: *mut Handle) -> c_int {
    // SAFETY: the caller's client.
    let handle = unsafe { &mut *client };
    let text = c"the results could not be decoded: they are not what the definition says, or memory is short".into();
    handle.last = Last { text, ran: 2, ..Last::default() };
    number(Kind::BadResults)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_begin(
    client: *mut Handle,
    procedure: u16,
    arguments: *const u8,
    length: usize,
    most: usize,
    deadline_ms: u32,
    lent: *const Loan,
    lent_count: usize,
    pending: *mut *mut Call,
) -> c_int {
    // SAFETY: the caller's.
    match unsafe { begin(&*client, procedure, bytes(arguments, length), most, deadline_ms, lent, lent_count) } {
        Ok(begun) => {
            // SAFETY: the caller's place.
            unsafe { pending.write(Box::into_raw(Box::new(Call { pending: begun, handle: client }))) };
            0
        }
        // SAFETY: the caller's client.
        Err(error) => unsafe { &mut *client }.last.note(&error),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_is_done(pending: *mut Call) -> c_int {
    // SAFETY: the caller's call.
    c_int::from(unsafe { &*pending }.pending.is_done())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_wait(pending: *mut Call, results: *mut *const c_void, length: *mut usize) -> c_int {
    // SAFETY: made by shunt_rpc_begin, and not used again.
    let Call { pending, handle } = *unsafe { Box::from_raw(pending) };
    // SAFETY: its client lives still.
    unsafe { end(handle, pending.wait(), results, length) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_cancel(pending: *mut Call) {
    if !pending.is_null() {
        // SAFETY: made by shunt_rpc_begin, and not used again.
        drop(unsafe { Box::from_raw(pending) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_tell(client: *mut Handle, procedure: u16, arguments: *const u8, length: usize) -> c_int {
    // SAFETY: the caller's.
    let (handle, arguments) = unsafe { (&mut *client, bytes(arguments, length)) };
    handle.client.tell_raw(procedure, arguments).map_or_else(|error| handle.last.note(&error), |()| 0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_hold(client: *mut Handle, held: c_int) {
    // SAFETY: the caller's client.
    unsafe { &*client }.client.hold(held != 0);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_pending_client(pending: *mut Call) -> *mut Handle {
    // SAFETY: the caller's call.
    unsafe { &*pending }.handle
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_descriptor(client: *mut Handle) -> c_int {
    // SAFETY: the caller's client.
    unsafe { &*client }.client.as_fd().as_raw_fd()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_arm(client: *mut Handle) -> c_int {
    // SAFETY: the caller's client.
    let pause = unsafe { &*client }.client.arm();
    pause.map_or(0, |pause| pause.as_nanos().div_ceil(1_000_000).clamp(1, i32::MAX as u128) as c_int)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_disarm(client: *mut Handle) {
    // SAFETY: the caller's client.
    unsafe { &*client }.client.disarm();
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn shunt_rpc_progress(client: *mut Handle) {
    // SAFETY: the caller's client.
    unsafe { &*client }.client.progress();
}

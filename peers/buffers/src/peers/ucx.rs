//! UCX, the tags of its UCP. A receive is posted before its message comes, so that a large one is read straight to where it goes; a
//! sender has as many buffers as our pool has room for, and waits for one's completion before it writes it again.

use std::ffi::{c_int, c_void};
use std::os::unix::net::UnixStream;
use std::ptr;

use super::{Reader, Receive, Send};
use crate::place::Place;
use crate::{hear, say, Failure, AROUND, SIZES};

extern "C" {
    fn ucx_make(made: *mut *mut c_void) -> c_int;
    fn ucx_address(end: *const c_void, length: *mut usize) -> *const u8;
    fn ucx_join(end: *mut c_void, address: *const u8) -> c_int;
    fn ucx_progress(end: *mut c_void);
    fn ucx_send(end: *mut c_void, bytes: *const u8, length: usize, request: *mut *mut c_void) -> c_int;
    fn ucx_receive(end: *mut c_void, bytes: *mut u8, room: usize, request: *mut *mut c_void) -> c_int;
    fn ucx_check(request: *mut c_void, length: *mut usize) -> c_int;
}

/// Below zero is a failure.
fn checked(result: c_int) -> Result<c_int, Failure> {
    if result < 0 {
        return Err(format!("UCX says {result}").into());
    }
    Ok(result)
}

/// A worker that is joined to the other process's. It lasts as long as the process.
struct End(*mut c_void);

impl End {
    fn joined(told: &mut UnixStream) -> Result<Self, Failure> {
        let mut end = ptr::null_mut();
        let mut length = 0;
        // SAFETY: places for what is made; the address is as long as said, and the worker's.
        let own = unsafe {
            checked(ucx_make(&mut end))?;
            std::slice::from_raw_parts(ucx_address(end, &mut length), length)
        };
        say(told, own)?;
        let other = hear(told)?;
        // SAFETY: an address that another worker made.
        checked(unsafe { ucx_join(end, other.as_ptr()) })?;
        Ok(Self(end))
    }

    fn progress(&self) {
        // SAFETY: the worker is used by this thread alone.
        unsafe { ucx_progress(self.0) }
    }
}

struct Sending {
    end: End,
    buffers: Vec<u8>,
    /// What is under way of each buffer; null if nothing is.
    requests: Vec<*mut c_void>,
    size: usize,
    next: usize,
}

pub fn sender(_: &Place, told: &mut UnixStream) -> Result<Box<dyn Send>, Failure> {
    let end = End::joined(told)?;
    Ok(Box::new(Sending { end, buffers: vec![0; AROUND], requests: Vec::new(), size: 0, next: 0 }))
}

impl Sending {
    fn complete(&mut self, number: usize) -> Result<(), Failure> {
        let request = self.requests[number];
        // SAFETY: it is under way, and forgotten once it is done.
        while !request.is_null() && checked(unsafe { ucx_check(request, ptr::null_mut()) })? != 0 {
            self.end.progress();
        }
        self.requests[number] = ptr::null_mut();
        Ok(())
    }
}

impl Send for Sending {
    fn write(&mut self, size: usize, filling: u8) -> Result<(), Failure> {
        if size != self.size {
            for number in 0..self.requests.len() {
                self.complete(number)?;
            }
            self.requests = vec![ptr::null_mut(); AROUND / size];
            self.size = size;
        }
        self.next = (self.next + 1) % self.requests.len();
        self.complete(self.next)?;
        self.buffers[self.next * size..][..size].fill(filling);
        Ok(())
    }

    fn send(&mut self, size: usize) -> Result<(), Failure> {
        let bytes = &self.buffers[self.next * size..][..size];
        // SAFETY: the buffer is not written until the request is done.
        checked(unsafe { ucx_send(self.end.0, bytes.as_ptr(), size, &mut self.requests[self.next]) })?;
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Failure> {
        self.end.progress();
        Ok(())
    }
}

/// Two buffers: into one of them the next message goes while the other is read.
struct Receiving {
    end: End,
    buffers: [Vec<u8>; 2],
    posted: *mut c_void,
    next: usize,
}

pub fn receiver(_: &Place, told: &mut UnixStream) -> Result<Box<dyn Receive>, Failure> {
    let end = End::joined(told)?;
    let largest = SIZES[SIZES.len() - 1];
    let mut receiving = Receiving { end, buffers: [vec![0; largest], vec![0; largest]], posted: ptr::null_mut(), next: 0 };
    receiving.post()?;
    Ok(Box::new(receiving))
}

impl Receiving {
    fn post(&mut self) -> Result<(), Failure> {
        let buffer = &mut self.buffers[self.next];
        // SAFETY: the buffer is neither read nor moved until the request is done.
        checked(unsafe { ucx_receive(self.end.0, buffer.as_mut_ptr(), buffer.len(), &mut self.posted) })?;
        Ok(())
    }
}

impl Receive for Receiving {
    fn receive(&mut self, _: usize, read: Reader<'_>) -> Result<(), Failure> {
        let mut length = 0;
        // SAFETY: it is under way, and the next one takes its place once it is done.
        while checked(unsafe { ucx_check(self.posted, &mut length) })? != 0 {
            self.end.progress();
        }
        let came = self.next;
        self.next = 1 - came;
        self.post()?;
        read(&self.buffers[came][..length])
    }
}

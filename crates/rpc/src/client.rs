//! A caller: bound to one server, used by one thread at a time.

mod binding;
mod buffer;
mod introduction;
mod options;
mod pending;
mod questions;
mod route;

pub use buffer::Buffer;
pub use options::Options;
pub use pending::Pending;
pub use questions::{describe, list, look, watch, Seen};

use crate::address::Address;
use crate::clock::{nanos, now};
use crate::error::{Error, Kind, Ran};
use crate::reference::{How, Scalar};
use crate::rendezvous::Process;
use crate::xdr::{Encoder, Xdr};
use route::Route;
use std::cell::{RefCell, RefMut};
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Looks of [`Client::progress`] at most: the frames of a full table of calls, and many more.
const LOOKS: u32 = 4096;

/// A caller.
pub struct Client {
    route: RefCell<Route>,
    address: Address,
    program: u32,
    versions: RangeInclusive<u32>,
    options: Options,
}

impl Client {
    /// Binds to the server at an address: one that has the program, in one of these versions; the highest that both have is taken.
    ///
    /// # Errors
    /// `Unreachable`, `Denied`, `Version`, `Busy`, `Protocol`, `System`.
    pub fn connect(address: &Address, program: u32, versions: RangeInclusive<u32>, options: Options) -> Result<Self, Error> {
        let route = RefCell::new(Route::bind(address, &options, program, &versions)?);
        Ok(Self { route, address: address.clone(), program, versions, options })
    }

    /// Binds anew, to the server that has the address now. Calls that are outstanding end as lost.
    ///
    /// # Errors
    /// As [`Client::connect`]; the old binding stays then.
    pub fn reconnect(&mut self) -> Result<(), Error> {
        let route = Route::bind(&self.address, &self.options, self.program, &self.versions)?;
        self.route = RefCell::new(route);
        Ok(())
    }

    #[inline(always)]
    fn route(&self) -> RefMut<'_, Route> {
        self.route.borrow_mut()
    }

    /// The version that both agreed on.
    #[must_use]
    pub fn version(&self) -> u32 {
        match &*self.route() {
            Route::Own(binding) => binding.version,
            Route::Onc(caller) => caller.version,
        }
    }

    /// The server's process, on one host; by SunRPC it is not known.
    #[must_use]
    pub fn server(&self) -> Option<Process> {
        match &*self.route() {
            Route::Own(binding) => binding.process,
            Route::Onc(_) => None,
        }
    }

    /// Calls whose place is not free: outstanding ones, and those taken back whose answer has not come.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        match &*self.route() {
            Route::Own(binding) => binding.calls.outstanding(),
            Route::Onc(caller) => caller.outstanding(),
        }
    }

    /// Answers that belong to no call. A server that keeps to the protocol sends none; by SunRPC, late ones count.
    #[must_use]
    pub fn strangers(&self) -> u64 {
        match &*self.route() {
            Route::Own(binding) => binding.calls.strangers,
            Route::Onc(caller) => caller.strangers,
        }
    }

    /// Calls a procedure, and waits.
    ///
    /// # Errors
    /// [`Error`].
    #[inline]
    pub fn call<A: Xdr, R: Xdr>(&self, procedure: u16, arguments: &A) -> Result<R, Error> {
        let mut route = self.route();
        let Route::Own(binding) = &mut *route else {
            drop(route);
            return self.call_with(procedure, arguments, &How::default());
        };
        let name = binding.begin::<A, R>(procedure, arguments, &How::default(), 0)?;
        let until = binding.deadline.map(|limit| now().saturating_add(limit));
        binding.wait(name, until)?;
        binding.take(name)
    }

    /// The same, with a deadline of its own, or with buffers.
    ///
    /// # Errors
    /// [`Error`].
    pub fn call_with<A: Xdr, R: Xdr>(&self, procedure: u16, arguments: &A, how: &How<'_>) -> Result<R, Error> {
        let pending = self.begin_with(procedure, arguments, how)?;
        pending.wait()
    }

    /// Begins a call, and waits only while the server takes no more of them.
    ///
    /// # Errors
    /// [`Error`]; the call has not begun then.
    #[inline]
    pub fn begin<A: Xdr, R: Xdr>(&self, procedure: u16, arguments: &A) -> Result<Pending<'_, R>, Error> {
        self.begin_with(procedure, arguments, &How::default())
    }

    /// The same, with a deadline of its own, or with buffers.
    ///
    /// # Errors
    /// [`Error`]; the call has not begun then.
    #[inline]
    pub fn begin_with<A: Xdr, R: Xdr>(&self, procedure: u16, arguments: &A, how: &How<'_>) -> Result<Pending<'_, R>, Error> {
        let mut route = self.route();
        let limit = how.deadline.map(nanos).or(route.deadline());
        let until = limit.map(|limit| now().saturating_add(limit));
        let name = match &mut *route {
            Route::Own(binding) => binding.begin::<A, R>(procedure, arguments, how, 0)?,
            Route::Onc(caller) => caller.begin(procedure, &|to| arguments.encode(to), how, false)?,
        };
        Ok(Pending { client: self, name, until, results: PhantomData })
    }

    /// The same, where the bound of results is known to the program and not to the compiler.
    pub(crate) fn begin_bounded<A: Xdr, R: Xdr>(
        &self,
        procedure: u16,
        arguments: &A,
        most: usize,
        how: &How<'_>,
    ) -> Result<Pending<'_, R>, Error> {
        let mut route = self.route();
        let limit = how.deadline.map(nanos).or(route.deadline());
        let until = limit.map(|limit| now().saturating_add(limit));
        let encode = &|to: &mut Encoder<'_>| arguments.encode(to);
        let name = match &mut *route {
            Route::Own(binding) => binding.begin_in_general(procedure, encode, (usize::MAX, most), how, 0)?,
            Route::Onc(caller) => caller.begin(procedure, encode, how, false)?,
        };
        Ok(Pending { client: self, name, until, results: PhantomData })
    }

    /// Calls a procedure of which the caller does not want to hear any more. It runs at most once; whether it did, the caller is
    /// not told.
    ///
    /// # Errors
    /// [`Error`]: it was not sent.
    #[inline]
    pub fn tell<A: Xdr>(&self, procedure: u16, arguments: &A) -> Result<(), Error> {
        match &mut *self.route() {
            Route::Own(binding) => binding.tell(procedure, arguments),
            Route::Onc(caller) => caller.begin(procedure, &|to| arguments.encode(to), &How::default(), true).map(|_| ()),
        }
    }

    /// Calls that are begun in `begin` leave together: by one system call, over devices that take several messages at once and by
    /// SunRPC over TCP. What waits in `begin` for an answer has what was held sent before.
    pub fn together<T>(&self, begin: impl FnOnce() -> T) -> T {
        /// Also where `begin` panics.
        struct Held<'c>(&'c Client);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.hold(false);
            }
        }
        self.hold(true);
        let _held = Held(self);
        begin()
    }

    /// The same in two calls, for code that is no closure: from `hold(true)` to `hold(false)`.
    pub fn hold(&self, held: bool) {
        match &mut *self.route() {
            Route::Own(binding) if binding.is_parents() => {}
            Route::Own(binding) => binding.end.hold(held),
            Route::Onc(caller) => caller.hold(held),
        }
    }

    /// Takes what has come, without waiting. For programs with a loop of their own.
    pub fn progress(&self) {
        let wakers = match &mut *self.route() {
            Route::Own(binding) if binding.is_parents() => return,
            Route::Own(binding) => {
                // Bounded: a server may never stop sending what no call asked for.
                for _ in 0..LOOKS {
                    if binding.dead.is_some() || binding.poll() == 0 {
                        break;
                    }
                }
                binding.look_after();
                std::mem::take(&mut binding.calls.wakers)
            }
            Route::Onc(caller) => {
                caller.poll();
                std::mem::take(&mut caller.wakers)
            }
        };
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Before sleeping on the descriptor, after [`Client::progress`]: how long at most. `None`: something is there already.
    #[must_use]
    pub fn arm(&self) -> Option<Duration> {
        match &mut *self.route() {
            Route::Own(binding) if binding.is_parents() => Some(Duration::MAX),
            Route::Own(binding) => binding.end.arm(),
            Route::Onc(caller) => caller.arm(),
        }
    }

    /// After sleeping; [`Client::progress`] follows.
    pub fn disarm(&self) {
        if let Route::Own(binding) = &mut *self.route() {
            if !binding.is_parents() {
                binding.end.disarm();
            }
        }
    }

    /// Memory of the window for `count` elements, zeros or what was there before: to be passed by reference.
    ///
    /// # Errors
    /// `Busy`, `TooLong`.
    pub fn buffer<T: Scalar>(&self, count: usize) -> Result<Buffer<'_, T>, Error> {
        let mut route = self.route();
        let bytes = count.saturating_mul(size_of::<T>());
        let (window, pieces) = route.memory()?;
        let Some(number) = pieces.take(bytes) else {
            let (free, size) = (pieces.longest(), window.size());
            let kind = if bytes > size - crate::window::CANCELS { Kind::TooLong } else { Kind::Busy };
            let detail = format_args!(
                "a buffer of {bytes} bytes; {free} of the window's {size} are free in one piece: Options::window makes it larger"
            );
            return Err(route.fail(kind, Ran::No, detail));
        };
        let piece = pieces.get(number);
        let at = window.pointer(piece).expect("a piece of the window").cast();
        Ok(Buffer { client: self, number, piece, at, count })
    }
}

/// One descriptor for poll, select and epoll: readable when an answer comes after [`Client::arm`], and when the server ends.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let descriptor = match &*self.route() {
            Route::Own(binding) => binding.epoll.as_raw_fd(),
            Route::Onc(caller) => caller.descriptor(),
        };
        // SAFETY: it lives as long as the client is borrowed, which `reconnect` cannot be called meanwhile.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Client({}, program {:#x})", self.address, self.program)
    }
}

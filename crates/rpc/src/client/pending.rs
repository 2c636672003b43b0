//! A call under way.

use super::route::Route;
use super::Client;
use crate::calls::State;
use crate::clock::now;
use crate::error::{Error, Kind, Ran, Side};
use crate::wire::Name;
use crate::xdr::Xdr;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A call under way. To be waited for, polled, or awaited; dropped, it is cancelled.
#[must_use = "a call that is dropped is cancelled"]
pub struct Pending<'c, R> {
    pub(super) client: &'c Client,
    pub(super) name: Name,
    pub(super) until: Option<u64>,
    pub(super) results: PhantomData<fn() -> R>,
}

impl<'c, R: Xdr> Pending<'c, R> {
    /// Waits for the results.
    ///
    /// # Errors
    /// [`Error`].
    #[inline]
    pub fn wait(self) -> Result<R, Error> {
        let pending = std::mem::ManuallyDrop::new(self);
        match &mut *pending.client.route() {
            Route::Own(binding) if binding.is_parents() => Err(binding.forked()),
            Route::Own(binding) => {
                binding.wait(pending.name, pending.until)?;
                binding.take(pending.name)
            }
            Route::Onc(caller) => {
                caller.wait(pending.name, pending.until)?;
                caller.take(pending.name)
            }
        }
    }

    /// The same call, of which the results are another type.
    pub(crate) fn of<T: Xdr>(self) -> Pending<'c, T> {
        let this = std::mem::ManuallyDrop::new(self);
        Pending { client: this.client, name: this.name, until: this.until, results: PhantomData }
    }

    /// Whether [`Pending::wait`] would not wait. Takes what has come.
    pub fn is_done(&self) -> bool {
        let done = match &mut *self.client.route() {
            Route::Own(binding) if binding.is_parents() => true,
            Route::Own(binding) => {
                binding.poll();
                if !binding.is_done(self.name) {
                    binding.look_after();
                }
                binding.is_done(self.name)
            }
            Route::Onc(caller) => {
                caller.poll();
                caller.is_done(self.name)
            }
        };
        done || self.until.is_some_and(|until| now() >= until)
    }
}

impl<R: Xdr> Future for Pending<'_, R> {
    type Output = Result<R, Error>;

    /// The thread that drives the client ([`Client::progress`], on its descriptor) wakes it.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.client.progress();
        let (name, until) = (self.name, self.until);
        // The last task's waker goes when the client is not borrowed: the task may go with it, and its calls.
        let _old;
        let mut route = self.client.route();
        let binding = match &mut *route {
            Route::Own(binding) if binding.is_parents() => return Poll::Ready(Err(binding.forked())),
            Route::Own(binding) => binding,
            Route::Onc(caller) => {
                assert!(caller.has(name), "polled after it was ready");
                if caller.is_done(name) {
                    return Poll::Ready(caller.take(name));
                }
                if until.is_none_or(|until| now() < until) {
                    _old = caller.set_waker(name, context.waker().clone());
                    return Poll::Pending;
                }
                caller.cancel(name);
                let detail = "no answer until the deadline";
                return Poll::Ready(Err(caller.fail(Kind::TimedOut, Side::Server, Ran::Maybe, detail)));
            }
        };
        let Some(place) = binding.calls.place(name).filter(|place| place.state != State::Free) else {
            panic!("polled after it was ready");
        };
        if matches!(place.state, State::Waiting | State::Fetching) {
            if until.is_none_or(|until| now() < until) {
                _old = place.waker.replace(context.waker().clone());
                return Poll::Pending;
            }
            binding.cancel(name);
            return Poll::Ready(Err(binding.fail(Kind::TimedOut, Side::Server, Ran::Maybe, "no answer until the deadline")));
        }
        Poll::Ready(binding.take(name))
    }
}

impl<R> Drop for Pending<'_, R> {
    fn drop(&mut self) {
        let _gone;
        let mut route = self.client.route();
        let binding = match &mut *route {
            Route::Own(binding) => binding,
            Route::Onc(caller) => {
                _gone = caller.cancel(self.name);
                return;
            }
        };
        // A future that was ready has no call any more.
        if binding.calls.place(self.name).is_some_and(|place| place.state != State::Free && place.state != State::Abandoned) {
            binding.cancel(self.name);
        }
        _gone = std::mem::take(&mut binding.calls.gone);
    }
}

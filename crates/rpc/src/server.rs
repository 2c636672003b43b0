//! A server: one or several threads, each with its own callers and its own service.
//!
//! Each caller has an end of its own, so that what it breaks is its own. A thread looks at the ends that were busy lately, and sleeps
//! on the others: an idle caller costs nothing.

mod answer;
mod caller;
mod keeper;
mod options;
mod running;
mod serving;
mod stop;
mod worker;

pub(crate) use caller::hear;
pub use options::Options;
pub use running::Running;
pub use stop::Stopper;

use crate::address::{Address, Place as Host};
use crate::forks::Kept;
use crate::onc::{self, server::Door};
use crate::rendezvous::Listener;
use crate::service::Service;
use crate::trace::Watchers;
use keeper::Keeper;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Mutex;
use worker::{Hall, Shared, Worker};

/// Where callers come in.
enum Entrance {
    Own(Listener),
    Onc(Door, Host),
}

/// A server that listens.
pub struct Server {
    entrance: Entrance,
    address: Address,
    options: Options,
    stop: Stopper,
}

impl Server {
    /// Listens at an address.
    ///
    /// # Errors
    /// What the system answers: `AddrInUse` where another server has the name.
    pub fn bind(address: &Address, options: Options) -> io::Result<Self> {
        let (entrance, address) = match address {
            Address::SunRpc(place) => {
                let door = Door::bind(place)?;
                // Without a port it is rpcbind that tells callers.
                let port = place.port.map(|_| door.address().map(|at| at.port())).transpose()?;
                (Entrance::Onc(door, place.clone()), Address::SunRpc(Host { port, ..place.clone() }))
            }
            _ => {
                let listener = Listener::bind(address)?;
                let address = listener.address(address);
                (Entrance::Own(listener), address)
            }
        };
        let stop = Stopper::new()?;
        Ok(Self { entrance, address, options, stop })
    }

    /// Where callers find it.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What ends it.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stop.clone()
    }

    /// Serves until it is stopped. `make` gives each thread its service.
    ///
    /// # Errors
    /// What the system answers at the beginning.
    pub fn run<S: Service>(self, make: impl Fn() -> S + Sync) -> io::Result<()> {
        self.run_and_say(make, &|| ())
    }

    /// Calls `up` when callers can find it.
    fn run_and_say<S: Service>(self, make: impl Fn() -> S + Sync, up: &dyn Fn()) -> io::Result<()> {
        match &self.entrance {
            Entrance::Own(listener) => {
                up();
                self.run_own(listener, make)
            }
            Entrance::Onc(door, place) => self.run_onc(door, place, make, up),
        }
    }

    fn run_onc<S: Service>(&self, door: &Door, place: &Host, make: impl Fn() -> S + Sync, up: &dyn Fn()) -> io::Result<()> {
        let first = make();
        // Until this ends, and the registration with it.
        let _registered = onc::server::register(place, door, &first.interfaces())?;
        up();
        let common = onc::server::Common {
            door,
            callers: self.options.callers,
            record: self.options.record,
            window: self.options.window,
            stopped: &self.stop.0.stopped,
            bell: self.stop.0.bell.as_raw_fd(),
            connections: AtomicUsize::new(0),
            memory: self.options.memory,
            held: AtomicUsize::new(0),
            duplicates: Mutex::default(),
        };
        std::thread::scope(|scope| {
            for _ in 1..self.options.threads {
                scope.spawn(|| onc::server::work(&common, make()));
            }
            onc::server::work(&common, first)
        })
    }

    fn run_own<S: Service>(&self, listener: &Listener, make: impl Fn() -> S + Sync) -> io::Result<()> {
        let count = self.options.threads.max(1);
        let shared: Vec<Shared> = (0..count).map(|_| Shared::new()).collect::<io::Result<_>>()?;
        let keeper = Keeper::new()?;
        let (doors, inlets): (Vec<Sender<_>>, Vec<Receiver<_>>) = (0..count).map(|_| channel()).unzip();
        let watchers = Watchers::default();
        // A child of this process does not listen for it.
        let _kept = Kept::new(&listener.as_fd());
        let mut inlets = inlets.into_iter();
        let first = inlets.next().expect("one thread at least");
        std::thread::scope(|scope| {
            if !matches!(self.address, Address::Memory(_)) {
                scope.spawn(|| keeper.keep(&shared, &self.stop.0));
            }
            for (number, inlet) in inlets.enumerate() {
                let (settings, stop, make) = ((&self.address, &self.options), &self.stop.0, &make);
                let common = (&shared[..], &watchers, &keeper);
                scope.spawn(move || {
                    if let Ok(mut worker) = Worker::new(number + 1, settings, stop, common, inlet, make()) {
                        worker.run(None);
                    }
                });
            }
            let common = (&shared[..], &watchers, &keeper);
            let mut worker = Worker::new(0, (&self.address, &self.options), &self.stop.0, common, first, make())?;
            worker.run(Some(Hall::new(listener, doors)));
            Ok(())
        })
    }

    /// Serves on a thread of its own.
    ///
    /// # Errors
    /// What the system answers; `AddrInUse` where rpcbind has another server of the program that answers.
    pub fn spawn<S: Service>(self, make: impl Fn() -> S + Send + Sync + 'static) -> io::Result<Running> {
        let (address, stopper) = (self.address.clone(), self.stopper());
        let (tell, hear) = channel();
        let thread = std::thread::Builder::new().name("shunt-rpc".into()).spawn(move || {
            let said = tell.clone();
            let up = move || {
                let _ = said.send(Ok(()));
            };
            let result = self.run_and_say(make, &up);
            let _ = tell.send(result);
        })?;
        hear.recv().unwrap_or_else(|_| Err(io::Error::other("the server's thread ended")))?;
        Ok(Running { address, stopper, thread: Some(thread) })
    }
}

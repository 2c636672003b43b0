//! Couples behind wrappers, whatever their devices.

use super::{Boxed, Couple};
use crate::wrapper::capture::Capture;
use crate::wrapper::fault::{Fault, Faults};
use crate::wrapper::pass_on;
use crate::wrapper::trace::Trace;
use crate::{Capabilities, DirectAccess, Endpoint};

/// What every wrapper must keep up over a device.
pub const BAD_NETWORK: Faults = Faults { seed: 7, loss: 100_000, duplicate: 50_000, reorder: 100_000, corrupt: 10_000, delay: 2 };

impl Couple {
    fn wrap<E, F>(self, mut wrapper: impl FnMut(Boxed) -> E, mut other: impl FnMut(Boxed) -> F) -> Couple
    where
        E: DirectAccess + Send + 'static,
        F: DirectAccess + Send + 'static,
    {
        Couple { a: Box::new(wrapper(self.a)), b: Box::new(other(self.b)), keep: self.keep }
    }

    /// Both behind a bad network.
    pub fn with_faults(self, faults: Faults) -> Couple {
        let wrap = |seed| move |endpoint| Fault::new(endpoint, Faults { seed: faults.seed ^ seed, ..faults });
        self.wrap(wrap(0), wrap(1))
    }

    /// One traced, the other captured.
    pub fn traced_and_captured(self) -> Couple {
        let traced = |endpoint| Trace::new(endpoint, |event| drop(format!("{event:?}")));
        self.wrap(traced, |endpoint| Capture::new(endpoint, Vec::new()).expect("memory takes all"))
    }

    /// One captured, the other traced.
    pub fn captured_and_traced(self) -> Couple {
        let Couple { a, b, keep } = self;
        let Couple { a, b, keep } = Couple { a: b, b: a, keep }.traced_and_captured();
        Couple { a: b, b: a, keep }
    }

    /// Where nothing is lost on the way between devices that do not promise it: so the suite asks for all.
    pub fn faithful(self) -> Couple {
        self.wrap(Faithful::new, Faithful::new)
    }
}

/// An endpoint that says it loses nothing.
pub struct Faithful<E> {
    inner: E,
    capabilities: Capabilities,
}

impl<E: Endpoint> Faithful<E> {
    /// Wraps `inner`.
    pub fn new(inner: E) -> Faithful<E> {
        let capabilities = Capabilities { lossy: false, ordered: true, ..*inner.capabilities() };
        Faithful { inner, capabilities }
    }
}

impl<E: Endpoint> Endpoint for Faithful<E> {
    pass_on!(
        segment address new_tag open close send flush injected post receive release backlog descriptor arm disarm counters
    );

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
}

impl<E: DirectAccess> DirectAccess for Faithful<E> {
    pass_on!(export unexport notify import update);
}

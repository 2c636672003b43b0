//! Endpoints that wrap endpoints.

#[cfg(feature = "std")]
pub mod capture;
#[cfg(feature = "std")]
pub mod fault;
pub mod trace;

/// Passes the named methods on to `self.inner`.
macro_rules! pass_on {
    ($($name:ident)*) => { $( pass_on!(@ $name); )* };
    (@ capabilities) => { fn capabilities(&self) -> &$crate::Capabilities { self.inner.capabilities() } };
    (@ segment) => { fn segment(&self) -> $crate::Segment { self.inner.segment() } };
    (@ address) => { fn address(&self) -> $crate::Address { self.inner.address() } };
    (@ new_tag) => { fn new_tag(&mut self) -> Result<$crate::Tag, shunt_sys::Errno> { self.inner.new_tag() } };
    (@ open) => {
        fn open(&mut self, remote: &$crate::Address, tags: $crate::Tags) -> Result<$crate::Channel, $crate::OpenError> {
            self.inner.open(remote, tags)
        }
    };
    (@ close) => { fn close(&mut self, channel: $crate::Channel) { self.inner.close(channel) } };
    (@ send) => {
        fn send(&mut self, message: &$crate::Message<'_>) -> Result<$crate::Ticket, $crate::SendError> {
            self.inner.send(message)
        }
    };
    (@ flush) => { fn flush(&mut self) -> Result<bool, $crate::SendError> { self.inner.flush() } };
    (@ injected) => { fn injected(&mut self) -> $crate::Ticket { self.inner.injected() } };
    (@ post) => { fn post(&mut self, buffer: $crate::Area) -> Result<(), $crate::PostError> { self.inner.post(buffer) } };
    (@ receive) => { fn receive(&mut self, arrival: &mut $crate::Arrival) -> bool { self.inner.receive(arrival) } };
    (@ release) => { fn release(&mut self, arrival: &mut $crate::Arrival) { self.inner.release(arrival) } };
    (@ backlog) => { fn backlog(&mut self) -> $crate::Backlog { self.inner.backlog() } };
    (@ descriptor) => { fn descriptor(&self) -> i32 { self.inner.descriptor() } };
    (@ arm) => { fn arm(&mut self) -> bool { self.inner.arm() } };
    (@ disarm) => { fn disarm(&mut self) { self.inner.disarm() } };
    (@ export) => {
        fn export(
            &mut self,
            channel: $crate::Channel,
            area: $crate::Area,
            rights: $crate::Rights,
        ) -> Result<$crate::Key, $crate::DirectError> {
            self.inner.export(channel, area, rights)
        }
    };
    (@ unexport) => { fn unexport(&mut self, key: $crate::Key) { self.inner.unexport(key) } };
    (@ notify) => { fn notify(&mut self, key: $crate::Key, on: bool) { self.inner.notify(key, on) } };
    (@ import) => {
        fn import(
            &mut self,
            channel: $crate::Channel,
            key: $crate::Key,
            size: u32,
        ) -> Result<$crate::Import, $crate::DirectError> {
            self.inner.import(channel, key, size)
        }
    };
    (@ update) => {
        fn update(
            &mut self,
            import: &$crate::Import,
            offset: u32,
            bytes: $crate::Bytes<'_>,
            notify: bool,
        ) -> Result<$crate::Ticket, $crate::SendError> {
            self.inner.update(import, offset, bytes, notify)
        }
    };
    (@ counters) => { fn counters(&self) -> &$crate::Counters { self.inner.counters() } };
}
pub(crate) use pass_on;

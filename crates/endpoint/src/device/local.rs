//! Endpoints inside one process, joined by a switch: for tests, and to learn from. It loses nothing on the way; what a
//! receiver has no buffer or place for is dropped and counted there, as by a network interface.

use crate::direct::{Emulated, Exports};
use crate::gather::Gather;
use crate::shared::{Memory, Shape};
use crate::{
    Address, Area, Arrival, Backlog, Buffers, Capabilities, Channel, Counters, Drop as Reason, Endpoint, Family, Message,
    OpenError, PostError, Segment, SendError, Tags, Ticket, INLINE, SCATTER,
};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
use shunt_ring::lock;
use shunt_sys::{calls, libc, mapping, thread, Errno};
use shunt_wire::endpoint::Kind;

/// Ports of a switch.
pub const PORTS: usize = 16;

/// The device's number in the endpoint's memory.
const DEVICE: u32 = Family::Local as u32;

const CAPABILITIES: Capabilities = Capabilities {
    device: "local",
    sentence: "a switch in this process: each message is copied from segment to segment by its sender",
    largest: SCATTER as u32 * 2048,
    gather: SCATTER as u32,
    lossy: false,
    ordered: true,
    buffers: Buffers::Posted { smallest: 64, alignment: 1 },
    direct: false,
    needs_flush: true,
};

/// One endpoint's place. Everything in it is used under the lock, by its owner and by each that sends to it.
struct Port {
    lock: AtomicU32,
    /// 0 empty, 1 being plugged or unplugged, 2 in use.
    state: AtomicU32,
    bell: AtomicI32,
    memory: UnsafeCell<MaybeUninit<Memory>>,
}

struct State {
    references: AtomicU32,
    ports: [Port; PORTS],
}

impl Port {
    fn lock(&self) -> lock::Held<'_> {
        loop {
            if let Some(held) = lock::acquire(&self.lock, thread::id(), false, |_| calls::sched_yield()) {
                return held;
            }
            // Only a signal handler that interrupts its own thread gets here; endpoints are not for those.
            calls::sched_yield();
        }
    }

    /// The memory, if an endpoint is plugged in.
    fn memory(&self) -> Option<&Memory> {
        // SAFETY: initialised before the state became 2 (Release); dropped only under the lock, after it was changed.
        (self.state.load(Acquire) == 2).then(|| unsafe { (*self.memory.get()).assume_init_ref() })
    }
}

/// The switch. Clones and endpoints keep it alive.
pub struct Switch(*const State);

// SAFETY: the state is made of atomics and of memory that is used under locks.
unsafe impl Send for Switch {}
// SAFETY: as above.
unsafe impl Sync for Switch {}

impl Switch {
    /// A switch with nothing plugged in.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new() -> Result<Switch, Errno> {
        let state: *const State = mapping::reserve(core::mem::size_of::<State>())?.cast();
        // SAFETY: fresh zeroed memory; zero is valid for all of it.
        unsafe { (*state).references.store(1, Relaxed) };
        Ok(Switch(state))
    }

    fn state(&self) -> &State {
        // SAFETY: mapped until the last reference goes.
        unsafe { &*self.0 }
    }

    /// A new endpoint of the shape [`Shape::SMALL`].
    ///
    /// # Errors
    /// As for [`Switch::plug_shape`].
    pub fn plug(&self) -> Result<Local, Errno> {
        self.plug_shape(Shape::SMALL)
    }

    /// A new endpoint.
    ///
    /// # Errors
    /// ENOSPC when all ports are used; what the system answers.
    pub fn plug_shape(&self, shape: Shape) -> Result<Local, Errno> {
        let memory = Memory::create(DEVICE, shape)?;
        let bell = calls::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)?;
        for (number, port) in self.state().ports.iter().enumerate() {
            if port.state.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                // SAFETY: state 1 is this thread's claim.
                unsafe { (*port.memory.get()).write(memory) };
                port.bell.store(bell, Relaxed);
                port.state.store(2, Release);
                return Ok(Local { switch: self.clone(), number });
            }
        }
        let _ = calls::close(bell);
        Err(Errno(libc::ENOSPC))
    }
}

impl Clone for Switch {
    fn clone(&self) -> Switch {
        self.state().references.fetch_add(1, Relaxed);
        Switch(self.0)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if self.state().references.fetch_sub(1, SeqCst) == 1 {
            let _ = calls::munmap(self.0.cast_mut().cast(), core::mem::size_of::<State>());
        }
    }
}

/// An endpoint at a switch.
pub struct Local {
    switch: Switch,
    number: usize,
}

impl Local {
    fn port(&self) -> &Port {
        &self.switch.state().ports[self.number]
    }

    fn memory(&self) -> &Memory {
        // SAFETY: plugged in as long as this endpoint lives.
        unsafe { (*self.port().memory.get()).assume_init_ref() }
    }

    /// The address of port `number`.
    pub fn address_of(number: usize) -> Address {
        Address::new(Family::Local, &(number as u64).to_le_bytes()).unwrap_or(Address::NONE)
    }

    /// Empties the send queue.
    fn send_all(&self) {
        let memory = self.memory();
        let queue = memory.send_queue();
        while let Some(descriptor) = queue.peek(0) {
            let kind = Kind::from_code(descriptor.kind.into()).ok_or(SendError::Area);
            let gather = Gather::of_descriptor(&descriptor, memory.segment(), CAPABILITIES.largest);
            let sent = kind.and_then(|kind| self.deliver(Channel(descriptor.channel), &gather?, kind));
            if sent.is_err() {
                Counters::add(&memory.counters().unsent, 1);
            }
            queue.advance(1);
        }
    }

    /// Copies a message into the endpoint that the channel leads to, or counts why not.
    fn deliver(&self, channel: Channel, gather: &Gather<'_>, kind: Kind) -> Result<(), SendError> {
        let registry = self.memory().registry();
        let entry = registry.get(channel).ok_or(SendError::Channel)?;
        let number = entry.address().bytes().first().copied().unwrap_or(u8::MAX) as usize;
        let port = self.switch.state().ports.get(number).ok_or(SendError::Channel)?;
        let _held = port.lock();
        let Some(memory) = port.memory() else { return Ok(()) };
        let outcome = receive_into(memory, &self.address(), entry.tags(), gather, kind)?;
        match outcome {
            Err(reason) => memory.counters().drop(reason),
            Ok(()) if memory.header().armed.0.swap(0, SeqCst) != 0 => ring(port.bell.load(Relaxed)),
            Ok(()) => {}
        }
        Ok(())
    }
}

/// Makes a descriptor readable.
fn ring(bell: i32) {
    let one = 1u64;
    let _ = calls::write(bell, (&raw const one).cast(), 8);
}

/// What the interface of the receiver does. The outer error is the sender's: its bytes fault.
///
/// An update's frame goes the way of messages, and is applied by its receiver: so the exports are only that one's.
fn receive_into(
    memory: &Memory,
    from: &Address,
    tags: Tags,
    gather: &Gather<'_>,
    kind: Kind,
) -> Result<Result<(), Reason>, SendError> {
    let Some((channel, entry)) = memory.registry().by_tag(tags.send) else { return Ok(Err(Reason::Tag)) };
    if entry.address() != *from {
        return Ok(Err(Reason::Source));
    }
    let (free, queue, segment) = (memory.free_queue(), memory.receive_queue(), memory.segment());
    if queue.len() == queue.capacity() {
        return Ok(Err(Reason::QueueFull));
    }
    let mut arrival = Arrival::empty();
    arrival.channel = channel.0;
    arrival.length = gather.len() as u32;
    let mut done = gather.len().min(INLINE);
    // SAFETY: at most INLINE bytes.
    if !unsafe { gather.copy_to(0, arrival.head.as_mut_ptr(), done) } {
        return Err(SendError::Fault);
    }
    while done < gather.len() {
        let index = arrival.count as usize;
        let Some(buffer) = free.peek(index as u32) else { return Ok(Err(Reason::NoBuffer)) };
        if index == SCATTER {
            return Ok(Err(Reason::Oversized));
        }
        let area = buffer.first((gather.len() - done) as u32);
        let Some(target) = segment.pointer(area) else { return Ok(Err(Reason::NoBuffer)) };
        // SAFETY: the area is inside the segment.
        if !unsafe { gather.copy_to(done, target, area.length as usize) } {
            return Err(SendError::Fault);
        }
        arrival.areas[index] = area;
        arrival.buffers[index] = buffer;
        arrival.count += 1;
        done += area.length as usize;
    }
    if kind != Kind::Message {
        arrival.mark_update(kind == Kind::UpdateNotify);
    }
    free.advance(arrival.count);
    let _ = queue.put(&arrival);
    Ok(Ok(()))
}

impl Endpoint for Local {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    fn segment(&self) -> Segment {
        self.memory().segment()
    }

    fn address(&self) -> Address {
        Local::address_of(self.number)
    }

    fn open(&mut self, remote: &Address, tags: Tags) -> Result<Channel, OpenError> {
        if !remote.is(Family::Local) {
            return Err(OpenError::Address);
        }
        let _held = self.port().lock();
        self.memory().registry().insert(remote, tags)
    }

    fn close(&mut self, channel: Channel) {
        self.send_all();
        let _held = self.port().lock();
        self.memory().registry().remove(channel);
        Exports::of(self.memory()).forget(channel);
    }

    fn send(&mut self, message: &Message<'_>) -> Result<Ticket, SendError> {
        self.put_frame(message, Kind::Message)
    }

    fn flush(&mut self) -> Result<bool, SendError> {
        self.send_all();
        Ok(true)
    }

    fn injected(&mut self) -> Ticket {
        Ticket(self.memory().send_queue().head())
    }

    fn post(&mut self, buffer: Area) -> Result<(), PostError> {
        let memory = self.memory();
        if buffer.length < 64 || !memory.segment().contains(buffer) {
            return Err(PostError::Area);
        }
        let _held = self.port().lock();
        memory.free_queue().put(&buffer).map_err(|_| PostError::Full)
    }

    fn receive(&mut self, arrival: &mut Arrival) -> bool {
        let next = loop {
            let Some(mut next) = self.memory().receive_queue().take() else { return false };
            let Some(notify) = next.update() else { break next };
            let notification = next.applied(self.memory(), notify);
            self.release(&mut next);
            if let Some(notification) = notification {
                break notification;
            }
        };
        *arrival = next;
        let counters = self.memory().counters();
        Counters::add(&counters.received, 1);
        Counters::add(&counters.received_bytes, arrival.length as u64);
        true
    }

    fn release(&mut self, arrival: &mut Arrival) {
        let _held = self.port().lock();
        let free = self.memory().free_queue();
        for buffer in arrival.buffers() {
            // There is room: it came from there.
            let _ = free.put(buffer);
        }
        arrival.count = 0;
    }

    fn backlog(&mut self) -> Backlog {
        let queue = self.memory().receive_queue();
        Backlog { waiting: queue.len(), capacity: queue.capacity() }
    }

    fn descriptor(&self) -> i32 {
        self.port().bell.load(Relaxed)
    }

    fn arm(&mut self) -> bool {
        let memory = self.memory();
        let armed = &memory.header().armed.0;
        armed.store(1, SeqCst);
        // Either this look sees the message, or its sender's swap, which comes after, sees the flag.
        let nothing = memory.receive_queue().is_empty() && memory.send_queue().is_empty();
        if !nothing {
            self.disarm();
        }
        nothing
    }

    fn disarm(&mut self) {
        let memory = self.memory();
        if memory.header().armed.0.swap(0, SeqCst) == 0 {
            Counters::add(&memory.counters().woken, 1);
        }
        let mut count = 0u64;
        let _ = calls::read(self.descriptor(), (&raw mut count).cast(), 8);
    }

    fn counters(&self) -> &Counters {
        self.memory().counters()
    }
}

impl Emulated for Local {
    fn exporting(&self) -> &Memory {
        self.memory()
    }

    fn put_frame(&mut self, message: &Message<'_>, kind: Kind) -> Result<Ticket, SendError> {
        let memory = self.memory();
        memory.registry().get(message.channel).ok_or(SendError::Channel)?;
        let gather = Gather::of(message, memory.segment(), &CAPABILITIES)?;
        let queue = memory.send_queue();
        let ticket = Ticket(queue.tail());
        let put = match gather.descriptor(message.channel.0, kind as u32) {
            Some(descriptor) => queue.put(&descriptor),
            None => {
                // The program's bytes are its own again when this returns: so they are sent now, behind the others.
                self.send_all();
                self.deliver(message.channel, &gather, kind)?;
                let put = queue.put(&crate::shared::SendDescriptor::empty());
                queue.advance(1);
                put
            }
        };
        let counters = memory.counters();
        if put.is_err() {
            Counters::add(&counters.refused, 1);
            return Err(SendError::NoResource);
        }
        Counters::add(&counters.sent, 1);
        Counters::add(&counters.sent_bytes, gather.len() as u64);
        Ok(ticket)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let port = self.port();
        {
            let _held = port.lock();
            port.state.store(1, Relaxed);
            let _ = calls::close(port.bell.load(Relaxed));
            // SAFETY: state 1: no other endpoint looks at it any more, and those that did held the lock.
            unsafe { (*port.memory.get()).assume_init_drop() };
        }
        port.state.store(0, Release);
    }
}

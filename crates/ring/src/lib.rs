//! Byte streams through shared memory.
//!
//! A [`Pipe`] is one direction of a channel: [`Pipe::send`] and [`Pipe::receive`] move bytes, never block, never enter
//! the kernel, and never trust the other side: each word of the peer is loaded once, checked, and then used.
//!
//! The layout gives both what a slot ring and what a byte ring is good at. Bytes always go into a byte ring, packed, so
//! streams run at the speed of memory. When the ring was empty and the bytes are few, they also stand in the cache line
//! that announces them ([`shunt_segment::channel::Post`]), which carries the acknowledgement of the peer's last message
//! as well: a small request or reply is one line transfer.
//!
//! A ring has a *class* (size). The sender changes it on the fly: it grows when it is full or carries a stream, and
//! returns to the smallest one, which lies in the channel's page, when only small messages come. Bytes sent before a
//! change are read from the old ring, bytes after from the new one; the switch word says where the border is.
//!
//! Neither end looks at the other's line without need: the sender works on a copy of its own word, because the peer
//! watches the original; the receiver takes what it knows to wait before it looks again. `examples/floor.rs` measures
//! how far that is from what two processors can do.
//!
//! Datagrams go through an [`inbox`]: whole records in one total order, from many senders.
//!
//! The [`lock`] keeps the order of bytes when threads and forked processes share an end; [`bell`] is the arm, check and
//! sleep protocol, [`tally`] tells bells from what else comes to a companion, [`bell_consumer`] keeps threads from taking each other's
//! bells, [`passage`] from ringing at a number that was closed, [`offers`] is the queue of connections made in memory, and
//! [`claim`] says which connection of a channel is taken, [`cut`] when a stream leaves its rings for good, and [`lent`] how bytes that were lent are taken back. All are checked with loom (`tests/loom_*`), as is the ring;
//! `tests/hostile` and `fuzz/` play the peer that writes whatever it likes.
//!
//! ```
//! use core::sync::atomic::Ordering::Relaxed;
//! use shunt_ring::{Pipe, Window};
//! use shunt_segment::area::{window_offset, CHANNEL_PAGES, CLASSES, LINK_SIZE};
//! use shunt_segment::channel::ChannelPage;
//!
//! // Two processes map a link's file; here both sides of its channel 0 are in one.
//! let link = shunt_sys::mapping::reserve(LINK_SIZE).unwrap();
//! let window = Window::new();
//! // SAFETY: both lie in the link, which is zeroed, and of which nothing else makes use.
//! let sides = unsafe {
//!     window.set(link.add(window_offset(0, 0)));
//!     &(*link.add(CHANNEL_PAGES).cast::<ChannelPage>()).sides
//! };
//! sides[0].transmit.class_limit.store(CLASSES as u32 - 1, Relaxed);
//! let client = Pipe { own: &sides[0], peer: &sides[1], link, channel: 0, sender: 0, window: &window };
//! let server = Pipe { own: &sides[1], peer: &sides[0], ..client };
//! let mut received = [0; 16];
//! // SAFETY: both buffers are as long as is said, and each end has one thread.
//! unsafe {
//!     assert_eq!(client.send(b"hello".as_ptr(), 5), 5);
//!     assert_eq!(server.receive(received.as_mut_ptr(), received.len()), Ok(5));
//! }
//! assert_eq!(&received[..5], b"hello");
//! ```
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(test, loom)), no_std)]

pub mod bell;
pub mod bell_consumer;
pub mod bid;
pub mod claim;
mod copy;
pub mod cut;
mod distance;
#[cfg(not(loom))]
pub mod inbox;
pub mod lent;
#[cfg(not(loom))]
pub mod local;
pub mod lock;
pub mod offers;
mod pace;
pub mod passage;
pub mod pipe;
mod short;
mod streamed;
pub mod tally;
pub mod window;

#[cfg(loom)]
pub use copy::Byte;
pub use pipe::{Pipe, Trouble, SEGMENT};
pub use short::{Attempt, SHORT};
pub use window::Window;

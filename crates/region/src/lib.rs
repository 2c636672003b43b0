//! Memory that two processes share: pools, regions in them, and who still reads what.
//!
//! A [`Pool`] is one file of memory (one descriptor), cut into *units*. Its owner allocates *regions*, runs of units, in FIFO
//! order: lines of a region that was used lately lie in other processors' caches, and are dear to write again. A region has a
//! *word* in the owner's private memory: its state ([`state`]), its generation, and how many outputs and inputs refer to it
//! ([`word`]). A peer maps the pool once ([`Attached`]) and keeps it: passing a region is passing a [`Reference`], which the
//! peer checks once, when it arrives. What a peer may hold of a pool is bounded by an [`Account`]; a peer's word that it has
//! finished is a request, looked up there.
//!
//! ```text
//! file:  0         Header (one page): what this is, unit size, units
//!        4 KiB     per unit: redirect word, generation           written by the owner, read by peers
//!        then      units                                         what regions are
//!        then      spares, one for each unit                     where a unit's bytes go that are overwritten while being read
//! ```
//!
//! This crate knows no socket, no semantics of buffers (`shunt-buffers`) and no transport. Whatever cannot be done has a name
//! ([`Limit`]), and its caller copies instead.
//!
//! ```
//! use shunt_region::{Account, Attached, Audience, Pages, Pool, Shape};
//! let pool = Pool::create(Shape { unit: 64 << 10, units: 16 }, Pages::Small, Audience::Anyone)?;
//! let mut region = pool.allocate(100_000)?;
//! region.bytes_mut()[..5].copy_from_slice(b"hello");
//! let mut account = Account::new(1 << 20)?;
//! let reference = account.lend(&pool, &region, 0, 5)?;
//!
//! // In the other process, with the descriptor that it was sent:
//! let attached = Attached::map(pool.descriptor(), Audience::Anyone)?;
//! let mut bytes = [0; 5];
//! attached.check(&reference)?.copy_to(0, &mut bytes);
//! assert_eq!(&bytes, b"hello");
//!
//! account.give_back(reference.ticket)?;
//! # Ok::<(), shunt_region::Limit>(())
//! ```
#![cfg_attr(not(any(test, loom)), no_std)]

#[cfg(not(loom))]
mod account;
#[cfg(not(loom))]
mod attached;
#[cfg(not(loom))]
mod cgroup;
#[cfg(not(loom))]
pub mod fifo;
#[cfg(not(loom))]
mod file;
#[cfg(not(loom))]
pub mod files;
pub mod guard;
#[cfg(not(loom))]
mod holes;
#[cfg(not(loom))]
pub mod huge;
pub mod limit;
#[cfg(not(loom))]
mod pool;
pub mod pull;
pub mod reference;
#[cfg(not(loom))]
pub mod registry;
#[cfg(not(loom))]
mod seals;
mod shape;
#[cfg(not(loom))]
pub mod shown;
pub mod state;
#[cfg(not(loom))]
pub mod told;
#[cfg(not(loom))]
mod trust;
#[cfg(not(loom))]
pub mod viewed;
pub mod word;

#[cfg(not(loom))]
pub use account::{Account, Returned, LOANS};
#[cfg(not(loom))]
pub use attached::{Attached, Span};
#[cfg(not(loom))]
pub use cgroup::may_be_pooled;
pub use guard::Access;
pub use limit::Limit;
#[cfg(not(loom))]
pub use pool::{before_kernel_writes, mend, Located, Pool, Region};
pub use reference::{Reference, Violation};
pub use shape::{Audience, Pages, Shape};
#[cfg(not(loom))]
pub use trust::may_inspect;

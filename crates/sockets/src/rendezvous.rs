//! How two programs meet: listening, connecting and accepting, and what of it can be had without the kernel.
//!
//! ```text
//! opening      socket(2)                     spare: TCP sockets for the next one
//! listen       the rendezvous beside the shadow socket      relatives: who else has it      parcel: before it is shared
//! connect      tries the rendezvous          route, diag: what the kernel knows      ports: local ports kept reserved
//! again        connecting in memory          offered: accepting that      kept: companions that outlive a connection
//! bidding      connecting in memory to several acceptors           taking: accepting that
//! accept       claimed, reserve: the number it gives      earlier: options that a listener had when a client connected
//! deferred     clients that accept does not give out yet (TCP_DEFER_ACCEPT)
//! disconnect   connect(2) to AF_UNSPEC       twins: no two connections of one name      held: ports without a listener
//! ```

pub mod accept;
pub mod again;
pub(crate) mod bidding;
pub(crate) mod claimed;
pub mod connect;
pub(crate) mod deferred;
pub mod diag;
pub mod disconnect;
pub mod earlier;
pub(crate) mod held;
pub mod interfaces;
pub mod kept;
pub mod listen;
pub mod offered;
pub mod opening;
pub mod parcel;
pub mod ports;
pub(crate) mod relatives;
pub(crate) mod reserve;
pub mod route;
pub mod spare;
pub(crate) mod taking;
pub mod twins;

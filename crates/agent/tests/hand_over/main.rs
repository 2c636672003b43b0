//! Connections to a plain peer, taken from the kernel and given back: by no program under shunt, but by what such a one will use.
mod agent;
mod beside;
mod changes;
mod client;
mod deaths;
mod declines;
mod gvisor;
mod hostile;
mod idle;
mod peer;
mod random;
mod refusals;
mod stranger;
mod wire;

//! Engines over a network of virtual time, and ports over real endpoints. One program, as each is linked with all of them.

#[path = "../network/mod.rs"]
mod network;
#[path = "../ports/mod.rs"]
mod ports;

mod delivery;
mod dissector;
mod example;
mod fairness;
mod hostile;
mod lone;
mod panics;
mod peers;
mod port;
mod regions;
mod straight;

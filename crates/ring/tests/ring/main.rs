//! Rings, their doors and their windows, between the two ends of a connection. One program; what loom runs is beside this directory.
#![cfg(not(loom))]

mod common;

mod held;
mod hostile;
mod inbox;
mod local;
mod model;
mod stress;
mod window;

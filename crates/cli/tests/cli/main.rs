//! What the command says and does. One program, as each is linked with all that the command stands on; the files beside this directory need a process
//! of their own, or a host.

#[path = "../common/mod.rs"]
mod common;

mod capture;
mod config;
mod doctor;
mod inspect;
mod metrics;
mod metrics_served;
mod real_library;
mod report;
mod rpc;
mod run_keeps;
mod run_refuses;
mod top;
mod unit;

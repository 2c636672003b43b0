//! The cells: one question each, asked of every contender in the same words.

mod connect;
mod idle;
mod nginx;
mod pair;
mod pingpong;
mod postgres;
mod redis;
mod stream;

use std::time::Duration;

use crate::instrument::Cell;

/// How long a program may take to start.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(10);
/// How long a program may take beyond the time it was asked to measure.
pub(crate) const RUN_LIMIT: Duration = Duration::from_secs(15);

/// Every cell, in the order of a report.
pub fn all() -> Vec<Box<dyn Cell>> {
    vec![
        Box::new(pingpong::PingPong),
        Box::new(stream::Stream),
        Box::new(connect::Connect),
        Box::<redis::Redis>::default(),
        Box::new(nginx::Nginx),
        Box::<postgres::Postgres>::default(),
        Box::new(idle::Idle),
    ]
}

/// The cells of the demo: all that need little time to set up, and PostgreSQL if asked for.
pub fn demo(with_postgres: bool) -> Vec<Box<dyn Cell>> {
    all().into_iter().filter(|cell| with_postgres || cell.name() != "postgres").collect()
}

/// The cell of this name.
pub fn named(name: &str) -> Option<Box<dyn Cell>> {
    all().into_iter().find(|cell| cell.name() == name)
}

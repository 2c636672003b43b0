//! The cells: one question each, asked of every contender in the same words.

mod bandwidth;
mod buffers;
mod connect;
mod datagrams;
pub(crate) mod forwarder;
mod ftp;
mod idle;
mod latency;
mod load;
pub mod matrix;
pub mod memcached;
mod netperf;
pub(crate) mod nginx;
pub mod pair;
pub mod peers;
mod pingpong;
mod postgres;
pub mod redis;
mod relay;
mod request;
pub mod rpc;
mod sendfile;
mod stream;
mod ttcp;
mod unix;
mod web;
mod zerocopy;

use std::time::Duration;

use crate::instrument::Cell;

/// How long a program may take to start.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(10);
/// How long a program may take beyond the time it was asked to measure.
pub(crate) const RUN_LIMIT: Duration = Duration::from_secs(15);

/// Every cell, in the order of a report; those of [`applications`] besides.
pub fn all() -> Vec<Box<dyn Cell>> {
    vec![
        Box::new(pingpong::PingPong),
        Box::new(stream::Stream),
        Box::new(unix::Unix),
        Box::new(connect::Connect),
        Box::new(latency::Latency),
        Box::new(bandwidth::Bandwidth),
        Box::new(buffers::Buffers),
        Box::new(buffers::Windows),
        Box::new(sendfile::SendFile),
        Box::new(zerocopy::ZeroCopy),
        Box::new(request::Request),
        Box::new(rpc::Rpc),
        Box::new(load::Load::connections()),
        Box::new(load::Load::waiting()),
        Box::new(load::Load::threads()),
        Box::new(load::Load::mixes()),
        Box::new(datagrams::Datagrams),
        Box::new(redis::Redis::few()),
        Box::new(nginx::Nginx),
        Box::new(postgres::Postgres::few()),
        Box::new(peers::Peers),
        Box::new(ttcp::Ttcp),
        Box::new(netperf::Netperf),
        Box::new(relay::Relay),
        Box::new(idle::Idle::few()),
        Box::new(idle::Idle::many()),
    ]
}

/// The cells of the demo: all that need little time to set up, and PostgreSQL if asked for.
pub fn demo(with_postgres: bool) -> Vec<Box<dyn Cell>> {
    let names = ["pingpong", "stream", "connect", "redis", "nginx", "postgres", "idle"];
    all().into_iter().filter(|cell| names.contains(&cell.name()) && (with_postgres || cell.name() != "postgres")).collect()
}

/// Programs that people run, under their usual load generators.
pub fn applications() -> Vec<Box<dyn Cell>> {
    vec![
        Box::new(redis::Redis::more()),
        Box::new(memcached::Memcached),
        Box::new(web::Web::files()),
        Box::new(web::Web::proxy()),
        Box::new(forwarder::Forwarder),
        Box::new(postgres::Postgres::more()),
        Box::new(ftp::Ftp::default()),
        Box::new(web::Web::python()),
        Box::new(web::Web::node()),
    ]
}

/// The cell of this name.
pub fn named(name: &str) -> Option<Box<dyn Cell>> {
    all().into_iter().chain(applications()).find(|cell| cell.name() == name)
}

/// A size as people write it.
pub(crate) fn bytes(size: usize) -> String {
    match size {
        size if size >= 1 << 20 && size % (1 << 20) == 0 => format!("{} MiB", size >> 20),
        size if size >= 1 << 10 && size % (1 << 10) == 0 => format!("{} KiB", size >> 10),
        size => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_a_row_for_each_cell() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/BENCHMARKS.md")).unwrap();
        let titles: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
        for cell in all().into_iter().chain(applications()) {
            let name = format!("`{}`", cell.name());
            assert!(titles.iter().any(|title| title.contains(&name)), "{name}");
        }
    }
}

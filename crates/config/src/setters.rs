//! One setter for each row of the table: it checks a value and stores it in the field of its option.

use crate::hosts::Hosts;
use crate::near::Near;
use crate::options::{Log, Options, Raw, Udp, Unix};
use crate::ports::Ports;
use crate::problem::Problem;
use crate::values::{choice, size, time};

const RING_LEAST: u64 = 4 << 10;
const RING_MOST: u64 = 4 << 20;
const BULK_LEAST: u64 = 64;
const BULK_MOST: u64 = 1 << 30;
const SPIN_MOST_NS: u64 = 10_000_000;

fn within(number: u64, least: u64, most: u64) -> Result<u64, Problem> {
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(Problem::OutOfRange)
    }
}

pub(crate) fn set_accelerate(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.accelerate = choice(value, &[("on", true), ("off", false), ("1", true), ("0", false)])?;
    Ok(())
}

pub(crate) fn set_ring(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.ring = (within(size(value)?, RING_LEAST, RING_MOST)? as u32).next_power_of_two();
    Ok(())
}

pub(crate) fn set_spin(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.spin_ns = within(time(value)?, 0, SPIN_MOST_NS)?;
    Ok(())
}

pub(crate) fn set_spin_on_kernel(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.spin_on_kernel = choice(value, &[("on", true), ("off", false), ("1", true), ("0", false)])?;
    Ok(())
}

pub(crate) fn set_ports(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    Ports::parse(value).map(|ports| options.ports = ports)
}

pub(crate) fn set_hosts(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    Hosts::parse(value).map(|hosts| options.hosts = hosts)
}

pub(crate) fn set_inet(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.inet_unasked = value == b"auto";
    options.inet = match value {
        b"off" => Ports::NONE,
        b"auto" => Ports::ALL,
        list => Ports::parse(list)?,
    };
    Ok(())
}

pub(crate) fn set_near(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.near = Near::parse(value)?;
    Ok(())
}

pub(crate) fn set_bulk(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    let bytes = size(value)?;
    options.bulk = if bytes == 0 { 0 } else { within(bytes, BULK_LEAST, BULK_MOST)? };
    Ok(())
}

pub(crate) fn set_udp(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.udp = choice(value, &[("off", Udp::Off), ("on", Udp::On), ("eager", Udp::Eager)])?;
    Ok(())
}

pub(crate) fn set_unix(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.unix = choice(value, &[("off", Unix::Off), ("on", Unix::On), ("eager", Unix::Eager)])?;
    Ok(())
}

pub(crate) fn set_log(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.log = choice(value, &[("off", Log::Off), ("fallbacks", Log::Fallbacks), ("all", Log::All)])?;
    Ok(())
}

pub(crate) fn set_io_uring(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.io_uring_allowed = choice(value, &[("deny", false), ("allow", true)])?;
    Ok(())
}

pub(crate) fn set_raw(options: &mut Options, value: &[u8]) -> Result<(), Problem> {
    options.raw = choice(value, &[("off", Raw::Off), ("trap", Raw::Trap), ("auto", Raw::Auto)])?;
    Ok(())
}

/// The library's path is used by the command, which keeps it itself; here it only must not be empty.
pub(crate) fn set_library(_: &mut Options, value: &[u8]) -> Result<(), Problem> {
    match value {
        [] => Err(Problem::Malformed),
        _ => Ok(()),
    }
}

/// Used by the command alone.
pub(crate) fn set_rpc(_: &mut Options, value: &[u8]) -> Result<(), Problem> {
    choice(value, &[("off", ()), ("on", ())])
}

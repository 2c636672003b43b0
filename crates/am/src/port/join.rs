//! Two ports of one program, connected.

use super::{Port, Trouble};
use crate::Dispatch;
use shunt_endpoint::{Endpoint, Tags};
use std::time::Duration;

/// Registers two ports at hand with each other, and connects them, as socketpair(2) joins two sockets: both are polled
/// meanwhile, so one thread can have both. Gives the number of the peer at `a`, and at `b`.
///
/// # Errors
/// `Channel`; `Lost`, when the two do not hear of each other within the declared time.
pub fn join<A: Endpoint, B: Endpoint>(
    (a, at_a): (&mut Port<'_, A>, &mut dyn Dispatch),
    (b, at_b): (&mut Port<'_, B>, &mut dyn Dispatch),
) -> Result<(u32, u32), Trouble> {
    let for_a = a.endpoint().new_tag().map_err(|errno| Trouble::Channel(errno.into()))?;
    let for_b = b.endpoint().new_tag().map_err(|errno| Trouble::Channel(errno.into()))?;
    let to_b = a.open(&b.endpoint().address(), Tags { receive: for_a, send: for_b }).map_err(Trouble::Channel)?;
    let to_a = b.open(&a.endpoint().address(), Tags { receive: for_b, send: for_a }).map_err(Trouble::Channel)?;
    a.now();
    a.with(|engine, now, link| engine.connect(now, to_b, link)).map_err(Trouble::Refused)?;
    while !a.engine().is_up(to_b) || !b.engine().is_up(to_a) {
        if !a.status(to_b).is_some_and(|status| status.up || status.connecting) {
            return Err(Trouble::Lost);
        }
        b.poll(at_b);
        a.wait(at_a, Duration::from_micros(1));
    }
    Ok((to_b, to_a))
}

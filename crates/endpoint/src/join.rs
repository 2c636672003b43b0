//! A channel between two endpoints of one program.

use crate::{Channel, Endpoint, OpenError, Tags};

/// Opens a channel between two endpoints at hand, as socketpair(2) joins two sockets, with tags that each has made. Gives the
/// channel of `a`, which leads to `b`, and that of `b`.
///
/// # Errors
/// What either answers; nothing is open then.
pub fn join<A: Endpoint + ?Sized, B: Endpoint + ?Sized>(a: &mut A, b: &mut B) -> Result<(Channel, Channel), OpenError> {
    let (for_a, for_b) = (a.new_tag()?, b.new_tag()?);
    let to_b = a.open(&b.address(), Tags { receive: for_a, send: for_b })?;
    let to_a = b.open(&a.address(), Tags { receive: for_b, send: for_a }).inspect_err(|_| a.close(to_b))?;
    Ok((to_b, to_a))
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use crate::device::shm::{Options, Shm};

    #[test]
    fn a_full_registry_leaves_the_other_as_it_was() {
        let small = || Shm::new(Options { channels: 2, segment: 4096 }).unwrap();
        let (mut full, mut a, mut b) = (small(), small(), small());
        join(&mut full, &mut a).unwrap();
        join(&mut full, &mut b).unwrap();
        assert_eq!(join(&mut a, &mut full), Err(OpenError::Full));
        join(&mut a, &mut b).unwrap();
        assert_eq!(join(&mut a, &mut b), Err(OpenError::Full));
    }
}

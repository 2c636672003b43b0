//! The gate: a receiver that sleeps, or needs the kernel to see each datagram, shuts it, and it opens when none does any more.

use super::*;
use crate::datagram::{self, pin, Sleeper};
use core::sync::atomic::Ordering;
use shunt_sys::libc::{AF_INET, MSG_DONTWAIT, SHUT_RD, SOCK_STREAM};

/// Two sockets of ours, and where the next datagram from the first to the second goes.
struct Route<'a> {
    world: &'a World,
    near: i32,
    far: i32,
}

impl<'a> Route<'a> {
    fn new(world: &'a World) -> Route<'a> {
        let (near, far) = world.two();
        Route { world, near, far }
    }

    /// Whether it goes through memory when the receiver is awake, and has found nothing. It is received.
    fn is_in_memory(&self) -> bool {
        assert_eq!(self.world.text(self.far, 8, MSG_DONTWAIT), Err(Errno(shunt_sys::libc::EAGAIN)));
        self.world.send_to(self.near, b"x", self.far).unwrap();
        let there = self.world.in_memory(self.far);
        assert_eq!(self.world.text(self.far, 8, MSG_DONTWAIT), Ok("x".into()));
        there
    }
}

#[test]
fn a_sleeper_is_reached_by_the_kernel_and_one_that_is_awake_in_memory() {
    let world = &World::new(true);
    let route = Route::new(world);
    let socket = world.object(route.far);
    assert!(route.is_in_memory());
    let [one, other] = [(); 2].map(|()| datagram::before_sleep(socket));
    world.send_to(route.near, b"asleep", route.far).unwrap();
    assert!(world.in_kernel(route.far));
    assert!(datagram::after_sleep(socket, one));
    world.send_to(route.near, b"one", route.far).unwrap();
    assert!(world.in_kernel(route.far), "the other sleeps still");
    assert!(datagram::after_sleep(socket, other));
    assert_eq!(world.all(route.far, 8), ["asleep", "one"]);
    assert!(route.is_in_memory());
}

#[test]
fn each_pin_shuts_the_gate_until_all_are_taken_back() {
    let world = &World::new(true);
    let route = Route::new(world);
    let socket = world.object(route.far);
    for (why, open) in [(pin::ASYNC, false), (pin::SET, false), (pin::ASYNC, false)] {
        socket.pin(why);
        assert_eq!(route.is_in_memory(), open);
    }
    socket.unpin(pin::ASYNC);
    assert!(!route.is_in_memory(), "a reason is left");
    socket.unpin(pin::FORK);
    assert!(!route.is_in_memory(), "one that was never given takes nothing back");
    socket.unpin(pin::SET);
    assert!(route.is_in_memory());
}

#[test]
fn sets_that_grow_cold_are_counted() {
    let world = &World::new(true);
    let route = Route::new(world);
    let socket = world.object(route.far);
    let cold = [(); 2].map(|()| socket.cool());
    assert!(!route.is_in_memory());
    socket.warm(cold[0]);
    assert!(!route.is_in_memory());
    socket.warm(cold[1]);
    socket.warm(datagram::epoll::gate::WARM);
    assert!(route.is_in_memory());
}

/// A sender that was stopped between its datagram and its look at the gate: what it takes back was not there for a poll.
#[test]
fn what_a_sender_is_about_to_take_back_is_not_told() {
    for takes_back in [false, true] {
        let world = &World::new(true);
        let (near, far) = world.two();
        world.send_to(near, b"x", far).unwrap();
        let (socket, inbox) = (world.object(far), world.inbox(far).unwrap());
        let cold = socket.cool();
        let header = inbox.header();
        header.lock.store(shunt_sys::thread::id(), Ordering::Relaxed);
        let told = std::thread::scope(|scope| {
            let poll = scope.spawn(|| datagram::events(socket));
            std::thread::sleep(std::time::Duration::from_millis(20));
            if takes_back {
                header.head.store(header.tail.load(Ordering::Relaxed), Ordering::SeqCst);
            }
            header.lock.store(0, Ordering::Release);
            poll.join().unwrap()
        });
        assert_eq!(told != 0, !takes_back);
        socket.warm(cold);
    }
}

#[test]
fn what_waits_when_the_gate_is_shut_is_received_before_what_comes() {
    let world = &World::new(true);
    let (near, far) = world.two();
    world.send_to(near, b"memory", far).unwrap();
    assert!(world.in_memory(far));
    world.object(far).pin(pin::ASYNC);
    world.send_to(near, b"kernel", far).unwrap();
    assert_eq!(world.all(far, 8), ["memory", "kernel"]);
}

#[test]
fn asynchronous_input_is_the_kernels_until_it_is_switched_off() {
    let world = &World::new(true);
    let route = Route::new(world);
    datagram::options::set_async(world.object(route.far), true);
    assert!(!route.is_in_memory());
    datagram::options::set_async(world.object(route.far), false);
    assert!(route.is_in_memory());
}

#[test]
fn options_that_no_record_can_serve_pin_and_harmless_ones_do_not() {
    use shunt_sys::libc::{IPPROTO_IP, IP_RECVOPTS, IP_TTL, SOL_SOCKET, SO_BROADCAST, SO_MARK, SO_SNDBUF};
    let world = &World::new(true);
    let route = Route::new(world);
    for (level, name) in [(SOL_SOCKET, SO_SNDBUF), (SOL_SOCKET, SO_BROADCAST), (IPPROTO_IP, IP_TTL)] {
        world.set(route.far, level, name, 100).unwrap();
        assert!(route.is_in_memory(), "{level} {name}");
    }
    world.set(route.far, SOL_SOCKET, SO_MARK, 0).unwrap();
    assert!(route.is_in_memory(), "switched off");
    world.set(route.far, IPPROTO_IP, IP_RECVOPTS, 1).unwrap();
    assert!(!route.is_in_memory());
}

#[test]
fn a_shut_socket_is_the_kernels() {
    let world = &World::new(true);
    let (near, far) = world.pair(SOCK_STREAM);
    world.send(near, b"a", 0).unwrap();
    assert!(world.in_memory(far));
    world.shut(near, SHUT_RD).unwrap();
    world.send(near, b"b", 0).unwrap();
    assert_eq!(world.text(far, 8, MSG_DONTWAIT), Ok("ab".into()));
}

#[test]
fn a_duplicate_keeps_the_inbox_and_the_last_close_retires_it() {
    let world = &World::new(true);
    let (near, far) = world.two();
    let copy = world.dup(far);
    let inbox = world.inbox(far).unwrap();
    world.send_to(near, b"x", far).unwrap();
    world.close(far);
    assert!(!inbox.is_retired() && world.in_memory(copy));
    world.close(copy);
    assert!(inbox.is_retired(), "the sender's route keeps the memory");
}

#[test]
fn a_sleeper_fits_into_a_place_for_events_and_is_known_there() {
    let world = &World::new(true);
    let (one, other) = world.two();
    let [socket, another] = [one, other].map(|fd| world.object(fd));
    let packed = datagram::before_sleep(socket).pack(socket);
    assert_ne!(packed, 0);
    assert!([0, packed & !1, packed ^ 4, packed ^ i16::MIN].into_iter().all(|wrong| Sleeper::unpack(socket, wrong).is_none()));
    assert!(Sleeper::unpack(another, packed).is_none(), "of another socket");
    let sleeper = Sleeper::unpack(socket, packed).expect("the same");
    assert!(datagram::after_sleep(socket, sleeper));
}

#[test]
fn a_sleeper_of_a_socket_that_was_closed_meanwhile_takes_nothing_back() {
    let world = &World::new(true);
    let fd = world.udp(AF_INET);
    let socket = world.object(fd);
    let (sleeper, packed) = {
        let sleeper = datagram::before_sleep(socket);
        (sleeper, sleeper.pack(socket))
    };
    world.close(fd);
    assert!(!datagram::after_sleep(socket, sleeper));
    assert!(Sleeper::unpack(socket, packed).is_none());
}

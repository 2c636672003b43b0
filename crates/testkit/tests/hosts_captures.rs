//! Streams between two hosts over AF_XDP: what the agents of both capture is the same, frame for frame.

mod two_hosts;

use shunt_testkit::captured::{self, Captured};
use two_hosts::{Site, Way, PORT};

/// What was sent by one end and what was received by the other, in order.
fn both(from: &Captured, to: &Captured) -> [Vec<Vec<u8>>; 2] {
    let of = |captured: &Captured, is_sent: bool| {
        let frames = captured.frames.iter().filter(|frame| frame.is_sent == is_sent);
        frames.filter_map(|frame| frame.datagram().map(<[u8]>::to_vec)).collect::<Vec<_>>()
    };
    [of(from, true), of(to, false)]
}

#[test]
fn what_one_host_sends_the_other_receives() {
    let Some(mut site) = Site::capturing("hosts-captures", Way::Xdp) else { return };
    let server = site.serve("server");
    let arguments = |_| vec!["bystander".to_string(), PORT.to_string()];
    let (mut client, _) = site.client(&server, "bystander", &arguments, "connected");
    std::thread::sleep(std::time::Duration::from_millis(500));
    drop(client.child.stdin.take());
    client.wait_for("fine");
    let files = [site.capture(0), site.capture(1)];
    drop((client, server));
    site.agents.drain(..).for_each(shunt_testkit::agent::Agent::stop);
    let captured = files.map(|file| captured::read(&file).expect("a whole file"));
    for (from, to) in [(0, 1), (1, 0)] {
        let [sent, received] = both(&captured[from], &captured[to]);
        assert!(sent.len() > 50, "{} frames were sent", sent.len());
        // A crowded machine may drop some on the way, or in a capture, which says so then.
        let mut rest = sent.iter();
        let unknown = received.iter().filter(|frame| !rest.any(|other| other == *frame)).count();
        let missing = captured[from].missing() as usize;
        assert!(unknown <= missing, "{unknown} of {} frames were never sent, {missing} are missing", received.len());
        assert!(received.len() * 10 > sent.len() * 9, "{} of {} arrived", received.len(), sent.len());
    }
    for one in &captured {
        assert!(one.frames.windows(2).all(|pair| pair[0].time <= pair[1].time), "in order of time");
    }
}

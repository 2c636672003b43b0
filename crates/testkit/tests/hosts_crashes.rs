//! Between hosts: `kill -9` of either side, and a path that goes away in mid-stream. Every byte that comes is the right one,
//! every end is one that the kernel could have shown, and nothing is left on the hosts.

mod two_hosts;

use shunt_testkit::conversation::{End, Pattern};
use shunt_testkit::hosts::{plug, Joint};
use shunt_testkit::{python_program, Random};
use std::io::Write;
use std::time::{Duration, Instant};

use two_hosts::{peer, until, Site, PORT};

/// The `close` lines of a survivor: seed, bytes and end; each is checked against what the kernel allows.
fn closes(text: &str) -> Vec<(u64, u64, End)> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let words = whole.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|words| words[0] == "close");
    words
        .map(|words| {
            let (seed, bytes) = (words[2].parse().expect("a number"), words[4].parse().expect("a number"));
            let end: End = words[5].parse().expect("an end");
            if let Some(pattern) = words[3].chars().next().and_then(Pattern::from_letter) {
                assert!(pattern.allows(end, bytes), "{pattern:?}: {end:?} after {bytes} bytes");
            }
            (seed, bytes, end)
        })
        .collect()
}

/// How many times a side is killed: `SHUNT_TEST_KILLS` asks for another number.
fn kills() -> u64 {
    std::env::var("SHUNT_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// The client dies at random points; a bystander's connection to the same server goes on.
fn killed_clients(site: Site) {
    let server = site.serve("server");
    let bystander = site.bystander(&server);
    let mut random = Random::for_test();
    for turn in 0..kills() {
        let seed = 1000 * (turn + 1);
        let letters = ["vse", "q", "u", "vu", "e"][random.below(5) as usize];
        let victim = site.start(0, "victim", &peer(), &["connect", &PORT.to_string(), letters, &seed.to_string()]);
        victim.wait_for(&format!("connected {seed}"));
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        victim.kill();
        until(&format!("the server to see the end of {letters}, turn {turn}"), || {
            closes(&server.text()).iter().any(|(of, ..)| *of == seed)
        });
    }
    assert!(bystander.end_of_input().contains("fine "));
    drop(server);
    site.finish();
}
between_hosts!(killed_clients);

/// The server dies at random points; clients see what the kernel would show them.
fn killed_servers(site: Site) {
    let mut random = Random::for_test();
    for turn in 0..kills() {
        let server = site.serve("server");
        let survivor = format!("survivor{turn}");
        let mut clients = Vec::new();
        for (place, letter) in ["v", "s", "e", "u", "q"].into_iter().enumerate() {
            // Each in a process of its own: a `survive` wants a bystander as well, whose server may not die.
            let name = format!("{survivor}{place}");
            let arguments = ["outlive", &PORT.to_string(), letter, &(turn * 10 + place as u64 + 1).to_string()];
            clients.push(site.start(0, &name, &peer(), &arguments));
        }
        clients.iter().for_each(|client| client.wait_for("connected"));
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        server.kill();
        for client in clients {
            let text = client.end_of_input();
            assert_eq!(closes(&text).len(), 1, "{text}");
        }
    }
    site.finish();
}
between_hosts!(killed_servers);

/// The cable is pulled for a while and put back: TCP waits and goes on, and so must everything that stands for it.
fn cable_pulled(site: Site) {
    let server = site.serve("server");
    let bystander = site.bystander(&server);
    let (sender, sent) = site.victim(&server, "sender", "v", 77);
    for pause in [50, 700] {
        site.hosts[0].ip("link set left0 down");
        std::thread::sleep(Duration::from_millis(pause));
        site.hosts[0].ip("link set left0 up");
        std::thread::sleep(Duration::from_millis(300));
    }
    // Its last round was verified after the cable was put back, or it would not end well.
    assert!(bystander.end_of_input().contains("fine "));
    sender.kill();
    until("the end of the stream", || closes(&server.text()).iter().any(|(seed, bytes, _)| *seed == sent && *bytes > 0));
    drop(server);
    site.finish();
}
between_hosts!(cable_pulled);

/// The interface is taken away, with its address and its routes, and another one is put in its place.
fn cable_replaced(site: Site) {
    let server = site.serve("server");
    let bystander = site.bystander(&server);
    let (sender, sent) = site.victim(&server, "sender", "v", 77);
    site.hosts[0].ip("link del left0");
    std::thread::sleep(Duration::from_millis(300));
    plug(&site.hosts[0], &site.switch, 1, Joint::default()).expect("an interface");
    // A UDP socket serves the new one as well, within the time after which silence is a loss.
    if site.way == two_hosts::Way::Xdp {
        site.wait_for_tcp(&bystander);
    }
    // Its last round is verified after that, or it would not end well.
    assert!(bystander.end_of_input().contains("fine "));
    sender.kill();
    until("the end of the stream", || closes(&server.text()).iter().any(|(seed, bytes, _)| *seed == sent && *bytes > 0));
    drop(server);
    site.finish();
}
between_hosts!(cable_replaced);

/// Datagrams no longer arrive, TCP does: streams go on over TCP, and every byte of theirs is the right one.
fn fast_path_lost(mut site: Site) {
    let server = site.serve("server");
    let bystander = site.bystander(&server);
    let (sender, sent) = site.victim(&server, "sender", "v", 77);
    site.lose_path();
    // Its last round is verified after that, or it would not end well.
    assert!(bystander.end_of_input().contains("fine "));
    sender.kill();
    until("the end of the stream", || closes(&server.text()).iter().any(|(seed, bytes, _)| *seed == sent && *bytes > 0));
    drop(server);
    site.finish();
}
mod fast_path_lost {
    crate::between_hosts!(fast_path_lost, udp, Udp);
}

/// Packets may no longer be as long as they were: what was made for longer ones goes on over TCP, or by packets that the kernel cuts; what is
/// made now is fast.
fn path_made_narrow(site: Site) {
    let server = site.serve("server");
    let bystander = site.bystander(&server);
    let (sender, sent) = site.victim(&server, "sender", "v", 77);
    for host in &site.hosts {
        host.ip(&format!("link set {} mtu 1400", host.interface));
    }
    let goes = |client: &two_hosts::Running, ways: [&str; 2], much: &[char]| {
        std::thread::sleep(Duration::from_millis(100)); // it is much to look at
        let (program, told) = (format!("testkit-peer/{}", client.id()), site.shunt(0, &["ss"]));
        let mut lines = told.lines().filter(|line| line.contains(&program)).map(str::split_ascii_whitespace);
        lines.any(|mut words| {
            let way = words.next().is_some_and(|way| ways.contains(&way));
            let sent = words.skip_while(|word| *word != program).nth(1);
            way && sent.is_some_and(|sent| much.is_empty() || sent.ends_with(much))
        })
    };
    until("the stream to leave the path", || goes(&sender, ["tcp", "udp"], &[]));
    let (other, _) = site.victim(&server, "other", "v", 1077);
    until("megabytes to go by short frames", || goes(&other, ["xdp", "udp"], &['M', 'G']));
    assert!(bystander.end_of_input().contains("fine "));
    sender.kill();
    other.kill();
    until("the end of the stream", || closes(&server.text()).iter().any(|(seed, bytes, _)| *seed == sent && *bytes > 0));
    drop(server);
    site.finish();
}
mod path_made_narrow {
    crate::between_hosts!(path_made_narrow, xdp, Xdp);
}

/// Packets become shorter than the short ones: a program loses two streams to that, and its next ones are fast again.
fn path_made_narrower(site: Site) {
    let client = "import socket,sys\n\
        for line in sys.stdin:\n\
        \x20   s = socket.create_connection((sys.argv[1], 9450))\n\
        \x20   s.sendall(b'x' * 100000)\n\
        \x20   assert s.recv(4) == b'done'\n\
        \x20   print('talked', flush=True)\n\
        \x20   sys.stdin.readline()\n\
        \x20   s.close()\n\
        \x20   print('closed', flush=True)\n";
    let server = "import socket,sys\n\
        l = socket.create_server((sys.argv[1], 9450))\n\
        print('ready', flush=True)\n\
        while True:\n\
        \x20   c = l.accept()[0]\n\
        \x20   n = 0\n\
        \x20   while n < 100000: n += len(c.recv(65536))\n\
        \x20   c.sendall(b'done')\n\
        \x20   assert c.recv(4) == b''\n\
        \x20   c.close()\n";
    let python = python_program();
    let server = site.start(1, "server", &python, &["-c", server, &site.address()]);
    server.wait_for("ready");
    let mut client = site.start(0, "client", &python, &["-c", client, &site.address()]);
    let (mut talked, pid) = (0, client.id());
    // What carries a connection when it has carried so much.
    let mut way = || {
        let tell = |client: &mut two_hosts::Running, said: &str| {
            client.child.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it reads");
            until(said, || client.text().matches(said).count() == talked + 1);
        };
        tell(&mut client, "talked");
        let told = site.shunt(0, &["ss"]);
        let line = told.lines().find(|line| line.contains(&format!("/{pid} ")) && line.contains(":9450"));
        let way = line.and_then(|line| line.split_ascii_whitespace().next()).unwrap_or("kernel").to_string();
        tell(&mut client, "closed");
        talked += 1;
        way
    };
    // On a crowded machine the server may not take a stream in time: then the client's next ones are the kernel's for 30 s.
    let began = Instant::now();
    while way() != "xdp" {
        assert!(began.elapsed() < Duration::from_secs(90), "waited for a fast stream");
    }
    for host in &site.hosts {
        host.ip(&format!("link set {} mtu 1000", host.interface));
    }
    let (mut lost, began) = (0, Instant::now());
    loop {
        match way().as_str() {
            "xdp" => break,
            way => lost += usize::from(way == "tcp"),
        }
        assert!(began.elapsed() < Duration::from_secs(90), "waited for a fast stream over the narrow path");
    }
    // Two to find the length, and who is silent for two seconds on a crowded machine costs one, too.
    assert!(lost <= 4, "{lost} streams left the path");
    client.end_of_input();
    server.kill();
    site.finish();
}
mod path_made_narrower {
    crate::between_hosts!(path_made_narrower, xdp, Xdp);
}

/// The same for one program alone, which has a queue of its own where one is lent: its device refuses longer frames by itself.
fn queue_made_narrow(site: Site) {
    let server = site.serve("server");
    let (sender, sent) = site.victim(&server, "sender", "v", 77);
    for host in &site.hosts {
        host.ip(&format!("link set {} mtu 1400", host.interface));
    }
    site.wait_for_tcp(&sender);
    sender.kill();
    until("the end of the stream", || closes(&server.text()).iter().any(|(seed, bytes, _)| *seed == sent && *bytes > 0));
    drop(server);
    site.finish();
}
mod queue_made_narrow {
    crate::between_hosts!(queue_made_narrow, xdp, Xdp);
}

/// As when the path is lost, for a stream with urgent bytes: each is at its place, once, and nobody is at a mark elsewhere.
fn urgent_bytes_go_on(mut site: Site) {
    let server = site.serve_as("serve-urgent", "server");
    let arguments = |attempt: u64| vec!["urgent".to_string(), PORT.to_string(), (5 + attempt).to_string()];
    let (client, _) = site.client(&server, "client", &arguments, "connected");
    std::thread::sleep(Duration::from_millis(50));
    site.lose_path();
    site.wait_for_tcp(&client);
    let said = client.end_of_input();
    let rounds = said.lines().find_map(|line| line.strip_prefix("fine ")).unwrap_or_else(|| panic!("{said}")).to_string();
    server.wait_for(&format!("heard {rounds}\n"));
    drop(server);
    site.finish();
}
between_hosts!(urgent_bytes_go_on);

/// The same, for a stream on which a process and its children speak by turns, one forked after the other all the while.
fn forks_go_on(mut site: Site) {
    let server = site.serve("server");
    let arguments = |attempt: u64| vec!["fork".to_string(), PORT.to_string(), (5 + attempt).to_string()];
    let (client, _) = site.client(&server, "client", &arguments, "connected");
    std::thread::sleep(Duration::from_millis(50));
    site.lose_path();
    site.wait_for_tcp(&client);
    assert!(client.end_of_input().contains("fine "));
    until("the server to see its end", || {
        let text = server.text();
        text.matches("close ").count() == text.matches("open ").count()
    });
    drop(server);
    site.finish();
}
between_hosts!(forks_go_on);

/// A server that listened before there were agents is found when there are.
fn agent_comes_late(mut site: Site) {
    site.agents.clear();
    let server = site.serve("server");
    let early = site.start(0, "early", &peer(), &["bystander", &PORT.to_string()]);
    early.wait_for("connected");
    site.agents = vec![site.start_agent(0), site.start_agent(1)];
    let mut turn = 0;
    let mut late = None;
    until("a stream", || {
        drop(late.take());
        std::thread::sleep(Duration::from_millis(100)); // what was said of hosts is believed for a second
        let accepted = server.text().matches("open ").count();
        turn += 1;
        let client = site.start(0, &format!("late{turn}"), &peer(), &["bystander", &PORT.to_string()]);
        client.wait_for("connected");
        until("the server to accept", || server.text().matches("open ").count() > accepted);
        let fast = site.accelerated(server.id()) > 0;
        late = Some(client);
        fast
    });
    assert!(late.expect("the last").end_of_input().contains("fine "));
    assert!(early.end_of_input().contains("fine "));
    drop(server);
    site.finish();
}
mod agent_comes_late {
    crate::between_hosts!(agent_comes_late, xdp, Xdp);
}

/// The client's host gets another address, then the server's: programs that had a station there have streams again.
fn addresses_replaced(site: Site) {
    let server = "import socket,threading\n\
        l = socket.create_server(('', 9400), backlog=64)\n\
        print('ready', flush=True)\n\
        def serve(c):\n\
        \x20   try:\n\
        \x20       while b := c.recv(100): c.sendall(b)\n\
        \x20   except OSError: pass\n\
        while True:\n\
        \x20   threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()\n";
    let client = "import socket,sys\n\
        for line in sys.stdin:\n\
        \x20   s = socket.create_connection((line.strip(), 9400))\n\
        \x20   s.sendall(b'x' * 50)\n\
        \x20   assert s.recv(100)[:1] == b'x'\n\
        \x20   s.close()\n\
        \x20   print('talked', flush=True)\n";
    let python = python_program();
    let server = site.start(1, "server", &python, &["-c", server]);
    server.wait_for("ready");
    let mut client = site.start(0, "client", &python, &["-c", client]);
    let mut talked = 0;
    let mut streams_to = |address: &str| {
        let before = site.accelerated(client.id());
        until("a stream", || {
            client.child.stdin.as_mut().expect("a pipe").write_all(format!("{address}\n").as_bytes()).expect("it reads");
            talked += 1;
            until("the answer", || client.text().matches("talked").count() == talked);
            !site.way.accelerates() || site.accelerated(client.id()) > before
        });
    };
    streams_to("10.77.0.2");
    for (host, old, new) in [(0, "10.77.0.1", "10.77.0.11"), (1, "10.77.0.2", "10.77.0.12")] {
        site.hosts[host].ip(&format!("addr del {old}/24 dev left0"));
        site.hosts[host].ip(&format!("addr add {new}/24 dev left0"));
        if host == 0 {
            streams_to("10.77.0.2");
        }
    }
    streams_to("10.77.0.12");
    client.end_of_input();
    server.kill();
    site.finish();
}
between_hosts!(addresses_replaced);

/// What the tools tell of a stream, its process and the host, while it is fast.
fn tools(site: Site) {
    let server = site.serve("server");
    let bystander = site.bystander(&server);
    until("the stream to be fast", || site.shunt(0, &["ss", "--json"]).contains("\"way\": \"fast\""));
    let (device, pid) = (if site.way == two_hosts::Way::Xdp { "xdp" } else { "udp" }, bystander.child.id());
    until("a measured round trip", || !site.shunt(0, &["ss", "--json"]).contains("\"round_trip_us\": 0.0"));
    let told = site.shunt(0, &["ss"]);
    let line = told.lines().find(|line| line.contains(&format!("testkit-peer/{pid}"))).unwrap_or_else(|| panic!("{told}"));
    assert!(line.starts_with(device) && line.contains(&format!("{}:{PORT}", site.address())) && line.contains("us "), "{told}");
    let told = site.shunt(0, &["why", &pid.to_string()]);
    assert!(told.lines().any(|line| line.contains(&format!(" {device} ")) && line.contains("other-host:")), "{told}");
    assert!(told.contains("shunt keeps for itself: ") && !told.contains("not-tcp"), "{told}");
    let path = ["round trip ", "us +-", "time-out ", "; window ", " packets, ", " under way", "sent again", " time-outs"];
    assert!(told.lines().any(|line| path.iter().all(|words| line.contains(words))), "{told}");
    assert!(told.contains("the other host has room for "), "{told}");
    let agent = format!("of {} (", site.hosts[0].interface);
    assert_eq!(
        told.lines().any(|line| line.contains(&agent) && line.contains(" (copy), next hop ready")),
        device == "xdp",
        "{told}"
    );
    let told = site.shunt(0, &["why", "--json", &pid.to_string()]);
    for field in ["pace_us", "timeout_us", "largest_window_packets", "retransmissions", "room_bytes", "next_hop"] {
        assert_eq!(told.contains(&format!("\"{field}\": ")), field != "next_hop" || device == "xdp", "{field}: {told}");
    }
    let told = site.shunt(0, &["doctor"]);
    assert!(told.contains("station") && told.contains("fast; 0 lost their path"), "{told}");
    assert_eq!(told.contains(&format!("{}: ", site.hosts[0].interface)), !site.agents.is_empty(), "the agent: {told}");
    let told = site.shunt(0, &["agent", "status"]);
    let endpoint = format!("  {pid} ");
    let endpoint = told.lines().find(|line| line.starts_with(&endpoint));
    assert_eq!(endpoint.is_some_and(|line| line.contains("own-queue") && line.contains(" (copy) ")), device == "xdp", "{told}");
    assert_eq!(told.contains("; lends 0"), device == "xdp", "{told}");
    assert!(bystander.end_of_input().contains("fine "));
    drop(server);
    site.finish();
}
mod tools {
    crate::between_hosts!(tools, udp, Udp);
    // Without a queue for it a program goes by the kernel's UDP, though there is an agent.
    crate::between_hosts!(tools, auto, Auto);
    crate::between_hosts!(tools, xdp, Xdp);
}

/// Agents are killed in mid-stream, one after the other: what went through them goes on, by what is left of the path or by TCP.
fn agents_killed(mut site: Site) {
    let server = site.serve("server");
    let bystander = site.bystander(&server);
    let (sender, sent) = site.victim(&server, "sender", "v", 77);
    while let Some(agent) = site.agents.pop() {
        drop(agent);
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(bystander.end_of_input().contains("fine "));
    sender.kill();
    until("the end of the stream", || closes(&server.text()).iter().any(|(seed, bytes, _)| *seed == sent && *bytes > 0));
    drop(server);
    site.finish();
}
mod agents_killed {
    crate::between_hosts!(agents_killed, auto, Auto);
    crate::between_hosts!(agents_killed, xdp, Xdp);
}

/// Agents end in mid-stream, killed or asked to, and are started again: what went through them goes on, and who connects then is
/// accelerated as before, to a server that has listened all the time.
fn agents_restarted(mut site: Site) {
    let server = site.serve("server");
    let bystander = site.bystander(&server);
    let mut senders = vec![site.victim(&server, "first", "v", 1000)];
    for turn in 0..4u64 {
        let agent = site.agents.remove(0);
        // Those of the first host and of the second take turns.
        if turn < 2 {
            drop(agent);
        } else {
            agent.stop();
        }
        let agent = site.start_agent(turn as usize % 2);
        site.agents.push(agent);
    }
    senders.push(site.victim(&server, "second", "v", 2000));
    assert!(bystander.end_of_input().contains("fine "));
    for (sender, sent) in senders {
        sender.kill();
        until("the end of the stream", || closes(&server.text()).iter().any(|(seed, bytes, _)| *seed == sent && *bytes > 0));
    }
    drop(server);
    site.finish();
}
mod agents_restarted {
    crate::between_hosts!(agents_restarted, auto, Auto);
    crate::between_hosts!(agents_restarted, xdp, Xdp);
}

/// The keepers of one side are killed, then those of the other: as a network card that is unplugged, but nobody waits for ever,
/// and a client that begins then has as good a connection as the one before.
fn keepers_killed(site: Site) {
    let server = site.serve("server");
    for (host, seed) in [(0, 100), (1, 200)] {
        let (mut sender, _) = site.victim(&server, "sender", "v", seed);
        for keeper in site.hosts[host].processes().into_iter().filter(|process| name(*process) == "shunt-keeper") {
            // SAFETY: a number, of a process on a host of this test's own.
            unsafe { libc::kill(keeper as i32, libc::SIGKILL) };
        }
        // A reset, at any byte, the first ones that name the conversation included: the shadow connection was the keeper's.
        let count = |word: &str| server.text().lines().filter(|line| line.starts_with(word)).count();
        until("the end of the stream", || count("close ") == count("open "));
        until("the end of the sender", || sender.child.try_wait().expect("a child").is_some());
    }
    drop(server);
    site.finish();
}
mod keepers_killed {
    crate::between_hosts!(keepers_killed, udp, Udp);
    crate::between_hosts!(keepers_killed, auto, Auto);
    crate::between_hosts!(keepers_killed, xdp, Xdp);
}

fn name(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim().to_string()
}

//! Programs of others that use UDP, under shunt with plain peers: iperf3 both ways, a DNS server, an event loop of Python's.

use shunt_testkit::{program, python_program};

use crate::site::{until, Site};

/// What comes in order and whole over the kernel does here, whichever end sends.
#[test]
fn iperf3_sends_datagrams_both_ways() {
    let Some(site) = Site::new("iperf3-udp") else { return };
    let (iperf3, address) = (program("iperf3", "iperf3"), site.address(0));
    for (way, length) in [(&[][..], "200"), (&["-R"], "200"), (&[], "1400"), (&["-R"], "1400")] {
        // One that serves on closes its listener between two clients, and refuses the next one in between.
        let _server = site.start(0, 5201, "server", &iperf3, &["-s", "--one-off", "-p", "5201", "-B", &address]);
        site.wait_for_listener(0, 5201);
        let load = ["-c", &address, "-p", "5201", "-u", "-b", "12M", "-k", "3000", "-l", length, "-J"];
        let said = site.run(1, 0, &iperf3, &[&load[..], way].concat());
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let end = &said["end"];
        assert_eq!(end["streams"][0]["udp"]["out_of_order"], 0, "{way:?} {length}: {said}");
        assert!(end["sum"]["packets"].as_u64() >= Some(3000), "{way:?} {length}: {end}");
    }
}

/// Asks and compares: a resolver's questions, one at a time, from a socket of their own and from one for all.
const RESOLVER: &str = "
import random, socket, struct, sys
server = (sys.argv[1], 9053)
lasting = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(2000):
    asks = lasting if number % 8 else socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asks.settimeout(2)
    name = b''.join(bytes([len(label)]) + label for label in (b'host%d' % number, b'example', b''))
    head = struct.pack('!6H', number, 0x100, 1, 0, 0, 0)
    while True:
        asks.sendto(head + name + struct.pack('!2H', 1, 1), server)
        try:
            answer, source = asks.recvfrom(4096)
        except socket.timeout:
            continue
        if answer[:2] == head[:2]:
            break
    assert source == server and answer[:2] == head[:2] and answer.endswith(bytes([10, 1, 2, 3])), (number, source, answer)
print('fine')
";

/// It answers from the address that was asked, which it is told with each datagram.
#[test]
fn a_dns_server_answers_plain_clients() {
    let Some(site) = Site::new("dnsmasq") else { return };
    let (dnsmasq, address) = (program("dnsmasq", "dnsmasq-base"), site.address(0));
    let options = [
        "--keep-in-foreground",
        "--no-daemon",
        "--port=9053",
        "--no-resolv",
        "--no-hosts",
        "--pid-file=",
        "--conf-file=/dev/null",
    ];
    let server =
        site.start(0, 9053, "server", &dnsmasq, &[&options[..], &["--user=root", "--address=/example/10.1.2.3"]].concat());
    site.wait_for_listener(0, 9053);
    assert_eq!(site.run(1, 0, &python_program(), &["-c", RESOLVER, &address]), "fine\n", "{}", server.text());
}

const LOOP: &str = "
import asyncio, sys
class Answers(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, source):
        self.transport.sendto(data, source)
async def main():
    await asyncio.get_running_loop().create_datagram_endpoint(Answers, local_addr=(sys.argv[1], 9000))
    print('ready', flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
";

/// The library's own loop: a set, sockets that do not block.
#[test]
fn an_event_loop_echoes_datagrams() {
    let Some(site) = Site::new("asyncio-udp") else { return };
    let (python, address) = (python_program(), site.address(0));
    let server = site.start(0, 9000, "server", &python, &["-c", LOOP, &address]);
    until("a server", || server.text().contains("ready"));
    let script = shunt_testkit::script("plain_datagrams.py").display().to_string();
    for how in [&["2000"][..], &["2000", "connected", "ahead", "short"]] {
        let words = [&[script.as_str(), "talk", &address, "9000"], how].concat();
        assert_eq!(site.run(1, 0, &python, &words), "fine\n", "{}", server.text());
    }
}

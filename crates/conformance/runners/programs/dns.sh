# Name servers over TCP (and UDP): named, Unbound, Knot, PowerDNS with its recursor, dnsdist; dnsperf as the load.

_zone() {
    mkdir -p zone
    {
        echo '$ORIGIN example.test.'
        echo '$TTL 3600'
        echo '@ SOA ns admin 1 3600 600 86400 3600'
        echo '@ NS ns'
        echo 'ns A 127.0.0.1'
        for each in $(seq 2000); do
            echo "h$each A 10.1.$((each / 250)).$((each % 250))"
            echo "h$each TXT \"$(printf '%0120d' "$each")\""
        done
    } >zone/example.test
    for each in $(seq 2000); do echo "h$each.example.test A"; echo "h$each.example.test TXT"; done >queries
    chmod -R a+rwX .
}
_named() {
    cat >named.conf <<END
options { directory "$PWD"; listen-on port 5451 { 127.0.0.1; }; listen-on-v6 { none; }; recursion no; pid-file none; dnssec-validation no; allow-transfer { any; }; session-keyfile "$PWD/session.key"; tcp-clients 300; };
controls { };
zone "example.test" { type master; file "$PWD/zone/example.test"; };
END
    serve named -f -n 2 -c "$PWD/named.conf"
    await_port 5451
    await _has_loaded 5451
}
# named listens before it has read its zones.
_has_loaded() { dig +tcp @127.0.0.1 -p "$1" h1.example.test | grep -q NOERROR; }
_ask() { # PORT [TIMES]
    dnsperf -s 127.0.0.1 -p "$1" -d queries -m tcp -c 8 -T 2 -n "${2:-3}" -t 20 2>&1 | grep -E 'Queries (sent|completed|lost)|Response codes' | tr -s ' '
    local each
    for each in 1 2 3; do dig +tcp +noall +answer @127.0.0.1 -p "$1" "h7$each.example.test" TXT "h8$each.example.test" A; done | sed 's/\t[0-9]*\t/ /' | sha256sum
}
named() {
    _zone
    _named
    _ask 5451
    dig +tcp @127.0.0.1 -p 5451 example.test AXFR | grep -v '^;' | sort | sha256sum
    dnsperf -s 127.0.0.1 -p 5451 -d queries -c 4 -n 2 -t 20 2>&1 | grep -E 'Queries (sent|lost)' | tr -s ' '
}
unbound() {
    _zone
    _named
    cat >unbound.conf <<END
server:
  interface: 127.0.0.1
  port: 5452
  do-daemonize: no
  use-syslog: no
  username: ""
  chroot: ""
  directory: "$PWD"
  pidfile: "$PWD/unbound.pid"
  num-threads: 2
  so-reuseport: yes
  do-not-query-localhost: no
  module-config: "iterator"
  local-zone: "test." nodefault
  tcp-upstream: yes
  incoming-num-tcp: 200
remote-control:
  control-enable: no
stub-zone:
  name: "example.test"
  stub-addr: 127.0.0.1@5451
END
    serve unbound -d -c "$PWD/unbound.conf"
    await_port 5452
    _ask 5452
}
knot() {
    _zone
    mkdir -p knot
    cat >knot.conf <<END
server:
    listen: 127.0.0.1@5453
    rundir: "$PWD/knot"
    tcp-workers: 3
    tcp-reuseport: ${1:-off}
database:
    storage: "$PWD/knot"
zone:
  - domain: example.test
    file: "$PWD/zone/example.test"
    zonefile-load: whole
END
    serve knotd -c "$PWD/knot.conf"
    await_port 5453
    sleep 1
    _ask 5453
}
knot_reuseport() { knot on; }
powerdns() {
    _zone
    mkdir -p pdns
    echo "zone \"example.test\" { type master; file \"$PWD/zone/example.test\"; };" >pdns/named.conf
    serve pdns_server --no-config --daemon=no --guardian=no --launch=bind --bind-config="$PWD/pdns/named.conf" --local-address=127.0.0.1:5454 --socket-dir="$PWD/pdns" --max-tcp-connections=100 --module-dir=/usr/lib/x86_64-linux-gnu/pdns --config-dir="$PWD/pdns"
    await_port 5454
    _ask 5454
    mkdir -p rec
    serve pdns_recursor --config-dir="$PWD/rec" --daemon=no --local-address=127.0.0.1 --local-port=5455 --socket-dir="$PWD/rec" --forward-zones=example.test=127.0.0.1:5454 --threads=2 --max-tcp-clients=200 --max-tcp-per-client=0 --dnssec=off --dont-query= --hint-file=no --disable-packetcache=yes --max-cache-entries=10
    await_port 5455
    _ask 5455 1
}
dnsdist() {
    _zone
    _named
    cat >dnsdist.conf <<END
setLocal("127.0.0.1:5456")
newServer({address="127.0.0.1:5451", tcpOnly=true, checkTCP=true})
setACL("127.0.0.0/8")
END
    serve dnsdist --supervised --disable-syslog -C dnsdist.conf
    await_port 5456
    sleep 3
    _ask 5456
}

# Prosody: clients that talk to each other through it, in the clear; large stanzas, a client that is killed, a new configuration.

_start() { # PORT
    mkdir -p data
    cat >prosody.cfg.lua <<END
daemonize = false; pidfile = "$PWD/prosody.pid"; data_path = "$PWD/data"; log = { error = "$PWD/error.log" }
interfaces = { "127.0.0.1" }; c2s_ports = { $1 }; s2s_ports = {}; run_as_root = true; prosody_user = "root"; prosody_group = "root"
modules_enabled = { "saslauth"; "roster"; "ping" }; modules_disabled = { "s2s"; "offline" }
c2s_require_encryption = false; allow_unencrypted_plain_auth = true; authentication = "internal_plain"
limits = {}; c2s_stanza_size_limit = 10000000
VirtualHost "localhost"
END
    for user in $(seq 8); do prosodyctl --root --config "$PWD/prosody.cfg.lua" register "user$user" localhost there >register.log 2>&1; done
    serve prosody --root --config "$PWD/prosody.cfg.lua"
    await_port "$1"
    cat >client.py <<'END'
import base64, hashlib, re, socket, sys
class Client:
    def __init__(self, port, name):
        self.there, self.text, self.name = socket.create_connection(("127.0.0.1", port)), "", name
        self.there.settimeout(30)
        self.open()
        secret = base64.b64encode(f"\0{name}\0there".encode()).decode()
        self.say(f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{secret}</auth>")
        self.hear("<success[^>]*/>")
        self.open()
        self.say("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>r</resource></bind></iq>")
        self.hear("<jid>.*?</iq>")
        self.say("<presence/>")
    def say(self, text):
        self.there.sendall(text.encode())
    def hear(self, pattern):
        while not (found := re.search(pattern, self.text, re.S)):
            more = self.there.recv(100000)
            assert more, f"{self.name}: an end after {self.text[-100:]}"
            self.text += more.decode()
        self.text = self.text[found.end():]
        return found
    def open(self):
        self.say("<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='localhost' version='1.0'>")
        self.hear("</stream:features>")
    def tell(self, other, text):
        self.say(f"<message to='{other}@localhost/r' type='chat'><body>{text}</body></message>")
    def told(self):
        return self.hear("<body>(.*?)</body>").group(1)
port, number, count, size = map(int, sys.argv[1:])
one, other = Client(port, f"user{2 * number - 1}"), Client(port, f"user{2 * number}")
heard = hashlib.sha256()
for turn in range(count):
    for burst in range(10):
        one.tell(other.name, f"{turn} {burst} " + "x" * size)
    for burst in range(10):
        heard.update(other.told().encode())
    other.tell(one.name, f"heard {turn}")
    assert one.told() == f"heard {turn}"
print(heard.hexdigest())
END
}
_pairs() { # PORT COUNT SIZE
    local clients=()
    for pair in 1 2 3; do timeout 100 /usr/bin/python3 client.py "$1" $pair "$2" "$3" >"told.$pair" 2>&1 & clients+=($!); done
    wait "${clients[@]}"
    cat told.*
}
messages() { _start 5251; _pairs 5251 60 20; _pairs 5251 4 60000; }
client_killed_and_reload() {
    _start 5252
    /usr/bin/python3 client.py 5252 4 100000 100 &
    local dying=$!
    sleep 1
    kill -9 $dying
    kill -HUP "$(cat prosody.pid)"
    _pairs 5252 40 200
}

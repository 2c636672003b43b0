# QEMU's live migration over TCP: a machine without disks, whose memory holds something, moves to another process.

_machine() {
    serve qemu-system-x86_64 -accel tcg -machine pc -m 256 -nodefaults -no-user-config -display none -vga none \
        -device loader,file="$PWD/much",addr=0x4000000,force-raw=on -qmp unix:"$1.sock",server=on,wait=off "${@:2}"
    await test -S "$1.sock"
}
_moves() {
    cat >move.py <<'PY'
import hashlib, json, os, socket, sys, time
def monitor(name):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(name + ".sock")
    lines = connection.makefile("r")
    json.loads(lines.readline())
    def ask(command, **arguments):
        connection.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = json.loads(lines.readline())
            if "error" in answer: sys.exit(f"{command}: {answer['error']['desc']}")
            if "return" in answer: return answer["return"]
    ask("qmp_capabilities")
    return ask
source, target = monitor("source"), monitor("target")
for name in sys.argv[1:]:
    for ask in (source, target) if name != "zero-copy-send" else (source,):
        ask("migrate-set-capabilities", capabilities=[{"capability": name, "state": True}])
if "multifd" in sys.argv:
    for ask in source, target: ask("migrate-set-parameters", **{"multifd-channels": 4})
source("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
target("migrate-incoming", uri="tcp:127.0.0.1:5341")
source("migrate", uri="tcp:127.0.0.1:5341")
for _ in range(600):
    state = source("query-migrate")
    if state["status"] in ("completed", "failed"): break
    time.sleep(0.1)
print(state["status"], state.get("error-desc", ""))
for _ in range(100):
    if target("query-status")["status"] not in ("inmigrate", "finish-migrate"): break
    time.sleep(0.1)
print(source("query-status")["status"], target("query-status")["status"])
target("stop")
for name, ask in ("source", source), ("target", target):
    # The part that holds something; the firmware goes on below it.
    ask("pmemsave", val=0x4000000, size=128 << 20, filename=os.getcwd() + "/" + name + ".memory")
    print(hashlib.sha256(open(name + ".memory", "rb").read()).hexdigest())
open("moved", "w").close()
while not os.path.exists("moved.told"): time.sleep(0.05)
source("quit")
target("quit")
PY
    cat large large large large large large large large large large large large large large large large large large large large >much
    ulimit -l unlimited 2>/dev/null
    _machine source
    _machine target -incoming defer
    tell_why_at moved
    timeout 100 /usr/bin/python3 move.py "$@"
    rm -f *.sock *.memory
}
by_one_connection() { _moves; }
by_four_connections() { _moves multifd; }
by_four_connections_without_copies() { _moves multifd zero-copy-send; }

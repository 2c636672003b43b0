# An X server over TCP and its clients.

_display() {
    serve Xvfb :9 -listen tcp -nolisten unix -nolisten local -screen 0 640x480x24 -ac
    await_port 6009
}
clients() {
    _display
    for _ in 1 2 3 4 5; do timeout 30 xdpyinfo -display 127.0.0.1:9 | sha256sum; done
    timeout 30 xwininfo -display 127.0.0.1:9 -root -tree | sha256sum
    timeout 30 xlsclients -display 127.0.0.1:9 | wc -l
    (for _ in 1 2 3 4 5 6 7 8 9 10; do timeout 30 xprop -display 127.0.0.1:9 -root & done; wait) | sha256sum
}

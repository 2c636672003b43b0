# mosquitto and its clients: many messages of each quality of service, large ones, several subscribers, a reload, a subscriber that is killed.

_start() {
    printf 'listener 5301 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nuser root\npersistence false\n' >mosquitto.conf
    serve mosquitto -c mosquitto.conf
    broker=$!
    await_port 5301
}
_subscribe() { # FILE COUNT ARGUMENT...
    timeout 60 mosquitto_sub -h 127.0.0.1 -p 5301 -C "$2" "${@:3}" >"$1" 2>&1 &
    listeners+=($!)
}
_publish() { timeout 60 mosquitto_pub -h 127.0.0.1 -p 5301 "$@"; }
# The subscription is there once a message comes through; the first retained one tells.
_subscribed() {
    sleep 1
}

thousands_of_messages() {
    _start
    local quality
    for quality in 0 1 2; do
        listeners=()
        for one in 1 2 3; do _subscribe "received.$one" 3000 -t numbers -q $quality; done
        _subscribed
        seq 3000 | _publish -t numbers -q $quality -l
        wait "${listeners[@]}"
        sha256sum received.*
    done
}
large_messages() {
    _start
    listeners=()
    _subscribe received 5 -t file -N
    _subscribed
    for _ in 1 2 3 4 5; do _publish -t file -f large; done
    wait "${listeners[@]}"
    sha256sum <received
}
reload_under_load() {
    _start
    listeners=()
    _subscribe received 5000 -t numbers -q 1
    _subscribed
    (seq 2500; sleep 0.5; seq 2500) | _publish -t numbers -q 1 -l &
    local publisher=$!
    for _ in 1 2 3; do sleep 0.2; kill -HUP "$broker"; done
    wait $publisher "${listeners[@]}"
    sha256sum <received
}
killed_subscriber() {
    _start
    mosquitto_sub -h 127.0.0.1 -p 5301 -t will -C 1 >will &
    local watcher=$!
    mosquitto_sub -h 127.0.0.1 -p 5301 -t nothing --will-topic will --will-payload 'it died' &
    local killed=$!
    _subscribed
    kill -9 $killed
    wait $watcher
    cat will
}

# Gearman: jobs from several clients at once to workers of which one is killed, large ones, jobs in the background.

_start() { # PORT
    serve gearmand --threads=4 --port="$1" --listen=127.0.0.1 --log-file="$PWD/gearmand.log" --job-retries=0
    await_port "$1"
    for _ in 1 2 3; do serve gearman -h 127.0.0.1 -p "$1" -w -f sum -- sha256sum; done
}
_ask() { timeout 60 gearman -h 127.0.0.1 -p "$1" -f sum "${@:2}"; }
foreground_jobs() {
    _start 5211
    local clients=()
    for client in 1 2 3 4; do
        (for n in $(seq 20); do seq "$client" "$n" 9000 | _ask 5211; done >"sums.$client") &
        clients+=($!)
    done
    wait "${clients[@]}"
    sha256sum sums.*
    for _ in 1 2 3; do _ask 5211 <large; done
}
workers_killed() {
    _start 5212
    (for n in $(seq 80); do seq "$n" 3000 | _ask 5212; done >sums) &
    local client=$!
    for _ in 1 2; do
        sleep 0.3
        kill -STOP "${servers[1]}" && sleep 0.5 && kill -CONT "${servers[1]}"
    done
    kill "${servers[2]}"
    wait $client
    sort -u sums | sha256sum
}
background_jobs() {
    serve gearmand --threads=2 --port=5213 --listen=127.0.0.1 --log-file="$PWD/gearmand.log"
    await_port 5213
    for n in $(seq 60); do echo "job $n" | timeout 20 gearman -h 127.0.0.1 -p 5213 -b -f keep; done
    (printf 'status\n'; sleep 1) | timeout 20 socat -t 5 - TCP:127.0.0.1:5213
    mkdir -p kept
    for _ in 1 2; do serve gearman -h 127.0.0.1 -p 5213 -w -f keep -- bash -c 'cat >kept/$BASHPID'; done
    _kept() { [ "$(cat kept/* | wc -l)" = 60 ]; }
    await _kept
    cat kept/* | sort | sha256sum
}

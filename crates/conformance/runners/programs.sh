#!/bin/bash
# Programs that people run, with load: programs.sh NAME runs programs/NAME.sh. Each function there whose name begins with no underscore is
# a case: its output must be what the kernel gives, and its verdict is a hash of that output in the file $VERDICTS.
#
# Under shunt, what each process said about its connections (`shunt why`) is added to $VERDICTS.why.
set -u
PATH=$PATH:/usr/sbin:/sbin

# The port is there once somebody listens; /proc tells it without a connection.
await_port() {
    local hex
    hex=$(printf ':%04X 00000000:0000 0A' "$1")
    for _ in $(seq "${2:-6000}"); do
        grep -qi "$hex\|$(printf ':%04X 0\{32\}:0000 0A' "$1")" /proc/net/tcp /proc/net/tcp6 && return
        sleep 0.01
    done
    echo "nobody listens at $1"
}

# Waits until a command succeeds: a minute at most.
await() {
    for _ in $(seq 600); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "never: $*"
    return 1
}

# Starts a server in the background; ended after the case. In a session of its own: some (Apache) end their process group.
serve() {
    setsid "$@" </dev/null >>server.log 2>&1 &
    servers+=($!)
}
servers=()

# Ten lines there, and what comes back.
talk() {
    seq 10 | timeout 20 socat -t 10 - "TCP:127.0.0.1:$1"
}

# Requests of the file `hello` by ab, and how many of them went wrong: load REQUESTS CLIENTS URL [OPTION]...
load() {
    timeout 120 ab -q -r -s 60 -n "$1" -c "$2" "${@:4}" "$3" 2>&1 |
        grep -E '^(Complete requests|Failed requests|Non-2xx responses|apr_|ab:)' | tr -s ' '
}

# A file through HTTP, several times, and what came: fetch TIMES URL [OPTION]...
fetch() {
    for _ in $(seq "$1"); do
        timeout 60 curl -sS "${@:3}" "$2" 2>&1 | sha256sum | cut -c1-16
    done | uniq -c
}

# What the processes in here say about their connections.
tell_why() {
    [[ ${LD_PRELOAD:-} == *libshunt* ]] || return
    local command process
    command=$(tr ' :' '\n\n' <<<"$LD_PRELOAD" | grep libshunt)
    command=$(dirname "$command")/shunt
    for process in /proc/[0-9]*; do
        LD_PRELOAD='' timeout 10 "$command" why "${process#/proc/}" 2>/dev/null |
            sed -n "s|^since it started: |$(tr -d '\0' 2>/dev/null <"$process/comm"): |p"
    done >>"$VERDICTS.why"
}

# Of programs that end by themselves: one makes the file, and waits for FILE.told.
tell_why_at() {
    rm -f "$1" "$1.told"
    (
        await test -e "$1"
        tell_why || :
        touch "$1.told"
    ) &
}

helpers=$(declare -F)
source "${BASH_SOURCE[0]%.sh}/$1.sh"
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out certificate.pem -days 2 -subj /CN=localhost 2>/dev/null
seq 600000 >large
for case in $(comm -23 <(declare -F | sort) <(sort <<<"$helpers") | sed -n 's/^declare -f \([^_]\)/\1/p'); do
    printf 'running\t%s\n' "$case" >>"$VERDICTS"
    $case >output 2>&1
    tell_why
    for server in "${servers[@]}"; do kill "$server" 2>/dev/null; done
    wait 2>/dev/null
    servers=()
    # What the shell says about what was killed names processes.
    sed -i -E '/line [0-9]+: +[0-9]+ (Killed|Terminated)/d' output
    echo "== $case" && cat output
    printf 'ok: %s\t%s\n' "$(sha256sum <output | cut -c1-12)" "$case" >>"$VERDICTS"
done

# The kernel's own test of MSG_ZEROCOPY: exit codes, whether each send was completed, and whether all that was sent came.

_sent() {
    local sender receiver
    timeout 20 "$SUITE/msg_zerocopy" "$1" "$2" -t 2 -r tcp >received 2>&1 &
    receiver=$!
    await_port 8000
    timeout 20 "$SUITE/${program:-msg_zerocopy}" "$1" "$2" -t 1 "${@:3}" tcp >sent 2>&1
    sender=$?
    wait $receiver
    echo "${*}: sender $sender, receiver $?"
    sed -n 's/.*tx=\([0-9]*\) (\([0-9]*\) MB) txc=\([0-9]*\) zc=\(.\)/\1 \2 \3 \4/p' sent | while read -r count size completed by; do
        echo "completions: $([[ $completed == "$count" ]] && echo all || echo "$completed" | sed 's/[1-9][0-9]*/some/')$([[ -n ${program:-} ]] || echo ", by reference: $by")"
        grep 'by reference: ' sent
        echo "arrived: $(grep -q "($size MB)" received && echo all || echo "not all")"
    done
}

_family() {
    _sent "$@"
    _sent "$@" -z
    _sent "$@" -z -v
    _sent "$@" -z -s100
    _sent "$@" -z -s65000
}

ipv4() { _family -4 -D127.0.0.1; }
ipv6() { _family -6 -D::1; }

# The same, whose bytes lie in memory that its peer is shown: under shunt they go by reference, and all else is as it was.
shown() {
    local program=msg_zerocopy_shown
    _family -4 -D127.0.0.1
}

refused() {
    for options in "-z -m" "-m" "-z -c1"; do
        # shellcheck disable=SC2086
        "$SUITE/msg_zerocopy" -4 -D127.0.0.1 -t 1 $options tcp 2>&1 | grep -v '^cpu' | sed 's/.*msg_zerocopy: //'
    done
}

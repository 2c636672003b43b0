# The field's own measuring programs where they send without copying. Figures differ; that all bytes come does not.

_iperf() {
    serve iperf3 --server --one-off --bind 127.0.0.1 --port 5201
    await_port 5201
    timeout 60 iperf3 --client 127.0.0.1 --port 5201 --json "$@" >report.json
    echo "iperf3 $*: $?"
    /usr/bin/python3 - "$@" <<'PY'
import json
end = json.load(open("report.json"))
assert "error" not in end, end
sent, received = (end["end"][name]["bytes"] for name in ("sum_sent", "sum_received"))
print("all sent" if sent >= 200 << 20 else sent, "all received" if received + (64 << 20) >= sent else received)
PY
    wait "${servers[-1]}"
    echo "server: $?"
}
iperf3_sends_files_from_the_kernel() {
    for options in '' '--parallel 4' '--reverse' '--reverse --parallel 4' '--length 1M' '--length 4K'; do
        _iperf --zerocopy --bytes 200M $options
    done
}
# The test ends when the client has sent the file; what its server still reads then is chance, on the kernel as well.
iperf3_s_file_is_the_same() {
    cat large large large large >much
    local options
    for options in '' '--zerocopy'; do
        serve iperf3 --server --one-off --bind 127.0.0.1 --port 5202 --file came
        await_port 5202
        timeout 60 iperf3 --client 127.0.0.1 --port 5202 --file much $options >/dev/null
        echo "client: $?"
        wait "${servers[-1]}"
        [ "$(stat -c %s came)" -gt 1000000 ] && cmp -n "$(stat -c %s came)" came much && echo 'as it was'
        rm -f came
    done
}
netperf_sends_files() {
    # netperf looks up its addresses with AI_ADDRCONFIG, which loopback addresses do not count for.
    ip address add 192.0.2.1/32 dev lo
    serve netserver -D -L 127.0.0.1 -p 12865
    await_port 12865
    local size figure
    for size in 4096 65536 1048576; do
        figure=$(timeout 60 netperf -H 127.0.0.1 -p 12865 -P 0 -v 0 -l 1 -t TCP_SENDFILE -F large -- -m $size | tr -d ' ')
        [[ $figure =~ ^[0-9]+\.[0-9]+$ ]] && echo "$size: a figure" || echo "$size: $figure"
    done
}

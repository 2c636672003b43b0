# The rsync daemon, which forks for each connection and confines itself to its module: both directions, several clients, a client killed.

_start() {
    printf 'port = 5601\naddress = 127.0.0.1\nuse chroot = %s\nuid = root\ngid = root\n[tree]\npath = %s/tree\n[sink]\npath = %s/sink\nread only = no\n' \
        "$1" "$PWD" "$PWD" >rsyncd.conf
    rm -rf sink copy*
    mkdir -p sink
    [ -d tree ] || { mkdir -p tree/{a,b,c,d}; for name in a b c; do split -b 200k large tree/$name/; done; seq 3000 | (cd tree/d && split -l 10); }
    serve rsync --daemon --no-detach --config="$PWD/rsyncd.conf" --log-file="$PWD/rsync.log"
    await_port 5601
}
_sum() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }
_both_ways() {
    _start "$1"
    timeout 60 rsync -a rsync://127.0.0.1:5601/tree/ copy/; _sum copy
    timeout 60 rsync -az tree/ rsync://127.0.0.1:5601/sink/; _sum sink
    for name in copy/a/*; do echo changed >>"$name"; done
    timeout 60 rsync -a --checksum rsync://127.0.0.1:5601/tree/ copy/; _sum copy
    timeout 60 rsync rsync://127.0.0.1:5601/nothing/ 2>&1 | head -1
}
in_place() { _both_ways no; }
in_a_changed_root() { _both_ways yes; }
eight_clients() {
    _start no
    local clients=()
    for one in 1 2 3 4 5 6 7 8; do timeout 60 rsync -a rsync://127.0.0.1:5601/tree/ copy$one/ & clients+=($!); done
    wait "${clients[@]}"
    for one in 1 2 3 4 5 6 7 8; do _sum copy$one; done | uniq -c
}
killed_client() {
    _start no
    timeout -s KILL 0.3 rsync -a --bwlimit=500 rsync://127.0.0.1:5601/tree/ copy/
    await sh -c '[ "$(pgrep -c -x rsync)" = 1 ]'
    # What was half copied has a name of its own, chosen at random.
    timeout 60 rsync -a --delete rsync://127.0.0.1:5601/tree/ copy/; _sum copy
}

# The rsync daemon with files of tens of megabytes.

_start() {
    mkdir -p tree sink
    printf 'port = 5603\naddress = 127.0.0.1\nuse chroot = no\nuid = root\ngid = root\n[tree]\npath = %s/tree\n[sink]\npath = %s/sink\nread only = no\n' \
        "$PWD" "$PWD" >rsyncd.conf
    for name in one two; do for n in $(seq 15); do cat large; echo $name $n; done >tree/$name; done
    serve rsync --daemon --no-detach --config="$PWD/rsyncd.conf" --log-file="$PWD/rsync.log"
    await_port 5603
}
_sum() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }
both_ways_at_once() {
    _start
    timeout 100 rsync -a rsync://127.0.0.1:5603/tree/ copy/ &
    timeout 100 rsync -a tree/ rsync://127.0.0.1:5603/sink/
    wait $!
    _sum tree; _sum copy; _sum sink
    for name in copy/*; do sed -i '1000,2000d' $name; done
    timeout 100 rsync -a --checksum --inplace rsync://127.0.0.1:5603/tree/ copy/; _sum copy
}
resumed_after_a_kill() {
    _start
    timeout -s KILL 0.5 rsync -a --inplace --bwlimit=20000 rsync://127.0.0.1:5603/tree/ copy/
    timeout 100 rsync -a --append-verify rsync://127.0.0.1:5603/tree/ copy/; _sum copy
}

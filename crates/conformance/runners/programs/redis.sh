# Redis' own ways to be many: sentinels that agree on a new master, and a cluster that loses one.

_cli() { timeout 20 redis-cli -h 127.0.0.1 "$@" 2>&1; }
_role() { [ "$(_cli -p "$1" role | head -1)" = "$2" ]; }

sentinels_agree_on_a_new_master() {
    local port
    for port in 6301 6302 6303; do
        mkdir -p $port
        serve redis-server --port $port --bind 127.0.0.1 --save '' --dir $port $([ $port = 6301 ] || echo --replicaof 127.0.0.1 6301)
        [ $port = 6301 ] && local master=$!
        await_port $port
    done
    for port in 6311 6312 6313; do
        printf 'port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor m 127.0.0.1 6301 2\nsentinel down-after-milliseconds m 2000\nsentinel failover-timeout m 5000\n' $port "$PWD" >sentinel.$port
        serve redis-server sentinel.$port --sentinel
        await_port $port
    done
    _agreed() { [ "$(_cli -p 6311 sentinel ckquorum m)" = 'OK 3 usable Sentinels. Quorum and failover authorization can be reached' ]; }
    await _agreed && echo agreed
    await sh -c 'redis-cli -p 6301 info replication | grep -q connected_slaves:2'
    _cli -p 6301 set key value
    _cli -p 6301 wait 2 10000
    kill -9 $master
    _changed() { [ "$(_cli -p 6311 sentinel get-master-addr-by-name m | tail -1)" != 6301 ]; }
    await _changed && echo changed
    local new
    new=$(_cli -p 6311 sentinel get-master-addr-by-name m | tail -1)
    await _role "$new" master
    _cli -p "$new" get key
    _cli -p "$new" set key new
}
cluster_loses_a_master() {
    local port first
    for port in 6321 6322 6323 6324 6325 6326; do
        mkdir -p $port
        serve redis-server --port $port --bind 127.0.0.1 --save '' --dir $port --cluster-enabled yes --cluster-node-timeout 3000
        [ $port = 6321 ] && first=$!
        await_port $port
    done
    timeout 100 redis-cli --cluster create 127.0.0.1:632{1,2,3,4,5,6} --cluster-replicas 1 --cluster-yes 2>&1 | grep '^\[OK\]'
    _whole() { _cli -p 6322 cluster info | grep -q 'cluster_state:ok'; }
    await _whole && echo whole
    timeout 100 redis-benchmark -h 127.0.0.1 -p 6322 --cluster -q -n 20000 -c 20 -t set,get 2>&1 | grep -ci 'requests per second\|rror' >/dev/null
    for key in $(seq 200); do echo "set key$key $key"; done | _cli -c -p 6322 | grep -v '^->' | sort | uniq -c
    await sh -c '[ "$(redis-cli -p 6321 wait 1 5000)" -ge 1 ]'
    sleep 1
    kill -9 $first
    _seen() { _cli -p 6322 cluster nodes | grep 6321 | grep -q fail; }
    _replaced() { [ "$(_cli -p 6322 cluster nodes | grep -v fail | grep -c master)" = 3 ]; }
    await _seen
    await _replaced && echo replaced
    await _whole && echo whole
    for key in $(seq 200); do echo "get key$key"; done | _cli -c -p 6322 | grep -v '^->' | sha256sum
}

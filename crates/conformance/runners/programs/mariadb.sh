# MariaDB over TCP: a dump and its restoration, large values, load by sysbench and mysqlslap, a client and then the server killed.

_sql() { timeout 120 mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P 5201 -u root "$@"; }
_start() {
    serve mariadbd --no-defaults --user=root --datadir="$PWD/data" --socket="$PWD/mariadb.sock" --pid-file="$PWD/mariadb.pid" \
        --bind-address=127.0.0.1 --port=5201 --max-allowed-packet=64M --innodb-buffer-pool-size=64M --innodb-flush-log-at-trx-commit=2
    await _sql -e 'select 1'
}
_first() {
    [ -d data ] || mariadb-install-db --no-defaults --user=root --datadir="$PWD/data" --auth-root-authentication-method=normal \
        --skip-test-db >install.log 2>&1
    _start
}

dump_and_restoration() {
    _first
    _sql -e 'create database one; create table one.t (n int primary key, text longtext); insert into one.t select seq, repeat(md5(seq), 200) from mysql.seq_1_to_5000' 2>/dev/null ||
        _sql -e 'create table if not exists one.t (n int primary key, text longtext);
            insert into one.t with recursive s(n) as (select 1 union all select n + 1 from s where n < 1000) select n, repeat(md5(n), 1000) from s'
    _sql -e 'checksum table one.t; select count(*), sum(length(text)) from one.t'
    timeout 120 mariadb-dump --no-defaults --protocol=tcp -h 127.0.0.1 -P 5201 -u root --skip-dump-date --skip-comments one >dump.sql
    _sql -e 'create database two'
    _sql two <dump.sql
    _sql -e 'checksum table two.t' | sed 's/two/one/'
}
large_values() {
    _first
    for length in 1 1000 65536 1000000 20000000; do
        _sql -N -e "select repeat('x', $length)" | sha256sum
    done
}
sysbench_reads_and_writes() {
    _first
    _sql -e 'create database sbtest'
    local words=(--db-driver=mysql --mysql-host=127.0.0.1 --mysql-port=5201 --mysql-user=root --mysql-ssl=off --tables=2 --table-size=2000)
    timeout 120 sysbench oltp_read_write "${words[@]}" prepare | grep -c 'Creating table'
    timeout 200 sysbench oltp_read_only "${words[@]}" --threads=8 --events=600 --time=0 run | grep -E 'FATAL|total number of events|reconnects' | tr -s ' '
    timeout 200 sysbench oltp_read_write "${words[@]}" --threads=4 --events=300 --time=0 run | grep -E 'FATAL|total number of events|reconnects' | tr -s ' '
}
mysqlslap_connects() {
    _first
    timeout 200 mariadb-slap --no-defaults --protocol=tcp -h 127.0.0.1 -P 5201 -u root --auto-generate-sql --concurrency=10 --iterations=2 \
        --number-of-queries=1000 --detach=20 2>&1 | grep -E 'rror|Number of clients'
}
killed_and_back() {
    _first
    _sql -e 'select sleep(100)' &
    local client=$!
    await sh -c "mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P 5201 -u root -e 'show processlist' | grep -q 'select sleep'"
    pkill -9 -f 'select sleep\(100\)'
    wait $client
    _sql -e 'select sleep(100)' &
    client=$!
    await sh -c "mariadb --no-defaults --protocol=tcp -h 127.0.0.1 -P 5201 -u root -e 'show processlist' | grep -q 'select sleep'"
    kill -9 "$(cat mariadb.pid)"
    wait $client
    echo "client: $?"
    _start
    _sql -e 'checksum table one.t'
}

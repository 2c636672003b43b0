# PostgreSQL: parallel queries, a standby that is made and fed over TCP and takes over, pgbouncer in front, a server killed and recovering.

_as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
_bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
_sql() { PGCONNECT_TIMEOUT=20 timeout 120 "$_bin/psql" -X -q -t -A -h 127.0.0.1 -p "$1" -U postgres -c "$2" postgres 2>&1; }
_first() {
    [ -d primary ] && return
    chmod 777 .
    _as "$_bin/initdb" -D primary -A trust -N >install.log 2>&1
    printf "port = 6201\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\nmax_parallel_workers_per_gather = 2\nparallel_setup_cost = 0\nparallel_tuple_cost = 0\nmin_parallel_table_scan_size = 0\nwal_level = replica\nhot_standby = on\n" >>primary/postgresql.conf
}
_start() {
    _first
    serve setpriv --reuid=postgres --regid=postgres --clear-groups "$_bin/postgres" -D primary
    await_port 6201
    await _sql_ready 6201
}
_sql_ready() { _as "$_bin/pg_isready" -h 127.0.0.1 -p "$1" && [ "$(_sql "$1" 'select 1')" = 1 ]; }

parallel_queries() {
    _start
    _sql 6201 "create table if not exists t as select n, md5(n::text) as text from generate_series(1, 100000) n"
    for _ in 1 2 3; do _sql 6201 'select count(*), sum(n), max(text) from t'; done
    _sql 6201 'explain (costs off) select count(*) from t' | grep -c 'Parallel Seq Scan'
    _sql 6201 "select repeat('x', 20000000)" | sha256sum
    _sql 6201 "copy t to stdout" | sha256sum
}
standby_takes_over() {
    _start
    _as "$_bin/pg_basebackup" -h 127.0.0.1 -p 6201 -U postgres -D standby -R -X stream --checkpoint=fast 2>&1
    printf 'port = 6202\n' >>standby/postgresql.conf
    serve setpriv --reuid=postgres --regid=postgres --clear-groups "$_bin/postgres" -D standby
    await_port 6202
    await _sql_ready 6202
    _sql 6201 "create table r as select n, md5(n::text) as text from generate_series(1, 50000) n"
    _as "$_bin/pgbench" -h 127.0.0.1 -p 6201 -U postgres -i -s 1 -q postgres >bench.log 2>&1
    timeout 100 "$_bin/pgbench" -h 127.0.0.1 -p 6201 -U postgres -n -c 4 -j 2 -t 200 postgres 2>&1 | grep -E 'actually processed|failed'
    _fed() { [ "$(_sql 6202 'select count(*), sum(abalance) from r, (select sum(abalance) abalance from pgbench_accounts) s')" = "$(_sql 6201 'select count(*), sum(abalance) from r, (select sum(abalance) abalance from pgbench_accounts) s')" ]; }
    await _fed && echo fed
    _sql 6201 'select state from pg_stat_replication'
    kill -9 "$(head -1 primary/postmaster.pid)"
    sleep 1
    _sql 6202 'select pg_promote()'
    _sql 6202 "insert into r values (0, 'after'); select count(*), sum(n) from r"
    rm -rf standby
    rm -f primary/postmaster.pid
}
pooled_by_pgbouncer() {
    _start
    printf '[databases]\npostgres = host=127.0.0.1 port=6201 user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = 6203\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 100\nadmin_users = postgres\n' >pgbouncer.ini
    serve setpriv --reuid=postgres --regid=postgres --clear-groups pgbouncer pgbouncer.ini
    local pooler=$!
    await_port 6203
    for _ in 1 2 3; do _sql 6203 'select 7'; done
    _sql 6203 "select repeat('y', 5000000)" | sha256sum
    timeout 100 "$_bin/pgbench" -h 127.0.0.1 -p 6201 -U postgres -i -s 1 -q postgres >bench.log 2>&1
    timeout 100 "$_bin/pgbench" -h 127.0.0.1 -p 6203 -U postgres -n -c 16 -j 2 -t 100 postgres 2>&1 | grep -E 'actually processed|failed'
    timeout 100 "$_bin/pgbench" -h 127.0.0.1 -p 6203 -U postgres -n -S -C -c 4 -j 2 -t 100 postgres 2>&1 | grep -E 'actually processed|failed'
    kill -HUP $pooler
    sleep 0.5
    _sql 6203 'select 8'
}
pooled_by_pgpool() {
    _start
    cat >pgpool.conf <<END
listen_addresses = '127.0.0.1'
port = 6204
pcp_listen_addresses = ''
socket_dir = '$PWD'
pcp_socket_dir = '$PWD'
backend_clustering_mode = 'raw'
backend_hostname0 = '127.0.0.1'
backend_port0 = 6201
num_init_children = 8
max_pool = 2
pool_passwd = ''
pid_file_name = '$PWD/pgpool.pid'
logdir = '$PWD'
END
    : >pcp.conf
    : >pool_hba.conf
    serve setpriv --reuid=postgres --regid=postgres --clear-groups pgpool -n -f pgpool.conf -F pcp.conf -a pool_hba.conf
    await_port 6204
    for _ in 1 2 3; do _sql 6204 'select 10'; done
    _sql 6204 "select repeat('z', 5000000)" | sha256sum
    timeout 100 "$_bin/pgbench" -h 127.0.0.1 -p 6201 -U postgres -i -s 1 -q postgres >bench.log 2>&1
    timeout 100 "$_bin/pgbench" -h 127.0.0.1 -p 6204 -U postgres -n -c 6 -j 2 -t 100 postgres 2>&1 | grep -E 'actually processed|failed'
    timeout 100 "$_bin/pgbench" -h 127.0.0.1 -p 6204 -U postgres -n -S -C -c 4 -j 2 -t 100 postgres 2>&1 | grep -E 'actually processed|failed'
    # A child of its own is killed, and replaced.
    kill -9 "$(pgrep -P "$(cat pgpool.pid)" | head -1)"
    sleep 0.5
    await _sql_ready 6204
    for _ in 1 2 3; do _sql 6204 'select 11'; done
}
killed_backend() {
    _start
    _sql 6201 'select pg_sleep(100)' &
    local client=$!
    _asleep() { [ "$(_sql 6201 "select count(*) from pg_stat_activity where query = 'select pg_sleep(100)'")" = 1 ]; }
    await _asleep
    kill -9 "$(_sql 6201 "select pid from pg_stat_activity where query = 'select pg_sleep(100)'")"
    wait $client
    sleep 1
    await _sql_ready 6201
    _sql 6201 'select 9'
}

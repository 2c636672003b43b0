# Varnish and Squid before a server: files by way of the cache, load, a reconfiguration under load.

_origin() {
    mkdir -p www
    cp large www/
    echo hello >www/hello
    serve /usr/bin/python3 -m http.server -b 127.0.0.1 -d www 5901
    await_port 5901
}
varnish() {
    _origin
    mkdir -p varnish
    printf 'vcl 4.1;\nbackend default { .host = "127.0.0.1"; .port = "5901"; }\n' >default.vcl
    serve varnishd -F -j none -a 127.0.0.1:5902 -T 127.0.0.1:5903 -S "$PWD/large" -f "$PWD/default.vcl" -n "$PWD/varnish" -s malloc,64m -p vcc_allow_inline_c=off
    await_port 5902
    await curl -sf http://127.0.0.1:5902/hello
    fetch 5 http://127.0.0.1:5902/large
    curl -s -w '%{http_code}\n' -o /dev/null http://127.0.0.1:5902/nothing
    load 2000 10 http://127.0.0.1:5902/hello
    load 5000 20 http://127.0.0.1:5902/hello -k
    load 4000 10 http://127.0.0.1:5902/hello -k &
    for version in 1 2; do
        varnishadm -n "$PWD/varnish" "vcl.load v$version $PWD/default.vcl" | head -1
        varnishadm -n "$PWD/varnish" "vcl.use v$version" | head -1
    done
    wait $!
    fetch 2 http://127.0.0.1:5902/large
}
squid() {
    _origin
    mkdir -p cache
    chmod -R a+rwX .
    cat >squid.conf <<END
http_port 127.0.0.1:5904
http_access allow all
pid_filename $PWD/squid.pid
cache_log $PWD/cache.log
access_log none
coredump_dir $PWD/cache
cache_mem 64 MB
maximum_object_size_in_memory 16 MB
shutdown_lifetime 1 second
visible_hostname localhost
pinger_enable off
END
    serve squid -N -f "$PWD/squid.conf"
    await_port 5904
    await curl -sf -x http://127.0.0.1:5904 http://127.0.0.1:5901/hello
    fetch 5 http://127.0.0.1:5901/large -x http://127.0.0.1:5904
    load 1000 8 http://127.0.0.1:5901/hello -X 127.0.0.1:5904
    fetch 2 http://127.0.0.1:5901/large -p -x http://127.0.0.1:5904
    command squid -k reconfigure -f "$PWD/squid.conf"
    sleep 2
    await curl -sf -x http://127.0.0.1:5904 http://127.0.0.1:5901/hello
    fetch 2 http://127.0.0.1:5901/large -x http://127.0.0.1:5904
}

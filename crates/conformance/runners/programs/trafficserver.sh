# Apache Traffic Server (its manager opens the ports and gives them to the server it executes) before lighttpd.
trafficserver() {
    mkdir -p site
    seq 20 >site/hello
    cp large site/large
    cat >nginx.conf <<END
daemon off; error_log $PWD/nginx.log; pid $PWD/nginx.pid; user root;
events {}
http { access_log off; client_body_temp_path $PWD; proxy_temp_path $PWD; fastcgi_temp_path $PWD; uwsgi_temp_path $PWD; scgi_temp_path $PWD; keepalive_requests 100000;
  server { listen 127.0.0.1:5461; root $PWD/site; } }
END
    chmod -R a+rX .
    chmod a+x ..
    serve nginx -c "$PWD/nginx.conf"
    await_port 5461
    mkdir -p ats/etc ats/var ats/run ats/log ats/cache
    cp -r /etc/trafficserver/. ats/etc/
    cat >ats/runroot.yaml <<END
prefix: $PWD/ats
exec_prefix: $PWD/ats
bindir: /usr/bin
sbindir: /usr/sbin
sysconfdir: $PWD/ats/etc
datadir: $PWD/ats/cache
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
localstatedir: $PWD/ats/var
runtimedir: $PWD/ats/run
logdir: $PWD/ats/log
cachedir: $PWD/ats/cache
END
    cat >ats/etc/records.config <<END
CONFIG proxy.config.http.server_ports STRING 5462
CONFIG proxy.config.admin.user_id STRING trafficserver
CONFIG proxy.config.url_remap.remap_required INT 1
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 3
CONFIG proxy.config.http.cache.http INT ${1:-1}
CONFIG proxy.config.http.cache.required_headers INT 0
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.output.logfile STRING traffic.out
CONFIG proxy.config.http.insert_response_via_str INT 0
END
    echo 'map / http://127.0.0.1:5461/' >ats/etc/remap.config
    echo "$PWD/ats/cache 64M" >ats/etc/storage.config
    chown -R trafficserver ats
    serve traffic_manager --run-root="$PWD/ats/runroot.yaml"
    await_port 5462
    await curl -sf http://127.0.0.1:5462/hello
    fetch 5 http://127.0.0.1:5462/large
    load 2000 10 http://127.0.0.1:5462/hello
    load 6000 20 http://127.0.0.1:5462/hello -k
    pkill -9 -x TS_MAIN || pkill -9 -f '[t]raffic_server'
    sleep 1
    await curl -sf http://127.0.0.1:5462/hello
    fetch 5 http://127.0.0.1:5462/large
    load 2000 10 http://127.0.0.1:5462/hello
}
without_a_cache() { trafficserver 0; }

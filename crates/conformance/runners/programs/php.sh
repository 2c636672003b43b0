# php-fpm over TCP behind nginx: uploads, large answers, load, reloads of php-fpm under load (it executes itself with its listeners).

_start() {
    mkdir -p www
    cp large www/
    cat >www/index.php <<'END'
<?php
if ($_SERVER['REQUEST_METHOD'] === 'POST') { echo md5(file_get_contents('php://input')), "\n"; }
elseif (isset($_GET['large'])) { readfile('large'); }
else { echo "hello\n"; }
END
    chmod -R a+rX .
    cat >fpm.conf <<END
[global]
error_log = $PWD/fpm.log
pid = $PWD/fpm.pid
daemonize = no
process_control_timeout = 20s
[www]
user = www-data
group = www-data
listen = 127.0.0.1:5401
pm = static
pm.max_children = 4
pm.max_requests = $3
END
    cat >nginx.conf <<END
daemon off; worker_processes 2; pid $PWD/nginx.pid; error_log $PWD/nginx.log;
events { worker_connections 256; }
http {
    access_log off; client_max_body_size 64m; client_body_temp_path $PWD/body; proxy_temp_path $PWD/proxy;
    fastcgi_temp_path $PWD/fastcgi; uwsgi_temp_path $PWD/uwsgi; scgi_temp_path $PWD/scgi;
    upstream php { server 127.0.0.1:5401; keepalive $1; }
    server {
        listen 127.0.0.1:5402;
        location / {
            fastcgi_pass php; fastcgi_keep_conn $2;
            fastcgi_param SCRIPT_FILENAME $PWD/www/index.php; fastcgi_param REQUEST_METHOD \$request_method;
            fastcgi_param QUERY_STRING \$query_string; fastcgi_param CONTENT_LENGTH \$content_length; fastcgi_param CONTENT_TYPE \$content_type;
        }
    }
}
END
    serve php-fpm8.2 -F -y "$PWD/fpm.conf"
    serve nginx -e "$PWD/nginx.log" -c "$PWD/nginx.conf"
    await_port 5401
    await_port 5402
}
_use() {
    for _ in 1 2 3; do curl -s --data-binary @large http://127.0.0.1:5402/; done
    fetch 3 'http://127.0.0.1:5402/?large'
    load 2000 8 http://127.0.0.1:5402/hello
    load 2000 8 http://127.0.0.1:5402/hello -k
}
new_connection_each() { _start 1 off 300; _use; }
kept_connections() { _start 2 on 0; _use; }
reload_under_load() {
    _start 1 off 0
    load 4000 4 http://127.0.0.1:5402/hello &
    for _ in 1 2 3; do sleep 0.5; kill -USR2 "$(cat fpm.pid)"; done
    wait $!
    fetch 2 'http://127.0.0.1:5402/?large'
}

# h2o and Hitch before nginx: files, load, TLS, a reload.

_origin() {
    mkdir -p site
    seq 20 >site/hello
    cp large site/large
    chmod -R a+rX .
    chmod a+x ..
    cat >nginx.conf <<END
daemon off; error_log $PWD/nginx.log; pid $PWD/nginx.pid; user root;
events {}
http { access_log off; client_body_temp_path $PWD; proxy_temp_path $PWD; fastcgi_temp_path $PWD; uwsgi_temp_path $PWD; scgi_temp_path $PWD; keepalive_requests 100000;
  server { listen 127.0.0.1:5381; root $PWD/site; } }
END
    serve nginx -c "$PWD/nginx.conf"
    await_port 5381
}
h2o() {
    _origin
    cat >h2o.conf <<END
listen: { host: 127.0.0.1, port: 5382 }
listen: { host: 127.0.0.1, port: 5383, ssl: { certificate-file: $PWD/certificate.pem, key-file: $PWD/key.pem } }
user: root
num-threads: 2
pid-file: $PWD/h2o.pid
hosts:
  default:
    paths:
      /files: { file.dir: $PWD/site }
      /: { proxy.reverse.url: "http://127.0.0.1:5381/" }
END
    serve h2o -m worker -c h2o.conf
    await_port 5382
    fetch 4 http://127.0.0.1:5382/large
    fetch 4 http://127.0.0.1:5382/files/large
    fetch 4 https://127.0.0.1:5383/large -k --http2
    load 1500 10 http://127.0.0.1:5382/hello
    load 4000 10 http://127.0.0.1:5382/files/hello -k
}
hitch() {
    _origin
    cat key.pem certificate.pem >both.pem
    serve hitch --backend='[127.0.0.1]:5381' --frontend='[127.0.0.1]:5384' --workers=2 --user=nobody both.pem
    local hitch=$!
    await_port 5384
    fetch 4 https://127.0.0.1:5384/large -k
    load 600 10 https://127.0.0.1:5384/hello
    kill -HUP $hitch
    sleep 1
    fetch 2 https://127.0.0.1:5384/large -k
}

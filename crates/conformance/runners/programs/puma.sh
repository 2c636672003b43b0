# Puma with two workers of four threads: load, a phased restart, and a restart that executes it anew with its listeners.

_start() {
    cat >config.ru <<'END'
require 'digest'
LARGE = File.binread('large')
run lambda { |environment|
  body = case environment['REQUEST_METHOD']
         when 'POST' then Digest::MD5.hexdigest(environment['rack.input'].read)
         else environment['PATH_INFO'] == '/large' ? LARGE : "hello\n"
         end
  [200, {}, [body]]
}
END
    serve /usr/bin/puma -q -e production -b tcp://127.0.0.1:5801 -t 1:4 --pidfile puma.pid "$@" config.ru
    await_port 5801
    await curl -sf http://127.0.0.1:5801/hello
}
_use() {
    fetch 3 http://127.0.0.1:5801/large
    for _ in 1 2 3; do curl -s --data-binary @large http://127.0.0.1:5801/; echo; done
    load 2000 8 http://127.0.0.1:5801/hello
    load 2000 8 http://127.0.0.1:5801/hello -k
}
threads() { _start; _use; }
workers() { _start -w 2; _use; }
phased_restart_under_load() {
    _start -w 2
    # On the kernel, too, a worker that leaves takes a request along now and then.
    load 2000 4 http://127.0.0.1:5801/hello | grep Complete &
    sleep 0.5
    kill -USR1 "$(cat puma.pid)"
    wait $!
    fetch 2 http://127.0.0.1:5801/large
}
new_image() {
    _start -w 2
    fetch 2 http://127.0.0.1:5801/large
    kill -USR2 "$(cat puma.pid)"
    sleep 3
    await curl -sf http://127.0.0.1:5801/hello
    fetch 2 http://127.0.0.1:5801/large
    load 1000 4 http://127.0.0.1:5801/hello
    kill "$(cat puma.pid)"
}

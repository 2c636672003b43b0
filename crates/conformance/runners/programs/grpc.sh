# gRPC by Python (its C core: epoll, its own threads): unary calls, streams both ways, large messages, a server that stops gracefully and one that is killed.

_programs() {
    cat >server.py <<'END'
import concurrent.futures, grpc, hashlib, signal, threading
def unary(request, context):
    return hashlib.sha256(request).digest()
def stream(requests, context):
    for request in requests:
        yield request[::-1]
def large(request, context):
    return bytes(range(256)) * (int(request) // 256)
handlers = grpc.method_handlers_generic_handler("test", {
    "unary": grpc.unary_unary_rpc_method_handler(unary),
    "stream": grpc.stream_stream_rpc_method_handler(stream),
    "large": grpc.unary_unary_rpc_method_handler(large)})
server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)])
server.add_generic_rpc_handlers((handlers,))
server.add_insecure_port("127.0.0.1:5325")
server.start()
ended = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ended.set())
while not ended.wait(0.1):
    pass
server.stop(5).wait()
END
    cat >client.py <<'END'
import grpc, hashlib, sys, threading
def call(n, results):
    channel = grpc.insecure_channel("127.0.0.1:5325", options=[("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)])
    unary, stream, large = channel.unary_unary("/test/unary"), channel.stream_stream("/test/stream"), channel.unary_unary("/test/large")
    digest = hashlib.sha256()
    for i in range(300):
        digest.update(unary(b"%d" % i * i))
    for answer in stream(b"%d %d" % (n, i) for i in range(1000)):
        digest.update(answer)
    for length in (256, 65536, 10 << 20):
        digest.update(large(b"%d" % length))
    results[n] = digest.hexdigest()
results = {}
threads = [threading.Thread(target=call, args=(n, results)) for n in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(results.items()))
END
    cat >steady.py <<'END'
import grpc
channel = grpc.insecure_channel("127.0.0.1:5325", options=[("grpc.min_reconnect_backoff_ms", 100), ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)])
unary = channel.unary_unary("/test/unary")
for i in range(4000):
    unary(b"%d" % i, wait_for_ready=True, timeout=60) if i % 100 else None
    while True:
        try:
            unary(b"%d" % i, wait_for_ready=True, timeout=60)
            break
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED): raise
print("done")
END
    sed -i '/if i % 100 else None/d' steady.py
}
calls_and_streams() {
    _programs
    serve /usr/bin/python3 server.py
    await_port 5325
    timeout 100 /usr/bin/python3 client.py
}
restarts_under_load() {
    _programs
    serve /usr/bin/python3 server.py
    local server=$! client
    await_port 5325
    timeout 100 /usr/bin/python3 steady.py &
    client=$!
    for signal in TERM KILL; do
        sleep 1
        kill -$signal $server
        wait $server
        echo "server $?"
        serve /usr/bin/python3 server.py
        server=$!
    done
    wait $client
}

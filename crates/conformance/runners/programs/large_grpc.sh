# gRPC's C core, asked to send by MSG_ZEROCOPY from 16 KB on.

messages_without_copies() {
    cat >server.py <<'PY'
import concurrent.futures, grpc, hashlib, options
def sum_of(request, context): return hashlib.sha256(request).digest()
def reversed_(request, context): return request[::-1]
def stream(requests, context):
    for request in requests: yield request[::-1]
handlers = grpc.method_handlers_generic_handler("test", {
    "sum": grpc.unary_unary_rpc_method_handler(sum_of),
    "reversed": grpc.unary_unary_rpc_method_handler(reversed_),
    "stream": grpc.stream_stream_rpc_method_handler(stream)})
server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=options.OPTIONS)
server.add_generic_rpc_handlers((handlers,))
server.add_insecure_port("127.0.0.1:5335")
server.start()
server.wait_for_termination()
PY
    cat >options.py <<'PY'
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1), ("grpc.experimental.tcp_tx_zerocopy_enabled", 1),
    ("grpc.experimental.tcp_tx_zerocopy_send_bytes_threshold", 16384), ("grpc.experimental.tcp_tx_zerocopy_max_simultaneous_sends", 4),
    ("grpc.use_local_subchannel_pool", 1)]
PY
    cat >client.py <<'PY'
import grpc, hashlib, options, random, threading
def calls(n, results):
    channel = grpc.insecure_channel("127.0.0.1:5335", options=options.OPTIONS)
    sum_of, reversed_, stream = (channel.unary_unary("/test/sum"), channel.unary_unary("/test/reversed"), channel.stream_stream("/test/stream"))
    chance, good = random.Random(n), 0
    for size in [65_536, 1_000_000, 16_000_000, 3, 200_000] * 2:
        data = chance.randbytes(size)
        good += sum_of(data) == hashlib.sha256(data).digest()
        good += reversed_(data) == data[::-1]
    parts = [chance.randbytes(chance.choice([100, 70_000, 1 << 20])) for _ in range(40)]
    good += [part[::-1] for part in parts] == list(stream(iter(parts)))
    results[n] = good
results = {}
threads = [threading.Thread(target=calls, args=(n, results)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(results.items()))
PY
    serve /usr/bin/python3 server.py
    await_port 5335
    timeout 100 /usr/bin/python3 client.py
}

# Arrow Flight by Python: its server in C++, over gRPC, with records of megabytes.

tables_both_ways() {
    cat >server.py <<'PY'
import hashlib, threading, numpy as np, pyarrow as pa, pyarrow.flight as flight
def table(seed):
    values = np.arange(seed, seed + 2_500_000, dtype="i8")
    return pa.table({name: values * k for k, name in enumerate("abcd", 1)})
class Server(flight.FlightServerBase):
    kept = {}
    def do_get(self, context, ticket):
        return flight.RecordBatchStream(table(int(ticket.ticket)))
    def do_put(self, context, descriptor, reader, writer):
        self.kept[descriptor.path[0]] = reader.read_all()
    def do_action(self, context, action):
        got = self.kept.pop(action.body.to_pybytes())
        yield str((got.num_rows, [int(np.bitwise_xor.reduce(got[name].to_numpy())) for name in got.column_names])).encode()
if __name__ == "__main__":
    Server("grpc://127.0.0.1:5336").serve()
PY
    cat >client.py <<'PY'
import threading, pyarrow.flight as flight
from server import table
def run(n, results):
    client, wanted, good = flight.connect("grpc://127.0.0.1:5336"), table(n), 0
    for _ in range(3):
        good += client.do_get(flight.Ticket(b"%d" % n)).read_all().equals(wanted)
    writer, _ = client.do_put(flight.FlightDescriptor.for_path(b"%d" % n), wanted.schema)
    writer.write_table(wanted, max_chunksize=100_000)
    writer.close()
    results[n] = good, next(iter(client.do_action((b"sum", b"%d" % n)))).body.to_pybytes()
results = {}
threads = [threading.Thread(target=run, args=(n, results)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*sorted(results.items()), sep="\n")
PY
    serve "$SUITE/python/bin/python" server.py
    await_port 5336
    timeout 120 "$SUITE/python/bin/python" client.py
}

# Celery over Redis, Dask's scheduler and workers, Erlang's nodes by Elixir: tasks, results, workers that are killed.

celery() {
    cat >tasks.py <<'END'
import celery
app = celery.Celery("tasks", broker="redis://127.0.0.1:5351/0", backend="redis://127.0.0.1:5351/1")
app.conf.update(broker_connection_retry=True, task_acks_late=True, worker_hijack_root_logger=False)
@app.task
def double(text):
    return text + text
END
    cat >ask.py <<'END'
import hashlib
from tasks import double
results = [double.delay(f"{n} " * n) for n in range(400)]
print(hashlib.sha256("".join(result.get(timeout=60) for result in results).encode()).hexdigest())
END
    serve redis-server --port 5351 --save ''
    await_port 5351
    serve /usr/bin/python3 -m celery -A tasks worker --concurrency=3 --loglevel=ERROR --without-gossip --without-mingle
    timeout 100 /usr/bin/python3 ask.py
    kill -9 "$(pgrep -n -f 'celery -A')"
    timeout 100 /usr/bin/python3 ask.py
}
dask() {
    cat >cluster.py <<'END'
import sys
from dask.distributed import Client
def work(n, other=b""):
    return bytes([n % 251]) * (n * 100) + other[:10]
if __name__ == "__main__":
    import hashlib
    client = Client("tcp://127.0.0.1:5352", timeout=60)
    client.wait_for_workers(2)
    first = client.map(work, range(200), pure=False)
    second = client.map(work, range(200), first, pure=False)
    print(hashlib.sha256(b"".join(client.gather(second))).hexdigest())
    big = client.submit(lambda: b"0123456789" * 1000000, pure=False)
    lengths = client.map(lambda n, text: len(text) + n, range(20), [big] * 20, pure=False)
    print(sum(client.gather(lengths)))
    client.close()
END
    serve /usr/bin/python3 -m distributed.cli.dask_scheduler --host 127.0.0.1 --port 5352 --no-dashboard
    await_port 5352
    for _ in 1 2; do
        serve /usr/bin/python3 -m distributed.cli.dask_worker tcp://127.0.0.1:5352 --host 127.0.0.1 --nthreads 2 --no-dashboard --no-nanny --memory-limit 0
    done
    timeout 100 /usr/bin/python3 cluster.py
}
elixir_nodes() {
    cat >node.exs <<'END'
defmodule Echo do
  def loop do
    receive do
      {from, n, data} -> send(from, {n, :erlang.phash2(data), byte_size(data)}); loop()
    end
  end
end
Process.register(self(), :echo)
Echo.loop()
END
    cat >ask.exs <<'END'
defmodule Ask do
  def wait(0), do: raise "no node"
  def wait(n), do: unless Node.connect(:"one@127.0.0.1") == true, do: (Process.sleep(200); wait(n - 1))
end
Ask.wait(100)
Process.sleep(500)
for n <- 1..3000, do: send({:echo, :"one@127.0.0.1"}, {self(), n, :binary.copy(<<rem(n, 256)>>, n)})
send({:echo, :"one@127.0.0.1"}, {self(), 3001, :binary.copy("x", 30_000_000)})
IO.puts(:erlang.phash2(for n <- 1..3001, do: (receive do {^n, hash, size} -> {hash, size} end)))
END
    export HOME=$PWD
    serve epmd -address 127.0.0.1 -port 5353
    await_port 5353
    export ERL_EPMD_PORT=5353
    serve elixir --name one@127.0.0.1 --cookie secret node.exs
    timeout 60 elixir --name two@127.0.0.1 --cookie secret ask.exs
}

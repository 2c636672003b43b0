# NumPy's arrays between Python's processes, by all of multiprocessing's ways.

by_all_ways() {
    cat >ways.py <<'PY'
import hashlib, multiprocessing, multiprocessing.managers, multiprocessing.shared_memory, numpy as np, os, sys, time
from multiprocessing.connection import Client, Listener
def shared(name, shape):
    memory = multiprocessing.shared_memory.SharedMemory(name)
    array = np.ndarray(shape, "f4", memory.buf)
    array *= 2
    del array
    memory.close()
def serve(listener):
    with listener.accept() as connection:
        while True:
            try: connection.send(connection.recv() + 1)
            except EOFError: return
def put(queue, n): queue.put((n, np.full((256, 1024), n, "i8")))
def total(array): return int(array.sum())
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=4 << 20)
    array = np.ndarray((1024, 1024), "f4", memory.buf)
    array[:] = np.arange(1024)
    for _ in range(3):
        child = context.Process(target=shared, args=(memory.name, array.shape))
        child.start()
        child.join()
    print(float(array.sum()))
    del array
    memory.close()
    memory.unlink()
    queue = context.Queue()
    children = [context.Process(target=put, args=(queue, n)) for n in range(8)]
    for child in children: child.start()
    print(sorted((n, int(got.sum())) for n, got in (queue.get() for _ in children)))
    for child in children: child.join()
    with context.Pool(4) as pool:
        print(pool.map(total, [np.full(300_000, n) for n in range(12)]))
    with multiprocessing.managers.SharedMemoryManager() as manager:
        kept = manager.SharedMemory(1 << 20)
        np.ndarray((1 << 20,), "u1", kept.buf)[:] = 7
        print(sum(kept.buf[:1000]))
    listener = Listener(("127.0.0.1", 0), authkey=b"key")
    child = multiprocessing.get_context("fork").Process(target=serve, args=(listener,))
    child.start()
    with Client(listener.address, authkey=b"key") as connection:
        for n in range(20):
            array = np.arange(n * 100_000, dtype="i8")
            connection.send(array)
            assert np.array_equal(connection.recv(), array + 1)
        open("over", "w").close()
        while not os.path.exists("over.told"): time.sleep(0.05)
    child.join()
    print("over TCP", child.exitcode)
PY
    for how in fork spawn forkserver; do
        tell_why_at over
        timeout 60 /usr/bin/python3 ways.py $how
    done
}
a_loader_s_workers() {
    cat >loader.py <<'PY'
import multiprocessing, multiprocessing.shared_memory, numpy as np, os, signal, sys
SHAPE = (32, 3, 224, 224)
SIZE = int(np.prod(SHAPE))
def work(name, free, ready, numbers):
    memory = multiprocessing.shared_memory.SharedMemory(name)
    for number in numbers:
        slot = free.get()
        np.ndarray(SHAPE, "u1", memory.buf, slot * SIZE)[...] = number % 251
        ready.put((number, slot))
if __name__ == "__main__":
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=8 * SIZE)
    context = multiprocessing.get_context("fork")
    free, ready = context.Queue(), context.Queue()
    for slot in range(8): free.put(slot)
    workers = [context.Process(target=work, args=(memory.name, free, ready, range(n, 200, 2))) for n in range(2)]
    for worker in workers: worker.start()
    sums = []
    for _ in range(200):
        number, slot = ready.get()
        batch = np.ndarray(SHAPE, "u1", memory.buf, slot * SIZE)
        assert (batch == number % 251).all()
        sums.append(number)
        free.put(slot)
    for worker in workers: worker.join()
    print(sorted(sums) == list(range(200)))
    killed = context.Process(target=work, args=(memory.name, free, ready, range(10**9)))
    killed.start()
    ready.get()
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    print(killed.exitcode)
    del batch
    memory.close()
    memory.unlink()
    # What the killed worker had of the queues may be locked for good.
    os._exit(0)
PY
    timeout 100 /usr/bin/python3 loader.py
}

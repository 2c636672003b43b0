"""The loader of loader.py beside two others: batches pickled through a queue, and slots of one shared memory whose numbers go through queues.

    python examples/loader_compare.py [WORKERS] [BATCHES]

Each batch (4.8 MB) is written by a worker, and read by the training process. Batches a second, the median of seven turns each, one after the other.
"""
import multiprocessing
import multiprocessing.shared_memory
import statistics
import sys
import time

import numpy as np

from loader import BATCH, Loader, make

SIZE = int(np.prod(BATCH))
AHEAD = 4
CONTEXT = multiprocessing.get_context("fork")


def read(batch):
    return int(batch.reshape(-1).view("u8").sum(dtype="u8"))


def by_reference(workers, batches):
    for batch in Loader(make, batches, workers, ahead=AHEAD):
        yield batch


def pickle_batches(queue, numbers):
    out = np.empty(BATCH, "u1")
    for number in numbers:
        make(number, out)
        # The queue's thread pickles it later, so it gets one of its own.
        queue.put(out.copy())


def by_queue(workers, batches):
    queues = [CONTEXT.Queue(AHEAD) for _ in range(workers)]
    arguments = [(queue, range(n, batches, workers)) for n, queue in enumerate(queues)]
    children = [CONTEXT.Process(target=pickle_batches, args=each, daemon=True) for each in arguments]
    for child in children:
        child.start()
    for number in range(batches):
        yield queues[number % workers].get()
    for child in children:
        child.join()


def fill_slots(memory, free, ready, numbers):
    for number in numbers:
        slot = free.get()
        make(number, np.ndarray(BATCH, "u1", memory.buf, slot * SIZE))
        ready.put(slot)


def by_shared_memory(workers, batches):
    memories = [multiprocessing.shared_memory.SharedMemory(create=True, size=AHEAD * SIZE) for _ in range(workers)]
    queues = [(CONTEXT.SimpleQueue(), CONTEXT.SimpleQueue()) for _ in range(workers)]
    children = []
    for n, (memory, (free, ready)) in enumerate(zip(memories, queues)):
        for slot in range(AHEAD):
            free.put(slot)
        children.append(CONTEXT.Process(target=fill_slots, args=(memory, free, ready, range(n, batches, workers)), daemon=True))
        children[-1].start()
    for number in range(batches):
        memory, (free, ready) = memories[number % workers], queues[number % workers]
        slot = ready.get()
        yield np.ndarray(BATCH, "u1", memory.buf, slot * SIZE)
        free.put(slot)
    for child in children:
        child.join()
    for memory in memories:
        try:
            memory.close()
        except BufferError:
            pass  # the last batch still refers to it
        memory.unlink()


WAYS = {"shunt_buffers": by_reference, "multiprocessing.shared_memory": by_shared_memory, "multiprocessing.Queue": by_queue}


def turn(way, workers, batches):
    source = way(workers, batches)
    begun = None
    for number, batch in enumerate(source):
        assert read(batch) == int.from_bytes(bytes([number % 251]) * 8, "little") * (SIZE // 8) % 2**64
        del batch
        if number == batches // 5:
            begun = time.perf_counter()  # workers are there, and their pages
    return (batches - 1 - batches // 5) / (time.perf_counter() - begun)


def main():
    workers, batches = (int(word) for word in (sys.argv[1:] + ["1", "150"][len(sys.argv) - 1:])[:2])
    rates = {name: [] for name in WAYS}
    for _ in range(7):
        for name, way in WAYS.items():
            rates[name].append(turn(way, workers, batches))
    for name, found in rates.items():
        print(f"{name:32}{statistics.median(found):8.0f} batches/s ({min(found):.0f} to {max(found):.0f})")


if __name__ == "__main__":
    main()

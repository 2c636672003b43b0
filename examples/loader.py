"""A data loader: worker processes make batches in shared memory, and the training process reads them where they lie.

    python examples/loader.py [WORKERS] [BATCHES]

With multiprocessing's queues a batch is pickled, written to a pipe, read and unpickled; PyTorch's workers share tensors instead, one
descriptor or file each. Here each worker has one pool, whose regions go round: a batch is a reference of 48 bytes.
"""
import multiprocessing
import socket
import sys

import numpy as np
import shunt_buffers as sb

BATCH = (32, 3, 224, 224)


class Loader:
    """Iterates over batches of `make(number, out)`, which fills an array; in the order of their numbers."""

    def __init__(self, make, batches, workers=2, shape=BATCH, dtype=np.uint8, ahead=4):
        self.shape, self.dtype, self.batches = shape, np.dtype(dtype), batches
        self.size = int(np.prod(shape)) * self.dtype.itemsize
        context = multiprocessing.get_context("fork")
        self.ports, self.workers = [], []
        for number in range(workers):
            ours, theirs = socket.socketpair()
            arguments = (make, theirs, range(number, batches, workers), ahead, self)
            worker = context.Process(target=Loader._work, args=arguments, daemon=True)
            worker.start()
            theirs.close()
            self.workers.append(worker)
            self.ports.append(sb.Port.accept(ours))

    def _work(make, end, numbers, ahead, loader):
        port = sb.Port.connect(end)
        unit = 64 << 10
        pool = sb.Pool(ahead * -(-loader.size // unit) * unit)
        pool.populate()
        port.set_quota(pool.size)
        port.offer(pool)
        for number in numbers:
            region = port.room(pool, loader.size)
            make(number, region.array(loader.dtype, loader.shape))
            port.move(region, loader.size)

    def __iter__(self):
        for number in range(self.batches):
            # Nothing but the batch refers to its message, which goes back when the batch is dropped.
            yield self.ports[number % len(self.ports)].reference().array(self.dtype, self.shape)
        for worker in self.workers:
            worker.join()


def make(number, out):
    """What reads and decodes pictures in earnest."""
    out[...] = number % 251


def main():
    workers, batches = (int(word) for word in (sys.argv[1:] + ["2", "12"][len(sys.argv) - 1:])[:2])
    total = 0
    for number, batch in enumerate(Loader(make, batches, workers)):
        assert (batch == number % 251).all() and not batch.flags.owndata
        total += batch.nbytes
    print(f"{batches} batches, {total} bytes, none copied")


if __name__ == "__main__":
    main()

"""What both programs know: runs of bytes that tell where they are."""
import array, ctypes, errno, fcntl, mmap, os, random, resource, select, signal, socket, struct, sys, termios, time
what, port, seed = sys.argv[1].removeprefix("file_"), int(sys.argv[2]), 7
is_file = what != sys.argv[1]
def pattern(length, salt):
    return bytes((at * 7 + at // 251 + salt) & 255 for at in range(length))
PART = 100_000
PARTS = [pattern(PART, salt) for salt in range(8)]
def sizes():
    drawn = random.Random(seed)
    return [(drawn.choice([0, 0, 0, 1]), drawn.choice([1, 50, 5000, 32768, 65536, 99_990])) for _ in range(150)]
def stream():
    return b"".join(PARTS[at % 8][at % 3:at % 3 + size] for at, (_, size) in enumerate(sizes()))
def frames():
    return b"".join(bytes([at % 251]) * size for at, (_, size) in enumerate(sizes()))
KILLS, MET = 40, 1 << 31
def stay(which):
    """Both programs on processors of their own: nothing is lent to a receiver on the sender's."""
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[which % len(processors)]})
def lengths():
    """Of messages, without end."""
    drawn = random.Random(seed)
    while True:
        yield drawn.choice([32768, 40_001, 65536, 65536, 99_990, 250_000, 500])
def limit():
    """What a receiver may have from now on: nothing more."""
    if what.endswith("little_space"):
        # But for what the program itself needs, which stays in its heap.
        c = ctypes.CDLL(None)
        c.mallopt(-3, 1 << 25), c.mallopt(-1, 1 << 30)
        bytes(1 << 24)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, -1))
    elif what.endswith("few_descriptors"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1,) * 2)

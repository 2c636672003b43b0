"""Large messages between two processes of one host, by reference. README.md beside this package has an example."""
import contextlib
import ctypes
import enum
import errno
import os
import pickle
import socket
import struct
import threading
import time
import typing
import weakref
from collections import deque
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from . import _library as _c
from ._library import Error, Full, Gone, Waited

__all__ = ["Alignment", "Error", "Full", "Gone", "Message", "NetworkListener", "NetworkPort", "Pages", "Pool", "Port", "Region", "Semantics", "Shown"]
__all__ += ["View", "Waited", "Window", "dump", "load", "reasons", "receive", "set_output", "show"]


class Semantics(enum.IntEnum):
    """What is promised of a message's memory ("Effects of Buffering Semantics on I/O Performance", OSDI '96)."""

    COPY = 0
    EMULATED_COPY = 1
    SHARE = 2
    EMULATED_SHARE = 3
    MOVE = 4
    EMULATED_MOVE = 5
    WEAK_MOVE = 6
    EMULATED_WEAK_MOVE = 7


class Pages(enum.IntEnum):
    """Pages of a pool. Huge ones are for peers that trust each other."""

    SMALL = 0
    HUGE = 1
    HUGE_IF_POSSIBLE = 2


class _Memory:
    """Bytes at an address, as whatever takes buffers. They stay while anything refers to them."""

    _readonly = False

    @property
    def view(self):
        """The bytes as a memoryview."""
        view = memoryview(self._array).cast("B")
        return view.toreadonly() if self._readonly else view

    def __len__(self):
        return len(self._array)

    def __bytes__(self):
        return self.view.tobytes()

    def __buffer__(self, flags):
        return self.view

    @property
    def __array_interface__(self):
        address = ctypes.addressof(self._array)
        return {"version": 3, "typestr": "|u1", "shape": (len(self),), "data": (address, self._readonly)}

    def array(self, dtype="u1", shape=None, offset=0):
        """A NumPy array in this memory: no copy. Without a shape, as long as there are bytes."""
        import numpy

        dtype = numpy.dtype(dtype)
        shape = ((len(self) - offset) // dtype.itemsize,) if shape is None else shape
        return numpy.ndarray(shape, dtype, self.view, offset)


# More than any pool has; a larger number would reach the library as another one.
_MOST = 1 << 62


def _array_at(address, length):
    return (ctypes.c_ubyte * length).from_address(address) if length else (ctypes.c_ubyte * 0)()


class Pool:
    """Memory of this process's that peers can map; regions are parts of it."""

    def __init__(self, size, *, unit=64 << 10, pages=Pages.SMALL, trusted=False):
        if size < 0 or unit <= 0:
            raise ValueError(f"a pool of {size} bytes, in units of {unit}")
        error = c_int()
        handle = _c.pool_create(unit, min(max(1, -(-size // unit)), _MOST), pages, trusted, byref(error))
        self._handle = _c.made(handle, error)
        weakref.finalize(self, _c.pool_release, handle)

    def populate(self):
        """Touches all pages now, so that no message is the first to."""
        _c.pool_populate(self._handle)

    @property
    def unit(self):
        """Bytes of which regions are multiples."""
        return _c.pool_unit(self._handle)

    @property
    def size(self):
        """All bytes."""
        return self.unit * _c.pool_units(self._handle)

    @property
    def free(self):
        """Bytes that nobody has, and nobody reads."""
        return self.unit * _c.pool_free_units(self._handle)

    def allocate(self, size):
        """A region of at least so many bytes; Full if there is none now."""
        if size < 0:
            raise ValueError(f"a region of {size} bytes")
        error = c_int()
        return Region(self, _c.made(_c.region_allocate(self._handle, min(size, _MOST), byref(error)), error))

    def window(self, size):
        """A window of at least so many bytes; of a pool for trusted peers."""
        if size < 0:
            raise ValueError(f"a window of {size} bytes")
        error = c_int()
        return Window(self, _c.made(_c.pool_window(self._handle, min(size, _MOST), byref(error)), error))

    def show(self, sock):
        """Lets the peer of a connected stream socket see the pool, for as long as the connection lasts: `sock.send` and `sendmsg` with
        MSG_ZEROCOPY (after SO_ZEROCOPY) leave 32 KiB and more that lie in its regions where they are. False: this program does not run under
        shunt, and the kernel copies."""
        result = _c.pool_show(self._handle, _descriptor(sock))
        if result == _c.codes()["region-apart"]:
            return False
        _c.check(result)
        return True


def _descriptor(sock):
    return sock if isinstance(sock, int) else sock.fileno()


class _Handle:
    """A region's handle in the library: given up once, by a move or when nothing refers to the region; and not while a call of another thread
    has it."""

    def __init__(self, pool, handle):
        self.pool, self.handle, self._lock, self._uses = pool, handle, threading.Lock(), 0

    def take(self):
        with self._lock:
            if self.handle is None:
                raise ValueError("the region was moved, or released")
            if self._uses:
                raise ValueError("a call of another thread has the region")
            handle, self.handle = self.handle, None
        return handle

    def put_back(self, handle):
        self.handle = handle

    def __enter__(self):
        with self._lock:
            if self.handle is None:
                raise ValueError("the region was moved, or released")
            self._uses += 1
            return self.handle

    def __exit__(self, *_):
        with self._lock:
            self._uses -= 1

    def release(self):
        if self.handle is not None:
            _c.region_release(self.take())


class Region(_Memory):
    """A part of a pool that this process has: writable memory. One that a message came into is as long as the message."""

    def __init__(self, pool, handle, length=None):
        self._handle = _Handle(pool, handle)
        self._array = _array_at(_c.region_data(handle), _c.region_size(handle) if length is None else length)
        # Views and arrays refer to this, and it to the pool.
        weakref.finalize(self._array, self._handle.release).atexit = False

    def release(self):
        """It is free once nobody reads it. It must not be used any more."""
        self._handle.release()


class Alignment(typing.NamedTuple):
    """Which buffers pages can be swapped into: those that begin at a multiple of `granularity` plus `offset`. Messages of `preferred` bytes fill pages;
    shorter ones than `copy_below` are copied (None: all are)."""

    granularity: int
    offset: int
    preferred: int
    copy_below: int | None


class Window(_Memory):
    """Writable memory that stays at its place while pages of messages are swapped into it: `receive_into` of a port. Over a network it is of the port's
    own pool. Between processes of one host its pages can be those of a region that their sender moved, who has them back when other messages have taken
    their place; they are to be neither read, written, nor received into when the peer's port has ended (`keep`)."""

    def __init__(self, pool, handle):
        self._handle, self._cores, self._lock = handle, [], threading.Lock()
        self._memory, self._is_lost, self._process = _array_at(_c.window_data(handle), _c.window_length(handle)), False, os.getpid()
        # The finalizer holds the pool, and the ports that pages came by: theirs stay as long as a view of them.
        weakref.finalize(self._memory, _release_window, pool, handle, self._cores).atexit = False

    @property
    def _array(self):
        # The library is asked in calls that have the window: another thread may be in one.
        if self._is_lost or os.getpid() != self._process:
            raise ValueError("the window's memory is lost, or another process's: a child of fork has none of it")
        return self._memory

    def keep(self):
        """Copies what lies in a sender's pages into pages of the window's own."""
        with self._used() as handle:
            _c.check(_c.window_keep(handle))

    @contextlib.contextmanager
    def _used(self, *cores):
        """By one call at a time, which may bring pages of these ports."""
        if not self._lock.acquire(blocking=False):
            raise ValueError("a call of another thread has the window")
        try:
            # Before the call: whatever becomes of it, ports whose pages the window has are there.
            self._cores.extend(core for core in cores if core not in self._cores)
            yield self._handle
            if cores:
                # What others had brought was swapped out, or kept.
                self._cores[:] = cores
        finally:
            self._is_lost = not _c.window_length(self._handle)
            if not _c.window_is_lent(self._handle):
                self._cores.clear()
            self._lock.release()


def _release_window(pool, handle, cores):
    _c.window_release(handle)


def _alignment(ask, *arguments):
    found = (c_size_t * 4)()
    ask(*arguments, found)
    granularity, offset, preferred, copy_below = found
    return Alignment(granularity, offset, preferred, None if copy_below == _NEVER else copy_below)


_NEVER = c_size_t(-1).value


class Message(_Memory):
    """A message that was received by reference. It goes back to its sender when nothing refers to it, its view or an array of it."""

    _readonly = True

    def __init__(self, core, handle):
        self.semantics = Semantics(_c.message_semantics(handle))
        self.in_place = bool(_c.message_is_in_place(handle))
        self._array = _array_at(_c.message_data(handle), _c.message_length(handle))
        # The finalizer holds the port: its mappings stay as long as a view of them.
        self._core, self._back = core, weakref.finalize(self._array, core.return_later, handle)
        self._back.atexit = False

    def _take(self, port):
        if self._core is not port._core:
            raise ValueError("the message came by another port")
        back = self._back.detach()
        if back is None:
            raise ValueError("the message was passed on")
        weakref.finalize(self._array, _stay, self._core).atexit = False
        return back[2][0]


def _stay(core):
    # What is mapped of a message that was passed on stays as long as a view of it.
    pass


class Shown:
    """Memory that `show` lets the peer of a socket see, and keeps. Closed, or dropped, what is sent from there is copied; what is under way
    arrives all the same."""

    def __init__(self, keep, handle):
        self._hide = weakref.finalize(self, _hide, keep, handle)

    def close(self):
        self._hide()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _hide(keep, handle):
    _c.memory_hide(handle)


def show(sock, data):
    """Lets the peer of a connected stream socket see the file of memory that these bytes (a buffer, an array) are mapped of, all of it:
    `multiprocessing.shared_memory`, an mmap of a memfd or of a file in /dev/shm. `sock.send` with MSG_ZEROCOPY (after SO_ZEROCOPY) leaves 32 KiB and more of
    them where they are, as long as what this gives is kept; the mapping cannot be closed before. A file that is truncated before its
    bytes were received resets the connection. None: this program does not run under shunt, and the kernel copies."""
    error = c_int()
    address, length, keep = _borrowed(data)
    handle = _c.memory_show(address, length, _descriptor(sock), byref(error))
    if not handle and error.value == _c.codes()["region-apart"]:
        return None
    return Shown(keep, _c.made(handle, error))


_SOL_SHUNT, _SHUNT_SO_OUTPUT = 0x53484E54, 9


def set_output(sock, semantics):
    """What plain `sock.send` does with memory that the peer was shown (`Pool.show`, `show`): COPY, as at first, or EMULATED_COPY, which lends 32 to 256 KiB of it
    to a peer that waits for them, until the call returns: one copy instead of two, and the memory may be written behind the call all the same. False: this
    program does not run under shunt, and the kernel copies."""
    try:
        sock.setsockopt(_SOL_SHUNT, _SHUNT_SO_OUTPUT, int(Semantics(semantics)))
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        return False
    return True


class View(_Memory):
    """The next bytes of a plain socket (`receive`), to be read. Where they were sent by reference (`in_place`) they go back to their sender, who
    may then write there, when nothing refers to this, its view or an array of it."""

    _readonly = True

    def __init__(self, pool, handle):
        self.in_place = bool(_c.view_is_in_place(handle))
        self._array = _array_at(_c.view_data(handle), _c.view_length(handle))
        # What was copied lies in a region of the pool's.
        weakref.finalize(self._array, _give_view_back, pool, handle).atexit = False


def _give_view_back(pool, handle):
    _c.view_give_back(handle)


def receive(sock, pool, most, *, wait=True):
    """The next bytes of a connected stream socket, `most` or fewer, where they lie if the peer sent them by reference (`Pool.show` there), else
    copied into a region of `pool`. None at the end of the stream. Without `wait`, BlockingIOError if there are none."""
    if most <= 0:
        raise ValueError(f"{most} bytes are asked for")
    handle = c_void_p()
    flags = 0 if wait else socket.MSG_DONTWAIT
    result = _c.receive_view(_descriptor(sock), pool._handle, min(most, _MOST), flags, byref(handle))
    if result <= _SYSTEM:
        raise OSError(_SYSTEM - result, os.strerror(_SYSTEM - result))
    _c.check(result)
    return View(pool, handle.value) if handle.value else None


_SYSTEM = -1000


class _Core:
    """A port in the library. One thread at a time; messages come back from whichever thread drops them, and wait if there is another."""

    def __init__(self, handle):
        self.handle, self.lock, self.dropped = handle, threading.Lock(), deque()

    def __enter__(self):
        self.lock.acquire()
        self.give_back()
        return self.handle

    def __exit__(self, *_):
        self.give_back()
        self.lock.release()

    def give_back(self):
        while self.dropped:
            _c.give_back(self.handle, self.dropped.popleft())

    def return_later(self, message):
        self.dropped.append(message)
        # Who has the lock looks again before it lets go; what comes after that look finds the lock free, or waits for the next call.
        if self.lock.acquire(blocking=False):
            self.__exit__()

    def __del__(self):
        self.give_back()
        _c.port_close(self.handle)


class Port:
    """One process's end. `connect` and `accept` take the two ends of an AF_UNIX stream, sockets or descriptors, for good; `over` takes
    those of any connected stream."""

    def __init__(self, make, socket):
        descriptor = socket if isinstance(socket, int) else socket.detach()
        error = c_int()
        self._core = _Core(_c.made(make(descriptor, byref(error)), error))
        self._pools = []

    @classmethod
    def connect(cls, socket):
        """The end that makes the link."""
        return cls(_c.port_connect, socket)

    @classmethod
    def accept(cls, socket):
        """The other one; waits for the first."""
        return cls(_c.port_accept, socket)

    @classmethod
    def over(cls, socket, *, copying=False):
        """Either end of a connected stream, AF_UNIX or TCP; waits for the other. Where both are on one host messages go by reference
        (`shares`), elsewhere they are copied through it, or if one end says `copying`."""
        return cls(_c.port_over_copying if copying else _c.port_over, socket)

    @property
    def shares(self):
        """Whether messages can go by reference."""
        with self._core as port:
            return bool(_c.port_shares(port))

    def fileno(self):
        """Its socket, to hear of the peer's end by poll."""
        with self._core as port:
            return _c.port_descriptor(port)

    def trust(self):
        """The peer could change this process's memory anyway: pools for trusted peers may be passed, both ways. What is written into a window whose
        pages are a sender's can be seen, and changed, by that sender and by all to whom it has offered their pool."""
        with self._core as port:
            _c.port_trust(port)

    def offer(self, pool):
        """From now on regions of the pool can be sent here; the peer can read all of it."""
        with self._core as port:
            _c.check(_c.port_offer(port, pool._handle))
        self._pools.append(pool)

    def set_quota(self, size):
        """What the peer may hold; before anything is sent."""
        with self._core as port:
            _c.check(_c.port_set_quota(port, size))

    def set_largest(self, size):
        """The most that a message by reference is copied, if it has to be."""
        with self._core as port:
            _c.port_set_largest(port, size)

    @property
    def lent(self):
        """Bytes that the peer holds."""
        size = c_size_t()
        with self._core as port:
            _c.completed(port, 0)
            _c.port_lent(port, byref(size), None)
        return size.value

    def copied(self, word=None):
        """How many messages were copied although they need not have been: for this reason (a key of `reasons`), or for each."""
        codes = _c.codes()
        if word is not None and word not in codes:
            raise ValueError(f"{word!r} is no reason; shunt_buffers.reasons() has them all")
        with self._core as port:
            counts = {name: _c.port_copied(port, code) for name, code in codes.items()}
        return counts[word] if word else {name: count for name, count in counts.items() if count}

    def send(self, data, *, defer=False):
        """Sends any bytes with copy semantics; gives a ticket. `defer`: if they lie in a region the call copies nothing, and a write to
        them while they are read is mended."""
        ticket = c_uint64()
        address, length, _keep = _borrowed(data)
        with self._core as port:
            _c.check(_c.send(port, address, length, defer, byref(ticket)))
        return ticket.value

    def share(self, region, length=None, semantics=Semantics.EMULATED_SHARE):
        """Sends the front of a region, which is not to be changed before the ticket is completed."""
        ticket = c_uint64()
        length = len(region) if length is None else length
        with region._handle as handle, self._core as port:
            _c.check(_c.send_shared(port, handle, length, semantics, byref(ticket)))
        return ticket.value

    def move(self, region, length=None, semantics=Semantics.EMULATED_WEAK_MOVE):
        """Sends the front of a region and gives the region away: neither it nor its views are to be used any more. With weak move, which
        is what is meant unless `semantics` says otherwise, views of it still reach the memory that the receiver reads: what is written
        there meanwhile, the receiver sees. EMULATED_MOVE takes the memory away: such a write is a fault, and ends the process."""
        if not isinstance(region, Region):
            raise TypeError(f"a region is to be moved, not a {type(region).__name__}; of what dump() gives: port.move(*dump(object, pool))")
        ticket = c_uint64()
        length = len(region) if length is None else length
        with self._core as port:
            _c.check(_c.send_region(port, region._handle.take(), length, semantics, byref(ticket)))
        return ticket.value

    def completed(self, ticket):
        """Whether the peer has finished with what was sent."""
        with self._core as port:
            return bool(_c.check(_c.completed(port, ticket)))

    def room(self, pool, size):
        """A region of the pool; waits until the peer has given enough of it back."""
        while True:
            try:
                return pool.allocate(size)
            except Full:
                if size > pool.size:
                    raise
            self.completed(0)
            time.sleep(0.0002)

    def receive(self):
        """The next message, copied; waits."""
        length = c_size_t()
        with self._core as port:
            _c.check(_c.next_length(port, byref(length)))
            data = bytearray(length.value)
            room = (ctypes.c_ubyte * len(data)).from_buffer(data) if data else None
            _c.check(_c.receive(port, room, len(data), byref(length)))
        return data

    def alignment(self, pool):
        """Which buffers pages can be swapped into: windows of the pool."""
        with self._core as port:
            return _alignment(_c.port_alignment, port, pool._handle)

    def set_swap_from(self, size):
        """Changes `copy_below` (None: all messages are copied): at first a page for huge pages, and never for others."""
        with self._core as port:
            _c.port_set_swap_from(port, _NEVER if size is None else size)

    def receive_into(self, buffer):
        """The next message, copied into a buffer; gives its length. Into a `Window` pages of a region that was moved are swapped."""
        length = c_size_t()
        if isinstance(buffer, Window):
            with buffer._used(self._core) as window, self._core as port:
                _c.check(_c.receive_into(port, window, byref(length)))
            return length.value
        room = _room(buffer)
        with self._core as port:
            _c.check(_c.receive(port, room, len(room), byref(length)))
        return length.value

    def reference(self):
        """The next message where it lies; waits. Its sender could change it, unless it gave it away and is honest."""
        handle = c_void_p()
        with self._core as port:
            _c.check(_c.receive_reference(port, byref(handle)))
        return Message(self._core, handle.value)

    @property
    def has_message(self):
        """Whether part of a message is there, at least."""
        with self._core as port:
            return bool(_c.has_message(port))

    def forward(self, message, source):
        """Passes a message on that came by the port `source`, without reading it: where it lies in a region the peer reads it there, and from
        now on sees all of its pool; else it is copied. The message and its views are not to be used any more."""
        if source._core is self._core:
            raise ValueError("a message is not passed back")
        with _both(self, source) as (to, port):
            _c.check(_c.forward(to, message._take(source), port))

    def settle(self, source):
        """Gives back to `source` what the peer has finished with of the messages that were passed on; gives how many it still has."""
        left = c_size_t()
        with _both(self, source) as (to, port):
            _c.check(_c.settle(to, port, byref(left)))
        return left.value


@contextlib.contextmanager
def _both(to, source):
    # In one order, whichever way messages go.
    first, second = sorted((to._core, source._core), key=id)
    with first, second:
        yield to._core.handle, source._core.handle


def reasons():
    """Why messages are copied that need not have been, and why calls are refused: words, and sentences."""
    return {word: _c.result_text(code).decode() for word, code in _c.codes().items()}


def _bytes_of(data):
    view = memoryview(data)
    if not view.c_contiguous:
        raise ValueError("the bytes are not contiguous in memory: copy them first (numpy.ascontiguousarray)")
    return view.cast("B")


def _borrowed(data):
    """The address of bytes, how many, and what keeps them."""
    view = _bytes_of(data)
    if view.readonly and not isinstance(data, bytes):
        address, keep = _address(view)
    else:
        keep = data if isinstance(data, bytes) else (ctypes.c_ubyte * len(view)).from_buffer(view) if len(view) else b""
        address = ctypes.cast(keep, c_void_p)
    return address, len(view), keep


def _room(buffer):
    """A buffer for a message."""
    view = _bytes_of(buffer)
    if view.readonly:
        raise TypeError("a message cannot be received into memory that is only to be read")
    return (ctypes.c_ubyte * len(view)).from_buffer(view) if len(view) else (ctypes.c_ubyte * 0)()


def _address(view):
    """The address of memory that is only to be read."""

    class Buffer(ctypes.Structure):  # Py_buffer
        _fields_ = [("buf", c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t)]
        _fields_ += [("readonly", c_int), ("ndim", c_int), ("format", c_void_p), ("shape", c_void_p), ("strides", c_void_p)]
        _fields_ += [("suboffsets", c_void_p), ("internal", c_void_p)]

    buffer = Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), byref(buffer), 0)
    address = buffer.buf
    # The view that was asked of stays, and its memory with it.
    ctypes.pythonapi.PyBuffer_Release(byref(buffer))
    return address, view


_HEAD = struct.Struct("<QQ")
_LINE = 64


def dump(value, pool, port=None):
    """An object as a region: pickled, its buffers (arrays) beside, each copied once. Gives the region and how many bytes of it to send.
    With a port it waits for room."""
    buffers = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    views = [buffer.raw() for buffer in buffers]
    at = _HEAD.size + 8 * len(views) + len(head)
    places = []
    for view in views:
        at = -(-at // _LINE) * _LINE
        places.append(at)
        at += len(view)
    region = port.room(pool, at) if port else pool.allocate(at)
    into = region.view
    _HEAD.pack_into(into, 0, len(head), len(views))
    struct.pack_into(f"<{len(views)}Q", into, _HEAD.size, *(len(view) for view in views))
    into[_HEAD.size + 8 * len(views):][: len(head)] = head
    for place, view in zip(places, views):
        into[place : place + len(view)] = view
    return region, at


def load(message):
    """The object of a message that `dump` made: its arrays lie in the message, and keep it. Like pickle, for peers that are trusted."""
    view = message.view
    head, count = _HEAD.unpack_from(view)
    lengths = struct.unpack_from(f"<{count}Q", view, _HEAD.size)
    at = _HEAD.size + 8 * count + head
    pickled, buffers = view[at - head : at], []
    for length in lengths:
        at = -(-at // _LINE) * _LINE
        buffers.append(view[at : at + length])
        at += length
    return pickle.loads(pickled, buffers=buffers)


from ._network import NetworkListener, NetworkPort  # noqa: E402 (it needs what is above)

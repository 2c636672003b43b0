"""Large messages between processes of any two hosts, over UDP: include/shunt_network.h."""
import contextlib
import socket as sockets
import threading
import time
import weakref
from ctypes import ArgumentError, byref, c_int, c_size_t, c_uint64, c_void_p

from . import _library as _c
from . import _NEVER, Region, Semantics, Window, _alignment, _borrowed, _room

_APPLICATION = (Semantics.COPY, Semantics.EMULATED_COPY, Semantics.SHARE, Semantics.EMULATED_SHARE)
_LONGEST_PATIENCE = (1 << 31) - 1


class NetworkPort:
    """One process's end. Messages come into regions of `pool`, and its regions can be sent. It sends and receives in its calls alone: a program
    that does something else calls `progress` now and then."""

    def __init__(self, sock, pool):
        descriptor = sock if isinstance(sock, int) else sock.detach()
        error = c_int()
        self._handle = _c.made(_c.network_over(descriptor, pool._handle, byref(error)), error)
        self._pool, self._lock, self._patience = pool, threading.Lock(), None
        self._closed = weakref.finalize(self, _c.network_close, self._handle)
        self._closed.atexit = False

    @classmethod
    def over(cls, sock, pool):
        """Either end of a connected stream, TCP or AF_UNIX, for good; waits for the other."""
        return cls(sock, pool)

    @classmethod
    def connect(cls, address, pool, timeout=None):
        """To whoever accepts at this address: a `NetworkListener`."""
        sock = sockets.create_connection(address, timeout)
        sock.settimeout(None)
        return cls(sock, pool)

    @staticmethod
    def listen(address=("", 0)):
        """Where others can connect."""
        return NetworkListener(address)

    def close(self):
        """Ends it at once: what the peer does not have yet may be lost (`drain`)."""
        with self._lock:
            self._handle = None
            self._closed()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _call(self, function, *arguments):
        with self._lock:
            if self._handle is None:
                raise ValueError("the port is closed")
            return function(self._handle, *arguments)

    def _must(self, function, *arguments):
        return _c.check(self._call(function, *arguments))

    @property
    def patience(self):
        """How many seconds a call waits for the peer, each time that it has to; then it raises Waited, and nothing is lost. None: as long as the
        peer lives. 0: it does not wait."""
        return self._patience

    @patience.setter
    def patience(self, seconds):
        if seconds is not None and seconds < 0:
            raise ValueError(f"a patience of {seconds} seconds")
        milliseconds = -1 if seconds is None else min(-(-seconds * 1000 // 1), _LONGEST_PATIENCE)
        self._call(_c.network_set_patience, int(milliseconds))
        self._patience = seconds

    def offer(self, pool):
        """Regions of a further pool can be sent without a copy."""
        self._must(_c.network_offer, pool._handle)

    def set_quota(self, size):
        """The most bytes of regions that may wait here to be sent, 64 MiB at first: a call that would exceed it waits."""
        self._call(_c.network_set_quota, size)

    def set_pooled(self, size):
        """The most bytes of messages that wait here to be received, 64 MiB at first; the others wait at their sender."""
        self._call(_c.network_set_pooled, size)

    def set_outboard(self):
        """All wait at their sender; before any other call."""
        self._call(_c.network_set_outboard)

    def fileno(self):
        """Readable when something has come, for `progress`, which is to be called some times in a second besides."""
        return self._call(_c.network_descriptor)

    def progress(self):
        """Takes what has come, and sends what may go."""
        while self._must(_c.network_progress):
            pass

    def has_room(self, size):
        """Whether a message of so many bytes can be sent without a wait."""
        return bool(self._must(_c.network_has_room, size))

    def has_message(self):
        """Whether a message begins to be here, or is announced."""
        return bool(self._must(_c.network_has_message))

    def has_whole_message(self):
        """Whether all of it is here, so that it is received without a wait."""
        return bool(self._must(_c.network_has_whole_message))

    def next_length(self):
        """The length of the next message; waits for it."""
        length = c_size_t()
        self._must(_c.network_next_length, byref(length))
        return length.value

    def completed(self, ticket):
        """Whether what was sent may be changed."""
        return bool(self._must(_c.network_completed, ticket))

    def drain(self):
        """Waits until the peer's process has all that was sent."""
        self._must(_c.network_drain)

    def send(self, data, length=None, *, semantics=Semantics.EMULATED_COPY):
        """Sends bytes; gives a ticket. By copy semantics any bytes, as they are now. By share a region's front, which is not to be changed before
        the ticket is completed. By move a region, which is given away; if the call raises Waited it is not."""
        semantics, ticket = Semantics(semantics), c_uint64()
        if semantics in (Semantics.COPY, Semantics.EMULATED_COPY):
            # A region that was moved is another's memory, or nobody's.
            with data._handle if isinstance(data, Region) else contextlib.nullcontext():
                view = memoryview(data.view if isinstance(data, Region) else data)
                address, size, _keep = _borrowed(view if length is None else view[:length])
                self._must(_c.network_send, address, size, semantics, byref(ticket))
            return ticket.value
        if not isinstance(data, Region):
            raise TypeError(f"a region is to be sent by {semantics.name}, not a {type(data).__name__}")
        size = len(data) if length is None else length
        if semantics in _APPLICATION:
            with data._handle as handle:
                self._must(_c.network_send_shared, handle, size, semantics, byref(ticket))
            return ticket.value
        # Before the call, which may wait: no other thread has it meanwhile.
        handle = data._handle.take()
        try:
            result = self._call(_c.network_send_region, handle, size, semantics, byref(ticket))
        except (ValueError, ArgumentError):
            # It was not called.
            data._handle.put_back(handle)
            raise
        if result == _c.NO_ROOM:
            data._handle.put_back(handle)
        _c.check(result)
        return ticket.value

    def receive(self, semantics=Semantics.EMULATED_WEAK_MOVE):
        """The next message in a region of the port's pool, by move semantics, without a copy; waits. It is this process's to read and to write,
        and to send again."""
        handle, length = c_void_p(), c_size_t()
        self._must(_c.network_receive_region, Semantics(semantics), byref(handle), byref(length))
        return Region(self._pool, handle.value, length.value)

    @property
    def alignment(self):
        """Which buffers pages can be swapped into: windows of the port's pool."""
        return self._call(lambda port: _alignment(_c.network_alignment, port))

    def set_swap_from(self, size):
        """Changes `copy_below` (None: all messages are copied): at first a page for huge pages, and never for others."""
        self._call(_c.network_set_swap_from, _NEVER if size is None else size)

    def receive_into(self, buffer, semantics=Semantics.EMULATED_COPY):
        """The next message into a buffer, by copy or share semantics; gives its length. One that is longer waits: Error, "too-long". Into a `Window` of the
        port's pool pages are swapped."""
        length = c_size_t()
        if isinstance(buffer, Window):
            with buffer._used() as window:
                self._must(_c.network_receive_into, window, Semantics(semantics), byref(length))
            return length.value
        room = _room(buffer)
        self._must(_c.network_receive, room, len(room), Semantics(semantics), byref(length))
        return length.value

    def room(self, pool, size):
        """A region of the pool; waits until what was sent has left enough of it."""
        while True:
            try:
                return pool.allocate(size)
            except _c.Full:
                if size > pool.size:
                    raise
            self.progress()
            time.sleep(0.0002)


class NetworkListener:
    """Where ports connect."""

    def __init__(self, address):
        self._socket = sockets.create_server(address)

    @property
    def address(self):
        """Where it listens."""
        return self._socket.getsockname()

    def fileno(self):
        """Readable when one connects."""
        return self._socket.fileno()

    def accept(self, pool):
        """The next one's port; waits."""
        return NetworkPort(self._socket.accept()[0], pool)

    def close(self):
        """Ports that were accepted stay."""
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

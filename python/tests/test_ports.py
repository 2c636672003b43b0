"""Messages between ports of this process, and to children."""
import errno
import gc
import mmap
import multiprocessing
import os
import socket
import threading
import time
import unittest
import weakref
from multiprocessing import shared_memory

import shunt_buffers as sb

try:
    import numpy
except ImportError:
    numpy = None

BIG = 1 << 20


def pair():
    left, right = socket.socketpair()
    here = sb.Port.connect(left)
    there = sb.Port.accept(right)
    pool = sb.Pool(8 << 20)
    here.offer(pool)
    return here, there, pool


class Ports(unittest.TestCase):
    def test_a_moved_region_is_read_where_it_lies_and_comes_back(self):
        here, there, pool = pair()
        region = pool.allocate(BIG)
        region.view[:5] = b"hello"
        ticket = here.move(region)
        with self.assertRaises(ValueError):
            here.move(region)
        message = there.reference()
        self.assertTrue(message.in_place)
        self.assertEqual((len(message), bytes(message.view[:5])), (BIG, b"hello"))
        with self.assertRaises(TypeError):
            message.view[0] = 1
        view = message.view[1:3]
        del message
        gc.collect()
        self.assertFalse(here.completed(ticket), "a view of it is there")
        self.assertEqual(bytes(view), b"el")
        del view
        gc.collect()
        self.assertTrue(here.completed(ticket))
        self.assertEqual(here.lent, 0)

    def test_a_connection_that_is_there_becomes_a_port(self):
        for copying in (False, True):
            with socket.create_server(("127.0.0.1", 0)) as server:
                left = socket.create_connection(server.getsockname())
                right = server.accept()[0]
            ends = []
            other = threading.Thread(target=lambda: ends.append(sb.Port.over(right)))
            other.start()
            here = sb.Port.over(left, copying=copying)
            other.join()
            there = ends[0]
            self.assertEqual((here.shares, there.shares), (not copying, not copying))
            pool = sb.Pool(8 << 20)
            here.offer(pool)
            region = pool.allocate(BIG)
            region.view[:5] = b"hello"
            sender = threading.Thread(target=here.move, args=(region,))
            sender.start()
            message = there.reference()
            sender.join()
            self.assertEqual((message.in_place, len(message), bytes(message.view[:5])), (not copying, BIG, b"hello"))
            self.assertEqual(here.copied("region-apart"), copying)
            del message

    def test_a_view_outlives_its_port_and_its_peer(self):
        here, there, pool = pair()
        region = pool.allocate(BIG)
        region.view[:5] = b"hello"
        here.share(region)
        view = there.reference().view
        del here, there, pool, region
        gc.collect()
        self.assertEqual(bytes(view[:5]), b"hello")

    def test_any_bytes_are_sent_and_copied(self):
        here, there, pool = pair()
        for data in [b"", b"x" * 100, bytearray(b"y" * BIG), memoryview(b"z" * 9).toreadonly(), pool.allocate(10).view[:10]]:
            here.send(data)
            self.assertEqual(there.receive(), bytes(data))
        here.send(b"abc")
        room = bytearray(10)
        self.assertEqual((there.receive_into(room), room[:3]), (3, b"abc"))
        self.assertGreater(here.copied("region-private"), 0)

    def test_what_is_deferred_is_as_it_was_when_it_was_sent(self):
        here, there, pool = pair()
        region = pool.allocate(4 << 20)
        region.view[:] = b"1" * len(region)
        here.send(region.view, defer=True)
        region.view[:] = b"2" * len(region)
        self.assertEqual(there.receive(), b"1" * len(region))

    def test_limits_have_words(self):
        here, there, pool = pair()
        kept = [pool.allocate(BIG) for _ in range(8)]
        with self.assertRaises(sb.Full) as full:
            pool.allocate(1)
        self.assertEqual(full.exception.word, "region-pool-full")
        kept.pop()
        gc.collect()
        self.assertEqual(pool.free, BIG)
        with self.assertRaises(sb.Error):
            here.share(kept[0], len(kept[0]) + 1)
        with self.assertRaises(sb.Error) as refused:
            here.offer(sb.Pool(BIG, trusted=True))
        self.assertEqual(refused.exception.word, "region-untrusted")
        del there
        gc.collect()
        with self.assertRaises(sb.Gone):
            here.receive()

    def test_what_is_wrong_is_said(self):
        here, there, pool = pair()
        for size in (1 << 50, 1 << 64, 1 << 90):
            with self.assertRaises(sb.Error) as large:
                sb.Pool(size)
            self.assertEqual(large.exception.word, "region-pool-shape")
            self.assertIn("No pool is so large", str(large.exception))
            with self.assertRaises(sb.Error) as large:
                pool.allocate(size)
            self.assertEqual(large.exception.word, "region-too-large")
            self.assertNotIsInstance(large.exception, sb.Full, "waiting does not help")
        for wrong in (lambda: sb.Pool(-1), lambda: pool.allocate(-1), lambda: sb.Pool(BIG, unit=0)):
            with self.assertRaises(ValueError):
                wrong()
        with self.assertRaises(sb.Error) as unit:
            sb.Pool(BIG, unit=5000)
        self.assertEqual(unit.exception.word, "region-pool-shape")
        with self.assertRaises(ValueError) as unknown:
            here.copied("region-qouta")
        self.assertIn("reasons()", str(unknown.exception))
        self.assertEqual(here.copied("region-quota"), 0)
        self.assertIn("region-quota", sb.reasons())
        self.assertTrue(all(text.endswith(".") for text in sb.reasons().values()))
        with self.assertRaises(TypeError) as pair_of:
            here.move(sb.dump([1], pool))
        self.assertIn("dump(object, pool)", str(pair_of.exception))
        with self.assertRaises(TypeError):
            there.receive_into(b"only to be read")

    def test_a_message_that_is_longer_than_what_is_copied_says_so(self):
        here, there, pool = pair()
        there.set_largest(BIG - 1)
        here.send(b"x" * BIG)
        with self.assertRaises(sb.Error) as long:
            there.reference()
        self.assertEqual(long.exception.word, "region-too-long")
        self.assertEqual(len(there.receive()), BIG, "it can still be received")

    @unittest.skipIf(numpy is None, "needs NumPy")
    def test_bytes_that_are_not_contiguous_are_refused_in_words(self):
        here, there, pool = pair()
        for array in (numpy.arange(100)[::2], numpy.asfortranarray(numpy.ones((3, 4)))):
            with self.assertRaises(ValueError) as refused:
                here.send(array)
            self.assertIn("ascontiguousarray", str(refused.exception))
        here.send(numpy.ascontiguousarray(numpy.arange(100)[::2]))
        self.assertEqual(list(numpy.frombuffer(there.receive(), dtype=int)), list(range(0, 100, 2)))

    @unittest.skipIf(numpy is None, "needs NumPy")
    def test_a_weak_move_leaves_the_senders_arrays_at_the_memory_that_is_read(self):
        here, there, pool = pair()
        region = pool.allocate(BIG)
        own = region.array("u1")
        own[0] = 7
        here.move(region)
        message = there.reference()
        self.assertEqual(message.view[0], 7)
        own[0] = 9
        self.assertEqual(message.view[0], 9, "as README says")

    def test_messages_are_dropped_by_any_thread(self):
        here, there, pool = pair()
        messages = []
        for _ in range(4):
            here.move(pool.allocate(BIG))
            messages.append(there.reference())
        threads = [threading.Thread(target=messages.pop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gc.collect()
        there.lent
        self.assertEqual(here.lent, 0)

    def test_a_forked_child_has_a_copy(self):
        here, there, pool = pair()
        region = pool.allocate(BIG)
        region.view[:1] = b"a"
        here.share(region)
        child = os.fork()
        if child == 0:
            region.view[:1] = b"b"
            os._exit(0 if bytes(region.view[:1]) == b"b" else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(bytes(there.reference().view[:1]), b"a")


def connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        left = socket.create_connection(server.getsockname())
        return left, server.accept()[0]


class Windows(unittest.TestCase):
    def test_a_moved_region_becomes_a_window_s_pages(self):
        here, there, _ = pair()
        here.trust()
        there.trust()
        source, own = sb.Pool(4 * BIG, trusted=True), sb.Pool(4 * BIG, trusted=True)
        here.offer(source)
        self.assertEqual(there.alignment(own), sb.Alignment(4096, 0, 64 << 10, None))
        there.set_swap_from(4096)
        self.assertEqual(there.alignment(own).copy_below, 4096)
        window = own.window(BIG)
        self.assertEqual(len(window), BIG)
        for number in range(6):
            region = source.allocate(BIG)
            region.view[:] = bytes([number + 1]) * BIG
            ticket = here.move(region)
            self.assertEqual(there.receive_into(window), BIG)
            self.assertEqual(bytes(window), bytes([number + 1]) * BIG)
            self.assertFalse(here.completed(ticket), "its pages are the window's")
            window.view[:] = bytes(BIG)
        # The ports may go: a view keeps what it needs.
        view = window.view
        window.keep()
        del window, there, here
        gc.collect()
        self.assertEqual((view[0], view[-1], source.free), (0, 0, source.size))
        del view
        self.assertEqual(own.free, own.size)

    def test_a_window_lets_go_of_ports_that_have_nothing_in_it(self):
        own = sb.Pool(4 * BIG, trusted=True)
        window, cores = own.window(BIG), []
        for number in range(6):
            here, there, _ = pair()
            here.trust()
            there.trust()
            source = sb.Pool(2 * BIG, trusted=True)
            here.offer(source)
            there.set_swap_from(4096 if number < 3 else None)
            here.move(source.allocate(BIG))
            there.receive_into(window)
            cores.append(weakref.ref(there._core))
            del here, there
            gc.collect()
            alive = [core() is not None for core in cores]
            self.assertEqual(alive, [at == number and number < 3 for at in range(number + 1)])

    def test_a_window_is_used_by_one_call_at_a_time(self):
        here, there, _ = pair()
        _, other, _ = pair()
        window = sb.Pool(2 * BIG, trusted=True).window(BIG)
        waiting = threading.Thread(target=there.receive_into, args=(window,))
        waiting.start()
        while not window._lock.locked():
            time.sleep(0.001)
        for call in window.keep, lambda: other.receive_into(window):
            with self.assertRaises(ValueError):
                call()
        here.send(b"x" * BIG)
        waiting.join()
        window.keep()
        self.assertEqual(bytes(window), b"x" * BIG)

    def test_a_child_of_fork_has_no_window(self):
        window = sb.Pool(BIG, trusted=True).window(BIG)
        child = os.fork()
        if child == 0:
            refused = 0
            for look in (lambda: window.view), (lambda: len(window)), (lambda: window.__array_interface__), (lambda: bytes(window)):
                try:
                    look()
                except ValueError:
                    refused += 1
            os._exit(refused)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 4)
        self.assertEqual(len(window), BIG)

    def test_what_is_shared_is_copied_and_sealed_pools_have_no_windows(self):
        here, there, pool = pair()
        with self.assertRaises(sb.Error) as refused:
            pool.window(1)
        self.assertEqual(refused.exception.word, "region-untrusted")
        there.set_swap_from(1)
        window = sb.Pool(BIG, trusted=True).window(BIG)
        region = pool.allocate(BIG)
        region.view[:] = b"x" * BIG
        here.move(region)
        self.assertEqual((there.receive_into(window), bytes(window)), (BIG, b"x" * BIG))
        self.assertEqual(here.lent, 0)
        with self.assertRaises(ValueError):
            pool.window(-1)


class Sockets(unittest.TestCase):
    def test_a_pool_is_shown_where_there_is_shunt(self):
        left, right = connection()
        pool = sb.Pool(1 << 20)
        self.assertEqual(pool.show(left), under_shunt(left))
        self.assertEqual(pool.show(left.fileno()), under_shunt(left), "a second time")
        if under_shunt(left):
            with self.assertRaises(sb.Error) as trusted:
                sb.Pool(1 << 20, trusted=True).show(left)
            self.assertEqual(trusted.exception.word, "system")

    def test_plain_sends_lend_what_was_shown_where_there_is_shunt(self):
        left, right = connection()
        pool = sb.Pool(1 << 20)
        region = pool.allocate(100_000)
        pool.show(left)
        self.assertEqual(sb.set_output(left, sb.Semantics.EMULATED_COPY), under_shunt(left))
        for turn in range(20):
            region.view[:100_000] = bytes([turn]) * 100_000
            sender = threading.Thread(target=left.sendall, args=(region.view[:100_000],))
            sender.start()
            self.assertEqual(right.recv(100_000, socket.MSG_WAITALL), bytes([turn]) * 100_000)
            sender.join()
            right.send(b"k")
            self.assertEqual(left.recv(1), b"k")
        self.assertEqual(sb.set_output(left, sb.Semantics.COPY), under_shunt(left))
        if under_shunt(left):
            with self.assertRaises(OSError) as other:
                sb.set_output(left, sb.Semantics.SHARE)
            self.assertEqual(other.exception.errno, errno.EINVAL)

    def test_what_comes_is_a_view_in_place_or_copied(self):
        left, right = connection()
        pool, room = sb.Pool(1 << 20), sb.Pool(1 << 20)
        region = pool.allocate(200_000)
        left.setsockopt(socket.SOL_SOCKET, 60, 1)
        by_reference = pool.show(left) and carried_in_memory(left)
        for turn in range(3):
            region.view[:200_000] = bytes([turn + 1]) * 200_000
            sender = threading.Thread(target=lambda: left.sendmsg([region.view[:200_000]], (), 0x4000000))
            sender.start()
            got, in_place, views = b"", 0, []
            while len(got) < 200_000:
                views.append(sb.receive(right, room, 200_000))
                got += bytes(views[-1])
                in_place += len(views[-1]) if views[-1].in_place else 0
            sender.join()
            self.assertEqual(got, bytes([turn + 1]) * 200_000)
            with self.assertRaises(TypeError):
                views[0].view[0] = 1
            if turn > 0:
                self.assertEqual(in_place > 0, by_reference)
                self.assertEqual(completed(left) == 0, by_reference, "it is held")
            del views
            gc.collect()
            while completed(left):
                pass
        self.assertEqual(room.free, room.size)
        with self.assertRaises(BlockingIOError):
            sb.receive(right, room, 10, wait=False)
        left.close()
        self.assertIsNone(sb.receive(right, room, 10))

    def test_shared_memory_of_the_program_s_is_sent_by_reference(self):
        for make in (segment, memfd, tensor):
            memory, close = make(8 * PART)  # the first segment starts a process, with which older connections are shared
            left, right = connection()
            left.setsockopt(socket.SOL_SOCKET, 60, 1)
            shown = sb.show(left, memory)
            self.assertEqual(shown is not None, under_shunt(left))
            by_reference = shown is not None and carried_in_memory(left)
            for turn in range(8):
                here = memory[turn * PART : (turn + 1) * PART]
                here[:] = bytes([turn + 1]) * PART
                self.assertEqual(sent_and_received(left, right, here), bytes([turn + 1]) * PART)
                if by_reference and turn > 0:
                    self.assertNotEqual(left.getsockopt(SOL_SHUNT, 4, 8), bytes(8))
                while completed(left):
                    pass
            if shown is not None:
                with self.assertRaises(BufferError):
                    close()
                before = left.getsockopt(SOL_SHUNT, 4, 8)
                self.assertEqual(int.from_bytes(before, "little") > 6 * PART, by_reference)
                shown.close()
                self.assertEqual(sent_and_received(left, right, memory[:PART]), bytes([1]) * PART)
                self.assertEqual(left.getsockopt(SOL_SHUNT, 4, 8), before, "it is shown no more")
            del here, shown
            gc.collect()
            memory.release()
            close()

    def test_tensors_that_are_shared_go_by_reference(self):
        try:
            import torch
        except ImportError:
            return
        tensor = torch.zeros(1 << 18).share_memory_()
        left, right = connection()
        left.setsockopt(socket.SOL_SOCKET, 60, 1)
        view = memoryview(tensor.numpy()).cast("B")
        shown = sb.show(left, tensor.numpy())
        for turn in range(4):
            tensor.fill_(turn + 0.5)
            self.assertEqual(sent_and_received(left, right, view), view.tobytes())
        if shown is not None and carried_in_memory(left):
            self.assertGreater(int.from_bytes(left.getsockopt(SOL_SHUNT, 4, 8), "little"), len(view))

    def test_a_sender_that_truncates_or_rewrites_costs_no_more_than_its_connection(self):
        for truncate in (True, False):
            left, right = connection()
            left.setsockopt(socket.SOL_SOCKET, 60, 1)
            file = os.memfd_create("any")
            os.ftruncate(file, 8 * PART)
            memory = memoryview(mmap.mmap(file, 8 * PART))
            memory[:] = b"a" * len(memory)
            shown = sb.show(left, memory)
            if shown is None or not carried_in_memory(left):
                return
            sent_and_received(left, right, memory[:PART])
            left.sendmsg([memory[:PART]], (), 0x4000000)
            if truncate:
                os.ftruncate(file, 4096)
                with self.assertRaises(ConnectionResetError):
                    whole(right, PART)
            else:
                memory[:PART] = b"b" * PART
                self.assertEqual(whole(right, PART), b"b" * PART, "Linux's rule forbids it, and nothing else happens")
            os.close(file)

    def test_memory_that_is_no_file_is_not_shown(self):
        left, right = connection()
        for data in (bytearray(PART), mmap.mmap(-1, PART, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)):
            with self.assertRaises(sb.Error) as refused:
                sb.show(left, data)
            self.assertEqual(refused.exception.word, "region-private")


SOL_SHUNT = 0x53484E54
PART = 100_000


def segment(size):
    """As NumPy's users share arrays."""
    memory = shared_memory.SharedMemory(create=True, size=size)
    memory.unlink()
    return memory.buf[:size], memory.close


def memfd(size):
    file = os.memfd_create("any")
    os.ftruncate(file, size)
    mapped = mmap.mmap(file, size)
    os.close(file)  # mmap has one of its own
    return memoryview(mapped), mapped.close


def tensor(size):
    """As PyTorch shares tensors: a file without a name."""
    name = f"/dev/shm/shunt-torch-{os.getpid()}"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(name)
    os.ftruncate(file, size)
    mapped = mmap.mmap(file, size)
    os.close(file)
    return memoryview(mapped), mapped.close


def whole(sock, length):
    got = bytearray()
    while len(got) < length:
        more = sock.recv(length - len(got))
        if not more:
            break
        got += more
    return bytes(got)


def sent_and_received(left, right, view):
    sender = threading.Thread(target=lambda: left.sendmsg([view], (), 0x4000000))
    sender.start()
    got = whole(right, len(view))
    sender.join()
    return got


def option(sock, name):
    try:
        return int.from_bytes(sock.getsockopt(0x53484E54, name, 4), "little")
    except OSError:
        return None


def under_shunt(sock):
    return option(sock, 1) is not None


def carried_in_memory(sock):
    return option(sock, 1) == 1


def completed(sock):
    """How many completions the error queue has."""
    try:
        sock.recvmsg(0, 1000, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        return 1
    except BlockingIOError:
        return 0


def produce(descriptor, count):
    port = sb.Port.connect(descriptor)
    pool = sb.Pool(4 << 20)
    port.offer(pool)
    for number in range(count):
        region = port.room(pool, BIG)
        region.view[:] = bytes([number]) * BIG
        port.move(region)


class Processes(unittest.TestCase):
    def test_a_child_sends_more_than_its_pool_holds(self):
        left, right = socket.socketpair()
        child = multiprocessing.get_context("fork").Process(target=produce, args=(left.fileno(), 20))
        child.start()
        left.close()
        port = sb.Port.accept(right)
        for number in range(20):
            message = port.reference()
            self.assertEqual((message.view[0], message.view[-1], message.in_place), (number, number, True))
        with self.assertRaises(sb.Gone):
            port.reference()
        child.join()
        self.assertEqual(child.exitcode, 0)


    def test_a_process_passes_on_what_it_does_not_read(self):
        context = multiprocessing.get_context("fork")
        ends = [socket.socketpair() for _ in range(2)]
        first = context.Process(target=produce, args=(ends[0][0].fileno(), 20))
        third = context.Process(target=consume, args=(ends[1][0].fileno(), 20))
        for process in (first, third):
            process.start()
        for left, _ in ends:
            left.close()
        source, to = sb.Port.accept(ends[0][1]), sb.Port.connect(ends[1][1])
        passed = 0
        while passed < 20 or to.settle(source) > 0:
            if passed < 20 and source.has_message:
                message = source.reference()
                with self.assertRaises(ValueError):
                    source.forward(message, to)
                to.forward(message, source)
                with self.assertRaises(ValueError):
                    to.forward(message, source)
                passed += 1
            to.settle(source)
        self.assertEqual(to.copied(), {})
        third.join()
        self.assertEqual((third.exitcode, passed), (0, 20))
        first.join()
        self.assertEqual(first.exitcode, 0)


def consume(descriptor, count):
    port = sb.Port.accept(descriptor)
    for number in range(count):
        message = port.reference()
        assert message.in_place and len(message) == BIG
        assert bytes(message.view) == bytes([number]) * BIG


@unittest.skipIf(numpy is None, "no numpy")
class Arrays(unittest.TestCase):
    def test_arrays_lie_in_regions_and_messages(self):
        here, there, pool = pair()
        region = pool.allocate(BIG)
        array = region.array(numpy.float32, (512, 512))
        array[:] = 1.5
        address = array.ctypes.data
        self.assertEqual(numpy.asarray(region).ctypes.data, address)
        here.move(region)
        message = there.reference()
        got = message.array(numpy.float32, (512, 512))
        self.assertEqual((got.sum(), got.flags.writeable, got.flags.owndata), (1.5 * 512 * 512, False, False))
        self.assertFalse(numpy.asarray(message).flags.owndata)
        del message, array, region
        gc.collect()
        self.assertGreater(here.lent, 0)
        self.assertEqual(got[511, 511], 1.5)
        del got
        gc.collect()
        self.assertEqual(here.lent, 0)

    def test_objects_are_copied_once(self):
        here, there, pool = pair()
        batch = {"pixels": numpy.arange(1000, dtype="f8").reshape(10, 100), "labels": numpy.arange(10), "name": "first"}
        here.move(*sb.dump(batch, pool))
        message = there.reference()
        got = sb.load(message)
        self.assertEqual(got["name"], "first")
        for name in ("pixels", "labels"):
            numpy.testing.assert_array_equal(got[name], batch[name])
        start = numpy.asarray(message).ctypes.data
        self.assertTrue(start < got["pixels"].ctypes.data < start + len(message))
        self.assertEqual(got["pixels"].ctypes.data % 64, 0)
        del message
        gc.collect()
        self.assertGreater(here.lent, 0, "its arrays keep it")


if __name__ == "__main__":
    unittest.main()

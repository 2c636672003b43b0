"""Messages over UDP, between ports of this process and to a child."""
import gc
import os
import select
import threading
import unittest

import shunt_buffers as sb

try:
    import numpy
except ImportError:
    numpy = None

BIG = 1 << 20
POOL = 32 << 20
MOVES = [sb.Semantics.MOVE, sb.Semantics.EMULATED_MOVE, sb.Semantics.WEAK_MOVE, sb.Semantics.EMULATED_WEAK_MOVE]
SHARES = [sb.Semantics.SHARE, sb.Semantics.EMULATED_SHARE]
COPIES = [sb.Semantics.COPY, sb.Semantics.EMULATED_COPY]


def pair():
    with sb.NetworkPort.listen(("127.0.0.1", 0)) as listener:
        pools = sb.Pool(POOL), sb.Pool(POOL)
        accepted = []
        other = threading.Thread(target=lambda: accepted.append(listener.accept(pools[1])))
        other.start()
        here = sb.NetworkPort.connect(listener.address, pools[0])
        other.join()
        return here, accepted[0], *pools


def meet(call, other):
    """The call's result; the other port does what it can meanwhile."""
    results = []

    def run():
        try:
            results.append(call())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        other.progress()
    thread.join()
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0]


class Network(unittest.TestCase):
    def test_pages_are_swapped_into_a_window(self):
        with sb.NetworkPort.listen(("127.0.0.1", 0)) as listener:
            ours, theirs = sb.Pool(POOL), sb.Pool(POOL, trusted=True)
            accepted = []
            other = threading.Thread(target=lambda: accepted.append(listener.accept(theirs)))
            other.start()
            here = sb.NetworkPort.connect(listener.address, ours)
            other.join()
            there = accepted[0]
        self.assertEqual(there.alignment, sb.Alignment(4096, 0, theirs.unit, None))
        there.set_swap_from(4096)
        self.assertEqual(there.alignment.copy_below, 4096)
        window = theirs.window(BIG)
        for number in range(4):
            region = ours.allocate(BIG)
            region.view[:] = bytes([number + 1]) * BIG
            here.send(region)
            length = meet(lambda: there.receive_into(window, sb.Semantics.EMULATED_COPY), here)
            self.assertEqual((length, bytes(window)), (BIG, bytes([number + 1]) * BIG))
        with self.assertRaises(sb.Error):
            meet(lambda: there.receive_into(sb.Pool(BIG, trusted=True).window(BIG)), here)

    def test_every_semantics_with_every_other(self):
        here, there, ours, theirs = pair()
        for number, sender in enumerate(sb.Semantics):
            for receiver in sb.Semantics:
                region = ours.allocate(BIG)
                region.view[:] = bytes([number + 1]) * BIG
                ticket = here.send(region, semantics=sender)
                if sender in COPIES:
                    region.view[:] = bytes([99]) * BIG
                if sender in MOVES:
                    with self.assertRaises(ValueError):
                        here.send(region, semantics=sender)
                if receiver in MOVES:
                    got = meet(lambda: there.receive(receiver), here)
                    self.assertEqual(len(got), BIG)
                    got.view[0] = got.view[1]
                    data = bytes(got)
                else:
                    room = bytearray(BIG + 3)
                    self.assertEqual(meet(lambda: there.receive_into(room, receiver), here), BIG)
                    data = room[:BIG]
                self.assertEqual(data, bytes([number + 1]) * BIG, (sender, receiver))
                self.assertTrue(here.completed(ticket))
                del region
        for data in [b"", b"short", bytearray(b"x" * 100), memoryview(b"z" * 9)]:
            here.send(data)
            self.assertEqual(bytes(meet(there.receive, here)), bytes(data))
        meet(here.drain, there)
        del here, there, got
        gc.collect()
        self.assertEqual((ours.free, theirs.free), (POOL, POOL))

    def test_what_does_not_fit_a_call_is_refused_in_words(self):
        here, there, ours, theirs = pair()
        with self.assertRaises(TypeError) as region:
            here.send(b"x", semantics=sb.Semantics.EMULATED_MOVE)
        self.assertIn("a region is to be sent by EMULATED_MOVE, not a bytes", str(region.exception))
        with self.assertRaises(sb.Error):
            here.receive(sb.Semantics.COPY)
        with self.assertRaises(TypeError):
            there.receive_into(b"only to be read")
        with self.assertRaises(ValueError):
            here.patience = -1
        here.send(b"twelve bytes")
        with self.assertRaises(sb.Error) as long:
            meet(lambda: there.receive_into(bytearray(3)), here)
        self.assertEqual((long.exception.word, there.next_length()), ("too-long", 12))
        self.assertEqual(bytes(meet(there.receive, here)), b"twelve bytes")
        there.close()
        with self.assertRaises(sb.Gone):
            while True:
                here.send(b"x")
        with self.assertRaises(ValueError):
            there.progress()

    def test_a_region_that_was_given_away_is_not_sent_by_any_semantics(self):
        here, there, ours, theirs = pair()
        for sender in MOVES:
            region = ours.allocate(BIG)
            here.send(region, semantics=sender)
            for semantics in sb.Semantics:
                with self.assertRaises(ValueError):
                    here.send(region, semantics=semantics)
            self.assertEqual(len(meet(there.receive, here)), BIG)

    def test_threads_that_send_one_region_give_it_away_once(self):
        here, there, ours, theirs = pair()
        region = ours.allocate(BIG)
        # Nothing comes before it has gone: the call that waits has the port's lock, and all others wait for that.
        waits = threading.Thread(target=there.receive)
        waits.start()
        while not there._lock.locked():
            pass
        started, results = [], []

        def send():
            started.append(None)
            try:
                results.append(there.send(region, semantics=sb.Semantics.EMULATED_MOVE))
            except ValueError as error:
                results.append(error)

        threads = [threading.Thread(target=send) for _ in range(3)]
        for thread in threads:
            thread.start()
        while len(started) < 3:
            pass
        here.send(b"x")
        for thread in threads + [waits]:
            meet(thread.join, here)
        self.assertEqual(sum(isinstance(result, ValueError) for result in results), 2)

    def test_what_a_call_has_is_not_released(self):
        here, there, ours, theirs = pair()
        region = ours.allocate(BIG)
        waits = threading.Thread(target=here.receive)
        waits.start()
        while not here._lock.locked():
            pass
        shares = threading.Thread(target=here.send, args=(region,), kwargs={"semantics": sb.Semantics.SHARE})
        shares.start()
        while not region._handle._uses:
            pass
        with self.assertRaises(ValueError):
            region.release()
        there.send(b"x")
        meet(waits.join, there)
        meet(shares.join, there)
        region.release()

    def test_a_call_waits_no_longer_than_it_may(self):
        here, there, ours, theirs = pair()
        there.set_outboard()
        here.set_quota(BIG)
        here.patience = 0
        there.patience = 0.002
        self.assertEqual((here.patience, there.patience), (0, 0.002))
        with self.assertRaises(sb.Waited) as waited:
            there.receive()
        self.assertEqual(waited.exception.word, "no-message")
        self.assertIsInstance(waited.exception, TimeoutError)
        first, second = ours.allocate(BIG), ours.allocate(BIG)
        first.view[:], second.view[:] = b"1" * BIG, b"2" * BIG
        self.assertTrue(here.has_room(BIG))
        here.send(first, semantics=sb.Semantics.EMULATED_MOVE)
        self.assertFalse(here.has_room(BIG))
        with self.assertRaises(sb.Waited) as waited:
            here.send(second, semantics=sb.Semantics.EMULATED_MOVE)
        self.assertEqual(waited.exception.word, "no-room")
        self.assertEqual(bytes(second), b"2" * BIG, "it is this program's still")
        with self.assertRaises(sb.Waited) as waited:
            here.drain()
        self.assertEqual(waited.exception.word, "not-arrived")

        def received():
            while True:
                here.progress()
                try:
                    return there.receive()
                except TimeoutError:
                    pass

        self.assertEqual(bytes(received()), b"1" * BIG)
        while not here.has_room(BIG):
            there.progress()
        here.send(second, semantics=sb.Semantics.EMULATED_MOVE)
        self.assertEqual(bytes(received()), b"2" * BIG)

    def test_two_that_both_send_first_go_on_if_they_do_not_wait(self):
        here, there, ours, theirs = pair()
        for port in (here, there):
            port.set_outboard()
            port.patience = 0
            for _ in range(2):
                port.send(b"x" * (POOL // 2 - BIG))
            with self.assertRaises(sb.Waited):
                while True:
                    port.send(b"x" * (POOL // 2 - BIG))
            self.assertEqual(select.select([], [], [port], 0), ([], [], []), "it has a descriptor")
        for port, other in ((here, there), (there, here)):
            port.patience = None
            self.assertEqual(len(meet(port.receive, other)), POOL // 2 - BIG)

    @unittest.skipIf(numpy is None, "no numpy")
    def test_arrays_lie_in_what_came(self):
        here, there, ours, theirs = pair()
        region = ours.allocate(BIG)
        region.array(numpy.float32, (512, 512))[:] = 1.5
        here.send(region, semantics=sb.Semantics.EMULATED_MOVE)
        message = meet(there.receive, here)
        array = message.array(numpy.float32, (512, 512))
        self.assertEqual((array.sum(), array.flags.writeable, array.flags.owndata), (1.5 * 512 * 512, True, False))
        array[0, 0] = 2.5
        self.assertEqual(numpy.asarray(message).view(numpy.float32)[0], 2.5)
        batch = {"pixels": numpy.arange(100_000, dtype="f8"), "name": "first"}
        here.send(*sb.dump(batch, ours, here), semantics=sb.Semantics.EMULATED_WEAK_MOVE)
        got = sb.load(meet(there.receive, here))
        numpy.testing.assert_array_equal(got["pixels"], batch["pixels"])
        self.assertFalse(got["pixels"].flags.owndata)
        before = theirs.free
        del got, array, message
        gc.collect()
        self.assertGreater(theirs.free, before)

    def test_a_child_sends_more_than_its_pool_holds(self):
        with sb.NetworkPort.listen(("127.0.0.1", 0)) as listener:
            child = os.fork()
            if child == 0:
                try:
                    pool = sb.Pool(4 * BIG)
                    with sb.NetworkPort.connect(listener.address, pool) as port:
                        for number in range(12):
                            region = port.room(pool, BIG)
                            region.view[:] = bytes([number]) * BIG
                            port.send(region, semantics=sb.Semantics.EMULATED_WEAK_MOVE)
                        port.drain()
                    os._exit(0)
                finally:
                    os._exit(1)
            port = listener.accept(sb.Pool(8 * BIG))
        for number in range(12):
            self.assertEqual(bytes(port.receive()), bytes([number]) * BIG)
        with self.assertRaises(sb.Gone):
            port.receive()
        self.assertEqual(os.waitpid(child, 0)[1], 0)


if __name__ == "__main__":
    unittest.main()

"""Processes that share a manager's objects over TCP: workers take tasks from a queue and leave results in a dictionary.

usage: manager_client.py PORT
"""
import multiprocessing
import sys
from multiprocessing.connection import Client, Listener
from multiprocessing.managers import BaseManager, DictProxy

PORT = int(sys.argv[1])
TASKS = 200


class Manager(BaseManager):
    pass


Manager.register("shared", proxytype=DictProxy)
Manager.register("tasks")


def connect():
    manager = Manager(address=("127.0.0.1", PORT), authkey=b"known to both")
    manager.connect()
    return manager


def work(number):
    manager = connect()
    tasks, shared = manager.tasks(), manager.shared()
    while (task := tasks.get(timeout=30)) is not None:
        shared[task] = task * task


def listen(ready):
    # Two processes that this client forked itself, over TCP on a port of the kernel's choice.
    with Listener(("127.0.0.1", 0), authkey=b"child") as listener:
        ready.put(listener.address)
        with listener.accept() as connection:
            while (item := connection.recv()) is not None:
                connection.send(item)
            connection.send_bytes(b"x" * 3_000_000)


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    manager = connect()
    workers = [multiprocessing.Process(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    tasks = manager.tasks()
    for task in range(TASKS):
        tasks.put(task)
    for _ in workers:
        tasks.put(None)
    for worker in workers:
        worker.join(40)
        assert worker.exitcode == 0, worker.exitcode
    assert manager.shared().copy() == {task: task * task for task in range(TASKS)}

    ready = multiprocessing.Queue()
    child = multiprocessing.Process(target=listen, args=(ready,))
    child.start()
    with Client(ready.get(timeout=30), authkey=b"child") as connection:
        for item in [1, "text", list(range(10_000)), b"\0" * 500_000]:
            connection.send(item)
            assert connection.recv() == item
        connection.send(None)
        assert connection.recv_bytes() == b"x" * 3_000_000
    child.join(30)
    assert child.exitcode == 0, child.exitcode
    print("fine")

"""multiprocessing's manager over TCP: a shared queue, dictionary and function. Ends with status 0 on SIGTERM.

usage: manager_server.py PORT
"""
import os
import queue
import signal
import sys
from multiprocessing.managers import BaseManager, DictProxy

shared = {}
tasks = queue.Queue()


class Manager(BaseManager):
    pass


Manager.register("shared", callable=lambda: shared, proxytype=DictProxy)
Manager.register("tasks", callable=lambda: tasks)
manager = Manager(address=("127.0.0.1", int(sys.argv[1])), authkey=b"known to both")
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
manager.get_server().serve_forever()

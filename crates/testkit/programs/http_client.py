"""Requests over kept-alive and over new connections, small and large bodies, from four threads.

usage: http_client.py PORT
"""
import http.client
import random
import sys
import threading
import urllib.request

PORT = int(sys.argv[1])
failures = []


def work(number):
    try:
        generator = random.Random(number)
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
        for size in [0, 1, 1000, 65_536, 2_000_000]:
            body = generator.randbytes(size)
            connection.request("POST", "/", body=body)
            assert connection.getresponse().read() == body, size
        connection.close()
        for round in range(20):
            path = f"/{number}/{round}"
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=30) as response:
                assert response.read().decode() == path + "\n"
    except BaseException as failure:
        failures.append(failure)
        raise


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if failures:
    sys.exit(1)
print("fine")

"""closed.py PORT: a thread waits in poll(2) for a listener's descriptor that another thread closes;
a duplicate stays open and no client comes, so that nothing else happens. Prints whether the thread
is told, and after how many milliseconds."""
import select
import socket
import sys
import threading
import time

listener = socket.create_server(("", int(sys.argv[1])))
kept = listener.dup()
told = []


def wait():
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    told.extend(event for _, event in poll.poll(5000))


waiting = threading.Thread(target=wait)
waiting.start()
time.sleep(0.3)
closed = time.monotonic()
listener.close()
waiting.join()
print(told == [select.POLLNVAL], int(1000 * (time.monotonic() - closed)))

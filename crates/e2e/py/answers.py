"""answers.py PORT HOW: sends back what comes, by a way that involves more than sockets of the
stack: through its own echo server on loopback, for which it waits in poll(2) (relay); or by a
thread that sleeps on a futex between its answers, called by system-call number, while another one
waits in epoll_wait(2) (futex)."""
import ctypes
import select
import socket
import sys
import threading

listener = socket.create_server(("", int(sys.argv[1])), backlog=64)


def echo(listener):
    connection, _ = listener.accept()
    while data := connection.recv(65536):
        connection.sendall(data)


def relay():
    behind = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=echo, args=[behind], daemon=True).start()
    other = socket.create_connection(behind.getsockname())
    connection, _ = listener.accept()
    to = {connection.fileno(): (connection, other), other.fileno(): (other, connection)}
    poll = select.poll()
    for end in to:
        poll.register(end, select.POLLIN)
    while True:
        for end, _ in poll.poll():
            one, another = to[end]
            data = one.recv(65536)
            if not data:
                return
            another.sendall(data)


class Futex:
    SYS_FUTEX, WAIT, WAKE = 202, 0, 1
    libc = ctypes.CDLL(None)

    def __init__(self):
        self.word = ctypes.c_uint32(0)

    def call(self, operation, value):
        self.libc.syscall(self.SYS_FUTEX, ctypes.byref(self.word), operation, value, None, None, 0)

    def wait(self, value):
        while self.word.value == value:
            self.call(self.WAIT, value)
        return self.word.value

    def wake(self):
        self.word.value += 1
        self.call(self.WAKE, 1)


def by_futex():
    connection, _ = listener.accept()
    futex, todo = Futex(), []

    def answer():
        seen = 0
        while True:
            seen = futex.wait(seen)
            while todo:
                connection.sendall(todo.pop(0))

    threading.Thread(target=answer, daemon=True).start()
    waits = select.epoll()
    waits.register(connection, select.EPOLLIN)
    while True:
        waits.poll()
        data = connection.recv(65536)
        if not data:
            return
        todo.append(data)
        futex.wake()


while True:
    relay() if sys.argv[2] == "relay" else by_futex()

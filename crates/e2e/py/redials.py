"""redials.py HOST PORT: opens some connections, and replaces them at each SIGUSR1, since they may
be lost. Prints when all have been answered."""
import signal
import socket
import sys

to = (sys.argv[1], int(sys.argv[2]))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
while True:
    kept = [socket.create_connection(to) for _ in range(6)]
    for own in kept:
        own.sendall(b"hello")
        assert own.recv(100) == b"hello", own
    print("dialled", flush=True)
    signal.sigwait([signal.SIGUSR1])

"""redials.py HOST PORT: opens some connections, and others in their place for each SIGUSR1, as those may be lost. Says when
all have been answered."""
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

"""starts.py PORT: has three connections, each of which begins with its name, and starts programs by
vfork, as CPython's subprocess does: with every descriptor closed, one by one, except the one that
is passed. One program gets a and echoes what comes there. Another one gets a duplicate of c and
does nothing. No program gets b. This process echoes what comes on b and c, as epoll reports it."""
import os
import select
import socket
import subprocess
import sys

ECHO = "import os, sys; fd = int(sys.argv[1]); os.write(fd, os.read(fd, 100))"

listener = socket.create_server(("", int(sys.argv[1])))
by_name = {}
while len(by_name) < 3:
    connection, _ = listener.accept()
    name = connection.recv(1)
    if name:
        by_name[name] = connection
watched = {by_name[name].fileno(): by_name[name] for name in (b"b", b"c")}
epoll = select.epoll()
for fd in watched:
    epoll.register(fd, select.EPOLLIN)

# exec tries the first directory, too, where the program is not.
environment = dict(os.environ, PATH="/nowhere:/usr/bin")
passed = by_name[b"a"]
program = ["python3", "-c", ECHO, str(passed.fileno())]
subprocess.run(program, pass_fds=[passed.fileno()], env=environment, check=True)
passed.close()
duplicate = by_name[b"c"].dup()
subprocess.run(["true"], pass_fds=[duplicate.fileno()], env=environment, check=True)
print("started", flush=True)
while watched:
    for fd, _ in epoll.poll():
        connection = watched.pop(fd)
        connection.sendall(connection.recv(100))
        connection.close()

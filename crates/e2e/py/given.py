"""given.py PORT HOW: waits at its listener once, then gives it to a child that accepts, and waits
there no more. The child is one of fork (poll), while poll(2) asks for no event of the listener; or
a program started by fork and exec, vfork or posix_spawn, which gets the descriptor's number; with
its parent's environment, with none (bare-...), or by execv(3) when the parent's is empty
(empty)."""
import os
import select
import socket
import subprocess
import sys

how = sys.argv[2]


def serve(listener):
    while True:
        connection, _ = listener.accept()
        connection.sendall(b"hi")
        connection.close()


if how == "child":
    serve(socket.socket(fileno=int(sys.argv[1])))
listener = socket.create_server(("", int(sys.argv[1])), backlog=64)
poll = select.poll()
poll.register(listener, select.POLLIN)
poll.poll(500)
os.set_inheritable(listener.fileno(), True)
program = [sys.executable, __file__, str(listener.fileno()), "child"]
environment = {} if how.startswith("bare-") else os.environ
way = how.removeprefix("bare-")
if way == "poll":
    if os.fork() == 0:
        serve(listener)
    poll.modify(listener, 0)
else:
    poll.unregister(listener)
if way == "exec" and os.fork() == 0:
    os.execve(program[0], program, environment)
if way == "empty":
    os.environ.clear()
    if os.fork() == 0:
        os.execv(program[0], program)
if way == "vfork":
    # subprocess would use posix_spawn if it had nothing to close.
    subprocess.Popen(program, pass_fds=[listener.fileno()], env=environment)
if way == "spawn":
    os.posix_spawn(program[0], program, environment)
if way == "input":
    # As inetd passes it.
    program[2] = "0"
    os.set_inheritable(listener.fileno(), False)
    os.posix_spawn(program[0], program, environment, file_actions=[(os.POSIX_SPAWN_DUP2, listener.fileno(), 0)])
if way == "input":
    # A program that gets no listener has exactly the environment that it is given.
    assert subprocess.run(["/usr/bin/env"], env={}, capture_output=True).stdout == b""
print("given", flush=True)
ended, _ = os.pipe()
poll.register(ended, select.POLLIN)
while True:
    poll.poll(10_000)

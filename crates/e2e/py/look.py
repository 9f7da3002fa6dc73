"""look.py PLACE VERSION PID: asks a guardian what a process's stack does, as uncork stack stat
does, but without looking into the process first. Prints the answer."""
import array
import json
import socket
import sys

place, version, pid = sys.argv[1:]
name, token = place.lstrip("@").split(":")
guardian = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
guardian.settimeout(10)
guardian.connect("\0" + name)
ours, theirs = socket.socketpair()
look = {"version": int(version), "token": token, "pids": [int(pid)]}
question = json.dumps({"id": 0, "request": {"look": look}}).encode()
passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))
guardian.sendmsg([question], [passed])
print(guardian.recv(4096).decode())

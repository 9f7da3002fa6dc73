"""Fetches a page in a process of its own, before and after the device gets another Ethernet
address."""

import subprocess
import sys

URL, NAMESPACE = sys.argv[1:]


def fetched():
    command = ["curl", "-sSf", "-m", "3", "-o", "/dev/null", "-w", "%{size_download}", URL]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


first = fetched()
change = ["ip", "-n", NAMESPACE, "link", "set", "eth0", "address", "02:00:00:00:95:03"]
subprocess.run(change, check=True)
print(first, fetched())

"""hosted.py ADDRESS ADDRESS6 ARGUMENTS...: CPython's own tests (python3 -m test ARGUMENTS), with servers at these
addresses instead of the loopback device's."""
import sys
from test.support import socket_helper

socket_helper.HOST = socket_helper.HOSTv4 = sys.argv.pop(1)
socket_helper.HOSTv6 = sys.argv.pop(1)
# What it is without an argument was looked up when it was defined.
socket_helper.bind_port.__defaults__ = (socket_helper.HOST,)

from test.libregrtest import main

main()

"""hosted.py ADDRESS ADDRESS6 ARGUMENTS...: CPython's own tests (python3 -m test ARGUMENTS), with
servers at these addresses instead of those of the loopback device."""
import importlib.machinery
import sys
from test.support import socket_helper

socket_helper.HOST = socket_helper.HOSTv4 = sys.argv.pop(1)
socket_helper.HOSTv6 = sys.argv.pop(1)
# The default argument was evaluated when the function was defined.
socket_helper.bind_port.__defaults__ = (socket_helper.HOST,)

# Modules that do not ask for the address have it in their text. test_selectors gets TCP sockets
# instead of Unix ones (its own fallback for systems without these).
AT_HOST = (b"127.0.0.1", socket_helper.HOST.encode())
OTHERWISE = {
    "test.test_asyncio": AT_HOST,
    "test.test_epoll": AT_HOST,
    "test.test_selectors": (b"hasattr(socket, 'socketpair')", b"False"),
}


class Otherwise(importlib.machinery.SourceFileLoader):
    def get_code(self, name):
        old, new = OTHERWISE[".".join(name.split(".")[:2])]
        # Compiled anew: the cached bytecode has the old text.
        return self.source_to_code(self.get_data(self.path).replace(old, new), self.path)


class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if ".".join(name.split(".")[:2]) not in OTHERWISE:
            return None
        spec = super().find_spec(name, path, target)
        if spec and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = Otherwise(name, spec.loader.path)
        return spec


sys.meta_path.insert(0, Finder)

from test.libregrtest import main

main()

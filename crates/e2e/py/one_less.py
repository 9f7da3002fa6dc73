"""one_less.py PORT DEVICE: echoes what each client says, once a device is gone."""
import socket
import sys
import time

PORT, DEVICE = sys.argv[1:]

listener = socket.create_server(("0.0.0.0", int(PORT)))
print("listens", flush=True)
while DEVICE in [name for _, name in socket.if_nameindex()]:
    time.sleep(0.01)
while True:
    stream, _ = listener.accept()
    with stream:
        stream.sendall(stream.recv(100))

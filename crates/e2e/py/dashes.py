"""dashes.py HOST PORT COUNT: connections opened with their first data in the SYN; prints what comes
back, and whether the data was accepted."""
import socket
import sys

SYN_DATA = 32  # TCPI_OPT_SYN_DATA
for _ in range(int(sys.argv[3])):
    connection = socket.socket()
    connection.sendto(b"hello", socket.MSG_FASTOPEN, (sys.argv[1], int(sys.argv[2])))
    answer = b""
    while part := connection.recv(100):
        answer += part
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)
    print(answer.decode(), "fast" if info[5] & SYN_DATA else "slow")

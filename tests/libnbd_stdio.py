"""One connection on a socket that is a server's standard input and output.

Called with the server's command line. The server has one writable disk of 1 MiB.
"""

import socket
import subprocess
import sys

import nbd

ours, theirs = socket.socketpair()
server = subprocess.Popen(sys.argv[1:], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL)
theirs.close()
h = nbd.NBD()
h.connect_socket(ours.detach())
assert h.get_size() == 1 << 20
h.pwrite(b"\x77" * 4096, 4096)
assert h.pread(4096, 4096) == b"\x77" * 4096
h.shutdown()
assert server.wait(timeout=60) == 0
print("served on a socket")

"""Odd offsets and lengths by libnbd, held against a shadow copy; four connections at once write
bytes that lie in one another's blocks.

Called with a socket, an export, its size, the file behind it or "-", and a seed.
"""

import random
import sys

import nbd

SOCKET, EXPORT, SIZE, FILE, SEED = sys.argv[1:6]
SIZE = int(SIZE)
CLIENTS, SLICE = 4, 37
print("seed", SEED)
random.seed(int(SEED))


def connect():
    h = nbd.NBD()
    h.set_export_name(EXPORT)
    h.connect_unix(SOCKET)
    return h


def pattern(length):
    return random.randbytes(length)


clients = [connect() for _ in range(CLIENTS)]
first = clients[0]
assert first.get_size() == SIZE, (first.get_size(), SIZE)
assert SIZE == 0 or first.get_block_size(nbd.SIZE_MINIMUM) == 1
shadow = bytearray(SIZE)


def put(offset, payload):
    shadow[offset : offset + len(payload)] = payload


def check(what):
    read = first.pread(SIZE, 0) if SIZE else b""
    assert read == shadow, what


check("a new disk is zeros")
for offset in (1, 511, 513, 0, 4095, max(SIZE - 1, 0), max(SIZE - 700, 0)):
    for length in (1, 511, 512, 1023, 65537, SIZE - offset):
        if length <= 0 or offset + length > SIZE:
            continue
        what = (offset, length)
        payload = pattern(length)
        first.pwrite(payload, offset)
        put(offset, payload)
        assert first.pread(length, offset) == payload, what
        check(what)
        first.zero(length, offset)
        put(offset, bytes(length))
        check(("zero", what))
        first.pwrite(payload, offset, nbd.CMD_FLAG_FUA)
        put(offset, payload)
        first.cache(length, offset)
        check(what)
if SIZE > 2:
    first.trim(1, 1)
    check("a trim of a byte")

owned = min(SIZE, 16384) // (CLIENTS * SLICE)
for turn in range(25 if owned else 0):
    waiting, taken = [], set()
    for number, client in enumerate(clients):
        for _ in range(24):
            place = random.randrange(owned)
            if (number, place) in taken:
                continue
            taken.add((number, place))
            offset = (place * CLIENTS + number) * SLICE + random.randrange(10)
            payload = pattern(1 + random.randrange(SLICE - 10))
            buffer = nbd.Buffer.from_bytearray(bytearray(payload))
            flags = nbd.CMD_FLAG_FUA if random.random() < 0.2 else 0
            cookie = client.aio_pwrite(buffer, offset, flags=flags)
            waiting.append((client, cookie, buffer))
            put(offset, payload)
    while waiting:
        waiting = [w for w in waiting if not w[0].aio_command_completed(w[1])]
        for client in clients:
            if client.aio_in_flight():
                client.poll(10)
    check(("turn", turn))

for offset, length in ((SIZE, 1), (max(SIZE - 1, 0), 2)):
    for client in clients[:1]:
        client.set_strict_mode(0)
        for ask in (
            lambda: client.pread(length, offset),
            lambda: client.pwrite(bytes(length), offset),
        ):
            try:
                ask()
            except nbd.Error as refused:
                assert refused.errno in ("EINVAL", "ENOSPC"), refused
            else:
                raise AssertionError(f"{length} bytes at {offset} lie behind the end")
first.flush()
check("the end")
for client in clients:
    client.shutdown()
if FILE != "-":
    with open(FILE, "rb") as image:
        assert image.read() == shadow, "the file is another"
print("all bytes are there")

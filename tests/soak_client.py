"""A client that keeps a copy of its part of a disk and holds every read against it.

Called with the URI of an export, where its part begins, the length of the part in bytes, a seed,
and how many batches of 16 commands to send. Those of a batch are under way together. With 0 batches
it goes on until it is killed, and checks nothing: the client before it may have been killed too,
with writes under way.
"""

import itertools
import random
import sys

import nbd

URI, START, LENGTH, SEED, BATCHES = sys.argv[1], *map(int, sys.argv[2:])
UNIT = 4096

rng = random.Random(SEED)
h = nbd.NBD()
h.set_uri_allow_local_file(True)
h.connect_uri(URI)
model = bytearray(h.pread(LENGTH, START))


def part(used):
    """A range that touches no other of its batch: their order would not be known."""
    while True:
        first = rng.randrange(LENGTH // UNIT)
        units = range(first, min(first + rng.randint(1, 32), LENGTH // UNIT))
        if used.isdisjoint(units):
            used.update(units)
            return first * UNIT, len(units) * UNIT


def write(at, length):
    data = nbd.Buffer.from_bytearray(bytearray(rng.randbytes(length)))
    model[at : at + length] = data.to_bytearray()
    fua = nbd.CMD_FLAG_FUA if rng.random() < 0.05 else 0
    return h.aio_pwrite(data, START + at, flags=fua), None


def zero(at, length):
    model[at : at + length] = bytes(length)
    return h.aio_zero(length, START + at), None


def read(at, length):
    data = nbd.Buffer(length)
    return h.aio_pread(data, START + at), (data, at, bytes(model[at : at + length]))


for _ in range(BATCHES) if BATCHES else itertools.count():
    used, under_way = set(), []
    for _ in range(16):
        kind = rng.choices([read, write, zero], [10, 8, 1])[0]
        under_way.append(kind(*part(used)))
    if rng.random() < 0.1:
        under_way.append((h.aio_flush(), None))
    for cookie, expected in under_way:
        # This raises the error of a command that failed.
        while not h.aio_command_completed(cookie):
            h.poll(-1)
        if expected and BATCHES:
            data, at, right = expected
            assert data.to_bytearray() == right, f"seed {SEED}: other bytes at {START + at}"
h.shutdown()

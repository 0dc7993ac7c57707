"""Every command and flag that libnbd 1.14 speaks, held against the NBD protocol.

Called with a socket and three exports: one in a file, one in memory, both 64 MiB and writable,
and one of 1 MiB that may not be written.
"""

import errno
import sys

import nbd

SOCKET, FILE, MEMORY, FIXED = sys.argv[1:5]
MIB = 1 << 20
SIZE = 64 * MIB
PAGE = 4096


def handle(export):
    h = nbd.NBD()
    h.set_export_name(export)
    h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    return h


def connect(export, strict=True):
    h = handle(export)
    if not strict:
        h.set_strict_mode(0)
    h.connect_unix(SOCKET)
    return h


def refused(number, call, *arguments):
    """The call fails with this errno, and nothing else does."""
    try:
        call(*arguments)
    except nbd.Error as error:
        assert error.errnum == number, f"{error}: expected {errno.errorcode[number]}"
        return str(error)
    raise AssertionError(f"{call} {arguments} was not refused")


def pattern(seed, length):
    return bytes((seed * 31 + i * 7 + (i >> 8)) & 0xFF for i in range(256)) * (length // 256)


def capabilities(h, read_only=False):
    assert h.get_protocol() == "newstyle-fixed"
    assert h.get_structured_replies_negotiated()
    assert h.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    assert h.is_read_only() == read_only
    assert h.can_flush() and h.can_fua() and h.can_cache() and h.can_df()
    assert h.can_multi_conn()
    assert h.can_zero() == (not read_only) and h.can_trim() == (not read_only)
    assert h.get_block_size(nbd.SIZE_MINIMUM) == 1
    assert h.get_block_size(nbd.SIZE_PREFERRED) == 4096
    assert h.get_block_size(nbd.SIZE_MAXIMUM) == 32 * MIB


def reads_and_writes(h):
    data = pattern(1, 64 * 1024)
    h.pwrite(data, PAGE)
    assert h.pread(len(data), PAGE) == data
    other = pattern(2, 8192)
    h.pwrite(other, 0, nbd.CMD_FLAG_FUA)
    assert h.pread(8192, 0) == other
    # A sector is the smallest unit, and the last one is as good as any.
    h.pwrite(other[:512], SIZE - 512)
    assert h.pread(512, SIZE - 512) == other[:512]
    large = pattern(3, 32 * MIB)
    h.pwrite(large, 8 * MIB)
    assert h.pread(len(large), 8 * MIB) == large
    h.flush()


def structured(h):
    h.zero(4 * MIB, 0)
    data = pattern(4, PAGE)
    h.pwrite(data, MIB)
    length, start = 3 * MIB, 0
    for flags in (0, nbd.CMD_FLAG_DF):
        seen = []

        def chunk(buf, offset, kind, error):
            assert error.value == 0
            seen.append((offset, len(buf), kind))
            if kind == nbd.READ_HOLE:
                assert bytes(buf) == bytes(len(buf))
            if offset <= MIB and MIB + PAGE <= offset + len(buf):
                at = MIB - offset
                assert kind == nbd.READ_DATA and bytes(buf[at : at + PAGE]) == data

        buf = h.pread_structured(length, start, chunk, flags)
        assert buf[MIB : MIB + PAGE] == data and not any(buf[: MIB])
        seen.sort()
        assert seen[0][0] == start and sum(size for _, size, _ in seen) == length
        for (one, size, _), (next_one, _, _) in zip(seen, seen[1:]):
            assert one + size == next_one, "chunks overlap or leave a gap"
        if flags & nbd.CMD_FLAG_DF:
            assert len(seen) == 1 and seen[0][2] == nbd.READ_DATA


def status(h, length, offset, flags=0):
    found = []

    def extents(context, at, entries, error):
        assert context == nbd.CONTEXT_BASE_ALLOCATION and at == offset and error.value == 0
        found.extend(zip(entries[::2], entries[1::2]))

    h.block_status(length, offset, extents, flags)
    return found


def block_status(h):
    h.trim(SIZE, 0)
    h.zero(SIZE, 0)
    hole = nbd.STATE_HOLE | nbd.STATE_ZERO
    h.pwrite(pattern(5, 64 * 1024), MIB)
    h.flush()
    found = status(h, SIZE, 0)
    assert found == [(MIB, hole), (65536, 0), (SIZE - MIB - 65536, hole)], found
    assert status(h, SIZE, 0, nbd.CMD_FLAG_REQ_ONE) == [(MIB, hole)]
    # With REQ_ONE no extent may reach beyond what was asked for.
    assert status(h, 512, 0, nbd.CMD_FLAG_REQ_ONE) == [(512, hole)]
    assert status(h, PAGE, MIB, nbd.CMD_FLAG_REQ_ONE) == [(PAGE, 0)]
    one = status(h, 512, MIB + PAGE)
    assert len(one) == 1 and one[0][1] == 0 and one[0][0] >= 512, one


def zeroes_and_trims(h):
    data = pattern(6, 64 * 1024)
    combinations = [0, nbd.CMD_FLAG_FUA, nbd.CMD_FLAG_NO_HOLE]
    combinations.append(nbd.CMD_FLAG_FUA | nbd.CMD_FLAG_NO_HOLE)
    for flags in combinations:
        h.pwrite(data, 2 * MIB)
        h.zero(32768, 2 * MIB, flags)
        assert h.pread(65536, 2 * MIB) == bytes(32768) + data[32768:]
    if h.can_fast_zero():
        h.pwrite(data, 2 * MIB)
        try:
            h.zero(65536, 2 * MIB, nbd.CMD_FLAG_FAST_ZERO)
            expected = bytes(65536)
        except nbd.Error as error:
            assert error.errnum == errno.EOPNOTSUPP, error
            expected = data
        assert h.pread(65536, 2 * MIB) == expected
    # Longer than any payload may be.
    h.zero(SIZE, 0)
    assert h.pread(MIB, 2 * MIB) == bytes(MIB)
    h.pwrite(data, MIB)
    for flags in (0, nbd.CMD_FLAG_FUA):
        h.trim(PAGE, MIB, flags)
    assert h.pread(61440, MIB + PAGE) == data[PAGE:]
    h.cache(MIB, 0)


def many_at_once(h):
    """Answers come in any order, each with its own bytes."""
    buffers = {}
    for index in range(256):
        data = nbd.Buffer.from_bytearray(bytearray(pattern(index, PAGE)))
        buffers[h.aio_pwrite(data, index * PAGE)] = data
    while h.aio_in_flight() > 0:
        h.poll(-1)
    for cookie in buffers:
        assert h.aio_command_completed(cookie)
    reads = []
    for index in reversed(range(256)):
        buf = nbd.Buffer(PAGE)
        reads.append((index, buf, h.aio_pread(buf, index * PAGE)))
    while h.aio_in_flight() > 0:
        h.poll(-1)
    for index, buf, cookie in reads:
        assert h.aio_command_completed(cookie)
        assert buf.to_bytearray() == pattern(index, PAGE), index


def refusals(export):
    """After every refusal the stream is in step, which the next command shows."""
    h = connect(export, strict=False)
    data = pattern(7, PAGE)
    h.pwrite(data, 0)
    einval, enospc = errno.EINVAL, errno.ENOSPC
    cases = [
        (einval, h.pread, 0, 0),
        (einval, h.zero, 0, 0),
        (einval, h.trim, 0, 0),
        (einval, h.pread, PAGE, SIZE),
        (einval, h.pread, PAGE, SIZE - 512),
        (einval, h.trim, PAGE, SIZE - 512),
        (einval, h.cache, PAGE, SIZE),
        (enospc, h.pwrite, data, SIZE - 512),
        (enospc, h.pwrite, data, SIZE),
        (enospc, h.zero, PAGE, SIZE - 512),
        (enospc, h.zero, PAGE, 1 << 62),
        (errno.EOVERFLOW, h.pread, 40 * MIB, 0),
        (einval, h.block_status, PAGE, SIZE, lambda *_: 0),
        (einval, h.pread, PAGE, 0, nbd.CMD_FLAG_NO_HOLE),
        (einval, h.pwrite, data, 0, nbd.CMD_FLAG_DF),
        (einval, h.flush, nbd.CMD_FLAG_REQ_ONE),
        (einval, h.trim, PAGE, 0, nbd.CMD_FLAG_FAST_ZERO),
        (einval, h.pread, PAGE, 0, 1 << 12),
    ]
    for number, call, *arguments in cases:
        refused(number, call, *arguments)
        assert h.pread(PAGE, 0) == data, f"out of step after {call} {arguments[1:]}"
    # FUA is valid on any command where it is offered.
    assert h.pread(PAGE, 0, nbd.CMD_FLAG_FUA) == data
    h.flush(nbd.CMD_FLAG_FUA)
    h.shutdown()


def read_only():
    h = connect(FIXED, strict=False)
    capabilities(h, read_only=True)
    for call, *arguments in [
        (h.pwrite, bytes(512), 0),
        (h.pwrite, bytes(64 * 1024), 0),
        (h.zero, PAGE, 0),
        (h.trim, PAGE, 0),
    ]:
        refused(errno.EPERM, call, *arguments)
        assert h.pread(PAGE, 0) == bytes(PAGE)
    h.flush()
    h.shutdown()


def listing():
    h = nbd.NBD()
    h.set_opt_mode(True)
    h.connect_unix(SOCKET)
    seen = []
    assert h.opt_list(lambda name, description: seen.append(name)) == 3
    assert seen == [FILE, MEMORY, FIXED], seen
    h.opt_abort()
    assert h.aio_is_closed()


def information():
    h = handle("no such export")
    h.set_opt_mode(True)
    h.set_full_info(True)
    h.connect_unix(SOCKET)
    refused(errno.ENOENT, h.opt_info)
    # A refusal is no end: the next name may be right.
    h.set_export_name(MEMORY)
    h.opt_info()
    assert h.get_size() == SIZE and h.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    assert h.get_canonical_export_name() == MEMORY
    h.set_export_name(FIXED)
    h.opt_info()
    assert h.get_size() == MIB and h.is_read_only()
    contexts = []
    assert h.opt_list_meta_context(lambda name: contexts.append(name)) >= 1
    assert nbd.CONTEXT_BASE_ALLOCATION in contexts
    for query, count in (("base:", 1), ("base:nothing", 0), ("nobody:knows", 0)):
        h.clear_meta_contexts()
        h.add_meta_context(query)
        assert h.opt_list_meta_context(lambda name: None) == count, query
    h.set_export_name("")
    h.opt_go()
    assert h.get_size() == SIZE
    h.shutdown()


def without_structured_replies():
    for flags in (nbd.HANDSHAKE_FLAG_MASK, nbd.HANDSHAKE_FLAG_NO_ZEROES, 0):
        h = nbd.NBD()
        h.set_export_name(FILE)
        h.set_request_structured_replies(False)
        # Without the fixed newstyle libnbd asks by EXPORT_NAME, with its 124 zeroes or without.
        h.set_handshake_flags(flags)
        h.set_strict_mode(0)
        h.connect_unix(SOCKET)
        assert not h.get_structured_replies_negotiated()
        assert h.get_size() == SIZE and not h.can_df()
        data = pattern(9, 8192)
        h.pwrite(data, 0, nbd.CMD_FLAG_FUA)
        assert h.pread(8192, 0) == data
        refused(errno.EINVAL, h.pread, 8192, 0, nbd.CMD_FLAG_DF)
        assert h.pread(8192, 0) == data
        h.zero(PAGE, 0)
        h.trim(PAGE, PAGE)
        h.flush()
        h.cache(PAGE, 0)
        assert h.pread(PAGE, 0) == bytes(PAGE)
        h.shutdown()


def a_flush_covers_what_another_connection_was_answered():
    one, two = connect(FILE), connect(FILE)
    data = pattern(10, PAGE)
    one.pwrite(data, 3 * MIB)
    two.flush()
    assert two.pread(PAGE, 3 * MIB) == data
    one.shutdown()
    two.shutdown()


def main():
    for export in (FILE, MEMORY):
        h = connect(export)
        capabilities(h)
        for check in (reads_and_writes, structured, block_status, zeroes_and_trims, many_at_once):
            print(export, check.__name__, flush=True)
            check(h)
        h.shutdown()
        refusals(export)
    for check in (
        read_only,
        listing,
        information,
        without_structured_replies,
        a_flush_covers_what_another_connection_was_answered,
    ):
        print(check.__name__, flush=True)
        check()
    print("all answered as expected")


main()

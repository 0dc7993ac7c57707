"""The C library from Python through ctypes, as a program that brings its own memory uses it.

Its arguments: the library, and a folder for images.
"""

import ctypes
import errno
import faulthandler
import os
import select
import socket
import struct
import sys
import threading
import unittest
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p

# A completion that is never told of ends the run, with the place.
faulthandler.dump_traceback_later(900, exit=True)

weir = ctypes.CDLL(sys.argv[1])
FOLDER = sys.argv[2]

BLOCK = 4096
FUA, NO_UNMAP, NO_FALLBACK = 1, 2, 4
MEMORY_HELD = 1


class Completion(ctypes.Structure):
    _fields_ = [
        ("user_data", c_void_p),
        ("error_msg", c_char_p),
        ("ret", c_int),
        ("flags", c_uint32),
        ("reserved", c_uint64 * 2),
    ]


class Iovec(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("len", c_size_t)]


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


def declare(name, result, *arguments):
    call = getattr(weir, name)
    call.restype, call.argtypes = result, arguments


declare("weir_version", c_char_p)
declare("weir_get_error_msg", c_char_p)
declare("weir_create", c_int, c_char_p, POINTER(c_void_p))
declare("weir_destroy", c_int, POINTER(c_void_p))
declare("weir_connect", c_int, c_void_p)
declare("weir_start", c_int, c_void_p)
declare("weir_get_queue", c_void_p, c_void_p, c_int)
for kind, of in [("bool", c_bool), ("int", c_int), ("uint64", c_uint64), ("str", c_char_p)]:
    to = c_void_p if kind == "str" else of
    declare(f"weir_get_{kind}", c_int, c_void_p, c_char_p, POINTER(to))
    declare(f"weir_set_{kind}", c_int, c_void_p, c_char_p, of)
for name in ["read", "write"]:
    declare(f"weirq_{name}", c_int, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p, c_uint32)
    declare(f"weirq_{name}v", c_int, c_void_p, c_uint64, c_void_p, c_int, c_void_p, c_uint32)
for name in ["write_zeroes", "discard"]:
    declare(f"weirq_{name}", c_int, c_void_p, c_uint64, c_uint64, c_void_p, c_uint32)
declare("weirq_flush", c_int, c_void_p, c_void_p, c_uint32)
declare("weirq_do_io", c_int, c_void_p, c_void_p, c_int, c_int, POINTER(Timespec))
declare("weirq_get_completion_fd", c_int, c_void_p)
declare("weirq_set_completion_fd_enabled", c_int, c_void_p, c_bool)

libc = ctypes.CDLL(None)
libc.free.argtypes = [c_void_p]


class Failed(Exception):
    def __init__(self, ret, message):
        super().__init__(message)
        self.errno = -ret


def check(ret):
    if ret < 0:
        raise Failed(ret, weir.weir_get_error_msg().decode())
    return ret


class Disk:
    """A disk, as far as a test wants it."""

    def __init__(self, target, start=True, **properties):
        self.handle = c_void_p()
        check(weir.weir_create(target if isinstance(target, bytes) else target.encode(),
                               byref(self.handle)))
        for name, value in properties.items():
            self.set(name.replace("_", "-"), value)
        if start:
            self.connect()
            check(weir.weir_start(self.handle))

    def connect(self):
        check(weir.weir_connect(self.handle))

    def set(self, name, value):
        kinds = {bool: "bool", int: "int", bytes: "str"}
        call = getattr(weir, "weir_set_" + kinds[type(value)])
        check(call(self.handle, name.encode(), value))

    def get(self, kind, name):
        value = {"bool": c_bool, "int": c_int, "uint64": c_uint64, "str": c_void_p}[kind]()
        check(getattr(weir, "weir_get_" + kind)(self.handle, name.encode(), byref(value)))
        if kind != "str":
            return value.value
        text = ctypes.cast(value, c_char_p).value
        libc.free(value)
        return text.decode()

    def queue(self, index=0):
        queue = weir.weir_get_queue(self.handle, index)
        if not queue:
            raise Failed(-errno.EINVAL, weir.weir_get_error_msg().decode())
        return Queue(queue)

    def destroy(self):
        check(weir.weir_destroy(byref(self.handle)))

    # As the callbacks of an nbdkit plugin, each to its end.

    def get_size(self):
        return self.get("uint64", "capacity")

    def pread(self, count, offset):
        buf = ctypes.create_string_buffer(count)
        self.queue().one("read", offset, buf, count)
        return buf.raw

    def pwrite(self, data, offset, flags=0):
        buf = ctypes.create_string_buffer(bytes(data), len(data))
        self.queue().one("write", offset, buf, len(data), flags=flags)

    def flush(self):
        self.queue().one("flush")

    def trim(self, count, offset):
        self.queue().one("discard", offset, count)

    def zero(self, count, offset, flags=0):
        self.queue().one("write_zeroes", offset, count, flags=flags)


class Queue:
    def __init__(self, pointer):
        self.pointer = pointer

    def ask(self, name, *arguments, data=None, flags=0):
        check(getattr(weir, "weirq_" + name)(self.pointer, *arguments, data, flags))

    def do_io(self, least, most, seconds=None):
        done = (Completion * most)()
        time = None if seconds is None else byref(Timespec(int(seconds), int(seconds % 1 * 1e9)))
        count = check(weir.weirq_do_io(self.pointer, done, least, most, time))
        # The messages are gone with the next call.
        return [(ended.user_data, ended.ret, ended.flags, (ended.error_msg or b"").decode())
                for ended in done[:count]]

    def one(self, name, *arguments, flags=0):
        self.ask(name, *arguments, flags=flags)
        [(_, ret, _, message)] = self.do_io(1, 1)
        if ret < 0:
            raise Failed(ret, message)

    def enable(self, enabled=True):
        check(weir.weirq_set_completion_fd_enabled(self.pointer, enabled))


class Server:
    """An NBD server of memory that knows reads, writes and flushes and no more, or that answers none."""

    count = 0

    def __init__(self, size, silent=False):
        Server.count += 1
        self.path = os.path.join(FOLDER, f"server-{Server.count}.sock")
        self.memory, self.silent = bytearray(size), silent
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.clients = []
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self):
        self.listener.close()
        for client in self.clients:
            client.close()

    def accept(self):
        try:
            while True:
                client, _ = self.listener.accept()
                self.clients.append(client)
                threading.Thread(target=self.serve, args=[client], daemon=True).start()
        except OSError:
            pass

    def serve(self, client):
        def take(count):
            data = b""
            while len(data) < count:
                more = client.recv(count - len(data))
                if not more:
                    raise OSError("it is gone")
                data += more
            return data

        try:
            client.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
            take(4)
            option = None
            while option != 7:
                _, option, length = struct.unpack(">QII", take(16))
                take(length)
                replies = [(0x80000001, b"")]
                if option == 7:
                    replies = [(3, struct.pack(">HQH", 0, len(self.memory), 5)), (1, b"")]
                for kind, data in replies:
                    head = struct.pack(">QIII", 0x3E889045565A9, option, kind, len(data))
                    client.sendall(head + data)
            while True:
                _, _, kind, cookie, offset, length = struct.unpack(">IHHQQI", take(28))
                data = b""
                if kind == 0:
                    data = bytes(self.memory[offset:offset + length])
                elif kind == 1:
                    self.memory[offset:offset + length] = take(length)
                elif kind != 3:
                    return client.close()
                if not self.silent:
                    client.sendall(struct.pack(">IIQ", 0x67446698, 0, cookie) + data)
        except OSError:
            pass


class TestDisk(unittest.TestCase):
    def fails(self, number, *words):
        test = self

        class Expected:
            def __enter__(self):
                return self

            def __exit__(self, kind, error, trace):
                test.assertIsNotNone(error, "it has not failed")
                if not isinstance(error, Failed):
                    return False
                test.assertEqual(errno.errorcode[error.errno], errno.errorcode[number], error)
                for word in words:
                    test.assertIn(word, str(error))
                return True

        return Expected()

    def test_memory_is_written_and_read_as_a_plugin_does(self):
        disk = Disk("ram:8MiB,queues=2,scheduler=mq-deadline")
        self.assertEqual(disk.get_size(), 8 << 20)
        self.assertEqual(disk.get("str", "driver"), "ram")
        self.assertEqual(disk.get("str", "active-scheduler"), "mq-deadline")
        self.assertEqual(disk.get("int", "hard-queues"), 2)
        self.assertTrue(disk.get("bool", "connected") and disk.get("bool", "started"))
        self.assertEqual(disk.pread(BLOCK, 0), bytes(BLOCK))
        data = os.urandom(3 * BLOCK)
        disk.pwrite(data, BLOCK, FUA)
        disk.flush()
        self.assertEqual(disk.pread(3 * BLOCK, BLOCK), data)
        disk.zero(BLOCK, 2 * BLOCK)
        expected = data[:BLOCK] + bytes(BLOCK) + data[2 * BLOCK:]
        self.assertEqual(disk.pread(3 * BLOCK, BLOCK), expected)
        disk.trim(BLOCK, BLOCK)
        big = os.urandom(4 << 20)
        disk.pwrite(big, 0)
        self.assertEqual(disk.pread(4 << 20, 0), big)
        disk.destroy()
        self.assertIsNone(disk.handle.value)
        disk.destroy()

    def test_what_a_flush_has_made_durable_is_in_the_file(self):
        path = os.path.join(FOLDER, "flushed.img")
        disk = Disk(f"file:{path},size=1MiB", num_queues=2)
        disk.pwrite(b"a" * BLOCK, 2 * BLOCK)
        disk.flush()
        with open(path, "rb") as image:
            image.seek(2 * BLOCK)
            self.assertEqual(image.read(BLOCK), b"a" * BLOCK)
        disk.destroy()

    def test_an_address_keeps_the_transport_that_was_created(self):
        for target, driver in [
            ("nbds://127.0.0.1:1/x,tls-certificates=/etc", "nbds"),
            ("nbd+unix:/s?x", "nbd+unix"),
            ("nbd+unix", "nbd+unix"),
        ]:
            disk = Disk(target, start=False)
            self.assertEqual(disk.get("str", "driver"), driver)
            if driver == "nbds":
                # The certificates were the old address's.
                disk.set("address", b"//127.0.0.1:1/y")
                with self.fails(errno.EINVAL, "tls-certificates"):
                    disk.connect()
            else:
                disk.set("address", os.fsencode(FOLDER) + b"/none?y")
                with self.fails(errno.ENOENT, "/none"):
                    disk.connect()
            disk.destroy()

    def test_an_address_is_no_text_with_options(self):
        path = os.fsencode(FOLDER) + b"/a,size=1\xff.img"
        disk = Disk("file", start=False)
        with self.fails(errno.EINVAL, "file disk has no address yet"):
            disk.connect()
        with self.fails(errno.EINVAL, "size=1MiB", "no address yet"):
            disk.set("size", b"1MiB")
        disk.set("address", path)
        disk.set("size", b"1MiB")
        with self.fails(errno.EINVAL, "queues=65 is not a number in 1..=64"):
            disk.set("queues", 65)
        with self.fails(errno.EINVAL, 'unknown option "colour"'):
            disk.set("colour", 7)
        disk.connect()
        self.assertEqual(os.stat(path).st_size, 1 << 20)
        with self.fails(errno.EBUSY, "size is set before the disk is connected"):
            disk.set("size", b"2MiB")
        disk.destroy()

    def test_memory_of_any_alignment_and_in_pieces(self):
        path = os.path.join(FOLDER, "pieces.img")
        disk = Disk(f"file:{path},size=1MiB")
        queue = disk.queue()
        memory = ctypes.create_string_buffer(64 << 10)
        start = ctypes.addressof(memory) + 1
        lengths = [512, 1, 1023, 0, 6656]
        pieces, at = (Iovec * len(lengths))(), start
        for piece, length in zip(pieces, lengths):
            piece.base, piece.len = (at if length else None), length
            at += length + 3
        data = os.urandom(8192)
        done = 0
        for piece in pieces:
            if piece.len:
                ctypes.memmove(piece.base, data[done:done + piece.len], piece.len)
            done += piece.len
        queue.one("writev", BLOCK, pieces, len(lengths))
        self.assertEqual(disk.pread(8192, BLOCK), data)
        ctypes.memset(memory, 0, len(memory))
        queue.one("readv", BLOCK, pieces, len(lengths))
        read = b"".join(ctypes.string_at(piece.base, piece.len) for piece in pieces if piece.len)
        self.assertEqual(read, data)
        disk.destroy()

    def test_a_wrong_place_is_told_by_the_completion(self):
        disk = Disk("ram:1MiB", name=b"small")
        with self.fails(errno.EINVAL, "disk small: read", "offset=100 is not a multiple"):
            disk.pread(BLOCK, 100)
        with self.fails(errno.EINVAL, "length=100 is not a multiple"):
            disk.pwrite(bytes(100), 0)
        with self.fails(errno.ENOSPC, "end=1052672 is beyond the disk's size, 1048576 bytes"):
            disk.pwrite(bytes(BLOCK), 1 << 20)
        with self.fails(errno.EINVAL, "is beyond the disk's size"):
            disk.pread(BLOCK, (1 << 64) - BLOCK)
        disk.pread(0, 0)
        self.assertEqual(disk.pread(BLOCK, 0), bytes(BLOCK), "it goes on")
        disk.destroy()

    def test_a_disk_that_may_only_be_read(self):
        disk = Disk("ram:1MiB", read_only=True)
        self.assertTrue(disk.get("bool", "read-only"))
        with self.fails(errno.EROFS, "disk disk: write", "read-only"):
            disk.pwrite(bytes(BLOCK), 0)
        disk.destroy()

    def test_errors_of_targets_have_their_errno_and_their_sentence(self):
        with self.fails(errno.EINVAL, "does not start with"):
            Disk("rom:1MiB")
        with self.fails(errno.ENOENT, "/no/such/file"):
            Disk("file:/no/such/file")
        with self.fails(errno.EINVAL, "no UTF-8"):
            Disk(b"ram:\xff")

    def test_null_pointers_are_errors(self):
        null = c_void_p()
        for ret in [
            weir.weir_create(b"ram:1MiB", None),
            weir.weir_create(None, byref(null)),
            weir.weir_destroy(None),
            weir.weir_connect(None),
            weir.weir_start(None),
            weir.weir_get_int(None, b"num-queues", byref(c_int())),
            weir.weir_set_int(None, b"num-queues", 1),
            weir.weirq_read(None, 0, None, 0, None, 0),
            weir.weirq_flush(None, None, 0),
            weir.weirq_do_io(None, None, 0, 0, None),
            weir.weirq_get_completion_fd(None),
            weir.weirq_set_completion_fd_enabled(None, True),
        ]:
            with self.fails(errno.EINVAL, "=NULL"):
                check(ret)
        self.assertEqual(weir.weir_destroy(byref(null)), 0)
        self.assertIsNone(weir.weir_get_queue(None, 0))
        disk = Disk("ram:1MiB")
        queue = disk.queue()
        with self.fails(errno.EINVAL, "value=NULL"):
            check(weir.weir_get_int(disk.handle, b"num-queues", None))
        with self.fails(errno.EINVAL, "name=NULL"):
            check(weir.weir_set_int(disk.handle, None, 1))
        with self.fails(errno.EINVAL, "piece 0 of 4096 bytes is at NULL"):
            queue.ask("read", 0, None, BLOCK)
        with self.fails(errno.EINVAL, "pieces=NULL"):
            queue.ask("readv", 0, None, 1)
        with self.fails(errno.EINVAL, "completions=NULL"):
            check(weir.weirq_do_io(queue.pointer, None, 0, 1, None))
        disk.destroy()

    def test_numbers_outside_their_bounds_are_errors(self):
        disk = Disk("ram:1MiB")
        queue = disk.queue()
        buf = ctypes.create_string_buffer(BLOCK)
        for index in [-1, 1]:
            with self.fails(errno.EINVAL, f"queue index={index} is outside 0..=0"):
                disk.queue(index)
        for name, flags in [("read", FUA), ("write", NO_UNMAP)]:
            with self.fails(errno.EINVAL, f"flags={flags:#x}: a {name} has no others"):
                queue.ask(name, 0, buf, BLOCK, flags=flags)
        with self.fails(errno.EINVAL, "a flush has no others"):
            queue.ask("flush", flags=8)
        for count in [-1, 1025]:
            with self.fails(errno.EINVAL, f"count={count} of pieces is outside 0..="):
                queue.ask("writev", 0, (Iovec * 1)(), count)
        with self.fails(errno.EINVAL, "length=1073745920 is above max-transfer=1073741824"):
            queue.ask("read", 0, buf, (1 << 30) + BLOCK)
        with self.fails(errno.EINVAL, "length=1099511631872 is above max-discard-len"):
            queue.ask("discard", 0, (1 << 40) + BLOCK)
        for least, most in [(-1, 1), (2, 1), (0, -1)]:
            done = (Completion * 2)()
            with self.fails(errno.EINVAL, f"min_completions={least} is outside"):
                check(weir.weirq_do_io(queue.pointer, done, least, most, None))
        for time in [Timespec(-1, 0), Timespec(0, 10**9), Timespec(0, -1)]:
            with self.fails(errno.EINVAL, "timeout={"):
                check(weir.weirq_do_io(queue.pointer, None, 0, 0, byref(time)))
        self.assertEqual(queue.do_io(1, 1), [], "nothing was accepted, and it does not wait")
        disk.destroy()

    def test_properties_have_a_type_and_a_time(self):
        disk = Disk("ram:1MiB", start=False)
        with self.fails(errno.ENOENT, "no property 'colour'".replace("'", '"'), "capacity"):
            disk.get("int", "colour")
        with self.fails(errno.ENOTCONN, "capacity: the disk is not connected yet"):
            disk.get("uint64", "capacity")
        with self.fails(errno.ENOTCONN, "not connected"):
            check(weir.weir_start(disk.handle))
        with self.fails(errno.EACCES, "capacity can be read only"):
            disk.set("capacity", 7)
        with self.fails(errno.EACCES, "address can be set only"):
            disk.get("str", "address")
        with self.fails(errno.ENOTTY, "num-queues=true", "type int, not bool"):
            disk.set("num-queues", True)
        for name, value, most in [("num-queues", 1025, 1024), ("num-entries", 0, 1 << 20),
                                  ("close-limit-ms", -1, (1 << 31) - 1)]:
            with self.fails(errno.EINVAL, f"{name}={value} is outside 1..={most}"):
                disk.set(name, value)
        disk.set("num-queues", 3)
        disk.connect()
        with self.fails(errno.EBUSY, "weir_connect: the disk is connected already"):
            disk.connect()
        with self.fails(errno.ENOTTY, "capacity is of the type uint64, not int"):
            disk.get("int", "capacity")
        with self.fails(errno.EINVAL, "not started yet"):
            disk.queue()
        check(weir.weir_start(disk.handle))
        with self.fails(errno.EBUSY, "num-queues is set before the disk is started"):
            disk.set("num-queues", 1)
        with self.fails(errno.EBUSY):
            check(weir.weir_start(disk.handle))
        pointers = {disk.queue(index).pointer for index in range(3)}
        self.assertEqual(len(pointers), 3)
        disk.destroy()

    def test_a_disk_is_destroyed_in_any_state(self):
        for states in range(3):
            disk = Disk("ram:1MiB", start=False)
            if states > 0:
                disk.connect()
            if states > 1:
                check(weir.weir_start(disk.handle))
            disk.destroy()
            self.assertIsNone(disk.handle.value)
        disk = Disk("file:/no/such/file", start=False)
        with self.fails(errno.ENOENT):
            disk.connect()
        disk.destroy()

    def test_a_hundred_disks_leave_no_descriptor(self):
        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        kept = Disk("ram:1MiB")
        before = descriptors()
        disks = [Disk("ram:1MiB", num_queues=4) for _ in range(100)]
        # A descriptor for each queue; what tests before have left may close meanwhile.
        self.assertGreaterEqual(descriptors(), before + 300)
        for index, disk in enumerate(disks):
            disk.pwrite(bytes([index]) * BLOCK, 0)
        for index, disk in enumerate(disks):
            self.assertEqual(disk.pread(BLOCK, 0), bytes([index]) * BLOCK)
            disk.destroy()
        # One for each disk would be a leak; reactors may open some of their own meanwhile.
        self.assertLess(descriptors(), before + 50)
        kept.destroy()

    def test_a_queue_owes_no_more_than_its_entries(self):
        disk = Disk("ram:1MiB", num_entries=2)
        queue = disk.queue()
        buf = ctypes.create_string_buffer(BLOCK)
        for data in [1, 2]:
            queue.ask("write", 0, buf, BLOCK, data=data)
        with self.fails(errno.EAGAIN, "owed 2 completions, num-entries=2"):
            queue.ask("write", 0, buf, BLOCK, data=3)
        # One that was refused for its place waits to be taken as well.
        self.assertEqual([ended[:3] for ended in queue.do_io(2, 2)], [(1, 0, 0), (2, 0, 0)])
        for _ in range(2):
            queue.ask("write", 7, buf, BLOCK)
        with self.fails(errno.EAGAIN):
            queue.ask("flush")
        self.assertEqual([ended[1] for ended in queue.do_io(2, 8)], [-errno.EINVAL] * 2)
        disk.destroy()

    def test_a_thousand_under_way_on_a_full_queue(self):
        disk = Disk("ram:8MiB,nr_requests=4", num_entries=1000)
        queue = disk.queue()
        memory = ctypes.create_string_buffer(1000 * BLOCK)
        start = ctypes.addressof(memory)
        for index in range(1000):
            ctypes.memset(start + index * BLOCK, index % 251, BLOCK)
            queue.ask("write", index * BLOCK, start + index * BLOCK, BLOCK, data=index + 1)
        done = []
        while len(done) < 1000:
            done += queue.do_io(1, 64)
        self.assertEqual(sorted(ended[0] for ended in done), list(range(1, 1001)))
        self.assertEqual({ended[1] for ended in done}, {0})
        ctypes.memset(start, 0, len(memory))
        for index in range(1000):
            queue.ask("read", index * BLOCK, start + index * BLOCK, BLOCK)
        self.assertEqual(len(queue.do_io(1000, 1000)), 1000)
        for index in range(1000):
            self.assertEqual(ctypes.string_at(start + index * BLOCK, BLOCK),
                             bytes([index % 251]) * BLOCK)
        disk.destroy()

    def test_the_descriptor_tells_of_completions(self):
        # Late enough that the loop is asleep by then.
        disk = Disk("null:8MiB,latency_us=20000")
        queue = disk.queue()
        event = select.poll()
        event.register(weir.weirq_get_completion_fd(queue.pointer), select.POLLIN)
        buf = ctypes.create_string_buffer(BLOCK)
        # Refused for its place: it has ended at once, and no reactor rings.
        queue.ask("read", 3, buf, BLOCK)
        self.assertEqual(event.poll(0), [], "it is not enabled")
        queue.enable()
        self.assertEqual(len(event.poll(0)), 1, "it was there before")
        self.assertEqual(len(queue.do_io(0, 8)), 1)
        self.assertEqual(event.poll(0), [], "nothing is under way")
        for _ in range(2):
            queue.ask("read", 3, buf, BLOCK)
        self.assertEqual(len(event.poll(0)), 1)
        self.assertEqual(len(queue.do_io(1, 1)), 1)
        self.assertEqual(len(event.poll(0)), 1, "one is left over")
        queue.enable(False)
        self.assertEqual(event.poll(0), [])
        self.assertEqual(len(queue.do_io(0, 8)), 1)
        # From here on it may be readable for nothing.
        queue.enable()
        for sent in range(3):
            queue.ask("read", 0, buf, BLOCK, data=sent + 1)
        ended = [done[0] for done in queue.do_io(0, 8)]
        while len(ended) < 3:
            event.poll()
            ended += [done[0] for done in queue.do_io(0, 8)]
        self.assertEqual(sorted(ended), [1, 2, 3])
        disk.destroy()

    def test_threads_have_a_queue_each(self):
        disk = Disk("ram:8MiB,queues=2", num_queues=2)
        failed = []

        def work(index):
            try:
                queue = disk.queue(index)
                buf = ctypes.create_string_buffer(BLOCK)
                for turn in range(200):
                    place = (turn * 2 + index) * BLOCK
                    ctypes.memset(buf, turn + index, BLOCK)
                    queue.one("write", place, buf, BLOCK)
                    ctypes.memset(buf, 0, BLOCK)
                    queue.one("read", place, buf, BLOCK)
                    assert buf.raw == bytes([turn + index]) * BLOCK
                # A message is the thread's own.
                try:
                    queue.ask("flush", flags=16 << index)
                except Failed as error:
                    assert f"flags={16 << index:#x}" in str(error), error
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=[index]) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        disk.destroy()

    def test_a_wait_ends_with_its_time_and_with_what_is_there(self):
        disk = Disk("null:8MiB,latency_us=60000000", close_limit_ms=1)
        queue = disk.queue()
        buf = ctypes.create_string_buffer(BLOCK)
        queue.ask("read", 0, buf, BLOCK)
        with self.fails(errno.ETIME, "none of 1 I/Os has ended within timeout=10 ms"):
            queue.do_io(1, 1, 0.01)
        queue.ask("read", 1, buf, BLOCK)
        self.assertEqual([ended[1] for ended in queue.do_io(2, 2, 0.01)], [-errno.EINVAL])
        # Under way: it is given up, and its memory is the device's.
        with self.fails(errno.ETIMEDOUT, "had not answered 1 I/Os within close-limit-ms=1"):
            disk.destroy()
        self.assertIsNone(disk.handle.value)

    def test_what_is_under_way_ends_with_the_disk(self):
        path = os.path.join(FOLDER, "under-way.img")
        disk = Disk(f"file:{path},size=1MiB")
        buf = ctypes.create_string_buffer(b"u" * BLOCK, BLOCK)
        disk.queue().ask("write", 0, buf, BLOCK)
        disk.destroy()
        with open(path, "rb") as image:
            self.assertEqual(image.read(BLOCK), b"u" * BLOCK)

    def test_a_server_that_never_answers_is_given_up(self):
        server = Server(8 << 20, silent=True)
        # The memory is the disk's own here, and comes back with the end: nothing is held.
        disk = Disk(f"nbd+unix:{server.path},io_timeout=100", close_limit_ms=1)
        self.assertEqual(disk.get("int", "optimal-buf-alignment"), 1)
        queue = disk.queue()
        buf = ctypes.create_string_buffer(BLOCK)
        queue.ask("read", BLOCK, buf, BLOCK, data=9)
        [(data, ret, flags, message)] = queue.do_io(1, 1)
        self.assertEqual((data, ret, flags), (9, -errno.ETIMEDOUT, 0))
        self.assertIn("read of 4096 bytes at offset 4096: timed out", message)
        self.assertEqual(disk.get("int", "memory-held"), 0)
        with self.fails(errno.ETIMEDOUT):
            disk.destroy()
        self.assertIsNone(disk.handle.value)
        server.stop()

    def test_zeroes_are_written_where_the_device_has_no_command(self):
        server = Server(8 << 20)
        disk = Disk(f"nbd+unix:{server.path}")
        disk.pwrite(b"z" * (2 << 20), 0)
        with self.fails(errno.EOPNOTSUPP, "write zeroes of 1048576 bytes at offset 4096"):
            disk.zero(1 << 20, BLOCK, NO_FALLBACK)
        disk.zero(1 << 20, BLOCK, NO_UNMAP | FUA)
        with self.fails(errno.EOPNOTSUPP, "discard of 4096 bytes at offset 0"):
            disk.trim(BLOCK, 0)
        expected = b"z" * BLOCK + bytes(1 << 20) + b"z" * BLOCK
        self.assertEqual(disk.pread((1 << 20) + 2 * BLOCK, 0), expected)
        disk.destroy()
        server.stop()

    def test_the_message_is_empty_before_the_first_error(self):
        said = []
        thread = threading.Thread(target=lambda: said.append(weir.weir_get_error_msg()))
        thread.start()
        thread.join()
        self.assertEqual(said, [b""])


if __name__ == "__main__":
    unittest.main(argv=["disk.py", *sys.argv[3:]])

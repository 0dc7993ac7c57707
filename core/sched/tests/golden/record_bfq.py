#!/usr/bin/env python3
"""Records what this machine's Linux makes of whole scenarios under BFQ, as a table.

    record_bfq.py WEIR [ROUNDS [NAME...]]

WEIR is the weir command. It serves a slow disk of its own through FUSE; a loop device lies over
that, and the kernel's BFQ in front of the loop device is what is recorded. Needs root, /dev/fuse,
fio and the blkio controller of cgroup v1 (groups). Nothing is left mounted or attached. On a
machine that does other things, run it as `ionice -c2 -n4 chrt -r 5 ...`: without an explicit
I/O priority the scheduling class would give all of its I/O the real-time class.
"""

import json
import mmap
import os
import subprocess
import sys
import tempfile
import time

SECONDS = 10
KIB = 1024
MIB = 1 << 20
APART = 512 * MIB
CGROUP = "/sys/fs/cgroup/blkio/weir-record"


class Disk:
    """A loop device over a slow disk of weir's."""

    def __init__(self, weir, latency_us, depth):
        self.folder = tempfile.mkdtemp()
        self.tree = self.folder + "/tree"
        os.mkdir(self.tree)
        spec = self.folder + "/unit.toml"
        with open(spec, "w") as file:
            file.write(f'[[lun]]\nsize = "16GiB"\nwrite_cache = false\nqueue_depth = 256\n'
                       f'speed = {{ latency = "{latency_us}us" }}\n')
        self.daemon = subprocess.Popen(
            [weir, "serve", "--quiet", "--disk", f"slow=scsi-sim:{spec},scheduler=none",
             "--tree", self.tree, "--nbd", f"unix:{self.folder}/nbd.sock",
             "--control", f"{self.folder}/control.sock"])
        path = self.tree + "/dev/slow"
        for _ in range(200):
            if os.path.exists(path):
                break
            time.sleep(0.05)
        with open(self.tree + "/block/slow/device/queue_depth", "w") as file:
            file.write(str(depth))
        out = subprocess.run(["losetup", "-f", "--show", "--direct-io=on", path],
                             check=True, capture_output=True, text=True)
        self.device = out.stdout.strip()
        self.queue = f"/sys/block/{os.path.basename(self.device)}/queue"

    def set(self, **values):
        with open(self.queue + "/scheduler", "w") as file:
            file.write("none")
        with open(self.queue + "/scheduler", "w") as file:
            file.write("bfq")
        for name, value in values.items():
            path = f"{self.queue}/{name}"
            if not os.path.exists(path):
                path = f"{self.queue}/iosched/{name}"
            with open(path, "w") as file:
                file.write(str(value))

    def close(self):
        subprocess.run(["losetup", "-d", self.device], check=True)
        self.daemon.terminate()
        self.daemon.wait()


def job(name, rw="read", bs=32 * KIB, depth=4, place=0, **more):
    lines = [f"[{name}]", f"rw={rw}", f"bs={bs}", f"iodepth={depth}", f"offset={place * APART}",
             f"size={APART}"]
    return "\n".join(lines + [f"{key}={value}" for key, value in more.items()]) + "\n"


def start_fio(disk, jobs, seconds=SECONDS, ramp=2, direct=1):
    head = f"[global]\nfilename={disk.device}\ndirect={direct}\nioengine=libaio\n"
    head += "randrepeat=0\nnorandommap=1\n"
    if seconds:
        head += f"time_based=1\nruntime={seconds}\nramp_time={ramp}\n"
    return Fio(head + "".join(jobs))


class Fio:
    def __init__(self, text):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".fio")
        self.file.write(text)
        self.file.flush()
        self.process = subprocess.Popen(["fio", "--output-format=json", self.file.name],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def jobs(self):
        out, _ = self.process.communicate()
        assert self.process.returncode == 0, out.decode()
        text = out.decode()
        found = json.loads(text[text.index("{"):])["jobs"]
        return {one["jobname"]: one for one in found}


def side(one):
    return one["read"] if one["read"]["total_ios"] else one["write"]


def iops(one):
    return side(one)["iops"]


def latencies(one):
    ns = side(one)["clat_ns"]
    return [ns["mean"] / 1e6] + [ns["percentile"][p] / 1e6 for p in ("50.000000", "99.000000")]


def levels(*which):
    def run(disk):
        disk.set(low_latency=0)
        jobs = [job(f"l{level}", place=at, prioclass=2, prio=level, startdelay=f"{at * 700}ms")
                for at, level in enumerate(which)]
        found = start_fio(disk, jobs, ramp=4).jobs()
        return {f"level {level}, IOPS": iops(found[f"l{level}"]) for level in which}
    return run


def classes(disk):
    disk.set(low_latency=0)
    jobs = [job(name, place=at, prioclass=at + 1, startdelay=f"{at * 700}ms")
            for at, name in enumerate(("rt", "be", "idle"))]
    found = start_fio(disk, jobs, ramp=4).jobs()
    return {f"{name}, IOPS": iops(found[name]) for name in ("rt", "be", "idle")}


def interactive(low_latency):
    def run(disk):
        disk.set(low_latency=low_latency)
        jobs = [job(f"w{at}", "write", depth=16, place=at, startdelay=f"{at}ms")
                for at in range(1, 5)]
        jobs.append(job("r", "randread", 4 * KIB, 1, thinktime=20000))
        found = start_fio(disk, jobs).jobs()
        mean, p50, p99 = latencies(found["r"])
        writers = sum(iops(found[f"w{at}"]) for at in range(1, 5))
        return {"reader's mean, ms": mean, "p50, ms": p50, "p99, ms": p99,
                "writers together, IOPS": writers}
    return run


def writers(low_latency):
    def run(disk):
        disk.set(low_latency=low_latency)
        jobs = [f"[w{at}]\nrw=write\nbs=16k\niodepth=4\noffset={at * 256 * MIB}\nsize={MIB}\n"
                for at in range(32)]
        found = start_fio(disk, jobs, seconds=None).jobs()
        ends = [one["write"]["runtime"] / 1e3 for one in found.values()]
        return {"first end, s": min(ends), "last end, s": max(ends)}
    return run


class DirtyMemory:
    """Bounds dirty memory, so that a buffered writer has write-back running all the time."""

    FILES = {"dirty_background_bytes": 16 * MIB, "dirty_bytes": 64 * MIB}

    def __enter__(self):
        names = list(self.FILES) + ["dirty_background_ratio", "dirty_ratio"]
        self.before = {name: open(f"/proc/sys/vm/{name}").read() for name in names}
        self.put(self.FILES)

    def __exit__(self, *_):
        # The ratios and the bytes are one setting: that which was not 0 is set again.
        self.put({name: text for name, text in self.before.items() if text.strip() != "0"})

    def put(self, values):
        for name, value in values.items():
            with open(f"/proc/sys/vm/{name}", "w") as file:
                file.write(str(value))


def background(disk):
    """A buffered writer, so write-back, beside a reader of depth 1."""
    disk.set(low_latency=0)
    with DirtyMemory():
        writer = start_fio(disk, [job("w", "write", 128 * KIB, 1, 1)], direct=0)
        reader = start_fio(disk, [job("r", "randread", 4 * KIB, 1)])
        mean, p50, p99 = latencies(reader.jobs()["r"])
        written = iops(writer.jobs()["w"]) / 8
    return {"reader's mean, ms": mean, "p50, ms": p50, "p99, ms": p99, "writer, MiB/s": written}


def random_equal(disk):
    disk.set(low_latency=0)
    jobs = [job(f"r{at}", "randread", 4 * KIB, 4, at, startdelay=f"{at * 700}ms") for at in range(2)]
    found = start_fio(disk, jobs, ramp=4).jobs()
    return {"first, IOPS": iops(found["r0"]), "second, IOPS": iops(found["r1"])}


def sequential_and_random(disk):
    disk.set(low_latency=0)
    jobs = [job("s", "read", 128 * KIB, 1, 0),
            job("r", "randread", 4 * KIB, 1, 1, startdelay="700ms")]
    found = start_fio(disk, jobs, ramp=4).jobs()
    return {"sequential, IOPS": iops(found["s"]), "random, IOPS": iops(found["r"])}


def pair(disk, place):
    """Two processes of which each reads a block and then wakes the other."""
    pipes = [os.pipe(), os.pipe()]
    ends = os.pipe()
    for me in range(2):
        if os.fork():
            continue
        try:
            memory = mmap.mmap(-1, 4096)
            file = os.open(disk.device, os.O_RDONLY | os.O_DIRECT)
            if me == 0:
                os.write(pipes[0][1], b"x")
            end, seed, count = time.monotonic() + SECONDS, me + 1, 0
            while time.monotonic() < end:
                os.read(pipes[me][0], 1)
                seed = (seed * 6364136223846793005 + 1442695040888963407) % (1 << 64)
                at = place * APART + (seed >> 33) % (APART // 4096) * 4096
                os.preadv(file, [memory], at)
                count += 1
                os.write(pipes[1 - me][1], b"x")
            os.write(ends[1], f"{count}\n".encode())
        finally:
            os._exit(0)
    os.close(ends[1])
    os.wait()
    os.wait()
    counts = os.read(ends[0], 100).split()
    return sum(int(count) for count in counts) / SECONDS


def wakers(disk):
    disk.set(low_latency=0)
    fio = start_fio(disk, [job("greedy", place=1)], seconds=SECONDS + 1, ramp=0)
    time.sleep(1)
    both = pair(disk, 2)
    return {"pair together, IOPS": both, "greedy, IOPS": iops(fio.jobs()["greedy"])}


def burst(spacing_ms):
    def run(disk):
        disk.set(low_latency=1)
        fio = start_fio(disk, [job(f"w{at}", "write", depth=16, place=at) for at in range(1, 3)],
                        seconds=12, ramp=0)
        time.sleep(4)
        jobs = [f"[b{at}]\nrw=randread\nbs=4k\niodepth=1\noffset={(4 + at) * APART}\nsize={APART}\n"
                f"io_size=128k\nstartdelay={at * spacing_ms}ms\n" for at in range(12)]
        found = start_fio(disk, jobs, seconds=None).jobs()
        took = sorted(one["read"]["runtime"] / 1e3 for one in found.values())
        fio.jobs()
        return {"32 reads: median, s": took[6], "slowest, s": took[-1]}
    return run


class Group:
    def __init__(self, path, weight):
        self.path = f"{CGROUP}/{path}"
        os.makedirs(self.path, exist_ok=True)
        with open(self.path + "/blkio.bfq.weight", "w") as file:
            file.write(str(weight))

    def start(self, disk, name, place):
        def enter():
            with open(self.path + "/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
        head = f"[global]\nfilename={disk.device}\ndirect=1\nioengine=libaio\ntime_based=1\n"
        text = head + f"runtime={SECONDS}\nramp_time=4\n" + job(name, place=place)
        file = tempfile.NamedTemporaryFile("w", suffix=".fio", delete=False)
        file.write(text)
        file.close()
        fio = Fio.__new__(Fio)
        fio.process = subprocess.Popen(["fio", "--output-format=json", file.name],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       preexec_fn=enter)
        return fio


def groups(tree):
    def run(disk):
        disk.set(low_latency=0)
        made = {path: Group(path, weight) for path, weight in tree}
        leaves = [path for path in made if not any(other.startswith(path + "/") for other in made)]
        fios = []
        for at, path in enumerate(leaves):
            fios.append((path, made[path].start(disk, "g", at)))
            time.sleep(0.7)
        result = {f"{path}, IOPS": iops(fio.jobs()["g"]) for path, fio in fios}
        for path in sorted(made, key=len, reverse=True):
            os.rmdir(made[path].path)
        os.rmdir(CGROUP)
        return result
    return run


def shortage(nr_requests, depth):
    def run(disk):
        disk.set(low_latency=0, nr_requests=nr_requests)
        jobs = [job(f"l{level}", "randread", 4 * KIB, depth, at, prioclass=2, prio=level,
                    startdelay=f"{at * 700}ms") for at, level in enumerate((7, 5))]
        found = start_fio(disk, jobs, ramp=4).jobs()
        one, two = iops(found["l7"]), iops(found["l5"])
        return {"level 5 to level 7": two / one, "under way": (one + two) * 0.05}
    return run


def alone(disk):
    """The device itself: what the model of it has to be like."""
    disk.set(low_latency=0)
    with open(disk.queue + "/scheduler", "w") as file:
        file.write("none")
    result = {}
    for depth in (1, 4, 64):
        one = start_fio(disk, [job("r", "randread", 4 * KIB, depth)], seconds=4, ramp=1).jobs()["r"]
        ns = one["read"]["clat_ns"]
        result[f"depth {depth}: mean of a read, ms"] = ns["mean"] / 1e6
        result[f"depth {depth}: its deviation, ms"] = ns["stddev"] / 1e6
        result[f"depth {depth}: IOPS"] = one["read"]["iops"]
    return result


ONE = (2100, 1)
MANY = (50000, 128)
SCENARIOS = [
    ("device of one command", ONE, alone),
    ("device of many commands", MANY, alone),
    ("levels 0 and 7", ONE, levels(0, 7)),
    ("levels 0, 2, 4, 6", ONE, levels(0, 2, 4, 6)),
    ("real-time, best effort, idle", ONE, classes),
    ("interactive reader, low_latency=1", ONE, interactive(1)),
    ("interactive reader, low_latency=0", ONE, interactive(0)),
    ("32 writers, low_latency=1", ONE, writers(1)),
    ("32 writers, low_latency=0", ONE, writers(0)),
    ("background writer beside a reader", ONE, background),
    ("two equal random readers", ONE, random_equal),
    ("a sequential and a random reader", ONE, sequential_and_random),
    ("a waker pair beside a greedy reader", ONE, wakers),
    ("12 starts 100 ms apart beside two writers", ONE, burst(100)),
    ("12 starts 250 ms apart beside two writers", ONE, burst(250)),
    ("groups 100, 200, 400", ONE, groups([("a", 100), ("b", 200), ("c", 400)])),
    ("groups in groups", ONE, groups([("a", 200), ("a/x", 100), ("a/y", 300), ("b", 100)])),
] + [(f"shortage: nr_requests={n}, depth {d}", MANY, shortage(n, d))
     for n, d in ((128, 32), (128, 64), (128, 128), (256, 128), (256, 256), (64, 64))]


def main():
    weir, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3
    names = sys.argv[3:]
    wanted = [s for s in SCENARIOS if not names or any(name in s[0] for name in names)]
    print(f"Linux {os.uname().release}, {rounds} rounds: median (least..most)\n")
    print("| scenario | figure | Linux |\n|---|---|---|")
    for name, (latency, depth), run in wanted:
        figures = {}
        for _ in range(rounds):
            disk = Disk(weir, latency, depth)
            try:
                for figure, value in run(disk).items():
                    figures.setdefault(figure, []).append(value)
            finally:
                disk.close()
        for figure, values in figures.items():
            values.sort()
            print(f"| {name} | {figure} | {values[len(values) // 2]:.2f} "
                  f"({values[0]:.2f}..{values[-1]:.2f}) |", flush=True)


main()

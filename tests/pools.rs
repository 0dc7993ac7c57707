//! A pool: several disks behind one queue. Real clients find disks of their own; scheduler and
//! weights are those of the pool.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use daemon::client::Client;
use daemon::program::{A_MOMENT, Running, program};
use daemon::{Daemon, Folder, PATIENCE, weir};
use weir_control::ControlClient;

const MIB: u64 = 1 << 20;

/// The NBD command.
const FLUSH: u16 = 3;

/// Two images and memory behind one scheduler.
const IMAGES: &str = r#"
[nbd]
listen = ["unix:nbd.sock"]
[[pool]]
name = "ssd0"
scheduler = "mq-deadline"
nr_requests = 64
depth = 16
[[disk]]
name = "vm1"
pool = "ssd0"
target = "file:vm1.img,size=8MiB"
[[disk]]
name = "vm2"
pool = "ssd0"
target = "file:vm2.img,size=16MiB"
[[disk]]
name = "scratch"
pool = "ssd0"
target = "ram:4MiB"
[[disk]]
name = "alone"
target = "ram:1MiB"
"#;

struct Served {
    folder: Folder,
    daemon: Daemon,
    tree: ControlClient,
}

impl Served {
    #[track_caller]
    fn begin(text: &str, more: &[&str]) -> Served {
        let folder = Folder::new();
        let file = folder.near("weir.toml");
        fs::write(&file, text).expect("a file");
        let mut serve = weir(&folder);
        serve.args(["serve", "-c"]).arg(&file).args(more);
        let daemon = Daemon::spawn(serve);
        let tree =
            ControlClient::connect(&folder.near("weir-data/control.sock")).expect("a daemon");
        Served { folder, daemon, tree }
    }

    fn client(&self, export: &str) -> Client {
        Client::connect(&self.folder.socket(), export)
    }

    #[track_caller]
    fn read(&mut self, path: &str) -> String {
        let text = self.tree.read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        String::from(text.trim_end())
    }

    #[track_caller]
    fn write(&mut self, path: &str, value: &str) {
        let written = self.tree.write(path, value.as_bytes());
        written.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// A field of `stat`, counted from 0.
    #[track_caller]
    fn field(&mut self, path: &str, field: usize) -> u64 {
        let line = self.read(path);
        let word = line.split_whitespace().nth(field).expect("17 fields");
        word.parse().expect("a number")
    }

    fn names(&mut self, path: &str) -> Vec<String> {
        self.tree.list(path).expect("a folder").into_iter().map(|(name, _)| name).collect()
    }
}

#[test]
fn disks_of_a_pool_are_disks_of_their_own_behind_one_queue() {
    let mut served = Served::begin(IMAGES, &[]);
    let disks = [("vm1", 8, 0x11), ("vm2", 16, 0x22), ("scratch", 4, 0x33)];
    for (name, size, byte) in disks {
        let mut client = served.client(name);
        assert_eq!(client.size, size * MIB, "{name}");
        let block = vec![byte; 4096];
        assert_eq!(client.write(0, 0, &block).expect("a connection"), 0, "{name}");
        assert_eq!(client.write(0, size * MIB - 4096, &block).expect("a connection"), 0, "{name}");
        assert_eq!(client.one(0, FLUSH, 0, 0).expect("a connection"), 0, "{name}");
    }
    for (name, size, byte) in disks {
        let mut client = served.client(name);
        for offset in [0, size * MIB - 4096] {
            let read = client.read(offset, 4096).expect("a connection").expect("no error");
            assert!(read.iter().all(|known| *known == byte), "{name} at {offset}");
        }
        let middle = client.read(MIB, 4096).expect("a connection").expect("no error");
        assert!(middle.iter().all(|known| *known == 0), "{name} in the middle");
    }
    // The queue is the pool's, and so are the figures of all; each disk has its own beside.
    assert_eq!(served.names("block"), ["ssd0", "alone"]);
    assert_eq!(served.read("block/ssd0/queue/nr_requests"), "64");
    assert_eq!(served.read("block/ssd0/mq/0/nr_tags"), "16");
    assert!(served.read("block/ssd0/queue/scheduler").contains("[mq-deadline]"));
    for (number, (name, size, _)) in (1_u64..).zip(disks) {
        let folder = format!("block/ssd0/{name}");
        assert_eq!(served.read(&format!("{folder}/partition")), number.to_string());
        assert_eq!(served.read(&format!("{folder}/start")), (number << 44).to_string());
        assert_eq!(served.read(&format!("{folder}/size")), (size * 2048).to_string());
        assert_eq!(served.read(&format!("{folder}/inflight")).trim(), "0        0");
        let stat = format!("{folder}/stat");
        // A client's flush is an empty write; memory has no cache, so that one is none.
        let writes = if name == "scratch" { 2 } else { 3 };
        assert_eq!((served.field(&stat, 0), served.field(&stat, 4)), (3, writes), "{name}");
        assert_eq!(served.field(&stat, 15), 0, "a flush is the whole disk's, as in Linux");
    }
    let stat = "block/ssd0/stat";
    assert_eq!((served.field(stat, 0), served.field(stat, 4)), (9, 8));
    assert_eq!(served.field(stat, 15), 2, "memory has no cache to flush");
    assert_eq!(served.field("block/alone/stat", 0), 0);
    served.write("block/ssd0/queue/scheduler", "bfq");
    assert_eq!(served.client("vm2").write(0, MIB, &[7; 512]).expect("a connection"), 0);
    let mut iostat = weir(&served.folder);
    iostat.args(["iostat", "-s", "--control"]).arg(served.folder.near("weir-data/control.sock"));
    let shown = iostat.stdout(std::process::Stdio::piped()).output().expect("weir can be started");
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    for name in ["ssd0", "vm1", "vm2", "scratch", "alone"] {
        assert!(shown.lines().any(|line| line.starts_with(name)), "{name}: {shown}");
    }
    let images = ["vm1.img", "vm2.img"].map(|name| served.folder.near(name));
    let Served { daemon, folder, .. } = served;
    daemon.stop();
    for (image, byte) in images.iter().zip([0x11, 0x22]) {
        let bytes = fs::read(image).expect("an image");
        assert!(bytes[..4096].iter().all(|known| *known == byte));
    }
    drop(folder);
}

#[test]
fn a_disk_of_a_pool_grows_under_its_clients_and_the_others() {
    let mut served = Served::begin(IMAGES, &[]);
    let (mut old, mut other) = (served.client("vm1"), served.client("vm2"));
    assert_eq!(old.write(0, 0, &[1; 512]).expect("a connection"), 0);
    served.write("block/ssd0/vm1/size", &(32 * 2048).to_string());
    assert_eq!(served.read("block/ssd0/vm1/size"), (32 * 2048).to_string());
    assert_eq!(served.client("vm1").size, 32 * MIB);
    assert_eq!(served.client("vm2").size, 16 * MIB);
    assert_eq!(served.client("vm1").write(0, 31 * MIB, &[2; 512]).expect("a connection"), 0);
    assert_eq!(other.write(0, 15 * MIB, &[3; 512]).expect("a connection"), 0);
    assert_eq!(old.read(0, 512).expect("a connection").expect("no error"), [1; 512]);
    let refused = served.tree.write("block/ssd0/scratch/size", b"1").expect_err("it shrinks");
    assert!(refused.to_string().contains("size"), "{refused}");
    served.daemon.stop();
}

/// What a daemon says of a configuration that it refuses.
#[track_caller]
fn refused(text: &str) -> String {
    let folder = Folder::new();
    let file: PathBuf = folder.near("weir.toml");
    fs::write(&file, format!("[nbd]\nlisten = [\"unix:nbd.sock\"]\n{text}")).expect("a file");
    let mut serve = weir(&folder);
    let ended = serve.args(["serve", "-c"]).arg(&file).output().expect("weir can be started");
    assert_eq!(ended.status.code(), Some(2), "{text}");
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

#[test]
fn a_bad_pool_is_refused_with_its_place_its_value_and_the_bound() {
    let pool = "[[pool]]\nname = \"p\"\n";
    let disk = |name: &str, rest: &str| format!("[[disk]]\nname = \"{name}\"\n{rest}\n");
    let with = |more: &str| disk("a", &format!("pool = \"p\"\n{more}"));
    let ram = "target = \"ram:1M\"";
    let cases = [
        (disk("a", &format!("{ram}\npool = \"q\"")), "disk \"a\": pool=\"q\" is no pool; pools: "),
        (format!("{pool}{}", disk("a", ram)), "pool \"p\" has no disk"),
        (format!("{pool}{pool}{}", with(ram)), "pool \"p\" is given twice"),
        (format!("{pool}{}{}", with(ram), disk("p", ram)), "of a pool and of a disk"),
        (
            format!("{pool}{}", with("target = \"ram:1M,scheduler=bfq\"")),
            "disk \"a\": its target states more than a backing, its blocks and readonly; the queue \
             is the",
        ),
        (
            format!("{pool}{}", with("target = \"file:missing.img\"")),
            "weir.toml: line 6: disk \"a\": file: missing.img: cannot be opened",
        ),
        (
            format!("{pool}{}{}", with("target = \"linear:b\""), disk("b", ram)),
            "disk \"a\": a disk on other disks cannot be in a pool",
        ),
        (
            format!("{pool}{}{}", with(ram), disk("b", "target = \"linear:a\"")),
            "disk \"b\": it lies on disk \"a\", which is in pool \"p\"",
        ),
        (
            format!("{pool}scheduler = \"quick\"\n{}", with(ram)),
            "line 4: pool \"p\": unknown scheduler \"quick\"; valid here: none",
        ),
        (format!("{pool}nr_requests = 1\n{}", with(ram)), "pool \"p\": nr_requests"),
        (
            format!("{pool}depth = 20000\n{}", with(ram)),
            "line 4: pool \"p\": depth=20000 is outside 1..=10240",
        ),
        (format!("{pool}colour = 1\n{}", with(ram)), "unknown field `colour`"),
        (
            format!(
                "{pool}{}{}",
                with("target = \"file:x.img,size=1M\""),
                disk("b", "target = \"file:x.img,size=1M\"")
            ),
            "disk \"b\": target=\"file:x.img,size=1M\" is that of disk \"a\" too",
        ),
        (
            format!(
                "{pool}{}{}",
                with("target = \"nbd:localhost:20999/x\""),
                disk("b", "target = \"nbd://127.0.0.1:20999/x\"")
            ),
            "disk \"b\": target=\"nbd://127.0.0.1:20999/x\" is that of disk \"a\" too",
        ),
    ];
    for (text, wanted) in cases {
        let said = refused(&text);
        assert!(said.contains(wanted), "{text}\n{said}");
    }
}

/// Another disk of the pool, and an export of it beside its own.
const LATE: &str = r#"
[[disk]]
name = "late"
pool = "ssd0"
target = "file:late.img,size=4MiB"
[[export]]
name = "late"
disk = "late"
[[export]]
name = "guest"
disk = "late"
group = "guests"
readonly = true
[[group]]
path = "guests"
weight = 300
"#;

impl Served {
    /// Has the daemon read this configuration, and returns what it says of that.
    #[track_caller]
    fn reload(&mut self, text: &str) -> String {
        fs::write(self.folder.near("weir.toml"), text).expect("a file");
        self.tree.reload().unwrap_or_else(|error| panic!("{error}"))
    }
}

/// Writes to a disk and reads again what it wrote, until it is told to end: how often.
fn keep_at_it(mut client: Client, ends: Arc<AtomicBool>) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut rounds = 0;
        while !ends.load(Ordering::Relaxed) {
            let (offset, byte) = (rounds % 1024 * 4096, (rounds % 251) as u8);
            assert_eq!(client.write(0, offset, &[byte; 4096]).expect("a connection"), 0);
            let read = client.read(offset, 4096).expect("a connection").expect("no error");
            assert!(read.iter().all(|known| *known == byte), "at {offset}");
            rounds += 1;
        }
        rounds
    })
}

#[test]
fn a_disk_of_a_pool_comes_and_goes_with_a_reload_under_the_clients_of_the_others() {
    let mut served = Served::begin(IMAGES, &[]);
    let ends = Arc::new(AtomicBool::new(false));
    let clients = ["vm1", "vm2"].map(|name| keep_at_it(served.client(name), Arc::clone(&ends)));
    let with_late = format!("{IMAGES}{LATE}");
    let unfelt = "note: the weight of group \"guests\" does not act on ssd0: its scheduler \
                  mq-deadline does not share by weight; bfq and cfq do\n";
    let added = format!(
        "changed: disk late is new in pool ssd0: 4 MiB\n\
         changed: group \"guests\": weight 100 -> 300\n{unfelt}"
    );
    let mut number = String::new();
    for round in 0..6_u8 {
        let said = served.reload(&with_late);
        assert_eq!(said, added, "round {round}");
        assert_eq!(served.reload(&with_late), "nothing to change\n", "what was told");
        number = served.read("block/ssd0/late/partition");
        assert!(served.names("nbd").contains(&String::from("guest")));
        let mut client = served.client("late");
        assert_eq!(client.size, 4 * MIB);
        let before = client.read(0, 512).expect("a connection").expect("no error");
        assert_eq!(before, [round; 512], "what was flushed stays");
        assert_eq!(client.write(0, 0, &[round + 1; 512]).expect("a connection"), 0);
        let guest = served.client("guest");
        assert_eq!(guest.flags & 2, 2, "read-only");
        let said = served.reload(IMAGES);
        let gone = "changed: disk late is gone from pool ssd0, and its 2 clients were ended\n";
        assert!(said.starts_with(gone), "{said}");
        assert!(!matches!(client.read(0, 512), Ok(Ok(_))), "its client is ended");
        let exports = served.names("nbd");
        assert!(["late", "guest"].iter().all(|gone| !exports.contains(&String::from(*gone))));
        assert!(!served.names("block/ssd0").contains(&String::from("late")));
        let image = fs::read(served.folder.near("late.img")).expect("an image");
        assert_eq!(image[..512], [round + 1; 512]);
    }
    // Numbers are used again: each round but the last has let go of its own, or of one before it.
    assert!(number.parse::<u16>().expect("a number") < 9, "{number}");
    ends.store(true, Ordering::Relaxed);
    for client in clients {
        let rounds = client.join().expect("no error");
        assert!(rounds > 0);
    }
    served.daemon.stop();
}

#[test]
fn a_disk_that_cannot_come_is_named_and_everything_else_stays() {
    let mut served = Served::begin(IMAGES, &[]);
    let mut client = served.client("vm1");
    let with = |disk: &str| format!("{IMAGES}[[disk]]\nname = \"late\"\npool = \"ssd0\"\n{disk}");
    for (disk, why) in [
        ("target = \"file:nowhere/late.img\"", "nowhere/late.img"),
        ("target = \"nbd+unix:/nowhere?x\"", "/nowhere"),
        (
            "target = \"ram:1M\"\n[[export]]\nname = \"late\"\ndisk = \"late\"\n\
             listen = [\"unix:late.sock\"]",
            "export \"late\": unix:late.sock is opened at the next start only",
        ),
    ] {
        let said = served.reload(&with(disk));
        assert!(said.starts_with("failed: disk late of pool ssd0: "), "{said}");
        assert!(said.contains(why), "{said}");
        assert!(!served.names("block/ssd0").contains(&String::from("late")), "{disk}");
        assert_eq!(client.write(0, 0, &[1; 512]).expect("a connection"), 0);
    }
    // What is wrong as a whole changes nothing.
    let twice = with("target = \"file:vm1.img\"");
    fs::write(served.folder.near("weir.toml"), twice).expect("a file");
    let refused = served.tree.reload().expect_err("one file twice").to_string();
    assert!(refused.contains("is that of disk \"vm1\" too"), "{refused}");
    let said = served.reload(&with("target = \"ram:1M\""));
    assert_eq!(said, "changed: disk late is new in pool ssd0: 1 MiB\n");
    assert_eq!(served.client("late").size, MIB);
    served.daemon.stop();
}

/// Two images of one pool, whose clients weigh 1 and 9.
const WEIGHTS: &str = r#"
[nbd]
listen = ["unix:nbd.sock"]
[[pool]]
name = "ssd0"
scheduler = "bfq"
nr_requests = 1024
[[disk]]
name = "light"
pool = "ssd0"
target = "null:8GiB,latency_us=50000"
[[disk]]
name = "heavy"
pool = "ssd0"
target = "null:8GiB,latency_us=50000"
[[group]]
path = "light"
weight = 100
[[group]]
path = "heavy"
weight = 900
[[export]]
name = "of-light"
disk = "light"
group = "light"
[[export]]
name = "of-heavy"
disk = "heavy"
group = "heavy"
"#;

#[test]
#[ignore = "needs fio"]
fn images_of_a_saturated_pool_share_it_by_the_weights_of_their_clients() {
    let mut served = Served::begin(WEIGHTS, &["--reactors", "1"]);
    served.write("block/ssd0/queue/iosched/low_latency", "0");
    // Slots of 64 requests: a share is exact to one of them.
    served.write("block/ssd0/queue/iosched/max_budget", "512");
    let client = |export: &str| {
        let mut fio = program("fio");
        fio.args(["--name=client", "--ioengine=nbd", "--rw=randread", "--bs=4k", "--time_based"]);
        fio.args(["--thread", "--iodepth=256", "--size=4g"]);
        fio.arg(format!("--runtime={}", PATIENCE.as_secs()));
        fio.arg(format!("--uri={}", served.folder.uri(export)));
        Running::start(fio)
    };
    let clients = ["of-light", "of-heavy"].map(client);
    let count =
        |served: &mut Served, name: &str| served.field(&format!("block/ssd0/{name}/stat"), 0);
    let mut wait_for = |least: [u64; 2]| {
        let began = Instant::now();
        loop {
            let now = ["light", "heavy"].map(|name| count(&mut served, name));
            if now[0] >= least[0] && now[1] >= least[1] {
                return now;
            }
            assert!(began.elapsed() < PATIENCE, "{now:?} of {least:?} after {PATIENCE:?}");
            std::thread::sleep(A_MOMENT);
        }
    };
    let from = wait_for([500, 4500]);
    let to = wait_for([from[0], from[1] + 36_000]);
    let shares = ["light", "heavy"].map(|group| served.read(&format!("cgroup/{group}/weir.share")));
    let stats = ["light", "heavy"].map(|group| served.read(&format!("cgroup/{group}/io.stat")));
    // What its disks did is the pool's, whose line is the only one.
    assert!(shares[1].starts_with("259:0 configured=90.00 reported="), "{shares:?}");
    assert!(!shares.iter().any(|share| share.contains("reported=0.00")), "{shares:?}");
    assert!(!stats.iter().any(|stat| stat.contains("rbytes=0 ")), "{stats:?}");
    let [light, heavy] = [to[0] - from[0], to[1] - from[1]];
    let ratio = heavy as f64 / light as f64;
    println!("weights 100 and 900: {light} and {heavy}, 1 : {ratio:.3}");
    assert!((ratio / 9.0 - 1.0).abs() <= 0.10, "1 : {ratio:.3}, not 1 : 9");
    drop(clients);
    served.daemon.stop();
}

#[test]
fn a_disk_states_the_class_and_the_caps_of_its_own_clients() {
    let disk = |rate: &str| {
        format!(
            "[nbd]\nlisten = [\"unix:nbd.sock\"]\n[[group]]\npath = \"vms\"\nweight = 300\n\
             [[disk]]\nname = \"vm1\"\ntarget = \"ram:1MiB,scheduler=none\"\ngroup = \"vms\"\n\
             class = \"idle\"\nwbps = {rate}\n"
        )
    };
    let mut served = Served::begin(&disk("\"50MiB\""), &[]);
    let unfelt = "the weight of group \"vms/vm1\" does not act on vm1: its scheduler none";
    served.daemon.wait_for(|line| line.contains(unfelt));
    let mut client = served.client("vm1");
    assert_eq!(client.write(0, 0, &[1; 512]).expect("a connection"), 0);
    assert_eq!(served.read("nbd/vm1/0/group"), "vms/vm1");
    assert_eq!(served.read("nbd/vm1/0/class"), "idle");
    let caps = "cgroup/vms/vm1/io.max";
    assert_eq!(served.read(caps), "259:0 rbps=max wbps=52428800 riops=max wiops=max");
    assert_eq!(
        served.reload(&disk("1000000")),
        "changed: group \"vms/vm1\": its caps\n",
        "they change while the client stays"
    );
    assert_eq!(served.read(caps), "259:0 rbps=max wbps=1000000 riops=max wiops=max");
    // A scheduler that knows weights, and the group for itself; and back.
    let told = |name: &str| {
        let mut command = weir(&served.folder);
        let words = ["set", "block/vm1/queue/scheduler", name];
        command.args(words).stderr(std::process::Stdio::piped());
        let ended = command.output().expect("weir can be started");
        assert!(ended.status.success());
        String::from_utf8(ended.stderr).expect("UTF-8")
    };
    let alone = "the weight of group \"vms/vm1\" does not act on vm1: no other group";
    for (name, remark) in [("bfq", alone), ("none", unfelt)] {
        let said = told(name);
        assert!(said.contains(&format!("note: vm1: {remark}")), "{said}");
        served.daemon.wait_for(|line| line.contains(remark));
    }
    served.write(caps, "rbps=2GiB wbps=max");
    assert_eq!(served.read(caps), "259:0 rbps=2147483648 wbps=max riops=max wiops=max");
    for value in ["riops=5k", "rbps=0k", "rbps=fast"] {
        let refused = served.tree.write(caps, value.as_bytes()).expect_err(value).to_string();
        assert!(refused.contains(value), "{refused}");
    }
    assert_eq!(client.read(0, 512).expect("a connection").expect("no error"), [1; 512]);
    served.daemon.stop();
}

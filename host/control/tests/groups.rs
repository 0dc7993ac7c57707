//! Groups and clients in the tree: what their files say, and what each write does.

mod bed;

use std::sync::{Arc, Mutex};

use bed::{Model, tree};
use weir_bio::{Class, GroupId, IoPrio, Limits, Nanos};
use weir_control::config::{ExportPolling, Poll};
use weir_control::{Classing, Client, Clients, Errno, Failure, Memory, Tree};
use weir_queue::{ClientTimes, Groups};

/// Clients that are plain values.
struct Few(Mutex<Vec<Client>>);

impl Clients for Few {
    fn kind(&self) -> &'static str {
        "nbd"
    }

    fn memory(&self) -> Option<Memory> {
        Some(Memory { bound: 64 << 20, held: 4096 })
    }

    fn exports(&self) -> Vec<String> {
        ["sda", "a/b"].map(String::from).into()
    }

    fn clients(&self) -> Vec<Client> {
        self.0.lock().unwrap().clone()
    }

    fn times(&self, _: u64) -> Option<ClientTimes> {
        None
    }

    fn reclassify(&self, number: u64, to: Classing) -> Result<bool, Failure> {
        let mut clients = self.0.lock().unwrap();
        let Some(client) = clients.iter_mut().find(|client| client.number == number) else {
            return Ok(false);
        };
        client.take(to);
        Ok(true)
    }

    fn dismiss(&self, number: u64) -> bool {
        let mut clients = self.0.lock().unwrap();
        let before = clients.len();
        clients.retain(|client| client.number != number);
        clients.len() < before
    }
}

/// A front without bounds on memory, and with nothing open.
struct Other;

impl Clients for Other {
    fn kind(&self) -> &'static str {
        "other"
    }

    fn exports(&self) -> Vec<String> {
        vec![String::from("sda")]
    }

    fn clients(&self) -> Vec<Client> {
        Vec::new()
    }

    fn memory(&self) -> Option<Memory> {
        None
    }

    fn times(&self, _: u64) -> Option<ClientTimes> {
        None
    }

    fn reclassify(&self, _: u64, _: Classing) -> Result<bool, Failure> {
        Ok(false)
    }

    fn dismiss(&self, _: u64) -> bool {
        false
    }
}

/// Two disks, the groups `tenants/a` (weight 300) and `tenants/b` (100), and a client.
fn peopled() -> (Tree, Arc<Groups>, Arc<Few>) {
    let limits = Limits { capacity: 1024, ..Limits::default() };
    let tree = tree(Model::new("sda", limits.clone()));
    tree.add(Arc::new(Model::new("vdb", limits)), 2);
    let groups = Arc::new(Groups::default());
    let a = groups.create("tenants/a").unwrap();
    groups.create("tenants/b").unwrap();
    groups.set_weight(a, 300).unwrap();
    tree.show_groups(Arc::clone(&groups));
    let client = Client {
        number: 7,
        export: String::from("a/b"),
        peer: String::from("127.0.0.1:40000"),
        group: a,
        ioprio: IoPrio::NONE,
        process_priority: IoPrio::NONE,
        background: false,
        polling: ExportPolling { poll: Some(Poll::Adaptive), poll_share: None },
        disk: String::from("sda"),
        ios: 12,
        bytes: 49_152,
        in_flight: 3,
        hard_queue: Some(1),
    };
    let few = Arc::new(Few(Mutex::new(vec![client])));
    let clients: Arc<dyn Clients> = Arc::clone(&few) as _;
    tree.show_front(clients);
    (tree, groups, few)
}

fn names(tree: &Tree, path: &str) -> Vec<String> {
    tree.list(path).unwrap().into_iter().map(|(name, _)| name).collect()
}

#[track_caller]
fn refused(tree: &Tree, path: &str, text: &str) -> Errno {
    let before = tree.read(path).unwrap();
    let failure = tree.write(path, text.as_bytes()).unwrap_err();
    assert_eq!(tree.read(path).unwrap(), before, "{text:?} is refused and changes something");
    assert!(failure.what.len() < 200, "{failure}");
    failure.errno
}

#[track_caller]
fn written(tree: &Tree, path: &str, text: &str) -> String {
    tree.write(path, text.as_bytes()).unwrap();
    tree.read(path).unwrap()
}

#[test]
fn groups_and_clients_stand_beside_the_disks() {
    let (tree, ..) = peopled();
    assert_eq!(names(&tree, ""), ["block", "cgroup", "class", "module", "nbd", "proc"]);
    assert_eq!(names(&tree, "cgroup"), ["io.stat", "tenants"]);
    let files = ["io.bfq.weight", "io.max", "io.stat", "weir.share"];
    assert_eq!(names(&tree, "cgroup/tenants/a"), files);
    assert_eq!(names(&tree, "cgroup/tenants"), [&files[..], &["a", "b"]].concat());
    assert_eq!(names(&tree, "nbd"), ["memory.current", "memory.max", "sda", "a!b"]);
    assert_eq!(tree.read("nbd/memory.max").unwrap(), "67108864\n");
    assert_eq!(tree.read("nbd/memory.current").unwrap(), "4096\n");
    assert_eq!(tree.write("nbd/memory.max", b"1").unwrap_err().errno, Errno::Access);
    assert_eq!(names(&tree, "nbd/sda"), [""; 0]);
    assert_eq!(names(&tree, "nbd/a!b"), ["7"]);
    assert_eq!(
        names(&tree, "nbd/a!b/7"),
        [
            "address",
            "background",
            "bytes",
            "cap_wait",
            "class",
            "delete",
            "disk",
            "group",
            "hard_queue",
            "held_ns",
            "inflight",
            "ioprio",
            "ios",
            "latency",
            "level",
            "poll",
            "poll_share"
        ]
    );
    assert_eq!(tree.write("nbd/a!b/7/address", b"x").unwrap_err().errno, Errno::Access);
    assert_eq!(tree.read("cgroup/tenants/c/io.max").unwrap_err().errno, Errno::NotFound);
}

#[test]
fn a_weight_is_taken_and_refused_as_linux_does() {
    let (tree, groups, _) = peopled();
    let file = "cgroup/tenants/a/io.bfq.weight";
    assert_eq!(tree.read(file).unwrap(), "default 300\n");
    for (text, shown) in [
        ("200\n", "default 200\n"),
        ("default 1", "default 1\n"),
        ("0x10", "default 16\n"),
        ("010", "default 8\n"),
        ("1000", "default 1000\n"),
    ] {
        assert_eq!(written(&tree, file, text), shown, "{text:?}");
    }
    let long = "9".repeat(1 << 20);
    for text in ["0", "1001", "18446744073709551616", &long] {
        assert_eq!(refused(&tree, file, text), Errno::Range, "{:?}", &text[..text.len().min(20)]);
    }
    for text in ["", "\n", "abc", "-1", "default", "5 6", "259:0 5", &"x".repeat(1 << 20)] {
        assert_eq!(refused(&tree, file, text), Errno::Invalid, "{:?}", &text[..text.len().min(20)]);
    }
    assert_eq!(groups.all()[2].weight, 1000);
}

#[test]
fn caps_are_written_one_by_one_and_read_for_each_disk() {
    let (tree, groups, _) = peopled();
    let file = "cgroup/tenants/a/io.max";
    assert_eq!(tree.read(file).unwrap(), "", "no caps, no lines");
    let line = "rbps=max wbps=max riops=500 wiops=max";
    assert_eq!(written(&tree, file, "259:0 riops=500\n"), format!("259:0 {line}\n259:1 {line}\n"));
    let line = "rbps=max wbps=1048576 riops=500 wiops=max burst=0.5";
    let shown = format!("259:0 {line}\n259:1 {line}\n");
    assert_eq!(written(&tree, file, "default wbps=1048576 burst=0.5"), shown);
    for (text, errno) in [
        ("259:9 riops=1", Errno::NoDevice),
        ("riops=0", Errno::Range),
        ("riops=-1", Errno::Invalid),
        ("riops=many", Errno::Invalid),
        ("riops", Errno::Invalid),
        ("iops=1", Errno::Invalid),
        ("sda riops=1", Errno::Invalid),
        ("riops=1 wiops=x", Errno::Invalid),
        ("burst=-1", Errno::Invalid),
        ("burst=inf", Errno::Invalid),
        ("burst=3601", Errno::Invalid),
        ("259:0", Errno::Invalid),
        ("", Errno::Invalid),
    ] {
        assert_eq!(refused(&tree, file, text), errno, "{text:?}");
    }
    assert_eq!(refused(&tree, file, &"9".repeat(1 << 20)), Errno::Invalid);
    let caps = groups.all()[2].caps;
    assert_eq!((caps.riops.map(u64::from), caps.burst_ns), (Some(500), 500_000_000));
    assert_eq!(written(&tree, file, "riops=max wbps=max burst=0"), "");
}

#[test]
fn what_was_used_and_whose_share_it_is_is_told_for_each_disk() {
    let (tree, groups, _) = peopled();
    let [a, b] = ["tenants/a", "tenants/b"].map(|path| groups.find(path).unwrap());
    let member = groups.join_on(a, "sda").unwrap();
    (0..3).for_each(|_| member.admit(false, 4096, Nanos(1)).unwrap());
    groups.join_on(b, "sda").unwrap().admit(true, 4096, Nanos(1)).unwrap();
    groups.join_on(b, "vdb").unwrap().admit(true, 512, Nanos(1)).unwrap();
    let stat = "259:0 rbytes=12288 wbytes=0 rios=3 wios=0\n259:1 rbytes=0 wbytes=0 rios=0 wios=0\n";
    assert_eq!(tree.read("cgroup/tenants/a/io.stat").unwrap(), stat);
    let above = tree.read("cgroup/tenants/io.stat").unwrap();
    assert!(above.starts_with("259:0 rbytes=12288 wbytes=4096 rios=3 wios=1\n"), "{above}");
    // Over so many seconds: since the start, as nothing has read it before.
    let shares = tree.read("cgroup/tenants/a/weir.share").unwrap();
    let told: Vec<&str> =
        shares.lines().map(|line| line.split(" seconds=").next().expect("a text")).collect();
    let expected = [
        "259:0 configured=75.00 reported=75.00 recent=75.00",
        "259:1 configured=75.00 reported=0.00 recent=0.00",
    ];
    assert_eq!(told, expected, "{shares}");
    let only = tree.read("cgroup/tenants/weir.share").unwrap();
    let start = "259:0 configured=100.00 reported=100.00 recent=100.00 seconds=";
    assert!(only.starts_with(start), "{only}");
}

#[test]
fn a_client_is_classed_anew_by_writing() {
    let (tree, groups, few) = peopled();
    let [group, class, level] = ["group", "class", "level"].map(|file| format!("nbd/a!b/7/{file}"));
    assert_eq!(tree.read("nbd/a!b/7/address").unwrap(), "127.0.0.1:40000\n");
    assert_eq!(tree.read("nbd/a!b/7/ios").unwrap(), "12\n");
    assert_eq!(tree.read("nbd/a!b/7/bytes").unwrap(), "49152\n");
    assert_eq!(tree.read("nbd/a!b/7/inflight").unwrap(), "3\n");
    assert_eq!(tree.read("nbd/a!b/7/hard_queue").unwrap(), "1\n");
    assert_eq!(tree.read("nbd/a!b/7/poll").unwrap(), "adaptive\n");
    assert_eq!(tree.read("nbd/a!b/7/poll_share").unwrap(), "host\n");
    assert_eq!(tree.read(&group).unwrap(), "tenants/a\n");
    assert_eq!(
        (tree.read(&class).unwrap(), tree.read(&level).unwrap()),
        ("none\n".into(), "4\n".into())
    );
    assert_eq!(written(&tree, &level, "2"), "2\n");
    assert_eq!(tree.read(&class).unwrap(), "best-effort\n", "a level is of a class");
    assert_eq!(written(&tree, &class, "real-time\n"), "real-time\n");
    assert_eq!(few.clients()[0].ioprio, IoPrio::new(Class::RealTime, 2));
    assert_eq!(written(&tree, &class, "none"), "none\n");
    assert_eq!(few.clients()[0].ioprio, IoPrio::NONE);
    assert_eq!(written(&tree, &group, "/tenants/b\n"), "tenants/b\n");
    assert_eq!(few.clients()[0].group, groups.find("tenants/b").unwrap());
    assert_eq!(written(&tree, &group, ""), "\n", "the root");
    let background = String::from("nbd/a!b/7/background");
    assert_eq!(tree.read(&background).unwrap(), "0\n");
    assert_eq!(written(&tree, &background, "1\n"), "1\n");
    assert!(few.clients()[0].background);
    assert_eq!(few.clients()[0].group, GroupId(0), "the rest is as it was");
    let long = "9".repeat(1 << 20);
    for (file, texts) in [
        (&background, ["", "2", "-1", "on", &long]),
        (&class, ["", "idler", "IDLE", "3", &long]),
        (&level, ["", "8", "-1", "two", &long]),
        (&group, ["tenants/c", "tenants/a/x", "x", "\n\n", &long]),
    ] {
        for text in texts {
            let errno = refused(&tree, file, text);
            assert_eq!(errno, Errno::Invalid, "{file} {:?}", &text[..text.len().min(20)]);
        }
    }
    few.0.lock().unwrap().clear();
    assert_eq!(tree.write(&class, b"idle").unwrap_err().errno, Errno::NotFound);
}

#[test]
fn each_front_has_a_folder_of_its_own_that_is_none_of_linux() {
    let (tree, ..) = peopled();
    tree.show_front(Arc::new(Other));
    assert_eq!(names(&tree, ""), ["block", "cgroup", "class", "module", "nbd", "other", "proc"]);
    assert_eq!(names(&tree, "other"), ["sda"], "no memory is bounded there");
    assert_eq!(names(&tree, "other/sda"), [""; 0]);
    assert_eq!(names(&tree, "nbd/a!b"), ["7"], "as before");
    let root = names(&tree, "");
    let fronts = root.iter().filter(|name| !weir_control::tree::FIXED.contains(&name.as_str()));
    assert_eq!(fronts.collect::<Vec<_>>(), ["nbd", "other"]);
}

#[test]
fn a_client_is_ended_by_a_one_and_by_nothing_else() {
    let (tree, ..) = peopled();
    let delete = "nbd/a!b/7/delete";
    assert_eq!(tree.read(delete).unwrap(), "0\n");
    for text in ["0", "2", "yes", ""] {
        assert_eq!(refused(&tree, delete, text), Errno::Invalid, "{text:?}");
    }
    tree.write(delete, b"1\n").unwrap();
    assert_eq!(names(&tree, "nbd/a!b"), [""; 0]);
    assert_eq!(tree.write(delete, b"1").unwrap_err().errno, Errno::NotFound);
}

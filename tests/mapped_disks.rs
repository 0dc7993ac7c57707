//! Disks over disks of one daemon: opened in order, exported, shown, told and stopped.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use daemon::client::Client;
use daemon::{Daemon, Folder, weir};

const MIB: u64 = 1 << 20;

/// A folder with a configuration and the commands that use it.
struct House {
    folder: Folder,
    control: PathBuf,
    config: PathBuf,
}

impl House {
    /// `DIR` in the text is the folder.
    fn new(config: &str) -> House {
        let folder = Folder::new();
        let (control, path) = (folder.near("control.sock"), folder.path().join("weir.toml"));
        let dir = folder.path().display().to_string();
        fs::write(&path, config.replace("DIR", &dir)).expect("a file");
        House { folder, control, config: path }
    }

    fn serve(&self) -> Daemon {
        let mut command = weir(&self.folder);
        command.arg("serve").arg("-c").arg(&self.config).args(["--reactors", "2"]);
        command.arg("--control").arg(&self.control);
        command.arg("--nbd").arg(format!("unix:{}", self.folder.socket().display()));
        Daemon::spawn(command)
    }

    /// Why the daemon does not start.
    fn refused(&self) -> String {
        let mut command = weir(&self.folder);
        command.arg("serve").arg("-c").arg(&self.config).arg("--control").arg(&self.control);
        command.arg("--nbd").arg(format!("unix:{}", self.folder.socket().display()));
        let ended = command.output().expect("weir can be started");
        assert_eq!(ended.status.code(), Some(2));
        String::from_utf8_lossy(&ended.stderr).into_owned()
    }

    fn ask(&self, words: &[&str]) -> Output {
        let mut command = weir(&self.folder);
        command.args(words).arg("--control").arg(&self.control);
        command.stdout(Stdio::piped()).output().expect("weir can be started")
    }

    #[track_caller]
    fn told(&self, words: &[&str]) -> String {
        let ended = self.ask(words);
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8_lossy(&ended.stdout).into_owned()
    }
}

/// The mapped disks stand before those that they lie on.
const CONFIG: &str = r#"
kernel_cmdline = "dm_mod.use_blk_mq=0"

[[disk]]
name = "data"
target = "linear:md0+sdd"

[[disk]]
name = "md0"
table = """
0 24576 striped 3 128 sda 0 sdb 0 sdc 2048
24576 2048 linear sdc 0
"""

[[disk]]
name = "sda"
target = "file:DIR/sda.img,size=4MiB"
[[disk]]
name = "sdb"
target = "file:DIR/sdb.img,size=4MiB,queue_mode=sq"
[[disk]]
name = "sdc"
target = "file:DIR/sdc.img,size=8MiB"
[[disk]]
name = "sdd"
target = "ram:3MiB"

[[export]]
name = "a"
disk = "sda"
readonly = true
"#;

#[test]
fn a_disk_over_others_is_served_shown_in_dms_words_and_flushed_at_the_end() {
    let house = House::new(CONFIG);
    let daemon = house.serve();
    let socket = house.folder.socket();
    let mut client = Client::connect(&socket, "data");
    assert_eq!(client.size, 16 * MIB);
    let bytes: Vec<u8> = (0..3 * MIB).map(|at| (at / 512 % 251) as u8).collect();
    assert_eq!(client.write(0, 0, &bytes).expect("an answer"), 0);
    assert_eq!(client.write(0, 12 * MIB + MIB / 2, &bytes).expect("an answer"), 0);
    assert_eq!(client.read(0, 3 << 20).expect("an answer"), Ok(bytes.clone()));
    let listed = house.told(&["ls", "nbd"]);
    let exports: Vec<&str> = listed.lines().filter(|line| line.ends_with('/')).collect();
    assert_eq!(exports, ["data/", "a/"], "no export asks for the other legs");
    assert_eq!(Client::connect(&socket, "a").size, 4 * MIB);
    let table = "0 24576 striped 3 128 sda 0 sdb 0 sdc 2048\n24576 2048 linear sdc 0\n";
    assert_eq!(house.told(&["map", "table", "md0"]), table);
    let all = house.told(&["map", "status"]);
    let striped = "md0: 0 24576 striped 3 sda sdb sdc 1 AAA\nmd0: 24576 2048 linear\n";
    assert_eq!(all, format!("data: 0 26624 linear\ndata: 26624 6144 linear\n{striped}"));
    let json = house.told(&["map", "status", "data", "--json"]);
    assert_eq!(
        json,
        "[{\"name\":\"data\",\"status\":[\"0 26624 linear\",\"26624 6144 linear\"]}]\n"
    );
    assert_eq!(house.told(&["ls", "block/md0/slaves"]), "sda/\nsdb/\nsdc/\n");
    assert_eq!(house.told(&["ls", "block/sdc/holders"]), "md0/\n");
    assert_eq!(house.told(&["get", "block/md0/dm/use_blk_mq"]), "0\n");
    assert_eq!(house.told(&["get", "module/dm_mod/parameters/use_blk_mq"]), "N\n");
    let refused = house.ask(&["map", "message", "md0", "fail_path", "sda"]);
    assert_eq!(refused.status.code(), Some(2));
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("lines take no messages"), "{why}");
    let refused = house.ask(&["map", "table", "sda"]);
    assert_eq!(refused.status.code(), Some(2), "it is not mapped");
    client.disconnect().expect("a parting");
    daemon.stop();
    // Chunks of 64 KiB in turn.
    let first = fs::read(house.folder.path().join("sda.img")).expect("the image");
    assert!(first[..64 << 10] == bytes[..64 << 10]);
    assert!(first[64 << 10..128 << 10] == bytes[192 << 10..256 << 10]);
    let third = fs::read(house.folder.path().join("sdc.img")).expect("the image");
    assert!(third[MIB as usize..][..64 << 10] == bytes[128 << 10..192 << 10]);
    assert!(third[MIB as usize / 2..MIB as usize] != [0; 1 << 19][..], "the linear area");
}

#[test]
fn what_cannot_be_is_refused_with_the_line() {
    for (config, part) in [
        (
            CONFIG.replace("linear:md0+sdd", "linear:md0+sde"),
            "line 5: disk \"data\": it lies on disk \"sde\"",
        ),
        (
            CONFIG.replace("linear sdc 0", "linear data 0"),
            "line 5: disk \"data\": it lies on itself",
        ),
        (CONFIG.replace("striped 3", "striped 5"), "line 9: disk \"md0\": target"),
        (
            CONFIG.replace("readonly = true", ""),
            "export \"a\" would write to disk \"sda\", on which disk \"md0\" lies",
        ),
        (CONFIG.replace("target = \"ram:3MiB\"", ""), "disk \"sdd\" has neither target nor table"),
    ] {
        let why = House::new(&config).refused();
        assert!(why.contains(part), "{why}");
    }
    let house = House::new(&CONFIG.replace("readonly = true", "shared = true"));
    house.serve().stop();
}

#[test]
fn a_reload_tells_that_legs_that_differ_need_a_restart() {
    let house = House::new(CONFIG);
    let daemon = house.serve();
    let text = fs::read_to_string(&house.config).expect("the configuration");
    fs::write(&house.config, text.replace("linear:md0+sdd", "linear:sdd+md0")).expect("a file");
    let told = house.told(&["set", "--reload"]);
    assert!(told.contains("needs a restart: disk data differs"), "{told}");
    fs::write(&house.config, text.replace("linear:md0+sdd", "linear:md0+sdz")).expect("a file");
    let refused = house.ask(&["set", "--reload"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("line 5: disk \"data\": it lies on disk \"sdz\""), "{refused:?}");
    daemon.stop();
}

/// Two ways to one memory.
const PATHS: &str = r#"
[[disk]]
name = "mpatha"
target = "multipath:sda+sdb,no_path_retry=queue,path_checker=none"

[[disk]]
name = "sda"
target = "ram:8MiB"

[[disk]]
name = "sdb"
target = "linear:sda"
"#;

#[test]
fn the_paths_of_a_disk_are_failed_and_brought_back_by_messages() {
    let house = House::new(PATHS);
    let daemon = house.serve();
    let mut client = Client::connect(&house.folder.socket(), "mpatha");
    let write = |client: &mut Client, at: u64| {
        assert_eq!(client.write(0, at, &[7; 4096]).expect("an answer"), 0);
    };
    write(&mut client, 0);
    let status = |house: &House| house.told(&["map", "status", "mpatha"]).trim().to_owned();
    let all = "0 16384 multipath 2 0 0 0 2 1 A 0 1 2 sda A 0 0 1 E 0 1 2 sdb A 0 0 1";
    assert_eq!(status(&house), all);
    house.told(&["map", "message", "mpatha", "fail_path", "sda"]);
    write(&mut client, 4096);
    assert_eq!(
        status(&house),
        all.replace("2 1 A", "2 2 E").replace("sda A 0 0 1 E", "sda F 1 0 1 A")
    );
    let listing = house.told(&["get", "block/mpatha/weir/listing"]);
    assert!(listing.contains("sda failed prio=1 in_flight=0 ios=1 errors=0 fails=1"), "{listing}");
    house.told(&["map", "message", "mpatha", "reinstate_path", "sda"]);
    house.told(&["map", "message", "mpatha", "switch_group", "1"]);
    write(&mut client, 8192);
    assert!(status(&house).contains(" 2 1 A 0 1 2 sda A 1 "), "{}", status(&house));
    let refused = house.ask(&["map", "message", "mpatha", "fail_path", "sdc"]);
    assert_eq!(refused.status.code(), Some(2));
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("path sdc is none of sda, sdb"), "{why}");
    let table = house.told(&["map", "table", "mpatha"]);
    assert!(
        table.starts_with("0 16384 multipath 3 queue_if_no_path queue_mode mq 0 2 1 "),
        "{table}"
    );
    // What waits for a path does not keep the daemon.
    house.told(&["map", "message", "mpatha", "fail_path", "sda"]);
    house.told(&["map", "message", "mpatha", "fail_path", "sdb"]);
    client.send(0, 1, 0, 4096, &[1; 4096]).expect("it is taken");
    daemon.stop();
}

#[test]
fn a_path_that_cannot_be_opened_is_left_out_and_the_last_one_is_not() {
    const GONE: &str = "[[disk]]\nname = \"b\"\ntarget = \"file:DIR/none/b.img\"\n";
    let paths = format!(
        "[[disk]]\nname = \"m\"\ntarget = \"multipath:b+a\"\n{GONE}\
         [[disk]]\nname = \"a\"\ntarget = \"file:DIR/a.img,size=8MiB\"\n"
    );
    let house = House::new(&paths);
    let daemon = house.serve();
    let mut client = Client::connect(&house.folder.socket(), "m");
    assert_eq!(client.write(0, 0, &[7; 4096]).expect("an answer"), 0);
    let status = house.told(&["map", "status", "m"]);
    assert_eq!(status.trim(), "0 16384 multipath 2 0 0 0 1 1 A 0 1 2 a A 0 0 1");
    let said = daemon.said();
    assert!(said.contains("disk m starts without this path") && said.contains("none/b.img"));
    // A reload finds nothing that it could do about it.
    let told = house.told(&["set", "--reload"]);
    assert!(told.contains("nothing to change"), "{told}");
    drop(client);
    daemon.stop();
    let both = paths.replace("DIR/a.img", "DIR/none/a.img");
    let needed = paths.replace("multipath:b+a", "linear:b+a");
    let promised = format!("{paths}[[export]]\nname = \"b\"\ndisk = \"b\"\nreadonly = true\n");
    for (config, why) in [(both, "none/a.img"), (needed, "none/b.img"), (promised, "none/b.img")] {
        let refused = House::new(&config).refused();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn a_disk_over_24_others_starts_and_stops_with_io_under_way() {
    let mut config = String::new();
    let names: Vec<String> = (0..24).map(|leg| format!("sd{leg}")).collect();
    config += &format!("[[disk]]\nname = \"md0\"\ntarget = \"striped:4KiB:{}\"\n", names.join("+"));
    for name in &names {
        config +=
            &format!("[[disk]]\nname = \"{name}\"\ntarget = \"null:1MiB,latency_us=50000\"\n");
    }
    let house = House::new(&config);
    let daemon = house.serve();
    let mut client = Client::connect(&house.folder.socket(), "");
    assert_eq!(client.size, 24 * MIB);
    for part in 0..8 {
        client.send(0, 1, part * MIB, 1 << 20, &vec![1; 1 << 20]).expect("it is taken");
    }
    daemon.stop();
}

//! Disks over iSCSI: bytes go from a client through weir's server, its queues, the SCSI mid-layer
//! and the initiator into tgtd, and back.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use daemon::program::{Ended, Noise, checksum, run};
use daemon::tgtd::{Tgtd, free_port};
use daemon::words::{attempt, told};
use daemon::{Daemon, Folder, weir};
use serde_json::Value;

const PLAIN: &str = "iqn.2024-01.test:plain";
const PROVED: &str = "iqn.2024-01.test:proved";
const MIB: u64 = 1 << 20;

/// Two targets, the second of which asks for proof, each with a thin unit 1 of 64 MiB.
fn start(folder: &Folder) -> Option<Tgtd> {
    let tgtd = Tgtd::start(&folder.path().display().to_string(), "below")?;
    configure(&tgtd);
    Some(tgtd)
}

fn configure(tgtd: &Tgtd) {
    for (tid, target) in [(1, PLAIN), (2, PROVED)] {
        tgtd.target(tid, target);
        tgtd.unit(tid, 1, &tgtd.image(&format!("lun-{tid}"), 64 * MIB), &[]);
        tgtd.unit_parameters(tid, 1, "thin_provisioning=1");
    }
    tgtd.account(2, "weir", "weirsecret123", false);
    tgtd.account(2, "out", "outsecret4567", true);
}

/// The disk `sda` on the unit 1 of the target without proof.
fn disk(tgtd: &Tgtd, options: &str) -> String {
    format!("sda=iscsi://127.0.0.1:{}/{PLAIN}/1{options}", tgtd.port)
}

/// A file with a secret, as it has to be.
fn secret(folder: &Folder, name: &str, secret: &str) -> PathBuf {
    let path = folder.near(name);
    fs::write(&path, format!("{secret}\n")).expect("a file");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("a mode");
    path
}

fn fio(folder: &Folder, further: &[&str]) {
    let uri = format!("--uri={}", folder.uri("sda"));
    let mut words = vec!["--name=verify", "--ioengine=nbd", "--rw=randrw", "--bsrange=4k-64k"];
    words.extend(["--bs_unaligned=0", "--iodepth=16", "--numjobs=4", "--size=12m"]);
    words.extend(["--offset_increment=16m", "--verify=crc32c", "--verify_fatal=1"]);
    words.extend(["--verify_state_save=0", "--fsync=64", "--group_reporting", &uri]);
    words.extend(further);
    let said = run("fio", &words);
    assert!(said.contains("err= 0"), "{said}");
}

#[test]
#[ignore = "needs tgtd, fio, qemu-img"]
fn what_fio_wrote_over_iscsi_is_read_back_and_is_in_the_image() {
    for options in ["", ",sessions=3", ",queue_mode=sq", ",header_digest=none,data_digest=none"] {
        println!("options {options:?}");
        let folder = Folder::new();
        let Some(tgtd) = start(&folder) else { return };
        let daemon = Daemon::start(&folder, &[&disk(&tgtd, options)]);
        fio(&folder, &[]);
        let image = tgtd.folder.join("lun-1").display().to_string();
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &folder.uri("sda"), &image]);
        let said = daemon.stop();
        assert!(!said.contains("WARN"), "{said}");
        let daemon = Daemon::start(&folder, &[&disk(&tgtd, options)]);
        fio(&folder, &["--verify_only"]);
        daemon.stop();
    }
}

#[test]
#[ignore = "needs tgtd, mkfs.ext4, e2fsck, nbdcopy"]
fn a_file_system_on_a_unit_of_blocks_of_4096_bytes_is_whole() {
    let folder = Folder::new();
    let Some(tgtd) = start(&folder) else { return };
    tgtd.unit(1, 2, &tgtd.image("large", 64 * MIB), &["--blocksize", "4096"]);
    let (tree, made) = (folder.image("tree"), folder.image("made.img"));
    fs::create_dir_all(&tree).expect("a folder");
    for number in 0..40 {
        Noise::new(number).write_file(&tree.join(format!("file-{number}")), number * 10_000);
    }
    let (from, made) = (tree.display().to_string(), made.display().to_string());
    run("mkfs.ext4", &["-q", "-b", "4096", "-d", &from, &made, "64M"]);
    let large = format!("sda=iscsi://127.0.0.1:{}/{PLAIN}/2", tgtd.port);
    let daemon = Daemon::start(&folder, &[&large]);
    assert_eq!(told(&folder, &["get", "block/sda/queue/logical_block_size"]), "4096\n");
    run("nbdcopy", &["--flush", &made, &folder.uri("sda")]);
    let copy = folder.image("copy.img");
    run("nbdcopy", &[&folder.uri("sda"), &copy.display().to_string()]);
    daemon.stop();
    for image in [copy, tgtd.folder.join("large")] {
        run("e2fsck", &["-f", "-n", &image.display().to_string()]);
        assert_eq!(checksum(&image), checksum(Path::new(&made)), "{}", image.display());
    }
}

#[test]
#[ignore = "needs tgtd, qemu-io"]
fn zeroes_discards_and_durable_writes_reach_a_thin_unit() {
    let folder = Folder::new();
    let Some(tgtd) = start(&folder) else { return };
    let daemon = Daemon::start(&folder, &[&disk(&tgtd, "")]);
    let uri = folder.uri("sda");
    let run = |commands: &[&str]| {
        let mut arguments = vec!["-f", "raw", &uri];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        let said = run("qemu-io", &arguments);
        assert!(!said.contains("failed"), "{said}");
    };
    run(&["write -P 1 0 8M", "write -f -P 2 8M 1M", "flush"]);
    let image = tgtd.folder.join("lun-1");
    let allocated = || fs::metadata(&image).expect("an image").blocks() * 512;
    let full = allocated();
    assert!(full >= 9 * MIB, "{full} bytes are allocated");
    run(&["discard 1M 4M", "write -z 5M 64k", "write -z -u 6M 1M"]);
    run(&["read -P 1 0 1M", "read -P 0 1M 4M", "read -P 0 5M 64k", "read -P 1 5184k 960k"]);
    run(&["read -P 0 6M 1M", "read -P 1 7M 1M", "read -P 2 8M 1M", "flush"]);
    let left = allocated();
    assert!(left + 4 * MIB <= full, "{left} of {full} bytes are allocated");
    daemon.stop();
}

#[test]
#[ignore = "needs tgtd, nbdcopy"]
fn a_target_that_is_killed_and_started_again_costs_no_byte_and_no_error() {
    let folder = Folder::new();
    let Some(mut tgtd) = start(&folder) else { return };
    let daemon = Daemon::start(&folder, &[&disk(&tgtd, ",sessions=2")]);
    let (source, copy) = (folder.image("source"), folder.image("copy"));
    let (from, to) = (source.display().to_string(), copy.display().to_string());
    Noise::new(90).write_file(&source, 64 * MIB);
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| run("nbdcopy", &["--flush", &from, &folder.uri("sda")]));
        tgtd.kill();
        daemon.wait_for(|line| line.contains("lost with"));
        tgtd.run();
        configure(&tgtd);
        copying.join().expect("copied without an error");
    });
    run("nbdcopy", &[&folder.uri("sda"), &to]);
    assert_eq!(checksum(&copy), checksum(&source));
    // What was flushed outlives the target.
    tgtd.kill();
    assert_eq!(checksum(&tgtd.folder.join("lun-1")), checksum(&source));
    drop(tgtd);
    daemon.kill();
}

#[test]
#[ignore = "needs tgtd, fio"]
fn connections_that_are_ended_under_verified_load_lose_nothing() {
    let folder = Folder::new();
    let Some(tgtd) = start(&folder) else { return };
    let other = free_port();
    tgtd.portal(other, true);
    let options = format!(",sessions=2,portals=127.0.0.1:{other}");
    let daemon = Daemon::start(&folder, &[&disk(&tgtd, &options)]);
    let loops = "--loops=4";
    std::thread::scope(|scope| {
        let load = scope.spawn(|| fio(&folder, &[loops]));
        let mut lost = 0;
        for _ in 0..5 {
            if load.is_finished() {
                break;
            }
            lost += tgtd.drop_connections(1);
            daemon.wait_for_many(lost, |line| line.contains("lost with"));
            daemon.wait_for_many(lost, |line| line.contains("is back"));
        }
        assert!(lost > 0, "no connection was ended");
        load.join().expect("what was read is what was written");
    });
    daemon.stop();
}

#[test]
#[ignore = "needs tgtd, iscsi-test-cu, fio"]
fn the_target_is_sane_before_and_after() {
    let folder = Folder::new();
    let Some(tgtd) = start(&folder) else { return };
    let url = format!("iscsi://127.0.0.1:{}/{PLAIN}/1", tgtd.port);
    let probe = || {
        for family in ["SCSI.Read10", "SCSI.Write10", "SCSI.Read16", "SCSI.ReadCapacity16"] {
            let test = format!("--test={family}");
            run("iscsi-test-cu", &["--dataloss", "--silent", "--fail", &test, &url]);
        }
    };
    probe();
    let daemon = Daemon::start(&folder, &[&disk(&tgtd, "")]);
    fio(&folder, &[]);
    daemon.stop();
    probe();
}

/// The lines of iscsi-inq about standard INQUIRY data, made of the data. Offsets: SPC-3.
fn lines_of_inquiry(data: &[u8]) -> Vec<String> {
    let text = |from: usize, to: usize| String::from_utf8_lossy(&data[from..to]).into_owned();
    let bits = |at: usize, shift: u32, mask: u8| (data[at] >> shift & mask).to_string();
    let mut lines: Vec<_> = [
        ("Removable", bits(1, 7, 1)),
        ("NormACA", bits(3, 5, 1)),
        ("HiSup", bits(3, 4, 1)),
        ("ReponseDataFormat", bits(3, 0, 15)),
        ("SCCS", bits(5, 7, 1)),
        ("ACC", bits(5, 6, 1)),
        ("TPGS", bits(5, 4, 3)),
        ("3PC", bits(5, 3, 1)),
        ("Protect", bits(5, 0, 1)),
        ("EncServ", bits(6, 6, 1)),
        ("MultiP", bits(6, 4, 1)),
        ("SYNC", bits(7, 4, 1)),
        ("CmdQue", bits(7, 1, 1)),
        ("Vendor", text(8, 16)),
        ("Product", text(16, 32)),
        ("Revision", text(32, 36)),
    ]
    .map(|(name, value)| format!("{name}:{value}"))
    .to_vec();
    let descriptors = data[58..].chunks_exact(2).take(8).filter(|pair| **pair != [0, 0]);
    lines.extend(
        descriptors.map(|pair| format!("Version Descriptor:{:02x}{:02x}", pair[0], pair[1])),
    );
    lines
}

#[test]
#[ignore = "needs tgtd, iscsi-inq"]
fn what_weir_shows_of_a_unit_is_what_iscsi_inq_prints() {
    let folder = Folder::new();
    let Some(tgtd) = start(&folder) else { return };
    let url = format!("iscsi://127.0.0.1:{}/{PLAIN}/1", tgtd.port);
    let daemon = Daemon::start(&folder, &[&disk(&tgtd, "")]);
    let bytes = |name: &str| -> Vec<u8> {
        let hex = told(&folder, &["get", &format!("block/sda/device/{name}")]);
        let hex: String = hex.split_whitespace().collect();
        let pairs = hex.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("text"), 16);
        pairs.map(|pair| byte(pair).expect("hex")).collect()
    };
    let inquiry = bytes("inquiry");
    let said = run("iscsi-inq", &[&url]);
    // Of the lines in words the number comes first, or the words are of the first byte.
    let known = ["Peripheral", "Version:"];
    let lines = said.lines().filter(|line| !known.iter().any(|known| line.starts_with(known)));
    // Behind a version descriptor its name is told.
    let short = |line: &str| match line.strip_prefix("Version Descriptor:") {
        Some(rest) => format!("Version Descriptor:{}", &rest[..4]),
        None => line.to_owned(),
    };
    assert_eq!(lines.map(short).collect::<Vec<_>>(), lines_of_inquiry(&inquiry), "{said}");
    assert!(said.contains("CONNECTED") && said.contains("DIRECT_ACCESS") && inquiry[0] == 0);
    assert!(said.contains(&format!("Version:{} ", inquiry[2])), "{said}");
    // The serial number, and the designator that is text.
    let page = bytes("vpd_pg80");
    let serial = String::from_utf8_lossy(&page[4..]).into_owned();
    let said = run("iscsi-inq", &["-e", "1", "-c", "128", &url]);
    assert_eq!(said.trim_end(), format!("Unit Serial Number:[{serial}]"));
    let said = run("iscsi-inq", &["-e", "1", "-c", "131", &url]);
    let page = String::from_utf8_lossy(&bytes("vpd_pg83")).into_owned();
    let designators = said.lines().filter(|line| line.starts_with("DEVICE DESIGNATOR")).count();
    let text = said.rsplit_once("Designator:[").and_then(|(_, rest)| rest.split_once(']'));
    let (text, _) = text.expect("a designator");
    assert!(designators == 3 && page.contains(text), "{said}: {page:?}");
    daemon.stop();
}

#[test]
#[ignore = "needs tgtd"]
fn discovery_prints_targets_that_can_be_pasted() {
    let folder = Folder::new();
    let Some(tgtd) = start(&folder) else { return };
    tgtd.unit(1, 3, &tgtd.image("third", MIB), &[]);
    let portal = format!("127.0.0.1:{}", tgtd.port);
    let open = |target: &str| {
        let words = ["bench", "--target", target, "--runtime", "100ms", "--json"];
        let _: Value = serde_json::from_str(&told(&folder, &words)).expect("JSON");
    };
    // Without proof one target tells its disks, and of the other the reason is told.
    let Ended { code, stdout, stderr } = attempt(&folder, &["iscsi", "discover", &portal]);
    assert_eq!(code, Some(0), "{stderr}");
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort_unstable();
    let expected = [format!("{PLAIN}/1"), format!("{PLAIN}/3"), PROVED.to_owned()]
        .map(|end| format!("iscsi://{portal}/{end}"));
    assert_eq!(lines, expected);
    assert!(stderr.contains(PROVED) && stderr.contains("authentication failure"), "{stderr}");
    lines[..2].iter().for_each(|line| open(line));
    // With proof of both sides.
    let file = secret(&folder, "secret", "weirsecret123").display().to_string();
    let target_file = secret(&folder, "target-secret", "outsecret4567").display().to_string();
    let proved = format!("weir@{portal}");
    let words = ["iscsi", "discover", &proved, "--secret-file", &file, "--target-user", "out"];
    let words = [&words[..], &["--target-secret-file", &target_file, "--json"]].concat();
    let found = attempt(&folder, &words);
    let found: Value = serde_json::from_str(&found.stdout).expect(&found.stderr);
    let of = |name: &str| {
        let all = found.as_array().expect("targets").iter();
        all.clone().find(|one| one["name"] == name).expect("it is there").clone()
    };
    let target = of(PROVED)["disks"][0]["target"].as_str().expect("a target").to_owned();
    assert!(target.starts_with("iscsi://weir@127.0.0.1:"), "{target}");
    open(&target);
    // The target without proof cannot prove itself.
    assert!(of(PLAIN)["disks"].is_null() && of(PLAIN)["error"].is_string(), "{found}");
    // Nothing listens there, and what is no portal.
    let nothing = format!("127.0.0.1:{}", free_port());
    let Ended { code, stderr, .. } = attempt(&folder, &["iscsi", "discover", &nothing]);
    assert!(code == Some(1) && stderr.contains("refused"), "{stderr}");
    for (portal, words) in [("[::1", "without"), ("weir%secret@h", "list of processes")] {
        let Ended { code, stderr, .. } = attempt(&folder, &["iscsi", "discover", portal]);
        assert!(code == Some(2) && stderr.contains(words), "{stderr}");
        assert!(!stderr.contains("%secret"), "{stderr}");
    }
}

/// Every file of the tree, as `weir get` shows it.
fn whole_tree(folder: &Folder, path: &str, text: &mut String) {
    for name in told(folder, &["ls", path]).lines() {
        let below = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        match below.strip_suffix('/') {
            Some(below) => whole_tree(folder, below, text),
            None => text.push_str(&attempt(folder, &["get", &below]).stdout),
        }
    }
}

#[test]
#[ignore = "needs tgtd"]
fn secrets_are_in_no_log_no_tree_no_document_and_no_list_of_processes() {
    const SECRET: &str = "weirsecret123";
    let folder = Folder::new();
    let Some(tgtd) = start(&folder) else { return };
    let file = secret(&folder, "secret", SECRET);
    let target_file = secret(&folder, "target-secret", "outsecret4567");
    let at = format!("127.0.0.1:{}/{PROVED}/1", tgtd.port);
    let of_file = format!(
        "iscsi://weir@{at},secret_file={},target_user=out,target_secret_file={}",
        file.display(),
        target_file.display()
    );
    let within = format!("iscsi://weir%{SECRET}@{at}");
    // A disk whose secret is in a file, and one whose secret is in the configuration.
    let config = folder.near("weir.toml");
    let text = format!(
        "[[disk]]\nname = \"sda\"\ntarget = \"{of_file}\"\n\
         [[disk]]\nname = \"sdb\"\ntarget = \"{within}\"\n"
    );
    fs::write(&config, text).expect("a file");
    fs::set_permissions(&config, PermissionsExt::from_mode(0o600)).expect("a mode");
    let mut command = weir(&folder);
    command.args(["serve", "--nbd", &format!("unix:{}", folder.socket().display())]);
    command.args(["--config", &config.display().to_string()]).env("WEIR_LOG", "trace");
    let daemon = Daemon::spawn(command);
    let mut shown = String::new();
    whole_tree(&folder, "", &mut shown);
    assert!(shown.len() > 1000, "{shown}");
    let line = format!("/proc/{}/cmdline", daemon.pid().as_raw_nonzero());
    shown.push_str(&String::from_utf8_lossy(&fs::read(line).expect("a process")));
    // A session that is lost and made again.
    assert!(tgtd.drop_connections(2) >= 2);
    daemon.wait_for_many(2, |line| line.contains("is back"));
    shown.push_str(&daemon.stop());
    // Documents and messages of a bench; the wrong secret, and the right one.
    for target in [within.replace("123@", "124@"), within.clone(), of_file] {
        let words = ["bench", "--target", &target, "--runtime", "100ms", "--json"];
        let Ended { stdout, stderr, .. } = attempt(&folder, &words);
        shown.push_str(&stdout);
        shown.push_str(&stderr);
    }
    let saved = fs::read_dir(folder.near("weir-data")).into_iter().flatten().flatten();
    saved.for_each(|file| {
        shown.push_str(&String::from_utf8_lossy(&fs::read(file.path()).unwrap_or_default()));
    });
    assert!(shown.contains("authentication failure"), "{shown}");
    assert!(shown.contains("list of processes: use secret_file="), "{shown}");
    for secret in ["weirsecret", "outsecret"] {
        let line = shown.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{line:?}");
    }
    // A file that others can read is refused by its name.
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("a mode");
    let target = format!("iscsi://weir@{at},secret_file={}", file.display());
    let Ended { code, stderr, .. } = attempt(&folder, &["bench", "--target", &target]);
    assert!(code == Some(2) && stderr.contains("mode 0644"), "{code:?} {stderr}");
}

//! Disks over iSCSI at istgt, a target of another family of code than tgtd: logins of all kinds,
//! bytes, digests, what it tells of its unit, and its death under load.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use daemon::istgt::{Istgt, MUTUAL, PLAIN, PROVED};
use daemon::program::{Ended, Noise, checksum, run};
use daemon::words::{attempt, told};
use daemon::{Daemon, Folder};

const MIB: u64 = 1 << 20;

/// The unit 0 of a target.
fn unit(istgt: &Istgt, user: &str, target: &str, options: &str) -> String {
    format!("iscsi://{user}127.0.0.1:{}/{target}/0{options}", istgt.port)
}

fn disk(istgt: &Istgt, options: &str) -> String {
    format!("sda={}", unit(istgt, "", PLAIN, options))
}

/// The option that names a file with this secret.
fn secret(folder: &Folder, option: &str, secret: &str) -> String {
    let path = folder.near(&format!("{option}-{secret}"));
    fs::write(&path, secret).expect("a file");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("a mode");
    format!(",{option}={}", path.display())
}

fn fio(folder: &Folder, further: &[&str]) {
    let uri = format!("--uri={}", folder.uri("sda"));
    let mut words = vec!["--name=verify", "--ioengine=nbd", "--rw=randrw", "--bsrange=4k-64k"];
    words.extend(["--bs_unaligned=0", "--iodepth=16", "--numjobs=2", "--size=12m"]);
    words.extend(["--offset_increment=16m", "--verify=crc32c", "--verify_fatal=1"]);
    words.extend(["--verify_state_save=0", "--fsync=64", "--group_reporting", &uri]);
    words.extend(further);
    let said = run("fio", &words);
    assert!(said.contains("err= 0"), "{said}");
}

#[test]
#[ignore = "needs istgt"]
fn each_login_that_should_be_taken_is_taken_and_the_others_say_why_not() {
    let folder = Folder::new();
    let Some(istgt) = Istgt::start(folder.path()) else { return };
    let own = |text| secret(&folder, "secret_file", text);
    let (right, wrong) = (own("weirsecret123"), own("weirsecret124"));
    let of_target =
        |text| format!("{right}{},target_user=out", secret(&folder, "target_secret_file", text));
    let (both, other) = (of_target("outsecret4567"), of_target("outsecret4568"));
    let digests = ",header_digest=crc32c,data_digest=crc32c";
    for (user, target, options, words) in [
        ("", PLAIN, "", None),
        ("", PLAIN, digests, None),
        ("weir@", PROVED, &*right, None),
        ("weir@", PROVED, &format!("{right}{digests}"), None),
        ("weir@", PROVED, &*wrong, Some("authentication failure (status 0201)")),
        ("else@", PROVED, &*right, Some("authentication failure (status 0201)")),
        ("", PROVED, "", Some("AuthMethod=\"Reject\": the target wants another proof")),
        ("weir@", MUTUAL, &*both, None),
        ("weir@", MUTUAL, &*other, Some("the target does not have the secret that it should")),
        ("", "iqn.2024-01.test:nothing", "", Some("no such target")),
    ] {
        let target = unit(&istgt, user, target, options);
        println!("{target}");
        let words_of = ["bench", "--target", &target, "--runtime", "100ms", "--json"];
        let Ended { code, stdout, stderr } = attempt(&folder, &words_of);
        match words {
            None => assert_eq!(code, Some(0), "{stdout} {stderr}"),
            Some(words) => {
                assert!(code != Some(0) && stderr.contains(words), "{code:?} {stderr}");
            }
        }
    }
}

#[test]
#[ignore = "needs istgt, fio, qemu-img"]
fn what_fio_wrote_is_read_back_and_is_in_the_image() {
    for options in ["", ",header_digest=crc32c,data_digest=crc32c", ",sessions=2,queue_mode=sq"] {
        println!("options {options:?}");
        let folder = Folder::new();
        let Some(istgt) = Istgt::start(folder.path()) else { return };
        let daemon = Daemon::start(&folder, &[&disk(&istgt, options)]);
        fio(&folder, &[]);
        let image = istgt.image("plain").display().to_string();
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &folder.uri("sda"), &image]);
        let said = daemon.stop();
        assert!(!said.contains("WARN"), "{said}");
        let daemon = Daemon::start(&folder, &[&disk(&istgt, options)]);
        fio(&folder, &["--verify_only"]);
        daemon.stop();
    }
}

#[test]
#[ignore = "needs istgt, iscsi-inq"]
fn what_weir_shows_of_a_unit_is_what_iscsi_inq_prints() {
    let folder = Folder::new();
    let Some(istgt) = Istgt::start(folder.path()) else { return };
    let daemon = Daemon::start(&folder, &[&disk(&istgt, "")]);
    let url = unit(&istgt, "", PLAIN, "");
    let said = run("iscsi-inq", &[&url]);
    let line = |name: &str| {
        let found = said.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in {said}")).to_owned()
    };
    let shown = |name: &str| told(&folder, &["get", &format!("block/sda/device/{name}")]);
    for (name, file) in [("Vendor:", "vendor"), ("Product:", "model"), ("Revision:", "rev")] {
        assert_eq!(shown(file).trim_end(), line(name).trim_end());
    }
    let hex = shown("vpd_pg80");
    let serial = run("iscsi-inq", &["-e", "1", "-c", "128", &url]);
    let serial = serial.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let (serial, _) = serial.expect("a serial number");
    let bytes: String = serial.bytes().map(|byte| format!("{byte:02x}")).collect();
    let hex: String = hex.split_whitespace().collect();
    assert!(hex.ends_with(&bytes), "{hex}, not {serial:?}");
    // It lists the unit that it has, and the address can be pasted.
    let portal = format!("127.0.0.1:{}", istgt.port);
    let found = attempt(&folder, &["iscsi", "discover", &portal]);
    assert!(found.stdout.lines().any(|line| line == url), "{found:?}");
    daemon.stop();
}

#[test]
#[ignore = "needs istgt, nbdcopy"]
fn a_target_that_is_killed_under_load_and_started_again_costs_no_byte_and_no_error() {
    let folder = Folder::new();
    let Some(mut istgt) = Istgt::start(folder.path()) else { return };
    let daemon = Daemon::start(&folder, &[&disk(&istgt, ",sessions=2")]);
    let (source, copy) = (folder.image("source"), folder.image("copy"));
    let (from, to) = (source.display().to_string(), copy.display().to_string());
    println!("seed 91");
    Noise::new(91).write_file(&source, 64 * MIB);
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| run("nbdcopy", &["--flush", &from, &folder.uri("sda")]));
        for sessions in [2, 4] {
            istgt.kill();
            daemon.wait_for_many(sessions, |line| line.contains("lost with"));
            istgt.run();
            daemon.wait_for_many(sessions, |line| line.contains("is back"));
        }
        copying.join().expect("copied without an error");
    });
    run("nbdcopy", &[&folder.uri("sda"), &to]);
    assert_eq!(checksum(&copy), checksum(&source));
    // What was flushed outlives the target.
    istgt.kill();
    assert_eq!(checksum(&istgt.image("plain")), checksum(&source));
    drop(istgt);
    daemon.kill();
}

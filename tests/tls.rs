//! NBD over TLS with clients and servers that others wrote: who comes in, who stays out, and that
//! every byte arrives.

#![forbid(unsafe_code)]

#[path = "../proto/tls/tests/authority/mod.rs"]
mod authority;
mod daemon;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use authority::Authority;
use daemon::outside::free_port;
use daemon::program::{Ended, Noise, Running, attempt, checksum, nbdkit, qemu_nbd, run};
use daemon::{Daemon, Folder, weir};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// A daemon with a disk in memory at a UNIX socket, with these options, and at a port of its own.
fn serve(folder: &Folder, options: &str) -> (Daemon, u16) {
    let port = free_port();
    let mut command = weir(folder);
    command.args(["serve", "--disk", "sda=ram:64MiB"]);
    for address in [format!("unix:{}", folder.socket().display()), format!("127.0.0.1:{port}")] {
        command.args(["--nbd", &format!("{address},{options}")]);
    }
    // A client that is refused is told of at this level.
    command.env("WEIR_LOG", "debug");
    (Daemon::spawn(command), port)
}

fn require(certificates: &authority::Folder) -> String {
    format!("tls=require,tls_certificates={}", certificates.path().display())
}

/// The URI of the disk at the folder's socket, for a client with these certificates.
fn uri(folder: &Folder, certificates: &authority::Folder) -> String {
    let (socket, certificates) = (folder.socket(), certificates.path());
    format!(
        "nbds+unix:///sda?socket={}&tls-certificates={}",
        socket.display(),
        certificates.display()
    )
}

#[track_caller]
fn fails(ended: Ended, words: &str) {
    let Ended { code, stderr, .. } = ended;
    assert!(code != Some(0) && stderr.contains(words), "{code:?}: {stderr}");
}

#[test]
#[ignore = "needs nbdinfo, nbdcopy"]
fn libnbd_s_programs_come_in_over_tls_and_bytes_come_back() {
    let (folder, certificates) = (Folder::new(), Authority::new().folder());
    let (daemon, port) = serve(&folder, &require(&certificates));
    let over_tcp =
        format!("nbds://127.0.0.1:{port}/sda?tls-certificates={}", certificates.path().display());
    for uri in [over_tcp, uri(&folder, &certificates)] {
        let told = run("nbdinfo", &["--json", &uri]);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!((&told["TLS"], &told["structured"]), (&Value::Bool(true), &Value::Bool(true)));
        assert_eq!(told["exports"][0]["export-size"], 64 * MIB);
        let (source, copy) = (folder.image("source"), folder.image("copy"));
        let (from, to) = (source.display().to_string(), copy.display().to_string());
        Noise::new(77).write_file(&source, 64 * MIB);
        run("nbdcopy", &["--connections=4", "--flush", &from, &uri]);
        run("nbdcopy", &["--connections=4", &uri, &to]);
        assert_eq!(checksum(&copy), checksum(&source), "{uri}");
    }
    let said = daemon.stop();
    assert!(!said.contains("WARN") && said.contains("names=alice"), "{said}");
    assert!(!said.contains("was cut") && !said.contains("PRIVATE"), "{said}");
}

#[test]
#[ignore = "needs qemu-img, qemu-io"]
fn qemu_s_programs_come_in_over_tls() {
    let (folder, certificates) = (Folder::new(), Authority::new().folder());
    let (daemon, port) = serve(&folder, &require(&certificates));
    let directory = certificates.path().display();
    let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={directory}");
    let options = format!("driver=nbd,host=127.0.0.1,port={port},export=sda,tls-creds=tls");
    let told = run("qemu-img", &["info", "--object", &object, "--image-opts", &options]);
    assert!(told.contains("virtual size: 64 MiB"), "{told}");
    let io = ["--object", &object, "--image-opts", &options, "-c"];
    run("qemu-io", &[&io[..], &["write -f -P 0x5a 1M 2M"]].concat());
    let read = run("qemu-io", &[&io[..], &["read -P 0x5a 1M 2M"]].concat());
    assert!(!read.contains("verification failed"), "{read}");
    assert!(!daemon.stop().contains("WARN"));
}

#[test]
#[ignore = "needs nbdinfo"]
fn clients_that_are_not_meant_stay_out_and_the_log_says_why() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let certificates = authority.folder();
    let options = format!("{},allow=tls:alice", require(&certificates));
    let (daemon, _) = serve(&folder, &options);
    fails(attempt("nbdinfo", &[folder.uri("sda")]), "server replied with error");
    // Each trusts this server, and shows something else.
    let stranger = authority.trust();
    let other = Authority::new().folder();
    for file in ["client-cert.pem", "client-key.pem"] {
        std::fs::copy(other.path().join(file), stranger.path().join(file)).expect("a copy");
    }
    let (late, mallory) = (authority.folder(), authority.folder());
    authority.sign_until(&late, "client", "alice", &[], 2020);
    authority.sign(&mallory, "client", "mallory", &[]);
    let bare = authority.trust();
    let mut refused = 0;
    for (shown, words) in [
        // libnbd shows no certificate of an authority that the server does not name.
        (&stranger, "no certificates"),
        (&late, "expired"),
        (&mallory, "names [\"mallory\"] are not in the list"),
        (&bare, "no certificates"),
    ] {
        fails(attempt("nbdinfo", &[uri(&folder, shown)]), "");
        refused += 1;
        daemon.wait_for_many(refused, |line| line.contains("client refused"));
        assert!(daemon.said().contains(words), "{words}: {}", daemon.said());
    }
    // And a client that means another server does not stay.
    let foreign = Authority::new().folder();
    fails(attempt("nbdinfo", &[uri(&folder, &foreign)]), "");
    // A client that stops in the middle holds up no other.
    let mut silent = UnixStream::connect(folder.socket()).expect("the daemon listens");
    silent.read_exact(&mut [0; 18]).expect("a greeting");
    silent.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0").expect("the daemon reads");
    silent.read_exact(&mut [0; 20]).expect("a grant");
    silent.write_all(&[22, 3, 1, 2, 0, 1]).expect("the daemon reads");
    run("nbdinfo", &[uri(&folder, &certificates)]);
    daemon.stop();
}

#[test]
#[ignore = "needs nbdinfo"]
fn a_name_in_a_certificate_lets_in_at_an_address_and_to_an_export() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let alice = authority.folder();
    let bob = authority.folder();
    authority.sign(&bob, "client", "bob", &[]);
    let file = folder.near("weir.toml");
    // Every client with a certificate comes in; the names decide which exports it finds.
    let text = format!(
        "[nbd]\nlisten = [\"unix:{}\"]\ntls = \"require\"\ntls_certificates = \"{}\"\n\
         [[disk]]\nname = \"sda\"\ntarget = \"ram:64MiB\"\n\
         [[export]]\nname = \"sda\"\ndisk = \"sda\"\nallow = [\"tls:alice\"]\n\
         [[export]]\nname = \"fixed\"\ndisk = \"sda\"\nreadonly = true\n\
         allow = [\"tls:bob\", \"tls:alice\"]\n",
        folder.socket().display(),
        alice.path().display()
    );
    std::fs::write(&file, text).expect("a file");
    let mut command = weir(&folder);
    command.arg("serve").arg("-c").arg(&file);
    let daemon = Daemon::spawn(command);
    run("nbdinfo", &[uri(&folder, &alice)]);
    fails(attempt("nbdinfo", &[uri(&folder, &bob)]), "");
    daemon.wait_for(|line| line.contains("not in the export's allow list"));
    run("nbdinfo", &[uri(&folder, &bob).replacen("/sda", "/fixed", 1)]);
    daemon.stop();
    // At an address a name is one way in, and the user another.
    let list = "allow=uid:4294967294,allow=tls:alice";
    let (daemon, _) = serve(&folder, &format!("{},{list}", require(&alice)));
    run("nbdinfo", &[uri(&folder, &alice)]);
    fails(attempt("nbdinfo", &[uri(&folder, &bob)]), "");
    daemon.wait_for(|line| line.contains("names [\"bob\"] are not in the list"));
    daemon.stop();
}

#[test]
#[ignore = "needs nbdkit, qemu-nbd, nbdcopy"]
fn servers_of_others_are_served_through_and_measured_over_tls() {
    let (folder, certificates) = (Folder::new(), Authority::new().folder());
    let directory = certificates.path().display().to_string();
    let image = folder.image("below");
    std::fs::File::create(&image).and_then(|file| file.set_len(32 * MIB)).expect("an image");
    let option = format!("--tls-certificates={directory}");
    let kit = ["--tls=require", &option, "--tls-verify-peer", "memory", "32M"];
    let object = format!("tls-creds-x509,id=tls,endpoint=server,verify-peer=on,dir={directory}");
    let qemu = ["--object", &object, "--tls-creds", "tls", "--shared=8"];
    let servers =
        [nbdkit(&folder, "kit.sock", &kit), qemu_nbd(&folder, "qemu.sock", &image, &qemu)];
    for server in servers {
        let socket = server.socket.display().to_string();
        let target = format!("nbds+unix:{socket},tls-certificates={directory}");
        let daemon = Daemon::start(&folder, &[&format!("sda={target},connections=2")]);
        let (source, copy) = (folder.image("source"), folder.image("copy"));
        let (from, to) = (source.display().to_string(), copy.display().to_string());
        Noise::new(78).write_file(&source, 32 * MIB);
        run("nbdcopy", &["--flush", &from, &folder.uri("sda")]);
        run("nbdcopy", &[&folder.uri("sda"), &to]);
        assert_eq!(checksum(&copy), checksum(&source), "{target}");
        daemon.stop();
        let mut bench = weir(&folder);
        bench.args(["bench", "--quiet", "--rw", "randread", "--bs", "4k", "--iodepth", "16"]);
        bench.args(["--runtime", "300ms", "--time_based", "--target"]);
        bench.arg(format!("nbds+unix:///?socket={socket}&tls-certificates={directory}"));
        Running::start(bench).succeed();
        server.stop();
    }
}

#[test]
fn the_command_measures_and_serves_its_own_servers_over_tls() {
    let (folder, certificates) = (Folder::new(), Authority::new().folder());
    let (daemon, port) = serve(&folder, &require(&certificates));
    let directory = certificates.path().display();
    for (target, words) in [
        (format!("nbds://127.0.0.1:{port}/sda,tls-certificates={directory}"), None),
        (format!("nbds://127.0.0.1:{port}/sda?tls-certificates={directory}"), None),
        (format!("nbd://127.0.0.1:{port}/sda"), Some("server requires TLS")),
        (
            format!(
                "nbds://127.0.0.1:{port}/sda,tls-certificates={directory},tls-hostname=a.example"
            ),
            Some("a.example"),
        ),
        (format!("nbds://127.0.0.1:{port}/sda"), Some("tls-certificates=DIR")),
    ] {
        let mut bench = weir(&folder);
        bench.args(["bench", "--quiet", "--rw", "randrw", "--bs", "4k", "--iodepth", "16"]);
        bench.args(["--verify", "crc32c", "--size", "8M", "--target", &target]);
        let Ended { code, stderr, .. } = Running::start(bench).end();
        match words {
            None => assert_eq!(code, Some(0), "{target}: {stderr}"),
            Some(words) => assert!(code == Some(2) && stderr.contains(words), "{stderr}"),
        }
    }
    daemon.stop();
}

#[test]
fn an_address_that_cannot_have_tls_is_refused_at_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, certificates) = (Folder::new(), Authority::new().folder());
    let key = certificates.path().join("server-key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("ours");
    for (options, words) in [
        (require(&certificates), "server-key.pem: mode 0644 lets every user"),
        (String::from("tls=require"), "tls_certificates=DIR"),
        (String::from("tls=maybe"), "tls=maybe is none of off, on and require"),
    ] {
        let mut command = weir(&folder);
        command.args(["serve", "--disk", "sda=ram:1MiB", "--nbd"]);
        command.arg(format!("unix:{},{options}", folder.socket().display()));
        let Ended { code, stderr, .. } = Running::start(command).end();
        assert!(code == Some(2) && stderr.contains(words), "{code:?}: {stderr}");
    }
    // The same in the configuration, for all addresses at once.
    let file = folder.near("weir.toml");
    let text = format!(
        "[nbd]\nlisten = [\"unix:{}\"]\ntls = \"require\"\ntls_certificates = \"{}\"\n\
         tls_verify_peer = false\n[[disk]]\nname = \"sda\"\ntarget = \"ram:1MiB\"\n",
        folder.socket().display(),
        certificates.path().display()
    );
    std::fs::write(&file, text).expect("a file");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let mut command = weir(&folder);
    command.arg("serve").arg("-c").arg(&file);
    let daemon = Daemon::spawn(command);
    let mut client = UnixStream::connect(folder.socket()).expect("the daemon listens");
    client.read_exact(&mut [0; 18]).expect("a greeting");
    client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x03\0\0\0\0").expect("the daemon reads");
    let mut reply = [0; 20];
    client.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[12..16], [0x80, 0, 0, 5], "a list is not given without TLS");
    daemon.stop();
}

//! Clients that others wrote, against the daemon: what they are told, and that every byte they put
//! in comes out again.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::os::unix::fs::MetadataExt;

use daemon::program::{Noise, Running, attempt, checksum, program, python, run};
use daemon::{Daemon, Folder, ways_of_files};
use serde_json::{Value, json};

const MODES: [&str; 2] = ["mq", "sq"];

/// A disk in a file, one in memory and one that may not be written, in one queue mode.
fn start(folder: &Folder, mode: &str) -> Daemon {
    Daemon::start(
        folder,
        &[
            &folder.file_disk("sda", "64MiB", &format!(",queue_mode={mode}")),
            &format!("mem=ram:64MiB,queue_mode={mode}"),
            &format!("fixed=ram:1MiB,queue_mode={mode},readonly"),
        ],
    )
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
#[ignore = "needs nbdinfo"]
fn nbdinfo_is_told_what_each_disk_can_do() {
    for mode in MODES {
        let folder = Folder::new();
        let daemon = start(&folder, mode);
        let told = parse(&run("nbdinfo", &["--json", &folder.uri("mem")]));
        assert_eq!(told["protocol"], "newstyle-fixed");
        assert_eq!((&told["structured"], &told["TLS"]), (&json!(true), &json!(false)));
        let export = &told["exports"][0];
        for (field, value) in [
            ("export-name", json!("mem")),
            ("export-size", json!(64 << 20)),
            ("contexts", json!(["base:allocation"])),
            ("is_rotational", json!(false)),
            ("is_read_only", json!(false)),
            ("can_cache", json!(true)),
            ("can_df", json!(true)),
            ("can_flush", json!(true)),
            ("can_fua", json!(true)),
            ("can_multi_conn", json!(true)),
            ("can_trim", json!(true)),
            ("can_zero", json!(true)),
            ("block_size_minimum", json!(1)),
            ("block_size_preferred", json!(4096)),
            ("block_size_maximum", json!(32 << 20)),
        ] {
            assert_eq!(export[field], value, "{field} in {mode}");
        }
        // The empty name is the first disk.
        assert_eq!(run("nbdinfo", &["--size", &folder.uri("")]).trim(), "67108864");
        assert_eq!(run("nbdinfo", &["--size", &folder.uri("fixed")]).trim(), "1048576");
        daemon.stop();
    }
}

#[test]
#[ignore = "needs nbdinfo"]
fn nbdinfo_lists_every_disk_under_its_name() {
    let folder = Folder::new();
    let daemon = start(&folder, "mq");
    let told = parse(&run("nbdinfo", &["--list", "--json", &folder.uri("")]));
    let exports = told["exports"].as_array().expect("exports");
    let names: Vec<_> = exports.iter().map(|export| &export["export-name"]).collect();
    assert_eq!(names, ["sda", "mem", "fixed"]);
    let sizes: Vec<_> = exports.iter().map(|export| &export["export-size"]).collect();
    assert_eq!(sizes, [64 << 20, 64 << 20, 1 << 20]);
    daemon.stop();
}

#[test]
#[ignore = "needs nbdinfo"]
fn each_question_of_nbdinfo_gets_its_exit_status() {
    let folder = Folder::new();
    let daemon = start(&folder, "mq");
    let ask = |flag: &str, what: &str, export: &str| {
        attempt("nbdinfo", &[flag, what, &folder.uri(export)]).code
    };
    for what in ["cache", "connect", "df", "flush", "fua", "multi-conn", "read", "trim", "zero"] {
        assert_eq!(ask("--can", what, "sda"), Some(0), "{what}");
        assert_eq!(ask("--can", what, "mem"), Some(0), "{what}");
    }
    assert_eq!(ask("--can", "write", "sda"), Some(0));
    assert_eq!(ask("--is", "read-only", "sda"), Some(2));
    for what in ["write", "trim", "zero"] {
        assert_eq!(ask("--can", what, "fixed"), Some(2), "{what}");
    }
    assert_eq!(ask("--is", "read-only", "fixed"), Some(0));
    assert_eq!(ask("--is", "tls", "sda"), Some(2));
    // An export that is not there is an error, and no answer.
    assert_eq!(ask("--can", "read", "sdz"), Some(1));
    daemon.stop();
}

#[test]
#[ignore = "needs nbdinfo, qemu-io"]
fn nbdinfo_maps_what_is_data_and_what_is_a_hole() {
    for mode in MODES {
        let folder = Folder::new();
        let daemon = start(&folder, mode);
        for export in ["sda", "mem"] {
            let uri = folder.uri(export);
            run("qemu-io", &["-f", "raw", &uri, "-c", "write -P 7 1M 64k", "-c", "flush"]);
            let map = parse(&run("nbdinfo", &["--map", "--json", &uri]));
            let extent = |offset: u64, length: u64, kind: u8, words: &str| {
                let told = (offset, length, kind, words);
                json!({"offset": told.0, "length": told.1, "type": told.2, "description": told.3})
            };
            let rest = (64 << 20) - (1 << 20) - (64 << 10);
            let expected = json!([
                extent(0, 1 << 20, 3, "hole,zero"),
                extent(1 << 20, 64 << 10, 0, "data"),
                extent((1 << 20) + (64 << 10), rest, 3, "hole,zero"),
            ]);
            assert_eq!(map, expected, "{export} in {mode}");
        }
        daemon.stop();
    }
}

const MIB: u64 = 1 << 20;

/// Copies so many MiB of noise in and out, with so many connections one time after the other.
#[track_caller]
fn copy_in_and_out(mib: u64, disk: impl Fn(&Folder, &str) -> String, connections: &[u32]) {
    let folder = Folder::new();
    let (source, copy) = (folder.image("source"), folder.image("copy"));
    let size = format!("{mib}MiB");
    let daemon = Daemon::start(&folder, &[&disk(&folder, &size)]);
    let uri = folder.uri("sda");
    println!("seed {mib}");
    Noise::new(mib).write_file(&source, mib * MIB);
    let sent = checksum(&source);
    assert_eq!(sent.1, mib * MIB);
    let (from, to) = (source.display().to_string(), copy.display().to_string());
    for connections in connections {
        // Data of an earlier copy would hide that a later one brought nothing.
        run("qemu-io", &["-f", "raw", &uri, "-c", &format!("write -z -u 0 {mib}M")]);
        // nbdcopy opens no more connections than it has threads, by default one for each CPU.
        let (many, threads) =
            (format!("--connections={connections}"), format!("--threads={connections}"));
        run("nbdcopy", &[&*many, &threads, "--flush", &from, &uri]);
        run("nbdcopy", &[&many, &threads, &uri, &to]);
        assert_eq!(checksum(&copy), sent, "over {connections} connections");
        fs::remove_file(&copy).expect("the copy");
    }
    let said = daemon.stop();
    let served = said.lines().filter(|line| line.contains("client connected")).count() as u32;
    let asked = connections.iter().map(|connections| 1 + 2 * connections);
    assert_eq!(served, asked.sum::<u32>(), "connections of qemu-io and nbdcopy");
    let image = folder.image("sda");
    if image.exists() {
        assert_eq!(checksum(&image), sent, "the file behind the disk");
    }
}

#[test]
#[ignore = "needs nbdcopy, qemu-io"]
fn nbdcopy_gets_a_gibibyte_back_from_a_file_over_one_connection_and_over_four() {
    copy_in_and_out(1024, |folder, size| folder.file_disk("sda", size, ""), &[1, 4]);
}

#[test]
#[ignore = "needs nbdcopy, qemu-io"]
fn nbdcopy_gets_a_gibibyte_back_from_memory_over_four_connections() {
    copy_in_and_out(1024, |_, size| format!("sda=ram:{size}"), &[4]);
}

#[test]
#[ignore = "needs nbdcopy, qemu-io"]
fn nbdcopy_gets_back_what_it_put_in_on_every_path() {
    for options in [",queue_mode=sq", ",spread=round-robin", ",nomerges=2,queues=2"] {
        let file = |folder: &Folder, size: &str| folder.file_disk("sda", size, options);
        copy_in_and_out(96, file, &[1, 4]);
        copy_in_and_out(64, |_, size| format!("sda=ram:{size}{options}"), &[1, 4]);
    }
}

#[test]
#[ignore = "needs nbdcopy, qemu-io, nbdinfo"]
fn nbdcopy_leaves_holes_and_zeroes_where_there_was_nothing() {
    let folder = Folder::new();
    let daemon = start(&folder, "mq");
    let (source, copy) = (folder.image("source"), folder.image("copy"));
    let mut bytes = vec![0; 64 << 20];
    Noise::new(3).fill(&mut bytes[5 << 20..6 << 20]);
    fs::write(&source, &bytes).expect("a source");
    for export in ["sda", "mem"] {
        let uri = folder.uri(export);
        // The old data has to go, whether it is copied over or zeroed.
        run("qemu-io", &["-f", "raw", &uri, "-c", "write -P 9 0 32M"]);
        run("nbdcopy", &[source.to_str().expect("a path"), &uri]);
        run("nbdcopy", &[&*uri, copy.to_str().expect("a path")]);
        assert!(fs::read(&copy).expect("a copy") == bytes, "{export}");
        let map = parse(&run("nbdinfo", &["--map", "--totals", "--json", &uri]));
        let data = map.as_array().expect("totals").iter().find(|total| total["type"] == 0);
        let data = data.expect("data")["size"].as_u64().expect("a size");
        assert!(data <= 2 << 20, "{data} bytes of {export} are data");
    }
    daemon.stop();
}

#[test]
#[ignore = "needs qemu-img"]
fn qemu_img_converts_in_and_out_and_finds_no_difference() {
    for mode in MODES {
        let folder = Folder::new();
        let daemon = start(&folder, mode);
        let source = folder.image("source");
        Noise::new(4).write_file(&source, 64 << 20);
        let source = source.display().to_string();
        for export in ["sda", "mem"] {
            let (uri, copy) = (folder.uri(export), folder.image(&format!("{export}.qcow2")));
            let copy = copy.display().to_string();
            let info = parse(&run("qemu-img", &["info", "--output=json", &uri]));
            assert_eq!(info["virtual-size"], 64 << 20);
            run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", &source, &uri]);
            run("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &uri]);
            run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &copy]);
            run("qemu-img", &["compare", "-f", "qcow2", "-F", "raw", &copy, &source]);
            // A comparison that could not fail would show nothing.
            run("qemu-io", &["-f", "raw", &uri, "-c", "write -P 1 63M 512"]);
            let differ = attempt("qemu-img", &["compare", "-f", "raw", "-F", "raw", &source, &uri]);
            assert_eq!(differ.code, Some(1), "{differ:?}");
        }
        daemon.stop();
    }
}

#[test]
#[ignore = "needs qemu-io"]
fn qemu_io_writes_through_flushes_zeroes_and_discards() {
    for mode in MODES {
        let folder = Folder::new();
        let daemon = start(&folder, mode);
        for export in ["sda", "mem"] {
            let commands = [
                "write -P 0x11 0 256k",
                "write -f -P 0x22 64k 64k",
                "flush",
                "write -z 0 16k",
                "write -z -u 16k 16k",
                "write -z -f 32k 4k",
                "discard 128k 64k",
                "flush",
                "read -P 0 0 36k",
                "read -P 0x11 36k 28k",
                "read -P 0x22 64k 64k",
                "read -P 0x11 192k 64k",
                "aio_write -P 0x33 1M 1M",
                "aio_write -P 0x44 2M 1M",
                "aio_flush",
                "read -P 0x33 1M 1M",
                "read -P 0x44 2M 1M",
                "writev -P 0x55 4M 512 1024 512",
                "read -P 0x55 4M 2k",
            ];
            let mut arguments = vec!["-f", "raw", "-t", "none"];
            let uri = folder.uri(export);
            arguments.push(&uri);
            commands.iter().for_each(|command| arguments.extend(["-c", command]));
            let said = run("qemu-io", &arguments);
            assert!(!said.contains("verification failed"), "{export} in {mode}: {said}");
            assert!(!said.contains("failed:"), "{export} in {mode}: {said}");
        }
        let uri = folder.uri("mem");
        let map = parse(&run("qemu-img", &["map", "--output=json", "-f", "raw", &uri]));
        let extents = map.as_array().expect("a map");
        let discarded = extents.iter().find(|extent| extent["start"] == 128 << 10);
        let discarded = discarded.unwrap_or_else(|| panic!("nothing begins at 128 KiB: {map}"));
        assert_eq!((&discarded["zero"], &discarded["length"]), (&json!(true), &json!(64 << 10)));
        daemon.stop();
    }
}

#[test]
#[ignore = "needs qemu-io"]
fn qemu_io_is_refused_writes_to_a_disk_that_is_fixed() {
    let folder = Folder::new();
    let daemon = start(&folder, "mq");
    let uri = folder.uri("fixed");
    let refused = attempt("qemu-io", &["-f", "raw", &uri, "-c", "write -P 1 0 4k"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("Permission denied"), "{refused:?}");
    let said = run("qemu-io", &["-r", "-f", "raw", &uri, "-c", "read -P 0 0 1M"]);
    assert!(said.contains("read 1048576/1048576"), "{said}");
    daemon.stop();
}

#[test]
#[ignore = "needs libnbd's Python module"]
fn libnbd_says_everything_it_can_say_and_is_answered_as_the_protocol_wants() {
    for mode in MODES {
        let folder = Folder::new();
        let daemon = start(&folder, mode);
        let mut command = python("libnbd_commands.py");
        command.arg(folder.socket()).args(["sda", "mem", "fixed"]);
        let said = Running::start(command).succeed().stdout;
        println!("{said}");
        assert!(said.trim_end().ends_with("all answered as expected"), "{said}");
        daemon.stop();
    }
}

/// Sizes that are whole blocks, and sizes that are not.
const SIZES: [u64; 5] = [1 << 20, 1_000_000, 70_001, 513, 1];

/// A disk in a sparse file of so many bytes.
fn image(folder: &Folder, name: &str, bytes: u64) -> String {
    let file = fs::File::create(folder.image(name)).expect("a file");
    file.set_len(bytes).expect("a size");
    format!("{name}=file:{}", folder.image(name).display())
}

#[test]
#[ignore = "needs libnbd's Python module"]
fn libnbd_reads_and_writes_every_byte_by_itself_whatever_the_size() {
    for mode in MODES {
        for io in ways_of_files() {
            let folder = Folder::new();
            let names: Vec<String> = (0..SIZES.len()).map(|at| format!("d{at}")).collect();
            let disks = names.iter().zip(SIZES).map(|(name, bytes)| {
                format!("{},queue_mode={mode},io={io}", image(&folder, name, bytes))
            });
            let mut disks: Vec<String> = disks.collect();
            disks.push(format!("mem=ram:1MiB,queue_mode={mode}"));
            let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
            let daemon = Daemon::start(&folder, &disks);
            let files = names
                .iter()
                .zip(SIZES)
                .map(|(name, bytes)| (name.as_str(), bytes, folder.image(name).into_os_string()));
            for (name, bytes, file) in files.chain([("mem", 1 << 20, "-".into())]) {
                let mut command = python("libnbd_bytes.py");
                command.arg(folder.socket()).args([name, &bytes.to_string()]).arg(&file);
                command.arg("1");
                let said = Running::start(command).succeed().stdout;
                let told = format!("{name} of {bytes} bytes, {mode}, {io}: {said}");
                assert!(said.trim_end().ends_with("all bytes are there"), "{told}");
                if file != "-" {
                    assert_eq!(fs::metadata(&file).unwrap().len(), bytes, "{told}");
                }
            }
            daemon.stop();
        }
    }
}

#[test]
#[ignore = "needs nbdcopy, nbdinfo, qemu-img"]
fn images_of_any_size_are_copied_both_ways_and_stay_as_long_as_they_are() {
    let folder = Folder::new();
    for (number, bytes) in SIZES.into_iter().enumerate() {
        let name = format!("d{number}");
        let disk = image(&folder, &name, bytes);
        let daemon = Daemon::start(&folder, &[&disk]);
        let uri = folder.uri(&name);
        assert_eq!(run("nbdinfo", &["--size", &uri]).trim(), bytes.to_string());
        let source = folder.near("source");
        let mut noise = vec![0; bytes as usize];
        weir_bio::Prng::new(bytes).fill(&mut noise);
        fs::write(&source, &noise).expect("a file");
        let source = source.to_str().expect("a name");
        run("nbdcopy", &[source, &uri]);
        let back = folder.near("back");
        run("nbdcopy", &[&*uri, back.to_str().expect("a name")]);
        assert!(fs::read(&back).expect("a file") == noise, "{bytes} bytes come back");
        // QEMU's programs know whole sectors only, and read zeros behind the end.
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", source, &uri]);
        let converted = folder.near("converted");
        let converted = converted.to_str().expect("a name");
        run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, converted]);
        assert!(fs::read(converted).expect("a file")[..bytes as usize] == noise[..]);
        daemon.stop();
        assert!(fs::read(folder.image(&name)).expect("the image") == noise, "{bytes} bytes");
    }
}

#[test]
#[ignore = "needs qemu-io"]
fn zeroes_free_the_blocks_of_a_file_only_when_the_client_lets_them() {
    let folder = Folder::new();
    let daemon = start(&folder, "mq");
    let uri = folder.uri("sda");
    let allocated = || fs::metadata(folder.image("sda")).expect("the image").blocks();
    run("qemu-io", &["-f", "raw", &uri, "-c", "write -P 1 0 1M", "-c", "flush"]);
    let full = allocated();
    assert!(full >= 2048, "{full} sectors");
    run("qemu-io", &["-f", "raw", &uri, "-c", "write -z 0 1M", "-c", "read -P 0 0 1M"]);
    assert_eq!(allocated(), full);
    run("qemu-io", &["-f", "raw", &uri, "-c", "write -z -u 0 1M", "-c", "read -P 0 0 1M"]);
    assert!(allocated() < full, "{} sectors of {full}", allocated());
    daemon.stop();
}

#[test]
fn a_missing_program_is_named_with_the_way_to_get_it() {
    let missing = std::panic::catch_unwind(|| {
        Running::start(program("a-program-that-nobody-has"));
    });
    let said = missing.expect_err("it does not exist");
    let said = said.downcast_ref::<String>().expect("a sentence");
    assert!(said.contains("tests/packages.sh installs it"), "{said}");
}

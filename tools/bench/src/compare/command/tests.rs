use super::*;
use std::os::unix::net::UnixStream;

/// A command on no disk of this machine, in a folder of its own.
struct Paper {
    work: CommandWork,
    stop: OwnedFd,
    asking: Option<UnixStream>,
}

impl Paper {
    fn new(name: &str, command: &str) -> Paper {
        let folder = std::env::temp_dir().join(format!("weir-run-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let (asking, stop) = UnixStream::pair().expect("sockets");
        let disk = Disk {
            name: String::from("sdb"),
            number: String::from("0:0"),
            folder: folder.clone(),
            notice: None,
        };
        let work = CommandWork {
            command: String::from(command),
            between: None,
            figure: None,
            timeout: Duration::from_secs(120),
            disk,
            folder,
        };
        Paper { work, stop: stop.into(), asking: Some(asking) }
    }

    fn run(&self) -> Result<BenchDocument, Stop> {
        self.work.run(&Variant::of_kernel("bfq-2", "bfq"), 7, &self.stop)
    }

    fn figure(mut self, pattern: &str) -> Paper {
        self.work.figure = Some(Pattern::new(pattern, "tps").expect("a pattern"));
        self
    }

    #[track_caller]
    fn why(&self) -> String {
        match self.run() {
            Err(Stop::Failed { why, measured: None }) => why,
            other => panic!("it did not fail: {other:?}"),
        }
    }
}

impl Drop for Paper {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.work.folder);
    }
}

fn ran(document: &BenchDocument) -> &CommandRun {
    document.bench.command_run.as_ref().expect("a command was run")
}

#[test]
fn a_command_is_told_which_variant_and_round_it_is_of() {
    let told = "echo $WEIR_VARIANT $WEIR_ROUND $WEIR_SCHEDULER $WEIR_DEVICE; cat; echo end >&2";
    let document = Paper::new("told", told).run().expect("a run");
    assert_eq!(ran(&document).output, "bfq-2 7 bfq sdb\nend");
    assert_eq!((document.failure.as_ref(), document.partial), (None, false));
    let bench = &document.bench;
    let took = bench.makespan_ns.expect("it is compared by the time it takes");
    assert_eq!((took as f64 / 1e9, bench.duration_s), (bench.duration_s, ran(&document).wall_s));
    assert!(weir_trace::window::ends_by_itself(&bench.job), "{}", bench.job);
}

#[test]
fn the_figure_that_it_printed_takes_the_place_of_its_time() {
    let paper = Paper::new("figure", "echo tps = 12; echo tps = 345.5 >&2");
    let document = paper.figure("tps = ([0-9.]+)").run().expect("a run");
    let figure = ran(&document).figure.as_ref().expect("a figure");
    assert_eq!((figure.value, figure.unit.as_str()), (345.5, "tps"));
    assert_eq!(document.bench.makespan_ns, None);
}

#[test]
fn a_figure_that_is_not_found_ends_it_with_the_pattern_and_the_last_lines() {
    let paper = Paper::new("missing", "seq 1 100").figure("tps = ([0-9.]+)");
    let why = paper.why();
    assert!(why.starts_with(r#"--figure "tps = ([0-9.]+)" is not found"#), "{why}");
    assert!(
        why.ends_with("the last that it printed:\n89\n90\n91\n92\n93\n94\n95\n96\n97\n98\n99\n100"),
        "{why}"
    );
    let why = Paper::new("silent", ":").figure("(x)").why();
    assert!(why.ends_with("; it printed nothing"), "{why}");
}

#[test]
fn a_command_that_fails_is_a_run_that_says_so() {
    let paper = Paper::new("fails", "echo no such table; exit 3").figure("(x)");
    let document = paper.run().expect("a run");
    assert_eq!(document.failure.as_deref(), Some("the command ended with status 3"));
    assert_eq!(ran(&document).output, "no such table");
    assert!(document.partial && document.bench.makespan_ns.is_none());
    let killed = Paper::new("killed", "kill -9 $$").run().expect("a run");
    assert_eq!(killed.failure.as_deref(), Some("the command was ended by signal 9"));
}

#[test]
fn a_command_that_hangs_is_ended_with_all_that_it_started() {
    let mut paper = Paper::new("hangs", "sleep 1000 & echo $!; trap '' TERM; wait");
    paper.work.timeout = Duration::from_millis(300);
    let document = paper.run().expect("a run");
    assert_eq!(document.failure.as_deref(), Some("the command did not end within 300ms"));
    expect_gone(&ran(&document).output);
}

/// That there is no process of this number, or none that goes on.
#[track_caller]
fn expect_gone(pid: &str) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
}

#[test]
fn what_a_command_leaves_in_the_background_is_ended_and_told() {
    let document = Paper::new("left", "sleep 1000 & echo $!").run().expect("a run");
    assert_eq!(document.failure, None);
    let told = |document: &BenchDocument| {
        document.notices.iter().any(|notice| notice.contains("processes in the background"))
    };
    assert!(told(&document), "{:?}", document.notices);
    expect_gone(&ran(&document).output);
    let none = Paper::new("waited", "sleep 0.01 & wait").run().expect("a run");
    assert!(!told(&none), "{:?}", none.notices);
}

#[test]
fn the_cpu_time_is_that_of_all_processes_it_waited_for() {
    // Some tenths of a second in a child, and nothing in the shell.
    let busy = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done' & wait";
    let document = Paper::new("cpu", busy).run().expect("a run");
    let cpu = document.bench.cpu;
    assert!(cpu.user_s + cpu.sys_s > 0.02, "{cpu:?}");
    // Ticks of the machine are of CPUs that may all be busy otherwise.
    let machine = cpu.machine_s.expect("the kernel has ticked");
    assert_eq!(cpu.machine_ns, Some(machine * 1e9), "for each run");
    let cores = document.bench.cores.iter().map(|core| core.user_s + core.sys_s).sum::<f64>();
    assert_eq!(machine, cores);
}

#[test]
fn cpu_time_is_for_each_unit_of_a_rate_and_for_each_run_of_a_time() {
    let moment = || Moment {
        at: Instant::now(),
        device: None,
        cpus: PerCpu::default(),
        children: CpuTime::default(),
    };
    let ended = Ended {
        failure: None,
        took: Duration::from_secs(2),
        cpu: CpuTime::default(),
        left: 0,
        before: moment(),
        after: moment(),
    };
    let cores = [Core { user_s: 0.5, sys_s: 0.5, idle_s: 9.0, ..Core::default() }];
    let of = |value: f64, unit: &str, is_time: bool| {
        let figure = Figure { value, unit: String::from(unit), is_time };
        cpu(&ended, &cores, Some(&figure)).machine_ns
    };
    assert_eq!(of(100.0, "tps", false), Some(1e9 / 200.0));
    assert_eq!(of(MIB, "B/s", false), Some(1e9 / 2.0));
    assert_eq!(of(5.0, "ns", true), Some(1e9));
    assert_eq!(of(100.0, "rows", false), None, "a number of what is no rate");
    assert_eq!(cpu(&ended, &[], None).machine_ns, None);
}

#[test]
fn what_is_run_before_is_not_in_its_time_and_must_succeed() {
    let mut paper = Paper::new("between", "cat \"$MARK\"");
    let mark = paper.work.folder.join("mark").display().to_string();
    paper.work.command = format!("cat {mark}");
    paper.work.between = Some(format!("echo round $WEIR_ROUND > {mark}"));
    assert_eq!(ran(&paper.run().expect("a run")).output, "round 7");
    paper.work.between = Some(String::from("echo no room; exit 4"));
    let why = paper.why();
    assert_eq!(why, "--between: it ended with status 4; the last that it printed:\nno room");
}

#[test]
fn a_process_that_left_its_group_is_ended_with_the_run() {
    let mut paper = Paper::new("left", "");
    let folder = paper.work.folder.display().to_string();
    let (fifo, pid) = (format!("{folder}/away"), format!("{folder}/pid"));
    // Its parent is gone by then, as a daemon's is.
    paper.work.command = format!(
        "mkfifo {fifo}; (setsid sh -c 'echo $$ >{pid}; echo >{fifo}; exec sleep 1000' &); \
         read x <{fifo}"
    );
    let run = paper.run().expect("a run");
    let told = "the command left processes in the background: they were ended with the run";
    assert!(run.notices.iter().any(|notice| notice == told), "{:?}", run.notices);
    expect_gone(std::fs::read_to_string(&pid).expect("it was started").trim());
}

#[test]
fn a_figure_that_is_not_found_in_a_long_output_tells_how_much_is_searched() {
    let mut paper = Paper::new("long", "echo score 7; head -c 5000000 /dev/zero | tr '\\0' x");
    paper.work.figure = Some(Pattern::new("score ([0-9]+)", "").expect("a pattern"));
    let Err(Stop::Failed { why, .. }) = paper.run() else { panic!("it is not found") };
    assert!(why.contains(", of which the last 4 MiB are searched; the last that"), "{why}");
}

#[test]
fn a_process_that_left_its_group_writes_into_no_other_run_s_output() {
    let mut paper = Paper::new("escaped", "");
    let folder = paper.work.folder.display().to_string();
    // Its output is that of the first run, and it writes once the second has begun.
    let fifos = ["away", "go", "done"].map(|name| format!("{folder}/{name}"));
    let [away, go, done] = &fifos;
    let escaped = format!(
        "mkfifo {}; env -u WEIR_RUN \
         setsid sh -c 'echo >{away}; read x <{go}; echo stray; echo >{done}' & \
         read x <{away}; echo first",
        fifos.join(" ")
    );
    paper.work.command = escaped;
    assert_eq!(ran(&paper.run().expect("a run")).output, "first");
    paper.work.command = format!("echo >{go}; read x <{done}; echo second");
    assert_eq!(ran(&paper.run().expect("a run")).output, "second");
}

#[test]
fn a_run_that_is_asked_to_end_before_it_begins_does_not_begin() {
    let mut paper = Paper::new("before", "");
    paper.work.command = format!("touch {}", paper.work.folder.join("begun").display());
    let mut asking = paper.asking.take().expect("a socket");
    io::Write::write_all(&mut asking, b"x").expect("a byte");
    assert_eq!(paper.run().err(), Some(Stop::Interrupted));
    assert!(!paper.work.folder.join("begun").exists());
}

#[test]
fn a_run_ends_when_it_is_asked_for_with_all_of_its_group() {
    let mut paper = Paper::new("asked", "sleep 1000 & echo $! > pid; wait");
    let pid = paper.work.folder.join("pid").display().to_string();
    paper.work.command = format!("sleep 1000 & echo $! > {pid}; echo > {pid}.there; wait");
    let mut asking = paper.asking.take().expect("a socket");
    let there = format!("{pid}.there");
    let ask = std::thread::spawn(move || {
        while !Path::new(&there).exists() {
            std::thread::yield_now();
        }
        io::Write::write_all(&mut asking, b"x").expect("a byte");
        asking
    });
    assert_eq!(paper.run().err(), Some(Stop::Interrupted));
    let _asking = ask.join().expect("it asked");
    expect_gone(std::fs::read_to_string(&pid).expect("it was started").trim());
}

#[test]
fn a_setup_must_succeed_and_what_it_leaves_goes_with_the_value() {
    let paper = Paper::new("setup", ":");
    let set_up = |command: &str| {
        let CommandWork { disk, folder, .. } = &paper.work;
        set_up(command, disk, folder, Duration::from_secs(120), &paper.stop)
    };
    let why = set_up("echo no database; exit 5").map(drop).expect_err("it failed");
    assert_eq!(why, "--setup: it ended with status 5; the last that it printed:\nno database");
    let setup = set_up("sleep 1000 & echo $!").expect("it succeeds");
    let pid = std::fs::read_to_string(paper.work.folder.join("setup")).expect("it printed");
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).expect("it goes on");
    assert!(!stat.contains(") Z "), "{stat}");
    drop(setup);
    expect_gone(pid.trim());
}

#[test]
fn the_last_lines_of_an_output_are_kept_and_the_end_of_a_long_one() {
    assert_eq!(last_lines("a\nb\n\n"), "a\nb");
    let long = "é".repeat(3000);
    let kept = last_lines(&long);
    assert!(kept.len() <= KEPT && kept.len() > KEPT - 4, "{}", kept.len());
}

//! The metrics of a daemon, as scrapers see them: a real Prometheus, and peers that mean no good.

#![forbid(unsafe_code)]

mod daemon;

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use daemon::client::Client;
use daemon::outside::free_port;
use daemon::program::program;
use daemon::words::expect_refused;
use daemon::{Daemon, Folder, PATIENCE, weir};
use serde_json::Value;

/// An export's name that needs every escape of the text format.
const AWKWARD: &str = "a\"b\\c\nd <script>alert(1)</script>";

/// A daemon that shows its figures at a socket in the folder and at a port that the system chose.
fn start(folder: &Folder, configuration: &str) -> (Daemon, String) {
    let file = folder.near("weir.toml");
    fs::write(&file, configuration).expect("a file");
    let mut command = weir(folder);
    command.arg("serve").arg("-c").arg(&file);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    command.args(["--metrics", "127.0.0.1:0"]);
    command.arg("--metrics").arg(format!("unix:{}", folder.near("m.sock").display()));
    let out = folder.near("out");
    command.stdout(fs::File::create(&out).expect("a file"));
    let daemon = Daemon::spawn(command);
    let said = fs::read_to_string(&out).expect("its words");
    let place = said.lines().find_map(|line| line.trim().strip_prefix("http://"));
    let place = place.expect("an address").trim_end_matches("/metrics");
    (daemon, String::from(place))
}

fn received(mut stream: impl Read + Write, request: &[u8]) -> String {
    stream.write_all(request).expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8(answer).expect("UTF-8")
}

fn get(place: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {place}\r\n\r\n");
    let stream = TcpStream::connect(place).expect("a listener");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    received(stream, request.as_bytes())
}

/// What follows the head of an answer whose status is 200.
fn body(answer: &str) -> &str {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body
}

/// The value of a series.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} in {text}")).parse().expect("a number")
}

fn threads(daemon: &Daemon) -> usize {
    let folder = format!("/proc/{}/task", daemon.pid().as_raw_nonzero());
    fs::read_dir(folder).expect("a running daemon").count()
}

const PLAIN: &str = "[[disk]]\nname = \"sda\"\ntarget = \"ram:64MiB\"\n";

#[test]
fn figures_of_disks_and_clients_are_there_at_both_kinds_of_address() {
    let folder = Folder::new();
    let (daemon, place) = start(&folder, PLAIN);
    let mut client = Client::connect(&folder.socket(), "sda");
    for block in 0..50 {
        client.write(0, block * 4096, &[7; 4096]).expect("an answer");
    }
    let answer = get(&place, "/metrics");
    assert!(answer.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
    let text = body(&answer);
    assert!(text.ends_with("# EOF\n"), "{text}");
    let writes = r#"{disk="sda",op="write"}"#;
    assert_eq!(value(text, &format!("weir_disk_ios_total{writes}")), 50.0);
    assert_eq!(value(text, &format!("weir_disk_io_bytes_total{writes}")), 204_800.0);
    assert_eq!(value(text, &format!("weir_disk_latency_seconds_count{writes}")), 50.0);
    let client = r#"{front="nbd",export="sda",client="0"}"#;
    assert_eq!(value(text, &format!("weir_client_ios_total{client}")), 50.0);
    let buckets: Vec<f64> = text
        .lines()
        .filter(|line| line.starts_with("weir_disk_latency_seconds_bucket"))
        .map(|line| line.rsplit(' ').next().and_then(|it| it.parse().ok()).expect("a count"))
        .collect();
    assert_eq!((buckets.len(), buckets.last()), (26, Some(&50.0)), "{text}");
    assert!(buckets.is_sorted(), "{buckets:?}");
    let stream = UnixStream::connect(folder.near("m.sock")).expect("a listener");
    let local = received(stream, b"GET /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(value(body(&local), &format!("weir_disk_ios_total{writes}")), 50.0);
    daemon.stop();
    assert!(!folder.near("m.sock").exists(), "the socket's file is gone with its daemon");
}

#[test]
fn an_address_beyond_loopback_has_to_be_meant_and_a_wrong_one_is_named() {
    let folder = Folder::new();
    let disk = ["serve", "--disk", "sda=ram:1MiB", "--metrics"];
    let refused = |address: &str, parts: &[&str]| {
        let words: Vec<&str> = disk.into_iter().chain([address]).collect();
        expect_refused(&folder, &words, parts);
    };
    refused("0.0.0.0:0", &["0.0.0.0:0", "insecure"]);
    refused("9095", &["--metrics", "9095", "unix:PATH nor HOST:PORT"]);
    refused("127.0.0.1:0,tls=on", &["127.0.0.1:0", "without TLS"]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|_| taken).expect("an address");
    let address = taken.local_addr().expect("an address").to_string();
    refused(&address, &[&address, "is in use"]);
}

#[test]
fn peers_that_mean_no_good_cost_bounded_threads_and_no_client_anything() {
    let folder = Folder::new();
    let (daemon, place) = start(&folder, PLAIN);
    let mut client = Client::connect(&folder.socket(), "sda");
    client.write(0, 0, &[1; 4096]).expect("an answer");
    let before = (threads(&daemon), daemon.descriptors());
    let connect = || {
        let stream = TcpStream::connect(&place).expect("a listener");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream
    };
    // A head of 64 KiB is refused with its bound, and what is no HTTP with its reason.
    // It reads on for a moment only, so as much as fits the sockets' buffers.
    let huge = [&b"GET / HTTP/1.1\r\nx: "[..], &[b'a'; 64 << 10]].concat();
    let answer = received(connect(), &huge);
    assert!(answer.starts_with("HTTP/1.1 431 ") && answer.contains("8192 bytes"), "{answer}");
    let answer = received(connect(), b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let foreign = b"GET /metrics HTTP/1.1\r\nHost: other.example\r\n\r\n";
    assert!(received(connect(), foreign).starts_with("HTTP/1.1 421 "));
    assert!(get(&place, "/other").starts_with("HTTP/1.1 404 "));
    // A hundred that say nothing, some of them half a word.
    let mut silent: Vec<TcpStream> = (0..100).map(|_| connect()).collect();
    for (number, stream) in silent.iter_mut().enumerate().filter(|(number, _)| number % 2 == 0) {
        write!(stream, "GET /metrics HTTP/1.1\r\nx: {number}").expect("half a head");
    }
    // One more that asks and never reads.
    let mut deaf = connect();
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a request");
    for block in 0..50 {
        client.write(0, block * 4096, &[2; 4096]).expect("an answer");
    }
    // Threads of peers that have just been let go may still be ending.
    let begun = Instant::now();
    while threads(&daemon) > before.0 + 33 {
        assert!(begun.elapsed() < PATIENCE, "{} threads, {} before", threads(&daemon), before.0);
        std::thread::yield_now();
    }
    // One that is in earnest is served behind them: the silent ones are let go.
    assert_eq!(
        value(body(&get(&place, "/metrics")), r#"weir_disk_ios_total{disk="sda",op="write"}"#),
        51.0
    );
    drop((silent, deaf));
    let begun = Instant::now();
    while threads(&daemon) > before.0 || daemon.descriptors() > before.1 {
        assert!(begun.elapsed() < PATIENCE, "threads or descriptors are left");
        std::thread::yield_now();
    }
    // Those that are connected when the daemon stops hold it up no more than the others.
    let mut held = connect();
    held.write_all(b"GET").expect("a beginning");
    daemon.stop();
    let ended = held.read(&mut [0]).map_err(|error| error.kind());
    assert!(matches!(ended, Ok(0) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
    let _ = held.shutdown(Shutdown::Both);
}

#[test]
fn a_thousand_disks_are_told_in_a_bounded_text() {
    let folder = Folder::new();
    let disk = |number| format!("[[disk]]\nname = \"d{number}\"\ntarget = \"null:1GiB\"\n");
    let (daemon, place) = start(&folder, &(0..1000).map(disk).collect::<String>());
    let answer = get(&place, "/metrics");
    let text = body(&answer);
    assert_eq!(value(text, r#"weir_disk_ios_total{disk="d999",op="read"}"#), 0.0);
    // Of a disk at rest: no histogram, and some 2 KiB in all.
    assert!(text.len() < 1000 * 4096, "{} bytes", text.len());
    daemon.stop();
}

/// A daemon at these addresses of metrics, each with its options, behind `sections`.
fn start_at(folder: &Folder, sections: &str, addresses: &[String]) -> Daemon {
    let file = folder.near("weir.toml");
    fs::write(&file, sections).expect("a file");
    let mut command = weir(folder);
    command.arg("serve").arg("-c").arg(&file);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    addresses.iter().for_each(|address| _ = command.args(["--metrics", address]));
    let out = folder.near("out");
    command.stdout(fs::File::create(&out).expect("a file"));
    Daemon::spawn(command)
}

#[test]
fn who_is_not_in_the_list_of_an_address_is_turned_away_and_told_of() {
    let folder = Folder::new();
    let own = rustix::process::getuid().as_raw();
    let [own_socket, other_socket] = ["own.sock", "other.sock"].map(|name| folder.near(name));
    let addresses = [
        format!("unix:{},allow=uid:{own}", own_socket.display()),
        format!("unix:{},allow=uid:{}", other_socket.display(), own + 1),
        String::from("127.0.0.1:0,allow=10.0.0.0/8"),
    ];
    let daemon = start_at(&folder, PLAIN, &addresses);
    let request = b"GET /metrics HTTP/1.0\r\n\r\n";
    let ask = |socket: &Path| received(UnixStream::connect(socket).expect("a listener"), request);
    assert!(body(&ask(&own_socket)).ends_with("# EOF\n"));
    let turned_away = |mut stream: Box<dyn ReadWrite>| {
        // It may be cut off before the request is sent, or with it.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"", "{}", String::from_utf8_lossy(&answer));
    };
    turned_away(Box::new(UnixStream::connect(&other_socket).expect("a listener")));
    let said = fs::read_to_string(folder.near("out")).expect("its words");
    let place = said.lines().find_map(|line| line.trim().strip_prefix("http://"));
    let place = place.expect("an address").trim_end_matches("/metrics");
    turned_away(Box::new(TcpStream::connect(place).expect("a listener")));
    daemon.wait_for_many(2, |line| line.contains("turned away: not in the allow list"));
    daemon.stop();
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

#[test]
fn a_peer_that_does_not_take_its_answer_is_cut_off_in_time_and_the_others_are_served() {
    let folder = Folder::new();
    // More than the buffers of a socket hold.
    let disk = |number| format!("[[disk]]\nname = \"d{number}\"\ntarget = \"null:1GiB\"\n");
    let (daemon, place) = start(&folder, &(0..600).map(disk).collect::<String>());
    let before = threads(&daemon);
    let deaf: Vec<UnixStream> = (0..4)
        .map(|_| {
            let mut deaf = UnixStream::connect(folder.near("m.sock")).expect("a listener");
            deaf.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
            deaf
        })
        .collect();
    let begun = Instant::now();
    while threads(&daemon) < before + deaf.len() {
        assert!(begun.elapsed() < PATIENCE, "peers that read nothing are not served");
        std::thread::sleep(daemon::program::A_MOMENT);
    }
    assert!(body(&get(&place, "/metrics")).len() > 1 << 20);
    while threads(&daemon) > before {
        assert!(begun.elapsed() < PATIENCE, "peers that read nothing are still there");
        std::thread::sleep(daemon::program::A_MOMENT);
    }
    for mut stream in deaf {
        let mut answer = Vec::new();
        // What had left is there, and then the end.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.is_empty() && !answer.ends_with(b"# EOF\n"), "{} bytes", answer.len());
    }
    daemon.stop();
}

#[test]
fn it_is_asked_by_the_names_that_the_configuration_has_and_by_no_others() {
    let folder = Folder::new();
    let text = format!("{PLAIN}[metrics]\nhosts = [\"weir.example\"]\n");
    let (daemon, place) = start(&folder, &text);
    let status = |host: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let stream = TcpStream::connect(&place).expect("a listener");
        received(stream, request.as_bytes())[9..12].to_owned()
    };
    for host in ["weir.example", "weir.example:9095", "localhost", "127.0.0.1"] {
        assert_eq!(status(host), "200", "{host}");
    }
    for host in ["other.example", "weir.example.other", "x.weir.example"] {
        assert_eq!(status(host), "421", "{host}");
    }
    daemon.stop();
    let text = format!("{PLAIN}[metrics]\nhosts = [\"http://weir.example\"]\n");
    fs::write(folder.near("weir.toml"), text).expect("a file");
    let parts = ["line 5", "hosts=\"http://weir.example\" is no host name"];
    expect_refused(&folder, &["serve", "-c", "weir.toml"], &parts);
}

/// Pools, groups with a cap, paths, and an export whose name is awkward.
const EVERYTHING: &str = r#"
[[pool]]
name = "ssd0"
scheduler = "bfq"
[[disk]]
name = "vm1"
pool = "ssd0"
target = "ram:64MiB"
[[disk]]
name = "vm2"
pool = "ssd0"
target = "ram:64MiB"
[[disk]]
name = "left"
target = "ram:16MiB"
[[disk]]
name = "right"
target = "ram:16MiB"
[[disk]]
name = "both"
target = "multipath:left+right"
[[group]]
path = 'tenants/a"b\c'
weight = 300
wiops = 100
[[export]]
name = "a\"b\\c\nd <script>alert(1)</script>"
disk = "vm1"
group = 'tenants/a"b\c'
[[export]]
name = "vm2"
disk = "vm2"
[[export]]
name = "both"
disk = "both"
"#;

/// A Prometheus that scrapes one address once a second.
struct Prometheus {
    child: daemon::program::Running,
    place: String,
}

impl Prometheus {
    fn start(folder: &Folder, scraped: &str) -> Prometheus {
        let file = folder.near("prometheus.yml");
        let configuration = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
             scrape_configs: [{{job_name: weir, static_configs: [{{targets: ['{scraped}']}}]}}]\n"
        );
        fs::write(&file, configuration).expect("a file");
        // Prometheus cannot choose a port. One that is free now may be another program's when it
        // begins to listen: it ends then, and has another one.
        for _ in 0..20 {
            let place = format!("127.0.0.1:{}", free_port());
            let mut command = program("prometheus");
            command.arg(format!("--config.file={}", file.display()));
            command.arg(format!("--storage.tsdb.path={}", folder.image("tsdb").display()));
            command.arg(format!("--web.listen-address={place}"));
            let child = daemon::program::Running::start(command);
            let mut prometheus = Prometheus { child, place };
            if prometheus.listens() {
                return prometheus;
            }
        }
        panic!("Prometheus ends with every port that it is given");
    }

    /// Whether it comes to answer at its port; else it has ended.
    fn listens(&mut self) -> bool {
        let begun = Instant::now();
        while self.child.is_running() {
            let ready = TcpStream::connect(&self.place).is_ok_and(|mut stream| {
                // A port may be another program's, which says nothing.
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let request = "GET /-/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
                let mut answer = String::new();
                let told = stream.write_all(request.as_bytes());
                told.and_then(|()| stream.read_to_string(&mut answer)).is_ok()
                    && answer.starts_with("HTTP/1.1 200 ")
            });
            if ready {
                return self.child.is_running();
            }
            assert!(begun.elapsed() < PATIENCE, "Prometheus does not become ready");
            std::thread::sleep(daemon::program::A_MOMENT);
        }
        false
    }

    /// The results of a query; nothing while Prometheus does not listen yet.
    fn ask(&self, query: &str) -> Vec<Value> {
        let mut encoded = String::new();
        for byte in query.bytes() {
            encoded.push_str(&format!("%{byte:02x}"));
        }
        let request = format!(
            "GET /api/v1/query?query={encoded} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.place
        );
        let Ok(mut stream) = TcpStream::connect(&self.place) else { return Vec::new() };
        let mut answer = String::new();
        let sent = stream.write_all(request.as_bytes());
        if sent.and_then(|()| stream.read_to_string(&mut answer)).is_err() {
            return Vec::new();
        }
        let Some(begin) = answer.find('{') else { return Vec::new() };
        let end = answer.rfind('}').expect("JSON");
        let answer: Value = serde_json::from_str(&answer[begin..=end]).expect("JSON");
        if answer["error"].is_string() && answer["errorType"] != "unavailable" {
            panic!("{query}: {}", answer["error"]);
        }
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    }

    /// Asks until there is an answer, while `meanwhile` goes on.
    #[track_caller]
    fn told(&self, query: &str, mut meanwhile: impl FnMut()) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let results = self.ask(query);
            if !results.is_empty() {
                return results;
            }
            assert!(begun.elapsed() < PATIENCE, "no answer to {query}");
            meanwhile();
        }
    }
}

/// The dashboard for Grafana.
fn dashboard() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/grafana/weir.json");
    serde_json::from_str(&fs::read_to_string(path).expect("the dashboard")).expect("JSON")
}

/// The values of its variable for disks of pools: the first is there when it is opened.
const POOLS: [&str; 2] = ["^$", ".*"];

/// Every query of the dashboard, with this value of its variable for disks of pools.
fn queries(pools: &str) -> BTreeSet<String> {
    fn collect(of: &Value, into: &mut BTreeSet<String>) {
        match of {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (name.as_str(), value) {
                        ("expr", Value::String(query)) => _ = into.insert(query.clone()),
                        (_, value) => collect(value, into),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    collect(&dashboard(), &mut found);
    let filled = |query: &String| {
        let query = query.replace("$__rate_interval", "1m").replace("$disk", ".*");
        query.replace("$pools", pools)
    };
    found.iter().map(filled).collect()
}

#[test]
fn the_dashboard_shows_a_pool_and_its_disks_side_by_side_only_if_asked_to() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let pools = variables.iter().find(|variable| variable["name"] == "pools").expect("pools");
    let values = [0, 1].map(|at| pools["options"][at]["value"].as_str().expect("a value"));
    assert_eq!((values, pools["current"]["value"].as_str()), (POOLS, Some(POOLS[0])));
    let offered = pools["query"].as_str().expect("text");
    assert_eq!(offered, format!("in their pool : {}, beside their pool : {}", POOLS[0], POOLS[1]));
    for query in queries(POOLS[0]) {
        // A queue has no label for the pool: disks of a pool have none of their own.
        let of_disks = query.split("weir_disk_").skip(1).filter(|rest| !rest.starts_with("info"));
        for family in of_disks {
            let (matchers, _) = family.split_once('}').expect("matchers");
            assert!(matchers.contains("pool=~\"^$\""), "{query}");
        }
    }
}

#[test]
#[ignore = "needs prometheus"]
fn prometheus_scrapes_it_and_answers_every_query_of_the_dashboard() {
    let folder = Folder::new();
    let (daemon, place) = start(&folder, EVERYTHING);
    let mut clients =
        [AWKWARD, "vm2", "both"].map(|export| (Client::connect(&folder.socket(), export), 0_u64));
    let mut work = || {
        for (client, block) in &mut clients {
            // Two at once: a cap holds the second back.
            for _ in 0..2 {
                *block = (*block + 1) % 1024;
                client.write(0, *block * 4096, &[7; 4096]).expect("an answer");
            }
            assert!(client.read(0, 4096).expect("an answer").is_ok());
            assert_eq!(client.one(0, 3, 0, 0).expect("a flush"), 0);
        }
    };
    let prometheus = Prometheus::start(&folder, &place);
    let up = prometheus.told("up == 1", &mut work);
    assert_eq!(up.len(), 1);
    let queries = POOLS.map(queries);
    assert!(queries[0].len() >= 20, "{queries:#?}");
    for query in queries.iter().flatten() {
        prometheus.told(query, &mut work);
    }
    let in_flight = |pools: &str| {
        let query = format!("weir_disk_in_flight{{disk=~\".*\", pool=~\"{pools}\"}}");
        let found = prometheus.told(&query, || ());
        let disk =
            |series: &Value| String::from(series["metric"]["disk"].as_str().expect("a name"));
        found.iter().map(disk).collect::<BTreeSet<_>>()
    };
    let [within, beside] = POOLS.map(in_flight);
    assert!(within.contains("ssd0") && !within.contains("vm1"), "{within:?}");
    assert!(beside.is_superset(&within) && beside.contains("vm1"), "{beside:?}");
    // The names come back as they are.
    let export = prometheus.told("weir_client_info{disk=\"vm1\"}", &mut work);
    assert_eq!(export[0]["metric"]["export"], AWKWARD);
    assert_eq!(export[0]["metric"]["group"], "tenants/a\"b\\c");
    let held = "weir_client_held_seconds_total{reason=\"cap\"} > 0";
    assert_eq!(prometheus.told(held, &mut work)[0]["metric"]["export"], AWKWARD);
    let paths = prometheus.told("weir_path_up == 1", &mut work);
    assert_eq!(paths.len(), 2, "{paths:?}");
    // A pool and its partitions are told apart.
    let whole = prometheus.told("weir_disk_ios_total{op=\"write\",disk=\"ssd0\",pool=\"\"}", || ());
    let parts = prometheus.told("weir_disk_ios_total{op=\"write\",pool=\"ssd0\"}", || ());
    assert_eq!((whole.len(), parts.len()), (1, 2), "{whole:?} {parts:?}");
    drop(prometheus);
    daemon.stop();
}

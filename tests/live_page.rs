//! The live page in a browser: Chromium, told what to do over two pipes.

#![forbid(unsafe_code)]

mod daemon;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use daemon::client::Client;
use daemon::program::{Running, program};
use daemon::{Daemon, Folder, PATIENCE, weir};
use serde_json::{Value, json};

/// A disk cannot have such a name, an export can.
const AWKWARD: &str = "<script>document.title='bad'</script><b>&amp;";

fn start(folder: &Folder) -> (Daemon, String) {
    let file = folder.near("weir.toml");
    let export = format!("[[export]]\nname = \"{AWKWARD}\"\ndisk = \"sda\"\n");
    let disk = "[[disk]]\nname = \"sda\"\ntarget = \"ram:64MiB\"\n";
    fs::write(&file, format!("{disk}{export}")).expect("a file");
    let mut command = weir(folder);
    command.arg("serve").arg("-c").arg(&file);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    command.args(["--metrics", "127.0.0.1:0"]);
    let out = folder.near("out");
    command.stdout(File::create(&out).expect("a file"));
    let daemon = Daemon::spawn(command);
    let said = fs::read_to_string(&out).expect("its words");
    let place = said.lines().find_map(|line| line.trim().strip_prefix("http://"));
    let place = place.expect("an address").split('/').next().unwrap_or_default();
    (daemon, String::from(place))
}

fn ask(place: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(place).expect("a listener");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {place}\r\n\r\n").expect("a request");
    stream
}

fn whole(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

/// The next event of a stream.
fn event(lines: &mut impl BufRead) -> Value {
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("a line") > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).expect("JSON");
        }
    }
}

#[test]
fn events_come_to_a_bounded_number_of_watchers_and_a_further_one_is_told() {
    let folder = Folder::new();
    let (daemon, place) = start(&folder);
    let page = whole(ask(&place, "/"));
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("Content-Security-Policy: default"));
    let mut client = Client::connect(&folder.socket(), AWKWARD);
    let mut watchers: Vec<_> = (0..16).map(|_| BufReader::new(ask(&place, "/events"))).collect();
    // The client does I/O until it is seen: each event is a look at the time since the last.
    let seen = (0..60).any(|_| {
        client.write(0, 0, &[7; 4096]).expect("an answer");
        let scene = event(&mut watchers[0]);
        let writes = scene["disks"][0]["writes"].as_f64().expect("a rate");
        writes > 0.0 && scene["clients"][0]["name"] == format!("nbd/{AWKWARD}/0")
    });
    assert!(seen, "the writes are in no event");
    watchers.iter_mut().for_each(|watcher| _ = event(watcher));
    let refused = whole(ask(&place, "/events"));
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("16 watch"), "{refused}");
    // Figures are served beside them, and the daemon ends with them.
    assert!(whole(ask(&place, "/metrics")).ends_with("# EOF\n"));
    drop(client);
    daemon.stop();
}

#[test]
fn watchers_that_read_nothing_cost_bounded_memory_and_no_other_one_an_event() {
    let folder = Folder::new();
    let disk = |number| format!("[[disk]]\nname = \"d{number}\"\ntarget = \"null:1GiB\"\n");
    let file = folder.near("weir.toml");
    fs::write(&file, (0..100).map(disk).collect::<String>()).expect("a file");
    let socket = folder.near("m.sock");
    let mut command = weir(&folder);
    command.arg("serve").arg("-c").arg(&file);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    command.arg("--metrics").arg(format!("unix:{}", socket.display()));
    let daemon = Daemon::spawn(command);
    let watch = || {
        let mut stream = UnixStream::connect(&socket).expect("a listener");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream.write_all(b"GET /events HTTP/1.0\r\n\r\n").expect("a request");
        stream
    };
    let mut reader = BufReader::new(watch());
    event(&mut reader);
    let before = daemon.resident_kib();
    let deaf: Vec<UnixStream> = (0..15).map(|_| watch()).collect();
    let mut refused = String::new();
    // All places are taken, until those who read nothing are cut off.
    let (begun, mut full) = (Instant::now(), false);
    loop {
        let size = event(&mut reader).to_string().len();
        assert!(size > 4096, "an event of {size} bytes would fit a socket for long");
        let mut more = BufReader::new(watch());
        refused.clear();
        more.read_line(&mut refused).expect("an answer");
        if refused.starts_with("HTTP/1.1 200 ") {
            event(&mut more);
            // The first ones may come before those that read nothing have their places.
            if full {
                break;
            }
            continue;
        }
        full = true;
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        assert!(begun.elapsed() < PATIENCE, "watchers that read nothing are still there");
    }
    let grown = daemon.resident_kib().saturating_sub(before);
    println!("{grown} KiB more for 15 watchers that read nothing");
    assert!(grown < 32 << 10, "{grown} KiB");
    event(&mut reader);
    drop(deaf);
    daemon.stop();
}

/// A browser with one page.
struct Browser {
    to: File,
    from: BufReader<File>,
    session: Value,
    number: u64,
    chromium: Running,
}

impl Browser {
    fn open(folder: &Folder, url: &str) -> Browser {
        let [to, from] = ["to", "from"].map(|name| folder.near(name));
        for path in [&to, &from] {
            let made = program("mkfifo").arg(path).status();
            assert!(made.expect("mkfifo").success());
        }
        let profile = folder.image("profile");
        let mut command = program("sh");
        command.args(["-c", "exec chromium \"$@\" 3<\"$0\" 4>\"$CHROMIUM_ANSWERS\""]);
        command.arg(&to).env("CHROMIUM_ANSWERS", &from).stdin(Stdio::null());
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
        command.args(["--disable-dev-shm-usage", "--disable-background-networking"]);
        command.args(["--disable-component-update", "--disable-sync", "--disable-extensions"]);
        command.args(["--remote-debugging-pipe", "--window-size=1280,900"]);
        command.arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
        let chromium = Running::start(command);
        let to = File::options().write(true).open(to).expect("a pipe");
        let from = BufReader::new(File::open(from).expect("a pipe"));
        let mut browser = Browser { to, from, session: Value::Null, number: 0, chromium };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", attach)["sessionId"].clone();
        browser.call("Page.enable", json!({}));
        browser.call("Page.navigate", json!({ "url": url }));
        browser
    }

    /// Does this and returns what came of it; events in between are passed over.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut order = json!({ "id": self.number, "method": method, "params": params });
        if !self.session.is_null() {
            order["sessionId"] = self.session.clone();
        }
        self.to.write_all(format!("{order}\0").as_bytes()).expect("a browser that listens");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).expect("an answer");
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// The value of an expression, once a promise of it is kept.
    fn value(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
        });
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{result}");
        result["result"]["value"].clone()
    }

    /// Keeps a picture where it is asked for: a person looks at it.
    fn picture(&mut self, name: &str, width: u32, scheme: &str) {
        let Some(folder) = std::env::var_os("WEIR_TEST_PICTURES") else { return };
        // With some seconds in the charts.
        self.value(SOME_SECONDS);
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": feature }));
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let text = picture["data"].as_str().expect("base64");
        fs::write(Path::new(&folder).join(name), text).expect("a file");
    }
}

const SOME_SECONDS: &str = "new Promise((done) => {
  const watch = new MutationObserver(() => {
    const points = document.querySelector('polyline')?.getAttribute('points') ?? '';
    if (points.split(' ').length < 12) return;
    watch.disconnect();
    done(true);
  });
  watch.observe(document, { childList: true, subtree: true });
})";

/// Resolved with the words of the page once both a rate of the disk and a client's are above 0.
const LOADED: &str = "new Promise((done) => {
  const look = () => {
    const rates = document.querySelector('#disks .rates');
    const rows = [...document.querySelectorAll('#clients tr')];
    const busy = rates && !/ 0 writes/.test(rates.textContent);
    const iops = rows.length && rows[0].children[2].textContent;
    if (busy && iops && iops !== '0') {
      watch.disconnect();
      done({ rates: rates.textContent, iops, name: rows[0].firstChild.textContent,
        lines: document.querySelectorAll('polyline').length, title: document.title,
        state: document.getElementById('state').textContent,
        scripts: document.querySelectorAll('script').length,
        bold: document.querySelectorAll('b').length });
    }
  };
  const watch = new MutationObserver(look);
  watch.observe(document, { childList: true, subtree: true, characterData: true });
  look();
})";

#[test]
#[ignore = "needs chromium"]
fn a_browser_shows_the_figures_of_a_load_and_takes_no_name_for_markup() {
    let folder = Folder::new();
    let (daemon, place) = start(&folder);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = Client::connect(&folder.socket(), AWKWARD);
            while !over.load(Ordering::Relaxed) {
                client.write(0, 0, &[7; 4096]).expect("an answer");
            }
        });
        // Whatever fails in between, the load has to end.
        let _end = End(&over);
        let mut browser = Browser::open(&folder, &format!("http://{place}/"));
        // The page may not have replaced the empty one yet.
        while browser.value("location.href") != format!("http://{place}/") {}
        while browser.value("document.readyState") != "complete" {}
        let seen = browser.value(LOADED);
        assert!(seen["state"].as_str().is_some_and(|state| state.starts_with("live")), "{seen}");
        assert!(seen["rates"].as_str().is_some_and(|text| text.contains("writes/s")), "{seen}");
        assert_eq!(seen["name"], format!("nbd/{AWKWARD}/0"), "as text: {seen}");
        assert_eq!((&seen["scripts"], &seen["bold"]), (&json!(1), &json!(0)), "{seen}");
        assert_eq!((&seen["title"], &seen["lines"]), (&json!("weir"), &json!(2)), "{seen}");
        // The policy lets no other script run.
        let other = "(() => { const one = document.createElement('script');
            one.textContent = 'document.title = \"bad\"'; document.body.append(one);
            one.remove(); return document.title; })()";
        assert_eq!(browser.value(other), "weir");
        browser.picture("wide.png.base64", 1280, "light");
        browser.picture("dark.png.base64", 1280, "dark");
        browser.picture("phone.png.base64", 390, "light");
        let size = json!({ "width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", size);
        let width = browser.value("document.documentElement.scrollWidth");
        assert!(width.as_u64().is_some_and(|width| width <= 390), "wider than a phone: {width}");
        // The answer to this may be its end.
        let _ = browser.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        browser.chromium.end();
        drop(_end);
        load.join().expect("the load goes well");
    });
    daemon.stop();
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

//! Pages in a real browser: they draw, log no error and fetch nothing, on a phone too.
//!
//! Needs Chromium; `tests/packages.sh` installs it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use weir_report::{Document, html};

fn saved(name: &str) -> Document {
    let path = format!("{}/tests/documents/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(Path::new(&path)).expect("a saved document");
    serde_json::from_str(&text).expect("a document")
}

/// A folder of this test, gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("weir-report-{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A page as a browser shows it.
struct Seen {
    dom: String,
    /// Errors and warnings of the page's console.
    console: Vec<String>,
    /// The first line of each request that left the browser.
    requests: Vec<String>,
}

/// Opens a page; whatever it asks the network for ends in a proxy that writes it down.
fn open(folder: &Folder, page: &Path) -> Seen {
    let proxy = Proxy::start();
    let output = Command::new("timeout")
        .args(["120", "chromium"])
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-dev-shm-usage", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--disable-extensions"])
        .args(["--enable-logging=stderr", "--allow-file-access-from-files", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.0.join("profile").display()))
        .arg(format!("--proxy-server=http://{}", proxy.address))
        .arg("--proxy-bypass-list=<-loopback>")
        // Virtual time: the page has its seconds at once, however busy the machine is.
        .arg("--virtual-time-budget=5000")
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .expect("chromium is not installed; tests/packages.sh installs it");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {log}", output.status);
    let console = log.lines().filter(|line| line.contains(":CONSOLE")).map(String::from).collect();
    Seen {
        dom: String::from_utf8_lossy(&output.stdout).into_owned(),
        console,
        requests: proxy.end(),
    }
}

/// A proxy that writes down what it is asked and refuses it: a request without an answer would keep
/// the browser waiting.
struct Proxy {
    address: SocketAddr,
    thread: JoinHandle<Vec<String>>,
}

impl Proxy {
    fn start() -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let address = listener.local_addr().expect("an address");
        let thread = std::thread::spawn(move || {
            let mut lines = Vec::new();
            for connection in listener.incoming().map_while(Result::ok) {
                let mut line = String::new();
                let _ = BufReader::new(&connection).read_line(&mut line);
                let line = String::from(line.trim_end());
                if line == END {
                    break;
                }
                let refusal =
                    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = (&connection).write_all(refusal.as_bytes());
                lines.push(line);
            }
            lines
        });
        Proxy { address, thread }
    }

    /// The requests it was asked; the browser has ended, so nothing more comes.
    fn end(self) -> Vec<String> {
        let mut last = TcpStream::connect(self.address).expect("the proxy");
        writeln!(last, "{END}").expect("the proxy");
        let mut lines = self.thread.join().expect("the proxy");
        // The browser itself asks its maker for updates, whatever the flags; a page never does.
        lines.retain(|line| !line.contains("google") && !line.contains("gvt1") && !line.is_empty());
        lines
    }
}

const END: &str = "END";

/// A page that shows another in a frame of so many pixels and says what it measured there.
fn framed(width: u32) -> String {
    format!(
        r#"<!DOCTYPE html><title>frame</title>
        <iframe id="f" src="page.html" style="width:{width}px;height:800px;border:0"></iframe>
        <p id="measured"></p><script>
        document.getElementById("f").addEventListener("load", () => {{
          const page = document.getElementById("f").contentDocument;
          const root = page.documentElement;
          page.querySelectorAll("details").forEach(folded => folded.open = true);
          const texts = [...page.querySelectorAll("svg text")];
          const outside = texts.filter(text => {{
            const box = text.getBoundingClientRect();
            return box.left < -1 || box.right > root.clientWidth + 1;
          }});
          const smallest = Math.min(...texts.map(text => {{
            const svg = text.ownerSVGElement;
            const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
            return parseFloat(page.defaultView.getComputedStyle(text).fontSize) * scale;
          }}));
          const hides = [...page.querySelectorAll(".wide")].filter(place =>
            place.scrollWidth > place.clientWidth + 1);
          const heads = [...page.querySelectorAll("thead th")].filter(head => {{
            const range = page.createRange();
            const words = head.textContent.split(/[ \u200b]/);
            const text = head.firstChild;
            let from = 0;
            return text && words.some(word => {{
              range.setStart(text, from);
              range.setEnd(text, from + word.length);
              from += word.length + 1;
              return word && range.getClientRects().length > 1;
            }});
          }});
          const fills = (what) => [...new Set([...page.querySelectorAll(what)].map(shape =>
            page.defaultView.getComputedStyle(shape).fill))];
          document.getElementById("measured").textContent = JSON.stringify({{
            hides: hides.map(place => place.getAttribute("aria-label")),
            cards: hides.filter(place => place.querySelector(".cards")).length,
            variants: fills("svg .m"), wait: fills("svg .wait"), device: fills("svg .device"),
            broken: heads.map(head => head.textContent),
            scrolls: root.scrollWidth > root.clientWidth,
            charts: page.querySelectorAll("svg").length,
            tables: page.querySelectorAll("table").length,
            outside: outside.map(text => text.textContent), smallest,
            links: page.querySelectorAll("a[download]").length,
          }});
        }});</script>"#
    )
}

fn measured(dom: &str) -> serde_json::Value {
    let start = dom.find(r#"<p id="measured">"#).expect("the frame") + 17;
    let text = &dom[start..start + dom[start..].find("</p>").expect("its end")];
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

#[test]
fn every_page_draws_on_a_phone_without_an_error_and_without_a_request() {
    for name in ["bench", "compare", "one-round", "single", "sweep"] {
        let folder = Folder::new(name);
        folder.write("page.html", &html(&[saved(name)]).expect(name));
        let frame = folder.write("frame.html", &framed(320));
        let seen = open(&folder, &frame);
        assert_eq!(seen.console, Vec::<String>::new(), "{name}");
        assert_eq!(seen.requests, Vec::<String>::new(), "{name}");
        let found = measured(&seen.dom);
        println!("{name}: {found}");
        assert_eq!(found["scrolls"], false, "{name} is wider than a phone");
        assert!(found["charts"].as_u64() >= Some(3), "{name}: {found}");
        assert!(found["tables"].as_u64() >= Some(1) && found["links"].as_u64() >= Some(1));
        assert_eq!(found["outside"], serde_json::json!([]), "{name}: text beyond the edge");
        assert!(found["smallest"].as_f64() >= Some(8.5), "{name}: {found}");
    }
}

/// A comparison with long names, and with a run that does not count for a long reason.
fn long_names() -> Document {
    let mut value = serde_json::to_value(saved("compare")).expect("JSON");
    let long = "disturbed: the control took 51 % longer beside it than usual";
    for run in value["runs"].as_array_mut().expect("runs") {
        run["voided"] = long.into();
    }
    let variants = value["compare"]["variants"].as_array_mut().expect("variants");
    for (at, variant) in variants.iter_mut().enumerate() {
        variant["options"] =
            serde_json::json!({"target": format!("null:{at}GiB,latency_us=20{at}")});
    }
    serde_json::from_value(value).expect("a document")
}

#[test]
fn nothing_of_a_table_is_out_of_sight_on_a_wide_page_nor_of_a_short_one_on_a_phone() {
    let documents = ["bench", "compare", "one-round", "single", "sweep"];
    let mut all: Vec<_> = documents.iter().map(|name| (*name, saved(name))).collect();
    all.push(("long", long_names()));
    for (name, document) in all {
        let folder = Folder::new(&format!("tables-{name}"));
        folder.write("page.html", &html(&[document]).expect(name));
        let wide = measured(&open(&folder, &folder.write("wide.html", &framed(1400))).dom);
        println!("{name}: {wide}");
        assert_eq!(wide["hides"], serde_json::json!([]), "{name} at 1400 px");
        assert_eq!(wide["broken"], serde_json::json!([]), "{name}: words of headers");
        let phone = measured(&open(&folder, &folder.write("phone.html", &framed(390))).dom);
        println!("{name}: {phone}");
        assert_eq!(phone["cards"], 0, "{name} at 390 px");
        // Wait and device stand beside charts of variants: no colour means both.
        let fills = |what: &str| wide[what].as_array().cloned().unwrap_or_default();
        let parts: Vec<_> = fills("wait").into_iter().chain(fills("device")).collect();
        assert!(parts.iter().all(|part| !fills("variants").contains(part)), "{name}: {wide}");
        assert!(parts.is_empty() || parts[0] != parts[parts.len() - 1], "{name}: {wide}");
    }
}

#[test]
fn what_a_page_is_not_allowed_would_be_seen() {
    // The same way of looking finds a request and an error when there are some.
    let folder = Folder::new("control");
    let hostile = r#"<img src="http://weir.test/pixel.png"><script>console.error("seen")</script>"#;
    let page = folder.write("page.html", &format!("<!DOCTYPE html><title>x</title>{hostile}"));
    let seen = open(&folder, &page);
    assert!(seen.console.iter().any(|line| line.contains("seen")), "{:?}", seen.console);
    assert!(seen.requests.iter().any(|line| line.contains("weir.test")), "{:?}", seen.requests);
    // And inside a page of ours the policy stops both.
    let ours = html(&[saved("single")])
        .expect("a page")
        .replace("<header>", &format!("{hostile}<header>"));
    let seen = open(&folder, &folder.write("ours.html", &ours));
    assert_eq!(seen.requests, Vec::<String>::new());
    assert!(seen.console.iter().all(|line| !line.contains("\"seen\"")), "{:?}", seen.console);
    assert!(!seen.console.is_empty(), "the browser says what it refused");
}

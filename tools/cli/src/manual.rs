//! `weir man`: the pages of the manual, made of the declarations of the commands and of the tables
//! of targets, fronts and the configuration file.

mod markdown;

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_mangen::roff::{Roff, bold, roman};

use crate::output::print;
use crate::{Failure, fronts, whole};

/// Prints a page of the manual, or writes all of them into a folder.
///
/// Example: weir man | man -l -
/// Example: weir man sim-run | man -l -
/// Example: weir man weir.toml | man -l -
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Man {
    /// Write weir.1, weir-serve.1, weir.toml.5, weir-targets.7 and so on into this folder instead.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// A command, as serve or sim-run, or targets, or weir.toml; weir itself if not given.
    #[arg(value_name = "PAGE")]
    page: Option<String>,
}

/// A page, by its name and section.
struct Page {
    name: String,
    section: u8,
    text: String,
}

impl Man {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let pages = pages().map_err(|error| Failure::Bad(format!("man pages: {error}")))?;
        if let Some(folder) = &self.dir {
            for Page { name, section, text } in pages {
                let path = folder.join(format!("{name}.{section}"));
                fs::write(&path, text).map_err(|error| {
                    Failure::Bad(format!("man pages into {:?}: {error}", folder.display()))
                })?;
            }
            return Ok(());
        }
        let asked = self.page.as_deref().unwrap_or("weir");
        let is_asked =
            |page: &&Page| page.name == asked || page.name.strip_prefix("weir-") == Some(asked);
        match pages.iter().find(is_asked) {
            Some(page) => print(&page.text),
            None => {
                let names: Vec<_> = pages.iter().map(|page| page.name.as_str()).collect();
                Err(Failure::Bad(format!("no page {asked:?}; there are {}", names.join(", "))))
            }
        }
    }
}

fn pages() -> std::io::Result<Vec<Page>> {
    let mut weir = helpless(whole());
    weir.build();
    let mut pages = Vec::new();
    add_commands(&weir, &mut pages)?;
    pages.push(targets());
    pages.push(configuration());
    Ok(pages)
}

/// Without the command that is a page already.
fn helpless(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(helpless)
}

fn add_commands(command: &Command, pages: &mut Vec<Page>) -> std::io::Result<()> {
    pages.push(page_of(command)?);
    let mut shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    shown.try_for_each(|below| add_commands(below, pages))
}

const SOURCE: &str = concat!("weir ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "weir";

/// How the examples of a command begin in its help.
const EXAMPLE: &str = "Example: ";

fn help_of(command: &Command) -> String {
    let help = command.get_long_about().or(command.get_about());
    help.map(ToString::to_string).unwrap_or_default()
}

/// The examples of a command, or, if it has none, the first ones of those below it.
fn examples(command: &Command) -> Vec<String> {
    let help = help_of(command);
    let own: Vec<_> = help.lines().filter_map(|line| line.strip_prefix(EXAMPLE)).collect();
    if !own.is_empty() {
        return own.into_iter().map(String::from).collect();
    }
    command.get_subcommands().filter_map(|below| examples(below).into_iter().next()).collect()
}

fn page_of(command: &Command) -> std::io::Result<Page> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let help = help_of(command);
    let about: Vec<_> = help.lines().filter(|line| !line.starts_with(EXAMPLE)).collect();
    let shown = command.clone().long_about(about.join("\n").trim_end().to_owned());
    let man = clap_mangen::Man::new(shown).title(name.clone()).source(SOURCE).manual(MANUAL);
    let mut text = Vec::new();
    man.render(&mut text)?;
    let mut end = Roff::new();
    end.control("SH", ["EXAMPLES"]).control("EX", []);
    for example in examples(command) {
        end.text([roman(example)]);
    }
    end.control("EE", []);
    see_also(&mut end, &name);
    end.to_writer(&mut text)?;
    Ok(Page { name, section: 1, text: String::from_utf8_lossy(&text).into_owned() })
}

fn see_also(page: &mut Roff, own: &str) {
    let others = [("weir", "(1)"), ("weir.toml", "(5)"), ("weir-targets", "(7)")];
    let others: Vec<_> = others.into_iter().filter(|(name, _)| *name != own).collect();
    let mut words = Vec::new();
    for (at, (name, section)) in others.iter().enumerate() {
        let comma = if at + 1 < others.len() { ", " } else { "" };
        words.extend([bold(*name), roman(format!("{section}{comma}"))]);
    }
    page.control("SH", ["SEE ALSO"]).text(words);
}

/// A page that a text in Markdown makes.
fn page_of_text(name: &str, section: u8, about: &str, text: &str) -> Page {
    let number = section.to_string();
    let mut page = Roff::new();
    page.control("TH", [name, number.as_str(), "", SOURCE, MANUAL]);
    page.control("SH", ["NAME"]).text([roman(format!("{name} - {about}"))]);
    page.control("SH", ["DESCRIPTION"]);
    markdown::add(&mut page, text);
    see_also(&mut page, name);
    Page { name: name.to_owned(), section, text: page.render() }
}

fn targets() -> Page {
    let text = weir::page::targets();
    let about = "targets of weir: what a disk is";
    page_of_text("weir-targets", 7, about, &markdown::without_notice(&text))
}

const CONFIGURATION: &str = "\
The file that `weir serve -c FILE` reads, in TOML. The service reads `/etc/weir/weir.toml`. Relative
paths start where the daemon was started; for the service that is `/var/lib/weir`. An unknown key is
an error that names its line. `weir set --reload` has a running daemon read the file again and says
what needs a restart. Flags of `weir serve` go before the file.

";

const IN_FULL: &str = r#"
## Examples

```
[nbd]
listen = ["unix:/run/weir/nbd.sock,mode=0600"]

[[pool]]
name = "ssd0"
scheduler = "bfq"

[[group]]
path = "light"
weight = 100

[[group]]
path = "heavy"
weight = 300

[[disk]]
name = "vm1"
pool = "ssd0"
target = "file:vm1.img,size=20GiB"
group = "light"

[[disk]]
name = "vm2"
pool = "ssd0"
target = "file:vm2.img,size=20GiB"
group = "heavy"
```

## Files

- `/etc/weir/weir.toml`
- `/var/lib/weir`
- `/run/weir`
"#;

fn configuration() -> Page {
    let fronts = weir_front::page(&fronts::kinds());
    // Behind the words about the page itself.
    let start = fronts.find("## ").unwrap_or(fronts.len());
    let sections = weir_control::config::page();
    let text = format!("{CONFIGURATION}{sections}\n{}{IN_FULL}", &fronts[start..]);
    page_of_text("weir.toml", 5, "configuration of weir serve", &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_configuration_is_one() {
        let kinds = fronts::kinds();
        let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
        let example = IN_FULL.split("```").nth(1).expect("an example");
        weir_control::config::Config::parse(example, &names).expect("a configuration");
    }

    #[test]
    fn every_option_of_every_command_and_every_key_and_target_is_on_its_page() {
        let pages = pages().expect("pages");
        let page = |name: &str| {
            let page = pages.iter().find(|page| page.name == name);
            page.unwrap_or_else(|| panic!("no page {name}")).text.replace("\\-", "-")
        };
        fn check(command: &Command, page: &dyn Fn(&str) -> String) {
            let name = command.get_display_name().unwrap_or(command.get_name());
            let text = page(name);
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let shown = match arg.get_long() {
                    Some(long) => format!("--{long}"),
                    None => arg.get_value_names().expect("a name")[0].to_string(),
                };
                assert!(text.contains(&shown), "{shown} is not on the page {name}");
            }
            let first = examples(command).into_iter().next();
            let first = first.unwrap_or_else(|| panic!("{name} has no example"));
            assert!(text.contains(first.split('\'').next().expect("a part")), "{name}: {first}");
            command.get_subcommands().for_each(|below| check(below, page));
        }
        let mut weir = helpless(whole());
        weir.build();
        check(&weir, &page);
        let targets = page("weir-targets");
        for kind in weir::drivers::kinds() {
            let options = kind.options.iter().map(|option| option.name);
            // Of other names the syntax tells.
            for name in kind.names.iter().copied().take(1).chain(options) {
                assert!(targets.contains(name), "{name} is not on the page of targets");
            }
        }
        let file = page("weir.toml");
        for kind in fronts::kinds() {
            for name in kind.options.iter().map(|option| option.name) {
                assert!(file.contains(name), "{name} is not on the page of the configuration");
            }
        }
        assert!(file.contains("kernel_cmdline") && file.contains("wbps"), "{file}");
    }
}

//! `weir map`: mapped disks of a running daemon, in dm's words.

use clap::{Args, Subcommand};
use serde_json::json;

use crate::Failure;
use crate::control::Control;
use crate::output::{print, print_line};

/// Mapped disks of a running daemon: tables, status, messages.
///
/// Example: weir map status md0
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Map {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Prints the status of a mapped disk, or of all, as `dmsetup status` does.
    ///
    /// Example: weir map status md0
    #[command(verbatim_doc_comment)]
    Status(Show),
    /// Prints the table of a mapped disk, or of all, as `dmsetup table` does.
    ///
    /// Example: weir map table md0
    #[command(verbatim_doc_comment)]
    Table(Show),
    /// Sends a message to a mapped disk.
    ///
    /// Example: weir map message mpatha fail_path sda
    #[command(verbatim_doc_comment)]
    Message(Message),
}

#[derive(Debug, Args)]
struct Show {
    /// The disk; all mapped disks if not given.
    disk: Option<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    control: Control,
}

#[derive(Debug, Args)]
struct Message {
    /// The disk.
    disk: String,
    /// The message.
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    control: Control,
}

impl Map {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.what {
            What::Status(show) => show.run("status"),
            What::Table(show) => show.run("table"),
            What::Message(message) => {
                let path = format!("block/{}/weir/message", message.disk);
                let text = message.words.join(" ");
                Ok(message.control.connect()?.write(&path, text.as_bytes())?)
            }
        }
    }
}

impl Show {
    fn run(&self, file: &str) -> Result<(), Failure> {
        let mut client = self.control.connect()?;
        let disks = match &self.disk {
            Some(disk) => vec![disk.clone()],
            None => {
                let mut disks = Vec::new();
                for (disk, _) in client.list("block")? {
                    let files = client.list(&format!("block/{disk}"))?;
                    disks.extend(files.iter().any(|(name, _)| name == "dm").then_some(disk));
                }
                disks
            }
        };
        let mut told = Vec::new();
        for disk in disks {
            let text = client.read(&format!("block/{disk}/weir/{file}"))?;
            told.push((disk, text));
        }
        if self.json {
            let lines = |text: &str| text.lines().map(String::from).collect::<Vec<_>>();
            let disk = |(name, text): &(String, String)| json!({ "name": name, file: lines(text) });
            return print_line(&json!(told.iter().map(disk).collect::<Vec<_>>()).to_string());
        }
        let named = |(disk, text): &(String, String)| match self.disk {
            Some(_) => text.clone(),
            None => text.lines().map(|line| format!("{disk}: {line}\n")).collect(),
        };
        print(&told.iter().map(named).collect::<String>())
    }
}

//! The attributes of a logical unit, with Linux' names and texts where Linux has them.
//!
//! INQUIRY data and VPD pages are binary files in Linux. The tree is text, so here they are hex: 16
//! bytes a line.

use std::fmt::Write;

use weir_proto_scsi::SenseKey;
use weir_queue::{DeviceAttribute, DeviceAttributes, RESCAN};

use crate::disk::Unit;
use crate::unit::UnitState;

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// How one is written.
type Store = fn(&Unit, &str) -> Result<(), String>;

/// One attribute: its declaration, and how it is read.
struct Row {
    about: DeviceAttribute,
    /// `None`: the unit does not have it.
    show: fn(&Unit) -> Option<String>,
    store: Option<Store>,
}

impl Row {
    const fn tells(
        name: &'static str,
        unit: &'static str,
        meaning: &'static str,
        show: fn(&Unit) -> Option<String>,
    ) -> Row {
        let about = DeviceAttribute { name, unit, accepted: "", meaning };
        Row { about, show, store: None }
    }

    const fn takes(self, accepted: &'static str, store: Store) -> Row {
        Row { about: DeviceAttribute { accepted, ..self.about }, store: Some(store), ..self }
    }
}

/// The attributes, sorted by name.
const ROWS: &[Row] = &[
    Row::tells("access_state", "", "State of its target port group.", |unit| {
        unit.access().map(|access| access.state.name().to_owned())
    }),
    Row::tells("cache_type", "", "What its cache does with writes and reads.", |unit| {
        Some(cache_type(unit).to_owned())
    }),
    Row::tells("eh_timeout", "s", "Time of a command of the error handler.", |unit| {
        Some((unit.eh_timeout_ns() / NS_PER_S).to_string())
    })
    .takes("1 to 4294967295", |unit, text| match number::<u32>("eh_timeout", text)? {
        0 => Err("eh_timeout=0 is outside 1..=4294967295".to_owned()),
        seconds => {
            unit.set_eh_timeout(u64::from(seconds) * NS_PER_S);
            Ok(())
        }
    }),
    Row::tells("inquiry", "", "Its INQUIRY data, in hex.", |unit| {
        Some(hex(&unit.facts().inquiry_bytes))
    }),
    Row::tells("iodone_cnt", "commands", "Commands that ended, in hex.", |unit| {
        Some(format!("{:#x}", unit.counts().done))
    }),
    Row::tells("ioerr_cnt", "commands", "Commands that failed, in hex.", |unit| {
        Some(format!("{:#x}", unit.counts().errors))
    }),
    Row::tells("iorequest_cnt", "commands", "Commands sent, in hex.", |unit| {
        Some(format!("{:#x}", unit.counts().requests))
    }),
    Row::tells("iotmo_cnt", "commands", "Commands without an answer in time, in hex.", |unit| {
        Some(format!("{:#x}", unit.counts().timeouts))
    }),
    Row::tells("model", "", "Its product name.", |unit| Some(text(&unit.facts().inquiry.product))),
    Row::tells("node_name", "", "Name of its target's node.", |unit| {
        unit.host().transport().node_name()
    }),
    Row::tells("preferred_path", "", "Whether the target prefers this path.", |unit| {
        unit.access().map(|access| u8::from(access.preferred).to_string())
    }),
    Row::tells("queue_depth", "commands", "Commands it may have at once.", |unit| {
        Some(unit.queue_depth().to_string())
    })
    .takes("1 to the tags of its host", |unit, text| {
        unit.set_queue_depth(number("queue_depth", text)?)
    }),
    Row::tells(
        "queue_ramp_up_period",
        "ms",
        "Time after which a depth that the target has lowered rises by one.",
        |unit| Some((unit.queue_ramp_up_period_ns() / NS_PER_MS).to_string()),
    )
    .takes("0 to 4294967295", |unit, text| {
        let ms: u32 = number("queue_ramp_up_period", text)?;
        unit.set_queue_ramp_up_period(u64::from(ms) * NS_PER_MS);
        Ok(())
    }),
    Row::tells("queue_type", "", "How its commands are ordered: `simple`.", |_| {
        Some("simple".to_owned())
    }),
    Row::tells(RESCAN, "", "Written, the target is asked for its size anew.", |_| {
        Some(String::new())
    })
    .takes("`1`", |_, text| match text {
        "1" => Ok(()),
        _ => Err(format!("{RESCAN}={text} is not 1")),
    }),
    Row::tells("rev", "", "Its revision.", |unit| Some(text(&unit.facts().inquiry.revision))),
    Row::tells("scsi_level", "", "The standard it follows: its VERSION and one.", |unit| {
        Some((unit.facts().inquiry.version + 1).to_string())
    }),
    Row::tells("sense_keys", "", "Ends with sense data, by key.", |unit| Some(sense_keys(unit))),
    Row::tells("state", "", "Whether it is used.", |unit| Some(unit.state().name().to_owned()))
        .takes("`running` or `offline`", store_state),
    Row::tells("type", "", "Its device type: 0, a disk.", |unit| {
        Some(unit.facts().inquiry.peripheral.device_type().to_string())
    }),
    Row::tells("vendor", "", "Its vendor.", |unit| Some(text(&unit.facts().inquiry.vendor))),
    Row::tells("vpd_pg0", "", "The VPD pages it has, in hex.", |unit| page(unit, 0)),
    Row::tells("vpd_pg80", "", "Its serial number, in hex.", |unit| page(unit, 0x80)),
    Row::tells("vpd_pg83", "", "Its names, in hex.", |unit| page(unit, 0x83)),
    Row::tells("vpd_pgb0", "", "Its block limits, in hex.", |unit| page(unit, 0xb0)),
    Row::tells("vpd_pgb1", "", "Its characteristics, in hex.", |unit| page(unit, 0xb1)),
    Row::tells("vpd_pgb2", "", "Its provisioning, in hex.", |unit| page(unit, 0xb2)),
    Row::tells("wwid", "", "Its name in the world.", |unit| {
        unit.facts().wwid.as_ref().map(ToString::to_string)
    }),
];

/// The declarations of all attributes that a unit may have, for documents.
pub fn attributes() -> impl Iterator<Item = &'static DeviceAttribute> {
    ROWS.iter().map(|row| &row.about)
}

impl DeviceAttributes for Unit {
    fn list(&self) -> Vec<&'static DeviceAttribute> {
        let has = |row: &&Row| (row.show)(self).is_some();
        ROWS.iter().filter(has).map(|row| &row.about).collect()
    }

    fn show(&self, name: &str) -> Option<String> {
        let row = ROWS.iter().find(|row| row.about.name == name)?;
        (row.show)(self)
    }

    fn store(&self, name: &str, text: &str) -> Result<(), String> {
        let store = ROWS.iter().find(|row| row.about.name == name).and_then(|row| row.store);
        match store {
            Some(store) => store(self, text.trim()),
            None => Err(format!("{name} is read-only")),
        }
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    let bits = 8 * size_of::<T>();
    text.parse().map_err(|_| format!("{name}={text} is no number of {bits} bits"))
}

fn store_state(unit: &Unit, text: &str) -> Result<(), String> {
    let state = match text {
        "running" => UnitState::Running,
        "offline" => UnitState::Offline,
        _ => return Err(format!("state={text} is neither running nor offline")),
    };
    unit.set_state(state);
    Ok(())
}

/// A text of fixed length, filled with blanks as in Linux.
fn text(bytes: &[u8]) -> String {
    let printable = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { ' ' };
    bytes.iter().map(printable).collect()
}

fn cache_type(unit: &Unit) -> &'static str {
    let facts = unit.facts();
    let (writes, reads) = match facts.disk.caching {
        Some(page) => (page.write_cache(), page.read_cache()),
        None => (false, true),
    };
    match (writes, reads) {
        (false, true) => "write through",
        (false, false) => "none",
        (true, true) => "write back",
        (true, false) => "write back, no read (daft)",
    }
}

fn sense_keys(unit: &Unit) -> String {
    let counts = unit.counts().keys;
    let named = SenseKey::ALL.iter().zip(counts).filter(|(_, count)| *count > 0);
    named.map(|(key, count)| format!("{count} {key}")).collect::<Vec<_>>().join("\n")
}

fn page(unit: &Unit, code: u8) -> Option<String> {
    unit.facts().page(code).map(hex)
}

/// Bytes as text, 16 a line.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(3 * bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let gap = match at {
            0 => "",
            _ if at % 16 == 0 => "\n",
            _ => " ",
        };
        write!(text, "{gap}{byte:02x}").expect("a string takes all");
    }
    text
}

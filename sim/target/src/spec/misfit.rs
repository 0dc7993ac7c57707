//! What of a spec does not hold.

use weir_proto_scsi::alua::AccessState;

use super::{LunSpec, Spec};
use crate::fault::{Effect, Fault};
use crate::script::{Action, Event, LunChange};

/// A fault of a spec and the place of it: the table's name, its index, and the field.
pub(super) struct Misfit {
    pub(super) table: &'static str,
    pub(super) index: usize,
    pub(super) field: &'static str,
    pub(super) what: String,
}

impl Spec {
    pub(super) fn misfit(&self) -> Option<Misfit> {
        self.misfit_of_names()
            .or_else(|| self.misfit_of_ports())
            .or_else(|| self.misfit_of_luns())
            .or_else(|| self.misfit_of_script())
    }

    fn misfit_of_names(&self) -> Option<Misfit> {
        let of = |field, what| Some(Misfit { table: "", index: 0, field, what });
        let printable = |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if self.vendor.len() > 8 || !printable(&self.vendor) {
            let what = format!("vendor={:?} is not 8 printable characters or fewer", self.vendor);
            return of("vendor", what);
        }
        if self.product.len() > 16 || !printable(&self.product) {
            let what =
                format!("product={:?} is not 16 printable characters or fewer", self.product);
            return of("product", what);
        }
        if !(1..=65_536).contains(&self.queue_depth) {
            let what = format!("queue_depth={} is outside 1..=65536", self.queue_depth);
            return of("queue_depth", what);
        }
        None
    }

    fn misfit_of_ports(&self) -> Option<Misfit> {
        for (index, group) in self.groups.iter().enumerate() {
            let id = group.id;
            let of = |field, what| Some(Misfit { table: "group", index, field, what });
            if id == 0 {
                return of("id", "id=0 is outside 1..=65535".into());
            }
            if self.groups[..index].iter().any(|other| other.id == id) {
                return of("id", format!("id={id} is taken by another group"));
            }
            if matches!(group.state, AccessState::Transitioning | AccessState::Reserved(_)) {
                let name = group.state.name();
                return of("state", format!("state={name:?} is no state to begin with"));
            }
        }
        for (index, port) in self.ports.iter().enumerate() {
            let (id, group) = (port.id, port.group);
            let of = |field, what| Some(Misfit { table: "port", index, field, what });
            if id == 0 {
                return of("id", "id=0 is outside 1..=65535".into());
            }
            if self.ports[..index].iter().any(|other| other.id == id) {
                return of("id", format!("id={id} is taken by another port"));
            }
            if !self.groups.iter().any(|other| other.id == group) {
                return of("group", format!("group={group} is none of the groups"));
            }
            let of_group = self.ports.iter().filter(|other| other.group == group).count();
            if of_group > 255 {
                return of("group", format!("group={group} has {of_group} ports, more than 255"));
            }
        }
        if self.ports.is_empty() {
            let what = "port=[] has no port, at least 1 is needed".into();
            return Some(Misfit { table: "", index: 0, field: "port", what });
        }
        None
    }

    fn misfit_of_luns(&self) -> Option<Misfit> {
        for (index, lun) in self.luns.iter().enumerate() {
            let LunSpec { number, size, block, queue_depth, write_same_blocks_max, .. } = *lun;
            let of = |field, what| Some(Misfit { table: "lun", index, field, what });
            if number > 16_383 {
                return of("number", format!("number={number} is outside 0..=16383"));
            }
            if self.luns[..index].iter().any(|other| other.number == number) {
                return of("number", format!("number={number} is taken by another LUN"));
            }
            if !matches!(block, 512 | 4096) {
                return of("block", format!("block={block} is not 512 or 4096"));
            }
            if size == 0 || size % u64::from(block) != 0 {
                let what = format!("size={size} is no multiple of the block, {block}, above 0");
                return of("size", what);
            }
            if !(1..=65_536).contains(&queue_depth) {
                return of(
                    "queue_depth",
                    format!("queue_depth={queue_depth} is outside 1..=65536"),
                );
            }
            if write_same_blocks_max == 0 {
                let what = "write_same_blocks_max=0 is below 1".into();
                return of("write_same_blocks_max", what);
            }
        }
        None
    }

    fn misfit_of_script(&self) -> Option<Misfit> {
        let of_fault = |(index, fault): (usize, &Fault)| {
            let (field, what) = self.misfit_of_fault(fault)?;
            Some(Misfit { table: "fault", index, field, what })
        };
        let of_event = |(index, event): (usize, &Event)| {
            let (field, what) = self.misfit_of_action(&event.action)?;
            Some(Misfit { table: "event", index, field, what })
        };
        let fault = self.faults.iter().enumerate().find_map(of_fault);
        fault.or_else(|| self.events.iter().enumerate().find_map(of_event))
    }

    /// A value that does not fit the spec, and its field.
    pub(crate) fn misfit_of_fault(&self, fault: &Fault) -> Option<(&'static str, String)> {
        if let Some(port) = fault.port.filter(|&id| !self.ports.iter().any(|port| port.id == id)) {
            return Some(("port", format!("port={port} is none of the ports")));
        }
        if let Some(number) = fault.lun
            && !self.luns.iter().any(|lun| lun.number == number)
        {
            return Some(("lun", format!("lun={number} is none of the LUNs")));
        }
        if fault.chance > 100 {
            return Some(("chance", format!("chance={} is outside 0..=100", fault.chance)));
        }
        let (Effect::Sense { key, .. } | Effect::Deferred { key, .. }) = fault.effect else {
            let (medium, nowhere) = (fault.effect == Effect::Medium, fault.first_block.is_none());
            let what = "effect=\"medium\" takes first_block, which is not given";
            return (medium && nowhere).then(|| ("effect", what.to_owned()));
        };
        (key > 15).then(|| ("effect", format!("key={key} is outside 0..=15")))
    }

    /// A value that does not fit the spec, and its field.
    pub(crate) fn misfit_of_action(&self, action: &Action) -> Option<(&'static str, String)> {
        let what = match *action {
            Action::PowerCut => return None,
            Action::Group { id, state } => {
                if matches!(state, AccessState::Transitioning | AccessState::Reserved(_)) {
                    format!("state={:?} is no state to go to", state.name())
                } else if self.groups.iter().any(|group| group.id == id) {
                    return None;
                } else {
                    format!("group id={id} is none of the groups")
                }
            }
            Action::Port { id, .. } if self.ports.iter().any(|port| port.id == id) => return None,
            Action::Port { id, .. } => format!("port id={id} is none of the ports"),
            Action::Lun { number, change } => {
                let Some(lun) = self.luns.iter().find(|lun| lun.number == number) else {
                    return Some(("action", format!("LUN number={number} is none of the LUNs")));
                };
                match change {
                    LunChange::Resize(size) if size == 0 || size % u64::from(lun.block) != 0 => {
                        format!("resize={size} is no multiple of the block, {}, above 0", lun.block)
                    }
                    _ => return None,
                }
            }
        };
        Some(("action", what))
    }
}

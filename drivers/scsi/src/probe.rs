//! Identifies a logical unit: the conversation from INQUIRY to REPORT TARGET PORT GROUPS, with no
//! time and no way of its own.
//!
//! A target that is older than a command refuses it, and that is an answer: pages it does not list
//! are not asked for, and of a refused command nothing is known. Only three things end a probe:
//! there is no connection, there is no disk, or INQUIRY itself fails. A disk that is not ready,
//! such as one behind a port in standby, is known by its name and has no capacity yet.
//!
//! Order and retries: spec of Linux' scan, with READ CAPACITY(16) first from SPC-3 on.

mod facts;
mod luns;
mod step;

pub(crate) use facts::GROUPS_LEN_MAX;
pub use facts::{Access, Facts};
pub use luns::LunProbe;

use std::fmt;

use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{AdditionalSense, Lun, ScsiCommand, ScsiStatus, Sense, SenseKey};

use crate::transport::{Asked, Asker};
use step::Step;

/// Attempts at one command while the target says that a retry may help.
const ATTEMPTS: u8 = 5;

/// Why a logical unit could not be identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeError {
    /// The command that failed.
    pub command: String,
    /// How.
    pub how: String,
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.command, self.how)
    }
}

/// The answer to one command of a probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard<'a> {
    delivery: Delivery,
    status: ScsiStatus,
    data: &'a [u8],
    sense: Option<Sense>,
}

impl<'a> Heard<'a> {
    pub(crate) fn new(
        delivery: Delivery,
        status: ScsiStatus,
        data: &'a [u8],
        sense: &[u8],
    ) -> Heard<'a> {
        Heard { delivery, status, data, sense: Sense::decode(sense).ok() }
    }

    /// The data, if the command succeeded.
    pub(crate) fn good(&self) -> Option<&'a [u8]> {
        let recovered = self.sense.is_some_and(|sense| {
            !sense.deferred && matches!(sense.key, SenseKey::NoSense | SenseKey::RecoveredError)
        });
        let good = self.status == ScsiStatus::GOOD
            || self.status == ScsiStatus::CHECK_CONDITION && recovered;
        (self.delivery == Delivery::Delivered && good).then_some(self.data)
    }

    /// Whether the same command may succeed now.
    pub(crate) fn may_retry(&self) -> bool {
        match self.delivery {
            Delivery::Delivered => {}
            Delivery::NoConnect | Delivery::BadTarget | Delivery::FailFast => return false,
            _ => return true,
        }
        let key = self.sense.map(|sense| sense.key);
        match self.status {
            ScsiStatus::BUSY | ScsiStatus::TASK_SET_FULL | ScsiStatus::TASK_ABORTED => true,
            ScsiStatus::CHECK_CONDITION => {
                self.sense.is_some_and(|sense| sense.deferred)
                    || matches!(key, Some(SenseKey::UnitAttention | SenseKey::AbortedCommand))
            }
            _ => false,
        }
    }

    /// The code, if the logical unit is not ready.
    fn not_ready(&self) -> Option<AdditionalSense> {
        let sense = self.sense.filter(|_| self.status == ScsiStatus::CHECK_CONDITION)?;
        (sense.key == SenseKey::NotReady).then_some(sense.code)
    }

    /// Whether the logical unit knows no such command, or not with these fields.
    fn is_refusal(&self) -> bool {
        let sense = self.sense.filter(|_| self.status == ScsiStatus::CHECK_CONDITION);
        sense.is_some_and(|sense| !sense.deferred && sense.key == SenseKey::IllegalRequest)
    }

    /// How it failed, in words.
    pub(crate) fn words(&self) -> String {
        match (self.delivery, self.sense) {
            (Delivery::Delivered, Some(sense)) => sense.to_string(),
            (Delivery::Delivered, None) => format!("status {}", self.status),
            (delivery, _) => format!("{delivery:?}"),
        }
    }
}

/// The conversation.
#[derive(Debug)]
pub struct Probe {
    step: Step,
    /// Attempts at the command of this step.
    attempts: u8,
    /// It was started, with START STOP UNIT.
    started: bool,
    facts: Facts,
    /// The pages still to be asked for.
    pages: Vec<u8>,
    failure: Option<ProbeError>,
}

impl Probe {
    /// Of a logical unit.
    #[must_use]
    pub fn new(lun: Lun) -> Probe {
        Probe {
            step: Step::Inquiry { allocation: weir_proto_scsi::inquiry::INQUIRY_LEN as u16 },
            attempts: 0,
            started: false,
            facts: Facts::new(lun),
            pages: Vec::new(),
            failure: None,
        }
    }

    /// What it found.
    ///
    /// # Errors
    /// The command that failed, and how.
    pub fn finish(mut self) -> Result<Facts, ProbeError> {
        self.facts.take_for_safe();
        match (self.failure, self.step) {
            (Some(failure), _) => Err(failure),
            (None, Step::Done) => Ok(self.facts),
            (None, step) => Err(ProbeError {
                command: step.words(),
                how: "the conversation was cut off".into(),
            }),
        }
    }

    fn go(&mut self, step: Step) {
        (self.step, self.attempts) = (step, 0);
    }

    fn fail(&mut self, heard: &Heard<'_>) {
        self.failure = Some(ProbeError { command: self.step.words(), how: heard.words() });
        self.go(Step::Done);
    }

    /// Deals with an answer that no retry will better.
    fn take(&mut self, heard: &Heard<'_>) {
        match self.step {
            Step::Inquiry { allocation } => self.take_inquiry(allocation, heard),
            Step::Ready => self.take_ready(heard),
            Step::Start => self.go(Step::Ready),
            Step::Capacity16 => match heard.good() {
                Some(data) if self.facts.take_capacity_16(data) => self.begin_pages(),
                _ => self.go(Step::Capacity10),
            },
            Step::Capacity10 => {
                if let Some(data) = heard.good() {
                    if self.facts.take_capacity_10(data) {
                        return self.begin_pages();
                    }
                    // The last block does not fit: the other form has it, whatever the edition.
                    return self.go(Step::CapacityLarge);
                }
                self.begin_pages();
            }
            Step::CapacityLarge => {
                if let Some(data) = heard.good() {
                    self.facts.take_capacity_16(data);
                }
                self.begin_pages();
            }
            Step::Page { code, allocation } => self.take_page(code, allocation, heard),
            Step::ModeAll => {
                if let Some(data) = heard.good() {
                    self.facts.take_mode(data, false);
                }
                self.go(Step::ModeCaching);
            }
            Step::ModeCaching => {
                match heard.good() {
                    Some(data) => self.facts.take_mode(data, true),
                    // It has no such page.
                    None if heard.is_refusal() => {}
                    None => self.facts.take_for_cached(),
                }
                self.go(Step::WriteSame16);
            }
            Step::WriteSame16 => {
                self.facts.disk.write_same_16 = heard.good().is_some_and(step::is_supported);
                self.go(Step::WriteSame10);
            }
            Step::WriteSame10 => {
                self.facts.disk.write_same_10 = heard.good().is_some_and(step::is_supported);
                self.begin_groups();
            }
            Step::PortGroups { allocation } => {
                if let Some(data) = heard.good()
                    && let Some(more) = self.facts.take_port_groups(data, allocation)
                {
                    return self.go(Step::PortGroups { allocation: more });
                }
                self.go(Step::Done);
            }
            Step::Done => {}
        }
    }

    fn take_inquiry(&mut self, allocation: u16, heard: &Heard<'_>) {
        let Some(data) = heard.good() else {
            // One that refuses the long form keeps what the short one said.
            let known = allocation > weir_proto_scsi::inquiry::INQUIRY_LEN as u16;
            return if known { self.go(Step::Ready) } else { self.fail(heard) };
        };
        match self.facts.take_inquiry(data, allocation) {
            Err(how) => {
                self.failure = Some(ProbeError { command: self.step.words(), how });
                self.go(Step::Done);
            }
            Ok(Some(more)) => self.go(Step::Inquiry { allocation: more }),
            Ok(None) => self.go(Step::Ready),
        }
    }

    fn take_ready(&mut self, heard: &Heard<'_>) {
        let stopped = AdditionalSense::INITIALIZING_COMMAND_REQUIRED;
        if heard.not_ready() == Some(stopped) && !self.started {
            self.started = true;
            return self.go(Step::Start);
        }
        let sixteen = self.facts.inquiry.has_vpd();
        self.go(if sixteen { Step::Capacity16 } else { Step::Capacity10 });
    }

    fn begin_pages(&mut self) {
        match self.facts.inquiry.has_vpd() {
            true => self.go(Step::Page { code: 0, allocation: step::PAGE_LEN }),
            false => self.go(Step::ModeAll),
        }
    }

    fn take_page(&mut self, code: u8, allocation: u16, heard: &Heard<'_>) {
        if let Some(data) = heard.good() {
            if let Some(more) = self.facts.take_page(code, data, allocation) {
                return self.go(Step::Page { code, allocation: more });
            }
            if code == weir_proto_scsi::vpd::SUPPORTED_PAGES {
                self.pages = step::pages_of(data);
            }
        }
        match self.pages.pop() {
            Some(code) => self.go(Step::Page { code, allocation: step::PAGE_LEN }),
            None => self.go(Step::ModeAll),
        }
    }

    fn begin_groups(&mut self) {
        use weir_proto_scsi::inquiry::Tpgs;
        match self.facts.inquiry.tpgs {
            Tpgs::None => self.go(Step::Done),
            Tpgs::Implicit | Tpgs::Explicit | Tpgs::Both => {
                self.go(Step::PortGroups { allocation: step::GROUPS_LEN });
            }
        }
    }
}

impl Asker for Probe {
    fn next(&mut self) -> Option<(Lun, Vec<u8>, Asked)> {
        let (command, data): (ScsiCommand, u32) = self.step.command()?;
        let cdb = command.encode().expect("fields that fit");
        let asked = if data == 0 { Asked::Nothing } else { Asked::In(data) };
        Some((self.facts.lun, cdb.bytes().to_vec(), asked))
    }

    fn answer(&mut self, delivery: Delivery, status: ScsiStatus, data: &[u8], sense: &[u8]) {
        let heard = Heard::new(delivery, status, data, sense);
        self.attempts += 1;
        if heard.may_retry() && self.attempts < ATTEMPTS {
            return;
        }
        if delivery != Delivery::Delivered {
            return self.fail(&heard);
        }
        self.take(&heard);
    }
}

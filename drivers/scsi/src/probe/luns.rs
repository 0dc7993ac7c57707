//! Which logical units a target has.

use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::report_luns::LunList;
use weir_proto_scsi::{Lun, ScsiCommand, ScsiStatus};

use super::{ATTEMPTS, Heard, ProbeError};
use crate::transport::{Asked, Asker};

/// Bytes that are asked for first: 511 logical units.
const FIRST_LEN: u32 = 4096;

/// Bytes that are asked for at most: 16,383 logical units, as many as flat addresses count.
const LEN_MAX: u32 = 128 << 10;

/// The conversation: REPORT LUNS to LUN 0, or else to the well-known logical unit; a target that
/// knows neither has LUN 0.
#[derive(Debug)]
pub struct LunProbe {
    to: Option<Lun>,
    allocation: u32,
    attempts: u8,
    luns: Vec<Lun>,
    failure: Option<ProbeError>,
}

impl Default for LunProbe {
    fn default() -> LunProbe {
        LunProbe {
            to: Some(Lun::ZERO),
            allocation: FIRST_LEN,
            attempts: 0,
            luns: Vec::new(),
            failure: None,
        }
    }
}

impl LunProbe {
    /// What it found.
    ///
    /// # Errors
    /// The target could not be asked.
    pub fn finish(self) -> Result<Vec<Lun>, ProbeError> {
        self.failure.map_or(Ok(self.luns), Err)
    }
}

impl Asker for LunProbe {
    fn next(&mut self) -> Option<(Lun, Vec<u8>, Asked)> {
        let command = ScsiCommand::ReportLuns { select: 0, allocation: self.allocation };
        let cdb = command.encode().expect("fields that fit");
        Some((self.to?, cdb.bytes().to_vec(), Asked::In(self.allocation)))
    }

    fn answer(&mut self, delivery: Delivery, status: ScsiStatus, data: &[u8], sense: &[u8]) {
        let heard = Heard::new(delivery, status, data, sense);
        self.attempts += 1;
        if heard.may_retry() && self.attempts < ATTEMPTS {
            return;
        }
        self.attempts = 0;
        if delivery != Delivery::Delivered {
            let command = "REPORT LUNS".to_owned();
            self.failure = Some(ProbeError { command, how: heard.words() });
            self.to = None;
            return;
        }
        let list = heard.good().and_then(|data| LunList::decode(data).ok());
        let Some(list) = list else {
            let first = self.to == Some(Lun::ZERO);
            self.to = first.then_some(Lun::REPORT_LUNS);
            if !first {
                self.luns = vec![Lun::ZERO];
            }
            return;
        };
        let whole = list.whole_len().min(LEN_MAX);
        if list.is_cut() && whole > self.allocation {
            self.allocation = whole;
            return;
        }
        self.luns = list.luns().collect();
        self.luns.sort_unstable();
        self.luns.dedup();
        self.to = None;
    }
}

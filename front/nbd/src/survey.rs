//! Finds out what is allocated: the answers to BLOCK_STATUS.
//!
//! A driver may block for as long as it likes over that question, so each export has a thread of
//! its own for it, started with the first question.

use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use weir_bio::SECTOR;
use weir_proto_nbd::server::Range;
use weir_proto_nbd::wire::{Extent, StatusFlags};
use weir_queue::Device;

/// Extents from the start of the range on, or why there are none.
pub(crate) type Found = Result<Vec<Extent>, String>;

/// The first step of a survey, sectors: 1 GiB. Each step doubles while answers stay short, so that
/// neither a vast empty disk takes long nor a fragmented one much memory.
const STEP: u64 = 1 << 21;

/// An answer above so many extents is long.
const LONG: usize = 1 << 12;

/// A reply has at most about so many extents; the client asks again behind them.
const ENOUGH: usize = 1 << 16;

type Job = Box<dyn FnOnce(&Device) + Send>;

/// See the module.
pub(crate) struct Surveyor {
    device: Device,
    jobs: OnceLock<Option<Sender<Job>>>,
}

impl Surveyor {
    pub(crate) fn new(device: Device) -> Surveyor {
        Surveyor { device, jobs: OnceLock::new() }
    }

    /// Surveys `range`, which is inside the device and of whole sectors, and hands what was found
    /// to `answer` on another thread; only the first extent has to be right if `one`.
    pub(crate) fn ask(&self, range: Range, one: bool, answer: impl FnOnce(Found) + Send + 'static) {
        let jobs = self.jobs.get_or_init(|| start(self.device.clone()));
        let job: Job = Box::new(move |device| answer(survey(device, range, one)));
        match jobs {
            Some(jobs) => jobs.send(job).expect("the surveyor's thread lives as long as it"),
            // Without a thread nothing can be found out, and "data" is always a true answer.
            None => job(&self.device),
        }
    }
}

fn start(device: Device) -> Option<Sender<Job>> {
    let (sender, receiver) = channel::<Job>();
    let name = format!("weir-map-{}", device.config().name);
    let work = move || receiver.into_iter().for_each(|job| job(&device));
    match std::thread::Builder::new().name(name).spawn(work) {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::error!(%error, "no thread for block status: it is answered where it is asked");
            None
        }
    }
}

fn survey(device: &Device, range: Range, one: bool) -> Found {
    let (mut sector, end) = (range.offset / SECTOR, (range.offset + range.length) / SECTOR);
    let mut step = STEP;
    let mut extents: Vec<Extent> = Vec::new();
    while sector < end && extents.len() < ENOUGH && !(one && extents.len() > 1) {
        let sectors = step.min(end - sector);
        let found = device.allocation(sector, sectors).map_err(|error| error.to_string())?;
        if found.len() < LONG {
            step = step.saturating_mul(2);
        }
        let before = sector;
        for extent in found {
            sector += extent.sectors;
            join(&mut extents, extent);
        }
        if sector == before {
            return Err(format!("the driver found nothing at sector {sector}"));
        }
    }
    Ok(extents)
}

fn join(extents: &mut Vec<Extent>, found: weir_queue::Extent) {
    let mut flags = StatusFlags::EMPTY;
    if found.hole {
        flags = flags | StatusFlags::HOLE;
    }
    if found.zero {
        flags = flags | StatusFlags::ZERO;
    }
    let length = found.sectors * SECTOR;
    match extents.last_mut() {
        Some(last) if last.flags == flags => last.length += length,
        _ => extents.push(Extent { length, flags }),
    }
}

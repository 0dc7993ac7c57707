//! A logical unit: what it is, and the state it is in.

use weir_bio::{Nanos, Prng};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::{AdditionalSense, Lun};

use crate::image::Image;
use crate::reserve::Reservations;
use crate::spec::LunSpec;

/// The seed of names is apart from that of the dice.
const NAMES: u64 = 0x6e61_6d65_7370_6163;

/// Whether it takes commands on blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    /// It becomes ready by itself.
    Becoming,
    /// START STOP UNIT makes it ready.
    Stopped,
}

impl Readiness {
    pub(crate) const fn refusal(self) -> Option<AdditionalSense> {
        match self {
            Self::Ready => None,
            Self::Becoming => Some(AdditionalSense::BECOMING_READY),
            Self::Stopped => Some(AdditionalSense::INITIALIZING_COMMAND_REQUIRED),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Unit {
    pub spec: LunSpec,
    /// It is in the map of logical units.
    pub present: bool,
    pub readiness: Readiness,
    /// WCE as MODE SELECT has left it.
    pub write_cache: bool,
    pub blocks: u64,
    pub image: Image,
    pub reservations: Reservations,
    /// Commands in its task set.
    pub tasks: u32,
    /// Its bandwidth is used until then.
    pub busy_until: Nanos,
    /// Its name, of the locally assigned kind of NAA.
    pub naa: u64,
}

impl Unit {
    pub(crate) fn new(spec: LunSpec, seed: u64) -> Self {
        let name = Prng::new(seed ^ NAMES).next();
        Self {
            present: true,
            readiness: Readiness::Ready,
            write_cache: spec.write_cache,
            blocks: spec.size / u64::from(spec.block),
            image: Image::default(),
            reservations: Reservations::default(),
            tasks: 0,
            busy_until: Nanos::ZERO,
            naa: 3 << 60 | (name & 0x0fff_ffff_ffff) << 16 | u64::from(spec.number),
            spec,
        }
    }

    pub(crate) fn lun(&self) -> Lun {
        Lun::new(self.spec.number).expect("a number of 14 bits")
    }

    /// The store of a thin disk, pages; `None` of one that is fully provisioned.
    pub(crate) fn thin_pages(&self) -> Option<u64> {
        (self.spec.thin != 0).then(|| self.spec.thin / weir_bio::PAGE as u64)
    }

    pub(crate) fn capacity(&self) -> Capacity {
        let thin = self.spec.thin != 0;
        Capacity {
            last_lba: self.blocks - 1,
            block_len: self.spec.block,
            physical_exponent: if self.spec.block == 512 { 3 } else { 0 },
            provisioned: thin,
            reads_zeros: thin,
            ..Capacity::default()
        }
    }

    /// A reset: mode pages have their defaults again, and it is started.
    pub(crate) fn reset(&mut self) {
        self.write_cache = self.spec.write_cache;
        if self.readiness == Readiness::Stopped {
            self.readiness = Readiness::Ready;
        }
    }
}

//! The exports: which device is served under which name, and its description for clients.

use std::sync::{Arc, Mutex, PoisonError};

use weir_access::{Address, Allow};
use weir_bio::{GroupId, IoPrio, Limits};
use weir_live::PollRule;
use weir_proto_nbd::server as proto;
use weir_proto_nbd::wire::{BlockSizes, PAYLOAD_MAX_DEFAULT, TransmissionFlags};
use weir_queue::Device;

use crate::survey::Surveyor;

/// Preferred block of a device that has no opinion, bytes.
const PREFERRED: u32 = 4096;

/// The largest minimum block the protocol knows, bytes.
const MINIMUM_BLOCK_MAX: u32 = 1 << 16;

/// A name clients can ask for, and the device behind it. Several exports may have one device.
#[derive(Clone)]
pub struct Export {
    /// The name.
    pub name: String,
    /// Words for a person; may be empty.
    pub description: String,
    /// The device. Its lanes have to be open before clients come.
    pub device: Device,
    /// Refuse writes even if the device takes them.
    pub read_only: bool,
    /// Offer several connections. True by default: a flush on one covers what every other was
    /// answered, as there is one device behind them all.
    pub multi_conn: bool,
    /// Requests are multiples of this power of two, bytes; others are refused. By default 1: what
    /// begins or ends inside a block of the device is carried out as read-modify-write.
    pub minimum_block: u32,
    /// The group its clients' I/O counts in.
    pub group: GroupId,
    /// The priority of its clients' I/O.
    pub ioprio: IoPrio,
    /// Its clients' writes are background writes, as write-back is: SYNC is taken from them.
    pub background: bool,
    /// The only addresses it is served at; none: every address of [`Scope::All`](crate::Scope).
    pub listen: Vec<Address>,
    /// The clients that may use it.
    pub allow: Allow,
    /// The part of the device that it is.
    pub slice: Slice,
    /// How the reactors that serve its clients wait. The strongest rule among those of the clients
    /// of a reactor holds; by default it is the host's.
    pub polling: PollRule,
}

/// A part of a device, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Where it begins.
    pub offset: u64,
    /// How long it is; `None`: to the end of the device, wherever that is.
    pub size: Option<u64>,
}

impl Slice {
    /// Why it is no part of a device with these limits, for clients that are told this minimum
    /// block.
    ///
    /// # Errors
    /// The value and its bound.
    pub fn check(&self, limits: &Limits, minimum: u32) -> Result<(), String> {
        let (logical, whole) = (limits.logical_block_size, limits.size().bytes());
        let (block, what) = match minimum > logical {
            true => (minimum, "export's minimum block"),
            false => (logical, "disk's logical block"),
        };
        let block = u64::from(block);
        let Slice { offset, size } = *self;
        if *self == Slice::default() {
            return Ok(());
        }
        for (name, value) in [("offset", offset), ("size", size.unwrap_or(0))] {
            if !value.is_multiple_of(block) {
                return Err(format!(
                    "{name}={value} is no multiple of the {what} of {block} bytes"
                ));
            }
        }
        if offset >= whole {
            return Err(format!("offset={offset} is not below the disk's size of {whole} bytes"));
        }
        match size.map(|size| (size, offset.checked_add(size))) {
            Some((0, _)) => Err(String::from("size=0 is no size")),
            Some((size, end)) if end.is_none_or(|end| end > whole) => Err(format!(
                "offset={offset} and size={size} end behind the disk, which has {whole} bytes"
            )),
            _ => Ok(()),
        }
    }
}

impl Export {
    /// A writable export in the root group, without a priority.
    #[must_use]
    pub fn new(name: impl Into<String>, device: Device) -> Export {
        Export {
            name: name.into(),
            description: String::new(),
            device,
            read_only: false,
            multi_conn: true,
            minimum_block: 1,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            background: false,
            listen: Vec::new(),
            allow: Allow::default(),
            slice: Slice::default(),
            polling: PollRule::default(),
        }
    }

    /// The description of the export for clients.
    pub(crate) fn advertised(&self) -> proto::Export {
        let limits = self.device.limits();
        let durable = !self.device.is_durability_disabled();
        proto::Export {
            name: self.name.clone(),
            description: self.description.clone(),
            size: size_of(&self.device, self.slice, self.minimum_block),
            flags: self.flags(&limits, durable),
            block: block_sizes(&limits, self.minimum_block),
            device_block: limits.logical_block_size,
            allocation: true,
        }
    }

    fn flags(&self, limits: &Limits, durable: bool) -> TransmissionFlags {
        use TransmissionFlags as F;
        let zeroes = limits.max_write_zeroes_sectors > 0;
        let offered = [
            (F::READ_ONLY, self.read_only || limits.read_only),
            // Without them a client knows that nothing it writes is safe; with them it would be
            // told so of data that is not (barriers=off).
            (F::SEND_FLUSH, durable),
            (F::SEND_FUA, durable),
            (F::ROTATIONAL, limits.rotational),
            (F::SEND_TRIM, limits.max_discard_sectors() > 0),
            (F::SEND_WRITE_ZEROES, zeroes),
            (F::SEND_FAST_ZERO, zeroes && limits.fast_write_zeroes),
            (F::CAN_MULTI_CONN, self.multi_conn),
            (F::SEND_CACHE, true),
        ];
        let on = offered.into_iter().filter(|&(_, on)| on);
        on.fold(F::EMPTY, |flags, (flag, _)| flags | flag)
    }
}

/// One export as connections use it.
pub(crate) struct Served {
    pub(crate) name: String,
    pub(crate) device: Device,
    pub(crate) group: GroupId,
    pub(crate) ioprio: IoPrio,
    pub(crate) background: bool,
    pub(crate) surveyor: Surveyor,
    pub(crate) listen: Vec<Address>,
    pub(crate) allow: Allow,
    pub(crate) slice: Slice,
    polling: Mutex<PollRule>,
}

impl Served {
    pub(crate) fn new(export: &Export) -> Served {
        Served {
            name: export.name.clone(),
            device: export.device.clone(),
            group: export.group,
            ioprio: export.ioprio,
            background: export.background,
            surveyor: Surveyor::new(export.device.clone()),
            listen: export.listen.clone(),
            allow: export.allow.clone(),
            slice: export.slice,
            polling: Mutex::new(export.polling),
        }
    }

    /// How the reactors that serve its clients wait.
    pub(crate) fn polling(&self) -> PollRule {
        *self.polling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another rule for clients that come from now on; whether it is another.
    pub(crate) fn set_polling(&self, rule: PollRule) -> bool {
        let mut polling = self.polling.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *polling, rule) != rule
    }
}

/// The exports at one time: those that come and go make another list.
#[derive(Default)]
pub(crate) struct Exports {
    pub(crate) served: Vec<Arc<Served>>,
    advertised: Arc<[proto::Export]>,
}

impl Exports {
    pub(crate) fn new(exports: &[Export]) -> Exports {
        Exports::default().with(exports)
    }

    /// These and others behind them.
    pub(crate) fn with(&self, others: &[Export]) -> Exports {
        let served = others.iter().map(|export| Arc::new(Served::new(export)));
        let advertised = others.iter().map(Export::advertised);
        Exports {
            served: self.served.iter().cloned().chain(served).collect(),
            advertised: self.advertised.iter().cloned().chain(advertised).collect(),
        }
    }

    /// Those that stay.
    pub(crate) fn only(&self, stays: impl Fn(&Served) -> bool) -> Exports {
        let both = self.served.iter().zip(self.advertised.iter());
        let (served, advertised): (Vec<_>, Vec<_>) = both
            .filter(|(served, _)| stays(served))
            .map(|(served, told)| (Arc::clone(served), told.clone()))
            .unzip();
        Exports { served, advertised: advertised.into() }
    }

    /// As a client that comes now is told of them: a disk may have grown.
    pub(crate) fn advertised_now(&self) -> Arc<[proto::Export]> {
        let told = self.served.iter().zip(self.advertised.iter());
        let sizes =
            told.map(|(served, told)| size_of(&served.device, served.slice, told.block.minimum));
        if self.advertised.iter().map(|export| export.size).eq(sizes.clone()) {
            return Arc::clone(&self.advertised);
        }
        let grown =
            |(export, size): (&proto::Export, u64)| proto::Export { size, ..export.clone() };
        self.advertised.iter().zip(sizes).map(grown).collect()
    }
}

/// The size of a part of a device as it is now in whole minimum blocks, bytes.
pub(crate) fn size_of(device: &Device, slice: Slice, minimum: u32) -> u64 {
    let minimum = u64::from(minimum.max(1));
    let there = device.limits().size().bytes().saturating_sub(slice.offset);
    slice.size.map_or(there, |size| size.min(there)) / minimum * minimum
}

/// The preferred size is what the device does best.
fn block_sizes(limits: &Limits, minimum: u32) -> BlockSizes {
    let minimum = minimum.clamp(1, MINIMUM_BLOCK_MAX);
    let best = if limits.io_opt.is_power_of_two() { limits.io_opt } else { 0 };
    let preferred = best.max(limits.physical_block_size).max(PREFERRED).max(minimum);
    BlockSizes {
        minimum,
        preferred: preferred.min(PAYLOAD_MAX_DEFAULT),
        maximum: PAYLOAD_MAX_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_whole_blocks_inside_the_disk_and_else_refused_with_value_and_bound() {
        let limits = Limits { capacity: 2048, logical_block_size: 4096, ..Limits::default() };
        let check = |offset, size| Slice { offset, size }.check(&limits, 1);
        for (offset, size) in [
            (0, None),
            (4096, None),
            (0, Some(1 << 20)),
            (1_044_480, Some(4096)),
            (8192, Some(8192)),
        ] {
            assert_eq!(check(offset, size), Ok(()), "{offset} {size:?}");
        }
        for (offset, size, told) in [
            (512, None, "offset=512 is no multiple of the disk's logical block of 4096 bytes"),
            (0, Some(6144), "size=6144 is no multiple of"),
            (1 << 20, None, "offset=1048576 is not below the disk's size of 1048576 bytes"),
            (0, Some(0), "size=0 is no size"),
            (4096, Some(1 << 20), "end behind the disk, which has 1048576 bytes"),
            (4096, Some(u64::MAX - 4095), "end behind the disk"),
        ] {
            let why = check(offset, size).expect_err(told);
            assert!(why.contains(told), "{why}");
        }
        // A disk of which the last block is a part only is served whole.
        let odd = Limits { padding: 512, ..limits };
        assert_eq!(Slice::default().check(&odd, 4096), Ok(()));
        // Nor does it end inside what its clients are told is a block.
        let small = Limits { logical_block_size: 512, ..limits };
        for (offset, size, name) in [(512, None, "offset=512"), (0, Some(6144), "size=6144")] {
            let slice = Slice { offset, size };
            assert_eq!(slice.check(&small, 512), Ok(()));
            let why = slice.check(&small, 4096).expect_err(name);
            let told = "is no multiple of the export's minimum block of 4096 bytes";
            assert!(why.starts_with(name) && why.contains(told), "{why}");
        }
    }

    #[test]
    fn block_sizes_are_valid_whatever_the_device_says() {
        for (logical, physical, io_opt) in [
            (512, 512, 0),
            (4096, 4096, 0),
            (512, 4096, 3 << 16),
            (512, 512, 1 << 20),
            (512, 512, 1 << 30),
        ] {
            let limits = Limits {
                logical_block_size: logical,
                physical_block_size: physical,
                io_opt,
                ..Limits::default()
            };
            for minimum in [1, 512, 4096, 65536] {
                let sizes = block_sizes(&limits, minimum);
                assert!(sizes.is_valid(), "{sizes:?}");
                assert_eq!(sizes.minimum, minimum);
                assert!(sizes.preferred >= physical.max(4096));
            }
        }
    }
}

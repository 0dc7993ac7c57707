//! What a probe found out about a logical unit.

use weir_proto_scsi::Lun;
use weir_proto_scsi::alua::{AccessState, PathIo, PortGroups};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::inquiry::{Inquiry, Peripheral, Tpgs};
use weir_proto_scsi::limits::{CdbRule, DiskLimits, DiskPages};
use weir_proto_scsi::mode::{CachingPage, ModeData, ModeForm};
use weir_proto_scsi::vpd::{
    BLOCK_CHARACTERISTICS, BLOCK_LIMITS, DEVICE_IDENTIFICATION, PROVISIONING, UNIT_SERIAL_NUMBER,
    VpdPage, Wwid,
};

/// The most bytes of port groups that are asked for.
pub(crate) const GROUPS_LEN_MAX: u32 = 64 << 10;

/// How a path is connected to its logical unit: the state of its target port group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The target port group of the path.
    pub group: u16,
    /// The group's state.
    pub state: AccessState,
    /// The target prefers it.
    pub preferred: bool,
}

/// What is known of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Where it is.
    pub lun: Lun,
    /// Its INQUIRY data.
    pub inquiry: Inquiry,
    /// The same as they came.
    pub inquiry_bytes: Vec<u8>,
    /// Its VPD pages as they came, with their codes, ascending.
    pub pages: Vec<(u8, Vec<u8>)>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Its name.
    pub wwid: Option<Wwid>,
    /// What its pages say of requests.
    pub disk: DiskPages,
    /// The target port through which it was asked: its RELATIVE TARGET PORT IDENTIFIER.
    pub port: Option<u16>,
    /// The target port group of that port.
    pub group: Option<u16>,
    /// The state of that group, where there are states.
    pub access: Option<Access>,
}

impl Facts {
    pub(super) fn new(lun: Lun) -> Facts {
        let inquiry = Inquiry {
            peripheral: Peripheral::ABSENT,
            removable: false,
            version: 0,
            aca: false,
            hierarchical: false,
            format: 0,
            tpgs: Tpgs::None,
            third_party_copy: false,
            protect: false,
            multiport: false,
            queuing: false,
            vendor: [b' '; 8],
            product: [b' '; 16],
            revision: [b' '; 4],
            versions: [0; 8],
        };
        Facts {
            lun,
            inquiry,
            inquiry_bytes: Vec::new(),
            pages: Vec::new(),
            serial: None,
            wwid: None,
            disk: DiskPages::default(),
            port: None,
            group: None,
            access: None,
        }
    }

    /// What requests on it may be.
    #[must_use]
    pub fn disk_limits(&self) -> DiskLimits {
        DiskLimits::new(&self.disk)
    }

    /// A VPD page as it came.
    #[must_use]
    pub fn page(&self, code: u8) -> Option<&[u8]> {
        let page = self.pages.iter().find(|(known, _)| *known == code);
        page.map(|(_, bytes)| bytes.as_slice())
    }

    /// Why a disk met again cannot stand for this one, if it cannot. A larger one can.
    #[must_use]
    pub fn difference(&self, now: &Facts) -> Option<String> {
        let (before, after) = (&self.disk.capacity, &now.disk.capacity);
        if self.wwid != now.wwid {
            let name = |wwid: &Option<Wwid>| match wwid {
                Some(wwid) => wwid.to_string(),
                None => "none".to_owned(),
            };
            return Some(format!("name {}, before {}", name(&now.wwid), name(&self.wwid)));
        }
        if before.block_len != after.block_len && before.block_len != 0 {
            let (was, is) = (before.block_len, after.block_len);
            return Some(format!("logical blocks of {is} bytes, before {was}"));
        }
        if after.sectors() < before.sectors() {
            let (was, is) = (before.sectors(), after.sectors());
            return Some(format!("size {is} sectors, before {was}"));
        }
        None
    }

    /// Whether a disk of which `before` is known says nothing of its size now because its port
    /// takes no I/O. A name that it tells is the same one.
    #[must_use]
    pub(crate) fn is_silent_of(&self, before: &Facts) -> bool {
        let takes_io = |access: Access| access.state.io() == PathIo::Allowed;
        let is_same = self.wwid.is_none() || self.wwid == before.wwid;
        self.is_partial()
            && !before.is_partial()
            && is_same
            && self.access.is_some_and(|access| !takes_io(access))
    }

    /// Takes INQUIRY data of which so many bytes were asked for; how many there are if there are
    /// more. What is no disk is refused.
    pub(super) fn take_inquiry(
        &mut self,
        data: &[u8],
        allocation: u16,
    ) -> Result<Option<u16>, String> {
        let inquiry = Inquiry::decode(data).map_err(|why| why.to_string())?;
        if !inquiry.peripheral.is_disk() {
            let (kind, qualifier) =
                (inquiry.peripheral.device_type(), inquiry.peripheral.qualifier());
            return Err(match qualifier {
                0 => format!("LUN {} is a device of type {kind:02x}h, not a disk (00h)", self.lun),
                _ => format!("there is no logical unit with LUN {}", self.lun),
            });
        }
        self.inquiry = inquiry;
        let whole = Inquiry::whole_len(data[4]);
        self.inquiry_bytes = data[..whole.min(data.len())].to_vec();
        let more = u16::try_from(whole).unwrap_or(u16::MAX).min(255);
        Ok((more > allocation).then_some(more))
    }

    pub(crate) fn take_capacity_16(&mut self, data: &[u8]) -> bool {
        Capacity::decode_16(data).map(|capacity| self.disk.capacity = capacity).is_ok()
    }

    /// False if the disk is larger than these data can say.
    pub(super) fn take_capacity_10(&mut self, data: &[u8]) -> bool {
        match Capacity::decode_10(data) {
            Ok(Some(capacity)) => {
                self.disk.capacity = capacity;
                true
            }
            Ok(None) => {
                self.disk.cdbs = CdbRule::SixteenOnly;
                false
            }
            // Too short to say anything: of no size.
            Err(_) => true,
        }
    }

    /// Takes a page of which so many bytes were asked for; how many it has if there are more.
    pub(super) fn take_page(&mut self, code: u8, data: &[u8], allocation: u16) -> Option<u16> {
        let page = VpdPage::decode(code, data).ok()?;
        let whole = u16::try_from(page.whole_len()).unwrap_or(u16::MAX);
        if page.is_cut() && whole > allocation {
            return Some(whole);
        }
        match code {
            UNIT_SERIAL_NUMBER => {
                self.serial = Some(page.serial()).filter(|text| !text.is_empty());
            }
            DEVICE_IDENTIFICATION => self.take_names(&page),
            BLOCK_LIMITS => self.disk.limits = Some(page.block_limits()),
            BLOCK_CHARACTERISTICS => self.disk.characteristics = Some(page.characteristics()),
            PROVISIONING => self.disk.provisioning = Some(page.provisioning()),
            _ => {}
        }
        if self.wwid.is_none() {
            self.wwid = Wwid::choose(std::iter::empty(), self.serial.as_deref());
        }
        self.pages.push((code, data[..page.whole_len().min(data.len())].to_vec()));
        None
    }

    fn take_names(&mut self, page: &VpdPage<'_>) {
        self.wwid = Wwid::choose(page.designators(), self.serial.as_deref());
        self.port = page.designators().find_map(|name| name.relative_target_port());
        self.group = page.designators().find_map(|name| name.target_port_group());
    }

    /// Whether its size is not known, as of a disk behind a port in standby.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.disk.capacity.sectors() == 0
    }

    /// What a disk did not say that has told no size is taken for what is safe: it has a cache.
    pub(super) fn take_for_safe(&mut self) {
        if self.is_partial() && self.disk.caching.is_none() {
            self.take_for_cached();
        }
    }

    pub(crate) fn take_for_cached(&mut self) {
        self.disk.caching = Some(CachingPage::new(true, true));
    }

    /// Takes mode data: the header, and the caching page if that was asked for.
    pub(super) fn take_mode(&mut self, data: &[u8], caching: bool) {
        let Ok(mode) = ModeData::decode_sense(ModeForm::Six, data) else { return };
        self.disk.device = mode.device;
        if caching {
            self.disk.caching = mode.caching();
        }
    }

    /// Takes port groups of which so many bytes were asked for; how many they have if there are
    /// more.
    pub(super) fn take_port_groups(&mut self, data: &[u8], allocation: u32) -> Option<u32> {
        let groups = PortGroups::decode(data).ok()?;
        let whole = groups.whole_len().min(GROUPS_LEN_MAX);
        if groups.is_cut() && whole > allocation {
            return Some(whole);
        }
        self.access = Access::of(&groups, self.group?);
        None
    }
}

impl Access {
    /// The state of a group among these.
    #[must_use]
    pub fn of(groups: &PortGroups<'_>, group: u16) -> Option<Access> {
        let found = groups.groups().find(|known| known.group == group)?;
        Some(Access { group, state: found.state, preferred: found.preferred })
    }
}

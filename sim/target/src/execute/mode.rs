//! Mode pages: the caching page, of which MODE SELECT changes WCE. None is kept over a reset.

use weir_proto_scsi::AdditionalSense;
use weir_proto_scsi::command::{ModeSelect, ModeSense, PageControl};
use weir_proto_scsi::mode::{
    ALL_PAGES, CACHING, CachingPage, DeviceSpecific, ModeData, ModeForm, put_mode_data,
};

use super::{BAD_LIST, CUT_LIST, DataIn, Job, Outcome, Refusal, illegal};
use crate::nexus::NexusId;
use crate::state::Target;

const fn form(ten: bool) -> ModeForm {
    if ten { ModeForm::Ten } else { ModeForm::Six }
}

impl Target {
    pub(super) fn mode_sense(&mut self, unit: usize, job: Job<'_>, sense: ModeSense) -> Outcome {
        if !matches!(sense.page, CACHING | ALL_PAGES) {
            return Err(job.bad_field(2));
        }
        // FFh is all subpages, of which there are none.
        if sense.subpage != 0 && !(sense.page == ALL_PAGES && sense.subpage == 0xff) {
            return Err(job.bad_field(3));
        }
        let unit = &self.units[unit];
        let page = match sense.control {
            PageControl::Current => CachingPage::new(unit.write_cache, true),
            PageControl::Default => CachingPage::new(unit.spec.write_cache, true),
            // The bits that are set can be changed: WCE.
            PageControl::Changeable => CachingPage::new(true, true),
            PageControl::Saved => {
                return Err(illegal(AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED));
            }
        };
        let device = DeviceSpecific { write_protected: unit.spec.readonly, dpo_fua: true };
        put_mode_data(&mut self.reply, form(sense.ten), Some(device), |out| page.put(out));
        Ok(DataIn::Reply { most: u32::from(sense.allocation) })
    }

    pub(super) fn mode_select(&mut self, unit: usize, job: Job<'_>, select: ModeSelect) -> Outcome {
        if !select.page_format || select.save {
            return Err(job.bad_field(1));
        }
        if select.length == 0 {
            return Ok(DataIn::None);
        }
        let list = job.data.get(..usize::from(select.length)).ok_or(illegal(CUT_LIST))?;
        let wanted = self.wanted_cache(unit, form(select.ten), list)?;
        self.taken = list.len();
        if let Some(write_cache) = wanted {
            self.set_write_cache(unit, write_cache, Some(job.task.nexus));
        }
        Ok(DataIn::None)
    }

    /// Has a unit use its write cache or not; all but the nexus that asked for it are told.
    pub(crate) fn set_write_cache(&mut self, unit: usize, on: bool, by: Option<NexusId>) {
        let is = &mut self.units[unit];
        if std::mem::replace(&mut is.write_cache, on) == on {
            return;
        }
        if !on {
            is.image.flush_all();
        }
        self.raise(AdditionalSense::MODE_PARAMETERS_CHANGED, Some(unit), by);
    }

    /// The write cache that a parameter list asks for, if it has the caching page.
    fn wanted_cache(
        &self,
        unit: usize,
        form: ModeForm,
        list: &[u8],
    ) -> Result<Option<bool>, Refusal> {
        let data = ModeData::decode_select(form, list).map_err(|_| illegal(CUT_LIST))?;
        if !data.descriptors.is_empty() {
            return Err(illegal(BAD_LIST));
        }
        let mut wanted = None;
        let mut walked = if form == ModeForm::Ten { 8 } else { 4 };
        for page in data.pages() {
            walked += 2 + page.body.len();
            let current = CachingPage::new(self.units[unit].write_cache, true);
            let asked = CachingPage::of(&page).ok_or(illegal(BAD_LIST))?;
            let same = asked.with_write_cache(current.write_cache()) == current;
            if !same || page.body.len() != CachingPage::BODY_LEN {
                return Err(illegal(BAD_LIST));
            }
            wanted = Some(asked.write_cache());
        }
        if walked == list.len() { Ok(wanted) } else { Err(illegal(CUT_LIST)) }
    }
}

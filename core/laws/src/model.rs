//! The contents a disk may have: each sector the last write completed before the next was
//! submitted, or one of those that were concurrent.

/// One write of one sector.
struct Write {
    value: u64,
    submitted: u64,
    /// When it ended. A write that has ended takes no effect any more once a newer one has.
    done: Option<u64>,
    /// It ended well; else it may have taken effect, or never will.
    well: bool,
    /// It ended well and carried FUA.
    durable: bool,
}

/// The history of every sector, in an order of moments.
pub struct Model {
    moment: u64,
    sectors: Vec<Vec<Write>>,
    /// What had ended before was flushed.
    flushed: u64,
}

impl Model {
    /// Zeros everywhere.
    pub fn new(capacity: u64) -> Model {
        let zero =
            || vec![Write { value: 0, submitted: 0, done: Some(0), well: true, durable: true }];
        Model { moment: 1, sectors: (0..capacity).map(|_| zero()).collect(), flushed: 0 }
    }

    /// A moment of its own.
    pub fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// A write is about to be submitted; `value` says what each sector is to hold.
    pub fn submit(&mut self, sector: u64, sectors: u32, value: impl Fn(u64) -> u64) -> u64 {
        let submitted = self.tick();
        for at in sector..sector + u64::from(sectors) {
            let value = value(at);
            let write = Write { value, submitted, done: None, well: false, durable: false };
            self.sectors[at as usize].push(write);
        }
        submitted
    }

    /// It was not accepted.
    pub fn withdraw(&mut self, sector: u64, sectors: u32, submitted: u64) {
        for at in sector..sector + u64::from(sectors) {
            self.sectors[at as usize].retain(|write| write.submitted != submitted);
        }
    }

    /// It ended, well or not.
    pub fn complete(&mut self, sector: u64, sectors: u32, submitted: u64, well: bool) {
        let done = self.tick();
        for at in sector..sector + u64::from(sectors) {
            for write in &mut self.sectors[at as usize] {
                if write.submitted == submitted {
                    (write.done, write.well) = (Some(done), well);
                }
            }
        }
    }

    /// Whether a read submitted at `submitted` that ends now may find `value` in `sector`.
    pub fn may_read(&self, sector: u64, value: u64, submitted: u64) -> bool {
        let history = &self.sectors[sector as usize];
        history.iter().filter(|write| write.value == value).any(|write| {
            let Some(done) = write.done else { return true };
            // Gone for certain: another write came after it, and had ended before the read began.
            !history.iter().any(|later| {
                later.well
                    && later.submitted > done
                    && later.done.is_some_and(|done| done < submitted)
            })
        })
    }

    /// A flush that was submitted at that moment ended well.
    pub fn flush(&mut self, submitted: u64) {
        self.flushed = self.flushed.max(submitted);
    }

    /// A write carried FUA and ended well.
    pub fn make_durable(&mut self, sector: u64, sectors: u32, submitted: u64) {
        for at in sector..sector + u64::from(sectors) {
            let writes = self.sectors[at as usize].iter_mut();
            writes.filter(|write| write.submitted == submitted).for_each(|w| w.durable = true);
        }
    }

    /// Whether `value` may be in `sector` when the power has failed.
    pub fn may_survive(&self, sector: u64, value: u64) -> bool {
        let history = &self.sectors[sector as usize];
        history.iter().filter(|write| write.value == value).any(|write| {
            let Some(done) = write.done else { return true };
            !history.iter().any(|later| {
                let flushed = later.well && later.done.is_some_and(|done| done < self.flushed);
                (flushed || later.durable) && later.submitted > done
            })
        })
    }
}

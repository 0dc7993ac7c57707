//! The answers to a submitter: a bio that was not accepted, or how a bio ended.

use weir_bio::{Bio, Data, Nanos, Op, Status};

/// A bio that was not accepted, with the reason. The bio is untouched.
///
/// There may be more reasons one day: a `match` takes any other for one that passes, as [`Frozen`]
/// does.
///
/// [`Frozen`]: Refused::Frozen
#[derive(Debug)]
#[non_exhaustive]
pub enum Refused {
    /// Every slot is in use: some of this submitter's I/O must end first.
    Full(Bio),
    /// The device is frozen for a reconfiguration; its bell rings when it no longer is.
    Frozen(Bio),
    /// A cap of its group holds it back. No bell rings for it: its holder submits it again at
    /// `until`, and after [`CAPS_AGAIN_NS`](crate::CAPS_AGAIN_NS) at latest.
    Capped {
        /// The bio.
        bio: Bio,
        /// The time from which the cap allows it, if no other I/O of the group comes first.
        until: Nanos,
    },
}

impl Refused {
    /// The bio.
    #[must_use]
    pub fn into_bio(self) -> Bio {
        match self {
            Refused::Full(bio) | Refused::Frozen(bio) | Refused::Capped { bio, .. } => bio,
        }
    }

    /// The same refusal of the bio that `change` makes of this one.
    #[must_use]
    pub fn map_bio(self, change: impl FnOnce(Bio) -> Bio) -> Refused {
        match self {
            Refused::Full(bio) => Refused::Full(change(bio)),
            Refused::Frozen(bio) => Refused::Frozen(change(bio)),
            Refused::Capped { bio, until } => Refused::Capped { bio: change(bio), until },
        }
    }
}

/// The reason of a [`Refused`], without the bio.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    Full,
    Frozen,
    Capped(Nanos),
}

/// How a bio ended. Where it lay is the caller's to know, by the cookie: a request that was merged
/// has a place of its own.
#[derive(Debug)]
#[must_use = "it says whether the I/O succeeded, and has its memory"]
#[non_exhaustive]
pub struct Completion {
    /// The bio's cookie.
    pub cookie: u64,
    /// How it ended.
    pub status: Status,
    /// Its op.
    pub op: Op,
    /// Its length in sectors.
    pub sectors: u32,
    /// Its memory, unless the device still owns it (after a timeout).
    pub data: Data,
    /// From acceptance to the driver, ns; 0 if it never got there.
    pub wait_ns: u64,
    /// From the driver to the end, ns.
    pub device_ns: u64,
}

impl Completion {
    /// The end of a bio that no device has had, with its memory.
    pub fn unsent(bio: Bio, status: Status) -> Completion {
        let Bio { cookie, op, sectors, data, .. } = bio;
        Completion { cookie, status, op, sectors, data, wait_ns: 0, device_ns: 0 }
    }

    /// The memory of an I/O that succeeded.
    ///
    /// # Errors
    /// How it ended otherwise. Its memory is dropped then: a caller that wants it back looks at
    /// [`status`](Completion::status) and takes [`data`](Completion::data) itself.
    pub fn into_result(self) -> Result<Data, Status> {
        match self.status {
            Status::Ok => Ok(self.data),
            status => Err(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_bio::Buf;

    use super::*;

    #[test]
    fn a_completion_is_its_memory_or_the_way_it_failed() {
        for status in Status::ALL {
            let ended = Completion::unsent(Bio::read(0, Buf::zeroed(512)), status);
            match ended.into_result() {
                Ok(data) => assert!(status.is_ok() && data.len() == 512),
                Err(told) => assert!(told == status && !status.is_ok()),
            }
        }
    }
}

//! The priorities of a job's I/Os, and how a document has them: class and level.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weir_bio::{Class, IoPrio, Prng};

use crate::ask::Io;

/// The part of the I/Os of a direction that has a priority of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Urgent {
    /// Of a hundred so many, drawn one by one.
    pub percent: u8,
    /// Their priority.
    #[serde(with = "crate::priority")]
    pub ioprio: IoPrio,
}

impl Default for Urgent {
    /// None. Without another word those that there are would be of the first priority.
    fn default() -> Urgent {
        Urgent { percent: 0, ioprio: IoPrio::new(Class::RealTime, 0) }
    }
}

impl Urgent {
    /// The I/O, with this priority if it is drawn.
    pub(crate) fn draw(&self, io: Io, prng: &mut Prng) -> Io {
        if self.percent > 0 && prng.percent(u32::from(self.percent)) {
            return Io { ioprio: self.ioprio, ..io };
        }
        io
    }
}

const CLASSES: [Class; 4] = [Class::None, Class::RealTime, Class::BestEffort, Class::Idle];

pub(crate) fn serialize<S: Serializer>(ioprio: &IoPrio, to: S) -> Result<S::Ok, S::Error> {
    (ioprio.class() as u8, ioprio.level()).serialize(to)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<IoPrio, D::Error> {
    let (class, level) = <(u8, u8)>::deserialize(from)?;
    match CLASSES.into_iter().find(|known| *known as u8 == class) {
        Some(class) if level <= 7 => Ok(IoPrio::new(class, level)),
        _ => Err(D::Error::custom(format!(
            "ioprio=[{class},{level}] is not a class in 0..=3 and a level in 0..=7"
        ))),
    }
}

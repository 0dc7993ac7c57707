//! Events as they were told, and what has to hold of any list of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use weir_queue::{Event, Place, Sink, What};

/// A list that events are told to, or none.
#[derive(Clone, Default)]
pub struct Log(pub Option<Rc<RefCell<Vec<Event>>>>);

/// Tells it.
#[derive(Clone, Copy)]
pub struct Ear<'a>(Option<&'a RefCell<Vec<Event>>>);

impl Log {
    /// An empty list.
    pub fn kept() -> Log {
        Log(Some(Rc::default()))
    }

    /// Whether what happens is kept.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// The sink that fills it.
    pub fn ear(&self) -> Ear<'_> {
        Ear(self.0.as_deref())
    }

    /// All that was told since it was last asked.
    pub fn take(&self) -> Vec<Event> {
        self.0.as_ref().map(|log| std::mem::take(&mut *log.borrow_mut())).unwrap_or_default()
    }
}

impl Sink for Ear<'_> {
    fn tell(self, event: impl FnOnce() -> Event) {
        if let Some(log) = self.0 {
            log.borrow_mut().push(event());
        }
    }
}

/// The rules of a list of events: each request that was accepted comes to one end, each that was
/// issued to one answer, and the right is let go of before it is taken again in the same place. At
/// the end nothing is open. Up to `silent` requests are of submitters that told nothing.
pub fn check(events: &[Event], silent: usize) {
    let (mut ends, mut answers) = (0, 0);
    let (mut accepted, mut issued) = (BTreeMap::new(), BTreeMap::new());
    let mut right = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        let place = event.by;
        let lane = if let Place::Lane(lane) = place { lane } else { 0 };
        match event.what {
            What::Accepted { rq } => {
                assert_eq!(accepted.insert(rq.id, index), None, "accepted twice: {event:?}");
            }
            What::TurnedAway { rq } | What::Merged { rq, .. } | What::Ended { rq, .. } => {
                ends += usize::from(accepted.remove(&rq.id).is_none());
                assert!(ends <= silent, "an end without a beginning: {event:?}");
            }
            What::Issued { tag, .. } => {
                assert_eq!(issued.insert((lane, tag), index), None, "tag in use: {event:?}");
            }
            What::Answered { tag, .. }
            | What::Refused { tag, .. }
            | What::Requeued { tag, .. }
            | What::GivenUp { tag, .. } => {
                answers += usize::from(issued.remove(&(lane, tag)).is_none());
                assert!(answers <= silent, "nothing was issued: {event:?}");
            }
            What::RightTaken => {
                assert_eq!(right.insert(place, index), None, "taken twice: {event:?}");
            }
            What::RightLetGo => {
                assert!(right.remove(&place).is_some(), "not taken: {event:?}");
            }
            _ => {}
        }
    }
    let open = accepted.values().chain(issued.values()).chain(right.values());
    let open: Vec<&Event> = open.map(|index| &events[*index]).collect();
    assert!(open.is_empty(), "{} of {} came to no end: {open:?}", open.len(), events.len());
}

//! Where a future and the thread that fulfils it meet.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// One result, given once and taken once.
pub(crate) struct Slot<T> {
    state: Mutex<State<T>>,
}

enum State<T> {
    UnderWay(Option<Waker>),
    Ended(T),
    Taken,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Arc<Slot<T>> {
        Arc::new(Slot { state: Mutex::new(State::UnderWay(None)) })
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("a slot's lock")
    }

    /// The result is here.
    pub(crate) fn end(&self, result: T) {
        let before = std::mem::replace(&mut *self.lock(), State::Ended(result));
        // Outside the lock: a waker may poll on the spot.
        if let State::UnderWay(Some(waker)) = before {
            waker.wake();
        }
    }

    /// Whether the next poll is ready.
    pub(crate) fn has_ended(&self) -> bool {
        !matches!(*self.lock(), State::UnderWay(_))
    }

    /// Takes the result, or has the task woken that polled last.
    ///
    /// # Panics
    /// When it was taken before: `what` is polled after it was ready.
    pub(crate) fn poll(&self, context: &mut Context<'_>, what: &str) -> Poll<T> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Ended(result) => Poll::Ready(result),
            State::UnderWay(waker) => {
                let waker = match waker {
                    Some(waker) if waker.will_wake(context.waker()) => waker,
                    _ => context.waker().clone(),
                };
                *state = State::UnderWay(Some(waker));
                Poll::Pending
            }
            State::Taken => {
                drop(state);
                panic!("{what} is polled after it was ready")
            }
        }
    }
}

/// Blocks the calling thread until the future is ready.
pub(crate) fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Waker::from(Arc::new(UnparkWaker(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut future).poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct UnparkWaker(Thread);

impl Wake for UnparkWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

//! The answers of I/O under way.

/// Answers by the cookie their I/O travels with.
pub(super) struct Table<A> {
    pub(super) answers: Vec<Option<A>>,
    free: Vec<usize>,
}

impl<A> Default for Table<A> {
    fn default() -> Table<A> {
        Table { answers: Vec::new(), free: Vec::new() }
    }
}

impl<A> Table<A> {
    /// The cookie the next answer will have.
    pub(super) fn next(&self) -> u64 {
        self.free.last().copied().unwrap_or(self.answers.len()) as u64
    }

    pub(super) fn put(&mut self, answer: A) {
        match self.free.pop() {
            Some(index) => self.answers[index] = Some(answer),
            None => self.answers.push(Some(answer)),
        }
    }

    pub(super) fn take(&mut self, cookie: u64) -> A {
        let answer = self.answers[cookie as usize].take();
        self.free.push(cookie as usize);
        answer.expect("an I/O ends once")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.answers.len()
    }
}

//! The bugs: each a piece of the core as it is, and as it would be with the bug, where `PLANTED`
//! asks whether that one is on.

/// A bug that can be planted.
pub(super) struct Bug {
    pub(super) name: &'static str,
    /// The file it is planted in, and the text there that it takes the place of.
    pub(super) file: &'static str,
    pub(super) old: &'static str,
    pub(super) new: &'static str,
}

pub(super) const BUGS: &[Bug] = &[
    // A lane that has to ask the elevator is marked, and its home sleeps on.
    Bug {
        name: "lost-wake-up",
        file: "core/queue/src/lanes.rs",
        old: "self.pending.mark(source);\n        self.ring_ordered()\n",
        new: "self.pending.mark(source);\n\
              !(PLANTED && source == ELEVATOR) && self.ring_ordered()\n",
    },
    Bug {
        name: "tag-freed-twice",
        file: "core/queue/src/hard.rs",
        old: "self.tags.give(tag);\n                lane_tells(",
        new: "if PLANTED && tag.0 == 3 { self.tags.give(tag) }\n\
              self.tags.give(tag);\n                lane_tells(",
    },
    // A flush that was issued already covers one who comes later, and writes in between.
    Bug {
        name: "flush-passed-by-a-write",
        file: "core/queue/src/hard/flush.rs",
        old: "let list = &mut self.pending[self.pending_index];",
        new: "let index = if PLANTED { self.running_index } else { self.pending_index };\n\
              let list = &mut self.pending[index];",
    },
    // The power is cut under a write that was told to be durable.
    Bug {
        name: "fua-not-sent",
        file: "core/queue/src/hard/flush.rs",
        old: "let fua = if native && has_data",
        new: "let fua = if !PLANTED && native && has_data",
    },
    // A write goes on before an older one that may land late.
    Bug {
        name: "fence-passed",
        file: "core/queue/src/hard.rs",
        old: "if self.fences.any() {\n            self.start_unless_fenced(",
        new: "if self.fences.any() && !PLANTED {\n            self.start_unless_fenced(",
    },
    Bug {
        name: "completion-told-twice",
        file: "core/queue/src/submit/submitter.rs",
        old: "ended += 1;\n            each(completion);\n",
        new: "ended += 1;\n\
              if PLANTED && completion.op == weir_bio::Op::Discard {\n\
              let Completion { cookie, status, op, sectors, .. } = completion;\n\
              let (data, wait_ns, device_ns) = Default::default();\n\
              each(Completion { cookie, status, op, sectors, data, wait_ns, device_ns });\n\
              }\n\
              each(completion);\n",
    },
    // The third bio at the back of a request goes with it, and is never ended.
    Bug {
        name: "merge-loses-a-bio",
        file: "core/queue/src/request.rs",
        old: "merged.after.push(gone);",
        new: "if PLANTED && merged.after.len() == 2 { std::mem::forget(gone) }\n\
              else { merged.after.push(gone) }",
    },
    // Of a bio in parts the last one is taken for sent, if it is small.
    Bug {
        name: "split-loses-a-part",
        file: "core/queue/src/submit/submitter/parts.rs",
        old: "parts.rest = Some(split::cut(&mut bio, sectors));",
        new: "let rest = split::cut(&mut bio, sectors);\n\
              parts.rest = (!(PLANTED && rest.sectors <= 8)).then_some(rest);",
    },
    // Batches of a domain never end.
    Bug {
        name: "domain-starves",
        file: "core/sched/src/mq/kyber.rs",
        old: "if self.staged.queues[queue].batching < domains[domain].batch\n",
        new: "if (PLANTED || self.staged.queues[queue].batching < domains[domain].batch)\n",
    },
    Bug {
        name: "token-not-given-back",
        file: "core/sched/src/mq/kyber.rs",
        old: "        if held {\n",
        new: "        if held && !(PLANTED && domain == 2) {\n",
    },
    // Reads are preferred for ever.
    Bug {
        name: "write-starves",
        file: "core/sched/src/deadline.rs",
        old: "if before < self.writes_starved {",
        new: "if PLANTED || before < self.writes_starved {",
    },
    // A write that may land yet goes down another path at once.
    Bug {
        name: "retried-without-a-fence",
        file: "core/map/src/multipath/doubt.rs",
        old: "|doubt| doubt.until <= now || !lands(doubt)",
        new: "|doubt| PLANTED || doubt.until <= now || !lands(doubt)",
    },
    // The last chunk of a stripe lies on the one before it.
    Bug {
        name: "stripe-off-by-a-chunk",
        file: "core/map/src/layout.rs",
        old: "let (row, stripe) = run.stripes.divide(number);\n        let place",
        new: "let (mut row, stripe) = run.stripes.divide(number);\n\
              if PLANTED && run.end - sector <= run.chunk.number { row = row.saturating_sub(1) }\n\
              let place",
    },
    Bug {
        name: "flush-misses-a-leg",
        file: "core/map/src/mapped.rs",
        old: "(0..self.legs).for_each(visit);",
        new: "(0..self.legs - usize::from(PLANTED)).for_each(visit);",
    },
];

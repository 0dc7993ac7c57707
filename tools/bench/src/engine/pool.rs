//! The memory of one client's I/Os.

use weir::Buf;
use weir_load::mark;

/// Memory for I/O, of one or two sizes.
pub(crate) struct Pool {
    bytes: [usize; 2],
    free: [Vec<Buf>; 2],
}

impl Pool {
    /// How much each I/O has, and how many are made at once.
    pub(crate) fn new(buffers: [(usize, usize); 2], seed: u64) -> Pool {
        let mut prng = weir_bio::Prng::new(seed ^ 0x5eed);
        let free = buffers.map(|(bytes, count)| {
            (0..count).map(|_| Buf::filled(bytes, |buf| mark::fill(&mut prng, buf))).collect()
        });
        Pool { bytes: buffers.map(|(bytes, _)| bytes), free }
    }

    #[inline]
    pub(crate) fn take(&mut self, bytes: usize, uniform: bool) -> Buf {
        let class = usize::from(bytes > self.bytes[0]);
        let Some(mut buf) = self.free[class].pop() else {
            // After a timeout the device keeps the memory.
            return Buf::zeroed(bytes);
        };
        if !uniform && buf.len() != bytes {
            buf.resize(bytes);
        }
        buf
    }

    #[inline]
    pub(crate) fn put(&mut self, buf: Buf, uniform: bool) {
        let class = usize::from(!uniform && buf.capacity() > self.bytes[0].next_multiple_of(4096));
        self.free[class].push(buf);
    }
}

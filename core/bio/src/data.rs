//! The memory an I/O travels with.

use crate::buf::Buf;
use crate::segments::{Segment, Segments};

/// The memory of an I/O. It is owned, so that it can outlive a vanished caller.
#[derive(Debug, Default)]
#[repr(u32)] // The layout is that of `Laid`.
pub enum Data {
    /// None: discard, zeroes, a pure flush.
    #[default]
    None = NONE,
    /// So many bytes of zeros that no memory holds: what a read of nothing gives back.
    Zero {
        /// Bytes.
        len: u32,
        /// The caller's buffer, which the driver did not fill: to be used again, never to be read.
        spare: Option<Buf>,
    } = ZERO,
    /// One piece.
    One(Buf) = ONE,
    /// Several pieces in ascending order of address.
    Many(Pieces) = MANY,
    /// Memory that an owner outside weir keeps and may change at any time. It stays this memory to
    /// the end: zeros are written into it. A driver gets it if it says so in
    /// [`Limits::takes_segments`](crate::Limits::takes_segments).
    Segments(Segments) = SEGMENTS,
}

/// A part of the bytes of a [`Data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// So many zeros, which no memory holds.
    Zeros(usize),
    /// Memory of weir's.
    Bytes(&'a [u8]),
    /// Memory that an owner outside weir keeps and may change at any time, to which no reference
    /// can be made. [`Data::copy_to_at`] copies out of it.
    Foreign(Segment),
}

const NONE: u32 = 0;
const ZERO: u32 = 1;
const ONE: u32 = 2;
const MANY: u32 = 3;
const SEGMENTS: u32 = 4;

/// How zeros lie in memory: what the language promises of an enum with a tag of its own type. One
/// piece lies likewise, without a length. Which of the two it is depends on what was read and what
/// was written, which no branch predictor can know, so the two hottest functions do not ask.
#[repr(C)]
struct Laid {
    tag: u32,
    len: u32,
    memory: Option<Buf>,
}

const _: () = {
    assert!(std::mem::size_of::<Data>() == std::mem::size_of::<Laid>());
    assert!(std::mem::align_of::<Data>() == std::mem::align_of::<Laid>());
    assert!(std::mem::offset_of!(Laid, memory) == 8 && ONE - 1 == ZERO);
};

/// Several buffers, behind one pointer so that [`Data`] stays small.
#[derive(Debug, Default)]
#[allow(clippy::box_collection)] // The point is the one pointer.
pub struct Pieces(Box<Vec<Buf>>);

impl From<Vec<Buf>> for Pieces {
    fn from(bufs: Vec<Buf>) -> Pieces {
        Pieces(Box::new(bufs))
    }
}

impl FromIterator<Buf> for Pieces {
    fn from_iter<I: IntoIterator<Item = Buf>>(bufs: I) -> Pieces {
        Pieces(Box::new(bufs.into_iter().collect()))
    }
}

impl IntoIterator for Pieces {
    type Item = Buf;
    type IntoIter = std::vec::IntoIter<Buf>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl std::ops::Deref for Pieces {
    type Target = Vec<Buf>;
    fn deref(&self) -> &Vec<Buf> {
        &self.0
    }
}

impl std::ops::DerefMut for Pieces {
    fn deref_mut(&mut self) -> &mut Vec<Buf> {
        &mut self.0
    }
}

const _: () = assert!(std::mem::size_of::<Data>() == 16);

impl Data {
    /// Bytes in all pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Data::None => 0,
            Data::Zero { len, .. } => *len as usize,
            Data::One(buf) => buf.len(),
            Data::Many(bufs) => bufs.iter().map(|buf| buf.len()).sum(),
            Data::Segments(segments) => segments.len(),
        }
    }

    /// Whether there is no byte at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buffers; `None` of memory that no reference may be made to, which is reached by
    /// [`segments`](Data::segments), [`copy_to_at`](Data::copy_to_at) and
    /// [`copy_from_at`](Data::copy_from_at).
    #[must_use]
    pub fn bufs(&self) -> Option<&[Buf]> {
        match self {
            Data::None | Data::Zero { .. } => Some(&[]),
            Data::One(buf) => Some(std::slice::from_ref(buf)),
            Data::Many(bufs) => Some(bufs),
            Data::Segments(_) => None,
        }
    }

    /// The buffers, to be written to; `None` as in [`bufs`](Data::bufs).
    #[must_use]
    pub fn bufs_mut(&mut self) -> Option<&mut [Buf]> {
        match self {
            Data::None | Data::Zero { .. } => Some(&mut []),
            Data::One(buf) => Some(std::slice::from_mut(buf)),
            Data::Many(bufs) => Some(bufs),
            Data::Segments(_) => None,
        }
    }

    /// Address and length of each piece of memory, whatever it is; none of zeros that no memory
    /// holds. They are valid while this is neither moved out, cut nor dropped.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = Segment> {
        let (bufs, segments) = match self {
            Data::Segments(segments) => (&[][..], segments.as_slice()),
            _ => (self.bufs().unwrap_or_default(), &[][..]),
        };
        let segment = |index: usize| match bufs.get(index) {
            Some(buf) => Segment { start: buf.start(), len: buf.len() as u32 },
            None => segments[index],
        };
        (0..bufs.len() + segments.len()).map(segment)
    }

    /// Cuts off and returns everything from byte `at` on.
    ///
    /// # Panics
    /// When `at` is beyond the end.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Data {
        assert!(at <= self.len(), "split at {at} beyond {} bytes", self.len());
        match self {
            Data::None => Data::None,
            Data::Zero { len, .. } => {
                let rest = *len - at as u32;
                *len = at as u32;
                Data::Zero { len: rest, spare: None }
            }
            Data::One(buf) => Data::One(buf.split_off(at)),
            Data::Many(bufs) => {
                let mut before = 0;
                let mut index = 0;
                while index < bufs.len() && before + bufs[index].len() <= at {
                    before += bufs[index].len();
                    index += 1;
                }
                let mut rest = bufs.split_off(index);
                if before < at {
                    let tail = rest[0].split_off(at - before);
                    bufs.push(std::mem::replace(&mut rest[0], tail));
                }
                Data::Many(rest.into())
            }
            Data::Segments(segments) => Data::Segments(segments.split_off(at)),
        }
    }

    /// Puts `next` behind these bytes, joining pieces that were cut from one another.
    pub fn append(&mut self, next: Data) {
        *self = match (std::mem::take(self), next) {
            (first, Data::None) => first,
            (Data::None, next) => next,
            (Data::Zero { len: a, spare }, Data::Zero { len: b, .. }) => {
                Data::Zero { len: a + b, spare }
            }
            (Data::One(mut a), Data::One(b)) => match a.join(b) {
                Ok(()) => Data::One(a),
                Err(b) => Data::Many(vec![a, b].into()),
            },
            (Data::Segments(first), next) => Data::Segments(join(first, next.into_segments())),
            (first, Data::Segments(next)) => Data::Segments(join(first.into_segments(), next)),
            (first, next) => {
                let mut bufs = first.into_bufs();
                for buf in next.into_bufs() {
                    let apart = match bufs.last_mut() {
                        Some(last) => last.join(buf),
                        None => Err(buf),
                    };
                    bufs.extend(apart.err());
                }
                Data::Many(bufs.into())
            }
        };
    }

    /// Says that these bytes are zeros, without writing them; the memory is kept as spare.
    #[inline]
    pub fn become_zeros(&mut self) {
        self.become_zeros_if(true);
    }

    /// The same if `zeros`, else nothing.
    #[inline]
    pub fn become_zeros_if(&mut self, zeros: bool) {
        let Data::One(buf) = self else {
            if zeros {
                self.zero_others();
            }
            return;
        };
        let len = buf.len() as u32;
        let laid = std::ptr::from_mut(self).cast::<Laid>();
        // SAFETY: it is one piece, which lies as zeros do but for tag and length (see `Laid`); its
        // buffer stays where it is, as the spare one.
        unsafe {
            (*laid).tag = ONE - u32::from(zeros);
            (*laid).len = len;
        }
    }

    /// Puts memory where there is none now. An assignment would first look at the value it drops.
    #[inline]
    pub fn put(&mut self, data: Data) {
        debug_assert!(matches!(self, Data::None), "{self:?} is overwritten");
        std::mem::forget(std::mem::replace(self, data));
    }

    #[cold]
    #[inline(never)]
    fn zero_others(&mut self) {
        if let Data::Segments(segments) = self {
            return segments.fill_zeros(0, segments.len());
        }
        let len = self.len() as u32;
        *self = Data::Zero { len, spare: std::mem::take(self).into_spare() };
    }

    /// Puts memory to be filled where there are only zeros, the spare buffer if it is large enough.
    #[inline]
    pub fn materialise(&mut self) {
        let Data::Zero { len, spare } = self else { return };
        let len = *len as usize;
        *self = match spare.take() {
            Some(mut buf) if buf.capacity() >= len => {
                buf.resize(len);
                Data::One(buf)
            }
            _ if len == 0 => Data::None,
            _ => Data::One(Buf::zeroed(len)),
        };
    }

    /// A whole buffer to be used again, if there is one.
    #[must_use]
    #[inline]
    pub fn into_spare(self) -> Option<Buf> {
        if !matches!(self, Data::Zero { .. } | Data::One(_)) {
            return None;
        }
        let data = std::mem::ManuallyDrop::new(self);
        let laid = (&raw const data).cast::<Laid>();
        // SAFETY: it is zeros or one piece, which have their buffer in the same place (see `Laid`);
        // it is moved out once, as the rest is never dropped and holds nothing else.
        let buf = unsafe { (&raw const (*laid).memory).read() };
        buf.filter(|buf| buf.capacity() > 0)
    }

    /// The vectors that it was [made](Data::from) of, filled by a read.
    ///
    /// # Errors
    /// All of it, when it is other memory.
    pub fn into_vecs(self) -> Result<Vec<Vec<u8>>, Data> {
        match self {
            Data::Segments(segments) => segments.into_vecs().map_err(Data::Segments),
            other => Err(other),
        }
    }

    fn into_bufs(self) -> Vec<Buf> {
        match self {
            Data::None => Vec::new(),
            // Zeros that must stand beside real memory become memory.
            Data::Zero { len: 0, .. } => Vec::new(),
            Data::Zero { len, .. } => vec![Buf::zeroed(len as usize)],
            Data::One(buf) => vec![buf],
            Data::Many(bufs) => *bufs.0,
            Data::Segments(_) => unreachable!("segments are joined to segments"),
        }
    }

    /// All of it as segments, to stand beside such.
    #[cold]
    fn into_segments(self) -> Segments {
        match self {
            Data::Segments(segments) => segments,
            other => Segments::of_bufs(other.into_bufs()),
        }
    }

    /// The bytes, copied, whatever memory holds them. The buffers alone ([`bufs`](Data::bufs)) are
    /// not all of them: a read of blocks that were never written gives [`Data::Zero`], which has
    /// none.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(&mut bytes);
        bytes
    }

    /// The bytes in order, without a copy.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = Piece<'_>> {
        let zeros = match self {
            Data::Zero { len, .. } if *len > 0 => Some(Piece::Zeros(*len as usize)),
            _ => None,
        };
        let (bufs, segments) = match self {
            Data::Segments(segments) => (&[][..], segments.as_slice()),
            _ => (self.bufs().unwrap_or_default(), &[][..]),
        };
        let count = usize::from(zeros.is_some()) + bufs.len() + segments.len();
        (0..count).map(move |index| match (zeros, bufs.get(index)) {
            (Some(zeros), _) => zeros,
            (None, Some(buf)) => Piece::Bytes(buf),
            (None, None) => Piece::Foreign(segments[index]),
        })
    }

    /// Copies the bytes into `out`, which must be exactly as long.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn copy_to(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len(), "length of the destination");
        self.copy_to_at(0, out);
    }

    /// Copies the bytes from byte `at` on into `out`.
    ///
    /// # Panics
    /// When `out` reaches beyond the end.
    pub fn copy_to_at(&self, at: usize, out: &mut [u8]) {
        self.check_range(at, out.len());
        let mut rest = out;
        match self {
            Data::None => {}
            Data::Zero { .. } => rest.fill(0),
            Data::One(buf) => rest.copy_from_slice(&buf[at..at + rest.len()]),
            Data::Many(bufs) => {
                let mut skip = at;
                for buf in bufs.iter() {
                    let skipped = skip.min(buf.len());
                    skip -= skipped;
                    let here = rest.len().min(buf.len() - skipped);
                    let (now, later) = rest.split_at_mut(here);
                    now.copy_from_slice(&buf[skipped..skipped + here]);
                    rest = later;
                }
            }
            Data::Segments(segments) => segments.copy_to(at, rest),
        }
    }

    /// Copies `bytes` to byte `at` and on. Zeros that no memory holds become memory for it
    /// ([`materialise`](Data::materialise)).
    ///
    /// # Panics
    /// When they reach beyond the end.
    pub fn copy_from_at(&mut self, at: usize, bytes: &[u8]) {
        self.check_range(at, bytes.len());
        self.materialise();
        let mut rest = bytes;
        match self {
            Data::None | Data::Zero { .. } => {}
            Data::One(buf) => buf[at..at + rest.len()].copy_from_slice(rest),
            Data::Many(bufs) => {
                let mut skip = at;
                for buf in bufs.iter_mut() {
                    let skipped = skip.min(buf.len());
                    skip -= skipped;
                    let (now, later) = rest.split_at(rest.len().min(buf.len() - skipped));
                    buf[skipped..skipped + now.len()].copy_from_slice(now);
                    rest = later;
                }
            }
            Data::Segments(segments) => segments.copy_from(at, rest),
        }
    }

    /// Writes zeros to `len` bytes of memory from byte `at` on.
    ///
    /// # Panics
    /// When they reach beyond the end.
    pub fn fill_zeros_at(&mut self, at: usize, len: usize) {
        self.check_range(at, len);
        match self {
            Data::None | Data::Zero { .. } => {}
            Data::One(buf) => buf[at..at + len].fill(0),
            Data::Many(bufs) => {
                let (mut skip, mut left) = (at, len);
                for buf in bufs.iter_mut() {
                    let skipped = skip.min(buf.len());
                    let here = left.min(buf.len() - skipped);
                    buf[skipped..skipped + here].fill(0);
                    (skip, left) = (skip - skipped, left - here);
                }
            }
            Data::Segments(segments) => segments.fill_zeros(at, len),
        }
    }

    /// Writes zeros to all memory, and leaves it what it is.
    pub fn fill_zeros(&mut self) {
        self.fill_zeros_at(0, self.len());
    }

    fn check_range(&self, at: usize, len: usize) {
        let all = self.len();
        assert!(at <= all && len <= all - at, "{len} bytes at {at} of {all}");
    }
}

fn join(mut first: Segments, next: Segments) -> Segments {
    first.join(next);
    first
}

impl From<Segments> for Data {
    fn from(segments: Segments) -> Data {
        Data::Segments(segments)
    }
}

/// One segment, without a copy: see [`Segments::of_vecs`].
impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Data {
        Data::from(vec![bytes])
    }
}

/// A segment for each, without a copy: see [`Segments::of_vecs`].
impl From<Vec<Vec<u8>>> for Data {
    fn from(vecs: Vec<Vec<u8>>) -> Data {
        Data::Segments(Segments::of_vecs(vecs))
    }
}

impl From<Vec<Buf>> for Data {
    fn from(bufs: Vec<Buf>) -> Data {
        Data::Many(bufs.into())
    }
}

impl From<Buf> for Data {
    fn from(buf: Buf) -> Data {
        Data::One(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(len: usize) -> Buf {
        let mut buf = Buf::zeroed(len);
        for (i, byte) in buf.iter_mut().enumerate() {
            *byte = (i % 251) as u8;
        }
        buf
    }

    #[test]
    fn data_cut_anywhere_and_appended_again_is_the_same_single_piece() {
        for at in [0, 1, 512, 4095, 4096, 8191, 8192] {
            let mut data = Data::One(counted(8192));
            let rest = data.split_off(at);
            assert_eq!((data.len(), rest.len()), (at, 8192 - at));
            data.append(rest);
            assert_eq!(data.bufs().unwrap().len(), 1, "cut at {at}");
            assert_eq!(&data.bufs().unwrap()[0][..], &counted(8192)[..]);
        }
    }

    #[test]
    fn many_pieces_are_cut_inside_a_piece_and_between_two() {
        for at in [100, 512, 700, 1024] {
            let mut data = Data::Many(vec![counted(512), counted(512)].into());
            let rest = data.split_off(at);
            assert_eq!((data.len(), rest.len()), (at, 1024 - at));
            data.append(rest);
            let mut out = vec![0; 1024];
            data.copy_to(&mut out);
            assert_eq!(out, [&counted(512)[..], &counted(512)[..]].concat());
        }
    }

    #[test]
    fn zeros_keep_the_memory_they_came_with_and_what_is_not_zeroed_stays() {
        let address = |data: &Data| data.bufs().unwrap()[0].as_ptr();
        let mut data = Data::One(counted(700));
        let start = address(&data);
        data.become_zeros_if(false);
        assert_eq!((address(&data), data.len()), (start, 700));
        data.become_zeros_if(true);
        let Data::Zero { len: 700, spare: Some(_) } = &data else { panic!("{data:?}") };
        data.become_zeros_if(true);
        assert_eq!(data.into_spare().map(|buf| buf.as_ptr()), Some(start));
        assert!(Data::Zero { len: 9, spare: None }.into_spare().is_none());
        let many = || Data::Many(vec![counted(512), counted(100)].into());
        assert!(many().into_spare().is_none() && Data::None.into_spare().is_none());
        let mut many = many();
        many.become_zeros_if(true);
        assert!(matches!(many, Data::Zero { len: 612, spare: None }));
    }

    #[test]
    fn the_bytes_are_all_there_whatever_holds_them() {
        let bytes = counted(700);
        let zeros = || Data::Zero { len: 700, spare: Some(Buf::zeroed(4096)) };
        assert_eq!((Data::None.to_vec(), Data::None.pieces().len()), (Vec::new(), 0));
        assert_eq!(zeros().to_vec(), [0; 700]);
        assert_eq!(zeros().pieces().collect::<Vec<_>>(), [Piece::Zeros(700)]);
        assert_eq!(Data::Zero { len: 0, spare: None }.pieces().len(), 0);
        let one = Data::One(counted(700));
        assert_eq!(one.to_vec(), bytes[..]);
        assert_eq!(one.pieces().collect::<Vec<_>>(), [Piece::Bytes(&bytes)]);
        let many = Data::Many(vec![counted(512), counted(188)].into());
        assert_eq!(many.to_vec(), [&counted(512)[..], &counted(188)[..]].concat());
        let [first, second] = [counted(512), counted(188)];
        assert_eq!(
            many.pieces().collect::<Vec<_>>(),
            [Piece::Bytes(&first), Piece::Bytes(&second)]
        );
        let foreign = Data::Segments(Segments::of_bufs(vec![counted(700)]));
        assert_eq!(foreign.to_vec(), bytes[..]);
        let pieces: Vec<_> = foreign.pieces().collect();
        assert!(matches!(pieces[..], [Piece::Foreign(Segment { len: 700, .. })]), "{pieces:?}");
    }

    #[test]
    fn a_piece_of_a_buffer_is_not_to_be_used_again() {
        let mut data = Data::One(counted(1024));
        let rest = data.split_off(512);
        assert!(data.into_spare().is_none() && rest.into_spare().is_none());
    }
}

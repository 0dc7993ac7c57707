//! One stream, cut in several ways.

/// How a stream is cut: these lengths over and over.
pub(crate) type Cuts = [usize; 2];

/// The ways that a stream is cut: in one piece, byte by byte, and as the input says.
pub(crate) fn ways(told: [u8; 2]) -> [Cuts; 3] {
    let [first, second] = told.map(|length| 1 + usize::from(length));
    [[usize::MAX; 2], [1; 2], [first, second]]
}

/// The pieces of a stream.
pub(crate) fn pieces(bytes: &[u8], cuts: Cuts) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    let mut cuts = cuts.into_iter().cycle();
    std::iter::from_fn(move || {
        let cut = cuts.next()?.min(rest.len());
        let (piece, behind) = rest.split_at(cut);
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    })
}

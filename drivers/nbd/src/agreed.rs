//! The consequences of a server's description of its export: the device's limits, the exports that
//! have to be refused, and whether a server met again is still the same.

use weir_bio::{Limits, SECTOR};
use weir_proto_nbd::client::ServerInfo;
use weir_proto_nbd::wire::{BlockSizes, PAYLOAD_MAX_DEFAULT, TransmissionFlags as Offer};
use weir_queue::DriverError;

use crate::Options;

/// No payload is longer, whatever the server allows: what a weir buffer can hold.
const PAYLOAD_MAX: u32 = weir_bio::Buf::LEN_MAX as u32;

/// A preferred block above this is an optimum, not a physical block: no request smaller than it
/// would have to be read, modified and written.
const PHYSICAL_MAX: u32 = 1 << 16;

/// The limits of the device, and what a person should be told of them.
///
/// # Errors
/// When the export cannot be a device, or not a safe one: what stands against it, and what to do.
pub(crate) fn limits(
    site: &str,
    info: &ServerInfo,
    options: &Options,
) -> Result<(Limits, Vec<String>), DriverError> {
    let mut notices = Vec::new();
    let offers = |flag| info.flags.contains(flag);
    let read_only = offers(Offer::READ_ONLY) || options.read_only;
    let flush = offers(Offer::SEND_FLUSH);
    if !read_only && !flush {
        if !options.barriers_off {
            let what = format!(
                "{site}: the export is writable and the server offers no FLUSH, so no write on \
                 it can be made durable; set barriers=off to use it nevertheless, or readonly"
            );
            return Err(DriverError { what, source: None });
        }
        notices.push(format!(
            "{site}: the server offers no FLUSH and barriers are off: completed writes may be lost"
        ));
    }
    let BlockSizes { minimum, preferred, maximum } = info.block;
    let block = minimum.max(SECTOR as u32);
    let usable = info.size - info.size % u64::from(block);
    if usable == 0 {
        let size = info.size;
        let what = format!("{site}: size={size} is not even one block of {block} bytes");
        return Err(DriverError { what, source: None });
    }
    if usable != info.size {
        let size = info.size;
        notices.push(format!(
            "{site}: size={size} is not a multiple of {block} bytes; the last {} are out of reach",
            size - usable
        ));
    }
    let payload = if maximum == u32::MAX { PAYLOAD_MAX_DEFAULT } else { maximum.min(PAYLOAD_MAX) };
    // Without payload only the length field bounds a request: 32 bits, so that a server met again
    // without extended headers can be asked the same.
    let bare = (u32::MAX - u32::MAX % block) / SECTOR as u32;
    let if_offered = |flag| if offers(flag) && !read_only { bare } else { 0 };
    let limits = Limits {
        capacity: usable / SECTOR,
        read_only,
        rotational: offers(Offer::ROTATIONAL),
        volatile_cache: flush && !read_only,
        fua: offers(Offer::SEND_FUA),
        fua_ranges: offers(Offer::SEND_FUA),
        logical_block_size: block,
        physical_block_size: preferred.clamp(block, PHYSICAL_MAX.max(block)),
        io_opt: preferred,
        max_hw_sectors: payload / SECTOR as u32,
        max_segments: u16::MAX,
        max_segment_size: u32::MAX,
        seg_boundary_mask: u64::MAX,
        dma_alignment: 0,
        max_hw_discard_sectors: if_offered(Offer::SEND_TRIM),
        discard_granularity: block,
        max_write_zeroes_sectors: if_offered(Offer::SEND_WRITE_ZEROES),
        prefetch: offers(Offer::SEND_CACHE),
        fast_write_zeroes: offers(Offer::SEND_WRITE_ZEROES.with(Offer::SEND_FAST_ZERO)),
        ..Limits::default()
    };
    let limits = limits
        .validate()
        .map_err(|why| DriverError { what: format!("{site}: {why}"), source: None })?;
    Ok((limits, notices))
}

/// Why a server met again cannot stand for the one that was agreed with, if it cannot: requests
/// made for the old one would be wrong there.
pub(crate) fn difference(before: &ServerInfo, now: &ServerInfo) -> Option<String> {
    if now.size != before.size {
        return Some(format!("its size is {} and was {}", now.size, before.size));
    }
    let lost = before.flags.without(now.flags);
    // DF, and what has no name here, is never used; a disk that may be written and turns no more
    // can all that was asked of it before.
    let harmless = Offer::SEND_DF | Offer::READ_ONLY | Offer::ROTATIONAL;
    let lost = lost.without(harmless).without(lost.unknown());
    if !lost.is_empty() {
        return Some(format!("it no longer offers {lost:?}"));
    }
    if now.flags.contains(Offer::READ_ONLY) && !before.flags.contains(Offer::READ_ONLY) {
        return Some("it has become read-only".to_owned());
    }
    let (old, new) = (before.block, now.block);
    if new.minimum.max(SECTOR as u32) > old.minimum.max(SECTOR as u32) {
        return Some(format!("its minimum block is {} and was {}", new.minimum, old.minimum));
    }
    if new.maximum < old.maximum {
        return Some(format!("its maximum payload is {} and was {}", new.maximum, old.maximum));
    }
    None
}

#[cfg(test)]
mod tests {
    use weir_proto_nbd::wire::Mode;

    use super::*;

    const SIZE: u64 = 1 << 20;

    fn info(flags: Offer) -> ServerInfo {
        ServerInfo {
            size: SIZE,
            flags: flags | Offer::HAS_FLAGS,
            block: BlockSizes::UNADVERTISED,
            mode: Mode::Simple,
            allocation: None,
        }
    }

    fn judged(info: &ServerInfo, options: &Options) -> Result<(Limits, Vec<String>), DriverError> {
        limits("nbd:host:10809/sda", info, options)
    }

    #[test]
    fn the_limits_are_what_the_server_says() {
        let all = Offer::KNOWN.without(Offer::READ_ONLY);
        let mut info = info(all);
        info.block = BlockSizes { minimum: 4096, preferred: 65536, maximum: 1 << 22 };
        let (limits, notices) = judged(&info, &Options::default()).unwrap();
        assert!(notices.is_empty(), "{notices:?}");
        assert_eq!((limits.capacity, limits.logical_block_size), (SIZE / 512, 4096));
        assert_eq!((limits.physical_block_size, limits.io_opt), (65536, 65536));
        assert_eq!(limits.max_hw_sectors, 1 << 13);
        assert!(limits.volatile_cache && limits.fua && limits.rotational && !limits.read_only);
        assert_eq!(limits.max_hw_discard_sectors, (u32::MAX - 4095) / 512);
        assert_eq!(limits.max_write_zeroes_sectors, (u32::MAX - 4095) / 512);
        assert!(limits.fast_write_zeroes);
    }

    #[test]
    fn a_server_that_says_nothing_gets_the_protocol_s_defaults() {
        let (limits, _) = judged(&info(Offer::SEND_FLUSH), &Options::default()).unwrap();
        assert_eq!((limits.logical_block_size, limits.max_hw_sectors), (512, 32 << 11));
        assert_eq!((limits.max_hw_discard_sectors, limits.max_write_zeroes_sectors), (0, 0));
        let endless = BlockSizes { maximum: u32::MAX, ..BlockSizes::UNADVERTISED };
        let info = ServerInfo { block: endless, ..info(Offer::SEND_FLUSH) };
        assert_eq!(judged(&info, &Options::default()).unwrap().0.max_hw_sectors, 32 << 11);
    }

    #[test]
    fn a_writable_export_without_flush_is_refused_unless_barriers_are_off() {
        let why = judged(&info(Offer::EMPTY), &Options::default()).unwrap_err().to_string();
        assert!(why.contains("nbd:host:10809/sda") && why.contains("barriers=off"), "{why}");
        let off = Options { barriers_off: true, ..Options::default() };
        let (limits, notices) = judged(&info(Offer::EMPTY), &off).unwrap();
        assert!(!limits.volatile_cache && notices[0].contains("no FLUSH"), "{notices:?}");
        let reader = Options { read_only: true, ..Options::default() };
        assert!(judged(&info(Offer::EMPTY), &reader).unwrap().0.read_only);
        assert!(judged(&info(Offer::READ_ONLY), &Options::default()).unwrap().0.read_only);
    }

    #[test]
    fn a_size_of_no_whole_blocks_is_rounded_down_with_a_notice() {
        let odd = ServerInfo { size: 1_000_001, ..info(Offer::SEND_FLUSH) };
        let (limits, notices) = judged(&odd, &Options::default()).unwrap();
        assert_eq!(limits.capacity, 1_000_001 / 512);
        assert!(notices[0].contains("size=1000001"), "{notices:?}");
        let empty = ServerInfo { size: 511, ..info(Offer::SEND_FLUSH) };
        let why = judged(&empty, &Options::default()).unwrap_err().to_string();
        assert!(why.contains("size=511"), "{why}");
    }

    #[test]
    fn a_server_that_lost_something_is_another_one() {
        let before = info(Offer::SEND_FLUSH | Offer::SEND_TRIM);
        assert_eq!(difference(&before, &before), None);
        let more = ServerInfo { flags: before.flags | Offer::SEND_CACHE, ..before };
        assert_eq!(difference(&before, &more), None);
        let smaller = ServerInfo { size: SIZE - 512, ..before };
        assert!(difference(&before, &smaller).unwrap().contains("1048064"));
        let poorer = ServerInfo { flags: before.flags.without(Offer::SEND_TRIM), ..before };
        assert!(difference(&before, &poorer).unwrap().contains("SEND_TRIM"));
        let sealed = ServerInfo { flags: before.flags | Offer::READ_ONLY, ..before };
        assert!(difference(&before, &sealed).unwrap().contains("read-only"));
        let free = ServerInfo { flags: before.flags | Offer::SEND_CACHE, ..before };
        let turns = Offer::READ_ONLY | Offer::ROTATIONAL;
        let was = ServerInfo { flags: before.flags | turns, ..before };
        assert_eq!(difference(&was, &free), None, "it can more than before");
        let coarse = BlockSizes { minimum: 4096, ..before.block };
        assert!(difference(&before, &ServerInfo { block: coarse, ..before }).is_some());
        let tight = BlockSizes { maximum: 1 << 20, ..before.block };
        assert!(difference(&before, &ServerInfo { block: tight, ..before }).is_some());
    }
}

//! Where a sector is, and how long it takes to get there.

use weir_bio::Nanos;

use super::Hdd;

/// Where the heads are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cylinder: u64,
    pub(super) head: u64,
}

/// A sector on its track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spot {
    place: Place,
    /// Its number on the track.
    index: u64,
    /// Sectors of the track.
    of: u64,
}

#[derive(Clone, Copy, Debug)]
struct Band {
    first_sector: u64,
    first_cylinder: u64,
    track: u64,
}

#[derive(Debug)]
pub(super) struct Geometry {
    turn_ns: u64,
    heads: u64,
    bands: Vec<Band>,
    seek: (f64, f64, f64),
    settle: u64,
    head_switch: u64,
    track_skew: u64,
    cylinder_skew: u64,
}

impl Geometry {
    pub(super) fn new(spec: &Hdd) -> Geometry {
        let (mut sector, mut cylinder) = (0, 0);
        let mut bands = Vec::new();
        for zone in &spec.zones {
            bands.push(Band {
                first_sector: sector,
                first_cylinder: cylinder,
                track: zone.sectors,
            });
            sector += zone.cylinders * spec.heads * zone.sectors;
            cylinder += zone.cylinders;
        }
        Geometry {
            turn_ns: 60_000_000_000 / spec.rpm,
            heads: spec.heads,
            bands,
            seek: (spec.seek_base as f64, spec.seek_root as f64, spec.seek_linear as f64 / 1_000.0),
            settle: spec.settle,
            head_switch: spec.head_switch,
            track_skew: spec.track_skew,
            cylinder_skew: spec.cylinder_skew,
        }
    }

    fn spot(&self, sector: u64) -> Spot {
        let band = self.bands.iter().rev().find(|band| band.first_sector <= sector);
        let band = band.expect("the first begins at 0");
        let within = sector - band.first_sector;
        let track = within / band.track;
        let place =
            Place { cylinder: band.first_cylinder + track / self.heads, head: track % self.heads };
        Spot { place, index: within % band.track, of: band.track }
    }

    pub(super) fn place(&self, sector: u64) -> Place {
        self.spot(sector).place
    }

    /// When in a turn the sector comes by, ns.
    fn phase_ns(&self, spot: Spot) -> u64 {
        let lag = (self.heads - 1) * self.track_skew + self.cylinder_skew;
        let skew = spot.place.cylinder * (lag % self.turn_ns) + spot.place.head * self.track_skew;
        (spot.index * self.turn_ns / spot.of + skew) % self.turn_ns
    }

    /// From one place to another.
    fn move_ns(&self, from: Place, to: Place, writes: bool) -> u64 {
        let settle = if writes { self.settle } else { 0 };
        match (from.cylinder.abs_diff(to.cylinder), from.head == to.head) {
            (0, true) => 0,
            (0, false) => self.head_switch + settle,
            (cylinders, _) => {
                let (base, root, linear) = self.seek;
                let far = cylinders as f64;
                (base + root * far.sqrt() + linear * far) as u64 + settle
            }
        }
    }

    /// Until the sector is under its head, for heads that leave at `now`.
    pub(super) fn position_ns(&self, from: Place, sector: u64, writes: bool, now: Nanos) -> u64 {
        let spot = self.spot(sector);
        let moves = self.move_ns(from, spot.place, writes);
        let there = (now + moves).0 % self.turn_ns;
        moves.saturating_add((self.phase_ns(spot) + self.turn_ns - there) % self.turn_ns)
    }

    /// While so many sectors from this one pass under the heads, with the changes of track.
    pub(super) fn pass_ns(&self, sector: u64, sectors: u64) -> u64 {
        let (mut at, mut left, mut ns) = (sector, sectors, 0_u64);
        while left > 0 {
            let spot = self.spot(at);
            let here = left.min(spot.of - spot.index);
            ns = ns.saturating_add(here * self.turn_ns / spot.of);
            (at, left) = (at + here, left - here);
            if left > 0 {
                // The skew is at least as long as the change, so the next sector is not missed.
                let is_last_head = spot.place.head + 1 == self.heads;
                let skew = if is_last_head { self.cylinder_skew } else { self.track_skew };
                ns = ns.saturating_add(skew);
            }
        }
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::Zone;
    use super::*;

    const MS: u64 = 1_000_000;

    fn small() -> Geometry {
        Geometry::new(&Hdd {
            rpm: 6_000,
            heads: 2,
            zones: vec![Zone { cylinders: 10, sectors: 100 }, Zone { cylinders: 10, sectors: 50 }],
            seek_base: MS,
            seek_root: MS / 10,
            seek_linear: MS,
            settle: MS / 5,
            head_switch: MS / 2,
            track_skew: MS,
            cylinder_skew: 2 * MS,
            ..Hdd::default()
        })
    }

    #[test]
    fn a_sector_lies_where_its_zone_puts_it() {
        let geometry = small();
        let spot = |cylinder, head, index, of| Spot { place: Place { cylinder, head }, index, of };
        assert_eq!(geometry.spot(0), spot(0, 0, 0, 100));
        assert_eq!(geometry.spot(199), spot(0, 1, 99, 100));
        assert_eq!(geometry.spot(200), spot(1, 0, 0, 100));
        assert_eq!(geometry.spot(2_000), spot(10, 0, 0, 50));
        assert_eq!(geometry.spot(2_149), spot(11, 0, 49, 50));
    }

    #[test]
    fn a_seek_costs_by_its_curve_and_a_write_settles() {
        let geometry = small();
        let at = |cylinder, head| Place { cylinder, head };
        assert_eq!(geometry.move_ns(at(3, 1), at(3, 1), true), 0);
        assert_eq!(geometry.move_ns(at(3, 1), at(3, 0), false), MS / 2);
        assert_eq!(geometry.move_ns(at(3, 1), at(3, 0), true), MS / 2 + MS / 5);
        // 1 ms + 0.1 ms * sqrt(16) + 1 ms * 16 / 1000.
        assert_eq!(geometry.move_ns(at(0, 0), at(16, 1), false), MS + MS * 4 / 10 + 16 * MS / 1000);
    }

    #[test]
    fn the_wait_for_the_sector_is_less_than_a_turn_and_ends_with_it_under_the_head() {
        let geometry = small();
        for now in (0..30 * MS).step_by(123_457) {
            for sector in [0, 1, 99, 100, 250, 2_001, 2_999] {
                let ns = geometry.position_ns(Place::default(), sector, false, Nanos(now));
                let moves = geometry.move_ns(Place::default(), geometry.place(sector), false);
                assert!((moves..moves + 10 * MS).contains(&ns), "{ns}");
                let phase = geometry.phase_ns(geometry.spot(sector));
                assert_eq!((now + ns) % (10 * MS), phase, "sector {sector} at {now}");
            }
        }
    }

    #[test]
    fn a_pass_over_many_tracks_takes_the_turns_and_the_skews() {
        let geometry = small();
        assert_eq!(geometry.pass_ns(0, 100), 10 * MS);
        assert_eq!(geometry.pass_ns(0, 101), 10 * MS + MS + MS / 10);
        // Over the end of the cylinder.
        assert_eq!(geometry.pass_ns(100, 101), 10 * MS + 2 * MS + MS / 10);
        // A read that stops and one that goes on where it stopped pass the sector at one time.
        let phase = |sector| geometry.phase_ns(geometry.spot(sector));
        for sectors in [50, 100, 150, 250] {
            let after = (phase(0) + geometry.pass_ns(0, sectors)) % (10 * MS);
            let skew = if sectors % 200 == 0 { 2 * MS } else { MS };
            let crosses = sectors % 100 == 0;
            let expected = phase(sectors);
            let found = if crosses { (after + skew) % (10 * MS) } else { after };
            assert_eq!(found, expected, "{sectors}");
        }
    }
}

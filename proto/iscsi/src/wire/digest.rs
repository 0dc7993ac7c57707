//! The digests of header and data: CRC-32C. RFC 7143, section 13.1.

/// Which digests a connection carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// Behind every header.
    pub header: bool,
    /// Behind every data segment.
    pub data: bool,
}

impl Digests {
    /// None, as in the login phase.
    pub const NONE: Self = Self { header: false, data: false };
}

/// A CRC-32C (Castagnoli) in the making.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc(u32);

impl Crc {
    /// That of no bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Takes the next bytes in.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    /// As it travels: least significant byte first.
    #[must_use]
    pub const fn bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::Crc;

    /// RFC 7143, appendix A, "CRC Examples".
    #[test]
    fn the_digests_of_the_rfc_come_out_in_its_order_of_bytes() {
        let of = |bytes: &[u8]| {
            let mut crc = Crc::new();
            let (one, two) = bytes.split_at(bytes.len() / 3);
            crc.update(one);
            crc.update(two);
            crc.bytes()
        };
        assert_eq!(of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(of(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(of(&up), [0x4e, 0x79, 0xdd, 0x46]);
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(of(&down), [0x5c, 0xdb, 0x3f, 0x11]);
        let mut read = [0; 48];
        (read[0], read[1], read[16], read[20]) = (0x01, 0xc0, 0x14, 0);
        (read[22], read[24 + 3], read[28 + 3]) = (0x04, 0x14, 0x18);
        (read[32], read[40]) = (0x28, 0x02);
        assert_eq!(of(&read), [0x56, 0x3a, 0x96, 0xd9]);
    }
}

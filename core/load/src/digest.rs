//! MD5 (RFC 1321) and SHA-256 (FIPS 180-4), of memory: against damage, as fio offers them, and
//! against nothing that is meant.

/// A message in blocks of 64 bytes, ended by a one bit, zeros and its length in bits.
fn each_block(parts: &[&[u8]], length: impl Fn(u64) -> [u8; 8], mut take: impl FnMut(&[u8; 64])) {
    let (mut block, mut filled, mut bytes) = ([0; 64], 0, 0_u64);
    let mut put = |mut rest: &[u8], filled: &mut usize| {
        while !rest.is_empty() {
            let count = rest.len().min(64 - *filled);
            block[*filled..*filled + count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            *filled += count;
            if *filled == 64 {
                take(&block);
                *filled = 0;
            }
        }
    };
    for part in parts {
        put(part, &mut filled);
        bytes += part.len() as u64;
    }
    put(&[0x80], &mut filled);
    let zeros = (64 + 56 - filled) % 64;
    put(&[0; 64][..zeros], &mut filled);
    put(&length(bytes * 8), &mut filled);
}

const MD5_SHIFTS: [[u32; 4]; 4] =
    [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The MD5 of all parts together.
pub(crate) fn md5(parts: &[&[u8]]) -> [u8; 16] {
    // Of RFC 1321, section 3.4: the integer part of 2^32 times |sin i|, i from 1, radians.
    let sines: [u32; 64] =
        std::array::from_fn(|i| ((i as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32);
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    each_block(parts, u64::to_le_bytes, |block| {
        let word = |n: usize| {
            let bytes = &block[4 * n..4 * n + 4];
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (mixed, n) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((b & d) | (c & !d), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), (7 * i) % 16),
            };
            let sum = a.wrapping_add(mixed).wrapping_add(word(n)).wrapping_add(sines[i]);
            let turned = b.wrapping_add(sum.rotate_left(MD5_SHIFTS[i / 16][i % 4]));
            (a, b, c, d) = (d, turned, b, c);
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d]) {
            *sum = sum.wrapping_add(part);
        }
    });
    let mut digest = [0; 16];
    digest.as_chunks_mut().0.iter_mut().zip(state).for_each(|(to, part)| *to = part.to_le_bytes());
    digest
}

/// The first 32 bits of the fractions of the cube roots of the first 64 primes.
const SHA256_ROUNDS: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// The SHA-256 of all parts together.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut state = [
        0x6a09_e667_u32,
        0xbb67_ae85,
        0x3c6e_f372,
        0xa54f_f53a,
        0x510e_527f,
        0x9b05_688c,
        0x1f83_d9ab,
        0x5be0_cd19,
    ];
    each_block(parts, u64::to_be_bytes, |block| {
        let mut words = [0_u32; 64];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        for i in 16..64 {
            let (two, fifteen) = (words[i - 2], words[i - 15]);
            let far = two.rotate_right(17) ^ two.rotate_right(19) ^ two >> 10;
            let near = fifteen.rotate_right(7) ^ fifteen.rotate_right(18) ^ fifteen >> 3;
            words[i] =
                far.wrapping_add(words[i - 7]).wrapping_add(near).wrapping_add(words[i - 16]);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for (word, round) in words.iter().zip(SHA256_ROUNDS) {
            let high = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let one = h.wrapping_add(high).wrapping_add((e & f) ^ (!e & g));
            let one = one.wrapping_add(round).wrapping_add(*word);
            let low = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let two = low.wrapping_add((a & b) ^ (a & c) ^ (b & c));
            (h, g, f, e, d, c, b, a) =
                (g, f, e, d.wrapping_add(one), c, b, a, one.wrapping_add(two));
        }
        for (sum, part) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *sum = sum.wrapping_add(part);
        }
    });
    let mut digest = [0; 32];
    digest.as_chunks_mut().0.iter_mut().zip(state).for_each(|(to, part)| *to = part.to_be_bytes());
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn digests_are_those_of_the_standards() {
        // RFC 1321, appendix A.5.
        for (text, wanted) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(hex(&md5(&[text.as_bytes()])), wanted, "{text}");
        }
        // FIPS 180-2, appendix B.
        for (text, wanted) in [
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(hex(&sha256(&[text.as_bytes()])), wanted, "{text}");
        }
    }

    #[test]
    fn a_message_in_parts_is_the_same_as_whole() {
        let text: Vec<u8> = (0..200_u8).collect();
        for cut in 0..200 {
            let (one, two) = text.split_at(cut);
            assert_eq!(md5(&[one, two]), md5(&[&text]));
            assert_eq!(sha256(&[one, two]), sha256(&[&text]));
        }
    }
}

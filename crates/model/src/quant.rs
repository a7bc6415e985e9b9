//! Exact values of stored weights.

use crate::gguf::Encoding;

/// The value of an IEEE-754 binary16 number, exactly.
#[must_use]
pub fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let exponent = u32::from(bits >> 10) & 0x1f;
    let mantissa = u32::from(bits) & 0x3ff;
    match exponent {
        0 => {
            // Subnormal: mantissa * 2^-24, exact in binary32.
            let magnitude = mantissa as f32 * f32::from_bits(0x3380_0000);
            f32::from_bits(magnitude.to_bits() | sign)
        }
        0x1f => f32::from_bits(sign | 0x7f80_0000 | (mantissa << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (mantissa << 13)),
    }
}

/// The nearest binary16 number (ties to even); overflow gives an infinity.
#[must_use]
pub fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    if magnitude >= 0x4780_0000 {
        return sign | 0x7c00;
    }
    let (kept, dropped, half) = if magnitude < 0x3880_0000 {
        // Subnormal result: shift the full significand to units of 2^-24.
        let exponent = magnitude >> 23;
        if exponent < 102 {
            return sign;
        }
        let significand = (magnitude & 0x007f_ffff) | 0x0080_0000;
        let shift = 126 - exponent;
        (significand >> shift, significand & ((1 << shift) - 1), 1u32 << (shift - 1))
    } else {
        ((magnitude - 0x3800_0000) >> 13, magnitude & 0x1fff, 0x1000)
    };
    let up = u32::from(dropped > half || (dropped == half && kept & 1 == 1));
    sign | (kept + up) as u16
}

fn half(bytes: &[u8], at: usize) -> f64 {
    f64::from(f16_to_f32(u16::from_le_bytes([bytes[at], bytes[at + 1]])))
}

/// Writes the exact values of a row. `row` holds whole blocks for `out.len()` values ([`Encoding::row_bytes`]); what
/// either side has beyond the other is left alone.
pub fn dequantize(encoding: Encoding, row: &[u8], out: &mut [f64]) {
    let blocks = row.chunks_exact(encoding.block_bytes());
    match encoding {
        Encoding::F32 => {
            for (block, out) in blocks.zip(out) {
                *out = f64::from(f32::from_le_bytes([block[0], block[1], block[2], block[3]]));
            }
        }
        Encoding::Q4_1 => {
            for (block, out) in blocks.zip(out.chunks_exact_mut(32)) {
                let (d, m) = (half(block, 0), half(block, 2));
                let (low, high) = out.split_at_mut(16);
                for ((q, low), high) in block[4..].iter().zip(low).zip(high) {
                    *low = d * f64::from(q & 0x0f) + m;
                    *high = d * f64::from(q >> 4) + m;
                }
            }
        }
        Encoding::Q8_0 => {
            for (block, out) in blocks.zip(out.chunks_exact_mut(32)) {
                let d = half(block, 0);
                for (q, out) in block[2..].iter().zip(out) {
                    *out = d * f64::from(q.cast_signed());
                }
            }
        }
    }
}

/// As [`dequantize`], each value rounded to binary32 (exact for F32 and Q8_0).
pub fn dequantize_f32(encoding: Encoding, row: &[u8], out: &mut [f32]) {
    let mut block = [0f64; 32];
    let values = encoding.block_values();
    for (bytes, out) in row.chunks_exact(encoding.block_bytes()).zip(out.chunks_exact_mut(values)) {
        dequantize(encoding, bytes, &mut block[..values]);
        for (value, out) in block.iter().zip(out) {
            *out = *value as f32;
        }
    }
}

/// Appends `values` (whole blocks of 32) as Q4_1.
pub fn quantize_q4_1(values: &[f32], out: &mut Vec<u8>) {
    for block in values.chunks_exact(32) {
        let (low, high) =
            block.iter().fold((f32::MAX, f32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        let (d, m) = (f32_to_f16((high - low) / 15.0), f32_to_f16(low));
        let (scale, minimum) = (f16_to_f32(d), f16_to_f32(m));
        let code = |v: f32| {
            let q = if scale > 0.0 { ((v - minimum) / scale).round() } else { 0.0 };
            q.clamp(0.0, 15.0) as u8
        };
        out.extend_from_slice(&d.to_le_bytes());
        out.extend_from_slice(&m.to_le_bytes());
        let (first, second) = block.split_at(16);
        out.extend(first.iter().zip(second).map(|(a, b)| code(*a) | (code(*b) << 4)));
    }
}

/// Appends `values` (whole blocks of 32) as Q8_0.
pub fn quantize_q8_0(values: &[f32], out: &mut Vec<u8>) {
    for block in values.chunks_exact(32) {
        let top = block.iter().fold(0f32, |top, v| top.max(v.abs()));
        let d = f32_to_f16(top / 127.0);
        let scale = f16_to_f32(d);
        out.extend_from_slice(&d.to_le_bytes());
        out.extend(block.iter().map(|v| {
            let q = if scale > 0.0 { (v / scale).round() } else { 0.0 };
            (q.clamp(-127.0, 127.0) as i8).cast_unsigned()
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_half_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            let value = f16_to_f32(bits);
            if value.is_nan() {
                assert!(f16_to_f32(f32_to_f16(value)).is_nan());
            } else {
                assert_eq!(f32_to_f16(value), bits, "{bits:04x} = {value}");
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_the_nearest_even() {
        for (value, bits) in [
            (1.0, 0x3c00),
            (1.0 + 1.0 / 2048.0, 0x3c00),
            (1.0 + 3.0 / 2048.0, 0x3c02),
            (65504.0, 0x7bff),
            (65519.9, 0x7bff),
            (65520.0, 0x7c00),
            (1e9, 0x7c00),
            (2f32.powi(-25), 0),
            (2f32.powi(-25) * 1.0001, 1),
            (2f32.powi(-24) * 1.5, 2),
            (-0.0, 0x8000),
        ] {
            assert_eq!(f32_to_f16(value), bits, "{value}");
        }
    }

    #[test]
    fn a_block_means_what_the_format_says() {
        let mut q4 = vec![0x00, 0x3c, 0x00, 0xc0];
        q4.extend((0..16u8).map(|j| j | ((15 - j) << 4)));
        let mut out = [0f64; 32];
        dequantize(Encoding::Q4_1, &q4, &mut out);
        assert_eq!(out[3], 1.0);
        assert_eq!(out[16], 13.0);
        assert_eq!(out[31], -2.0);

        let mut q8 = vec![0x00, 0x38];
        q8.extend((0..32u8).map(|j| j.wrapping_sub(16)));
        dequantize(Encoding::Q8_0, &q8, &mut out);
        assert_eq!(out[0], -8.0);
        assert_eq!(out[31], 7.5);
    }

    proptest! {
        #[test]
        fn quantising_stays_within_half_a_step(values in prop::collection::vec(-4.0f32..4.0, 64)) {
            let spread = 8.0 / 15.0;
            for (encoding, bound) in [(Encoding::Q4_1, spread * 0.51 + 0.01), (Encoding::Q8_0, 4.0 / 127.0 * 0.51 + 0.004)] {
                let mut bytes = Vec::new();
                if encoding == Encoding::Q4_1 { quantize_q4_1(&values, &mut bytes) } else { quantize_q8_0(&values, &mut bytes) }
                prop_assert_eq!(bytes.len(), encoding.row_bytes(64).unwrap());
                let mut back = vec![0f64; 64];
                dequantize(encoding, &bytes, &mut back);
                for (a, b) in values.iter().zip(&back) {
                    prop_assert!((f64::from(*a) - b).abs() < bound, "{a} {b}");
                }
            }
        }
    }
}

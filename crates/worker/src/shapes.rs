//! The numbers of a conformance request and the shape they stand for.
//!
//! | Slot | dimensions | scalars | weights | inputs of a call |
//! |---|---|---|---|---|
//! | `linear.quantized` | phase (1 prefill, 2 decode), tokens; inline weights add rows, columns | – | Q4_1 or Q8_0 matrix | `[tokens][columns]` |
//! | `attention.decode` | cached positions, query heads, key-value heads, head size | scale | – | query, keys, values |
//! | `activation.silu_and_mul` | tokens, width | – | – | `[tokens][2 * width]` |
//! | `norm.rmsnorm` | tokens, width | epsilon | binary32 vector | `[tokens][width]` |
//!
//! All tensors are binary32, little-endian, without gaps between rows. Outputs: `[tokens][rows]`, `[query heads][head
//! size]`, `[tokens][width]`.

use crate::engine::SlotShape;
use cacheon_model::abi::{AttentionDims, CallDescriptor, MAX_TOKENS, Phase, Slot};
use cacheon_model::gguf::Encoding;

fn encoding(code: u32) -> Option<Encoding> {
    [Encoding::Q4_1, Encoding::Q8_0].into_iter().find(|encoding| encoding.code() == code)
}

/// Largest dimension that is looked at: keeps every product below 2^60.
const DIMENSION_MAX: u32 = 1 << 20;

/// The shape of a request, if its numbers describe one inside the header's domain. `matrix` holds rows, columns and type
/// code of a linear call's weight.
pub(crate) fn shape(slot: Slot, dims: &[u32], scalars: &[f32], matrix: [u32; 3]) -> Option<SlotShape> {
    if dims.iter().chain(&matrix[..2]).any(|dim| *dim > DIMENSION_MAX) {
        return None;
    }
    let size = |dim: u32| dim as usize;
    let tokens_fit = |tokens: u32| (1..=MAX_TOKENS as u32).contains(&tokens);
    match (slot, dims, scalars) {
        (Slot::LinearQuantized, [phase, tokens, rest @ ..], []) if tokens_fit(*tokens) => {
            let phase = [Phase::Prefill, Phase::Decode].into_iter().find(|p| p.code() == *phase)?;
            let [rows, cols, code] = matrix;
            if !(rest.is_empty() || rest == [rows, cols]) || (phase == Phase::Decode && *tokens != 1) {
                return None;
            }
            let good = rows >= 1 && (32..=16_384).contains(&cols) && cols.is_multiple_of(32);
            good.then_some(SlotShape::Linear {
                encoding: encoding(code)?,
                phase,
                num_tokens: size(*tokens),
                rows: size(rows),
                cols: size(cols),
                x_stride: size(cols),
                out_stride: size(rows),
            })
        }
        (Slot::AttentionDecode, [kv_len, heads, kv_heads, head_dim], [scale]) => {
            let good = (1..=8192).contains(kv_len)
                && (1..=64).contains(heads)
                && *kv_heads >= 1
                && heads.is_multiple_of(*kv_heads)
                && (8..=256).contains(head_dim)
                && head_dim.is_multiple_of(8)
                && scale.is_finite();
            good.then_some(SlotShape::Attention {
                kv_len: size(*kv_len),
                heads: size(*heads),
                kv_heads: size(*kv_heads),
                head_dim: size(*head_dim),
                kv_stride: size(*kv_heads) * size(*head_dim),
                scale: *scale,
            })
        }
        (Slot::SiluAndMul, [tokens, width], []) if tokens_fit(*tokens) && *width >= 1 => {
            let width = size(*width);
            Some(SlotShape::Silu { num_tokens: size(*tokens), width, x_stride: 2 * width, out_stride: width })
        }
        (Slot::RmsNorm, [tokens, width], [eps]) if tokens_fit(*tokens) && *width >= 1 && *eps > 0.0 => {
            let width = size(*width);
            let num_tokens = size(*tokens);
            Some(SlotShape::RmsNorm { num_tokens, width, x_stride: width, out_stride: width, eps: *eps })
        }
        _ => None,
    }
}

/// What a kernel's declared domain is matched against.
pub(crate) fn descriptor(shape: &SlotShape) -> CallDescriptor {
    let plain = |tokens: usize, last_dim: usize| CallDescriptor {
        phase: if tokens == 1 { Phase::Decode } else { Phase::Prefill },
        quant: "dense",
        num_tokens: tokens as u32,
        last_dim: last_dim as u32,
        hidden_dim: None,
        intermediate_dim: None,
        attention: None,
    };
    match *shape {
        SlotShape::Linear { encoding, phase, num_tokens, rows, cols, .. } => CallDescriptor {
            phase,
            quant: encoding.quant(),
            hidden_dim: Some(cols as u32),
            intermediate_dim: Some(rows as u32),
            ..plain(num_tokens, cols)
        },
        SlotShape::Attention { kv_len, heads, kv_heads, head_dim, .. } => CallDescriptor {
            attention: Some(AttentionDims {
                kv_len: kv_len as u32,
                num_q_heads: heads as u32,
                num_kv_heads: kv_heads as u32,
                head_dim: head_dim as u32,
            }),
            ..plain(1, head_dim)
        },
        SlotShape::Silu { num_tokens, width, .. } => {
            CallDescriptor { intermediate_dim: Some(width as u32), ..plain(num_tokens, 2 * width) }
        }
        SlotShape::RmsNorm { num_tokens, width, .. } => {
            CallDescriptor { hidden_dim: Some(width as u32), ..plain(num_tokens, width) }
        }
    }
}

/// Bytes of every input that the request carries (a norm's weight is not one), and of the output.
pub(crate) fn tensor_bytes(shape: &SlotShape) -> (Vec<usize>, usize) {
    let mut inputs: Vec<usize> =
        shape.input_floats().into_iter().map(|floats| floats * size_of::<f32>()).collect();
    if shape.slot() == Slot::RmsNorm {
        inputs.truncate(1);
    }
    (inputs, shape.output_floats() * size_of::<f32>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_the_header_have_no_shape() {
        let q4 = [64, 96, Encoding::Q4_1.code()];
        let good = shape(Slot::LinearQuantized, &[1, 7], &[], q4).unwrap();
        assert_eq!(tensor_bytes(&good), (vec![7 * 96 * 4], 7 * 64 * 4));
        assert_eq!(descriptor(&good).quant, "q4_1");
        assert!(shape(Slot::LinearQuantized, &[1, 7, 64, 96], &[], q4).is_some());
        for (dims, scalars, matrix) in [
            (vec![2, 7], vec![], q4),
            (vec![3, 1], vec![], q4),
            (vec![1, 0], vec![], q4),
            (vec![1, 129], vec![], q4),
            (vec![1, 7, 64, 95], vec![], q4),
            (vec![1, 7], vec![1.0], q4),
            (vec![1], vec![], q4),
            (vec![1, 7], vec![], [64, 40, 3]),
            (vec![1, 7], vec![], [64, 96, 0]),
            (vec![1, 7], vec![], [u32::MAX, 96, 3]),
        ] {
            assert_eq!(shape(Slot::LinearQuantized, &dims, &scalars, matrix), None, "{dims:?} {matrix:?}");
        }
        assert!(shape(Slot::AttentionDecode, &[5, 4, 2, 16], &[0.25], [0; 3]).is_some());
        assert!(shape(Slot::AttentionDecode, &[5, 4, 0, 16], &[0.25], [0; 3]).is_none());
        assert!(shape(Slot::AttentionDecode, &[5, 4, 2, 16], &[f32::NAN], [0; 3]).is_none());
        assert!(shape(Slot::RmsNorm, &[5, 4], &[f32::NAN], [0; 3]).is_none());
        let norm = shape(Slot::RmsNorm, &[5, 4], &[1e-5], [0; 3]).unwrap();
        assert_eq!(tensor_bytes(&norm), (vec![80], 80));
        assert!(shape(Slot::SiluAndMul, &[5, 0], &[], [0; 3]).is_none());
    }
}

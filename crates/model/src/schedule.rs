//! The calls one trajectory makes, in order: what a host samples from without asking the worker.

use crate::abi::{AttentionDims, CallDescriptor, MAX_TOKENS, Phase, Slot, WeightRole};
use crate::llama::{Config, Matrix, Model};

/// One slot call of a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedCall {
    /// Place in the trajectory, from 0.
    pub index: u64,
    /// The slot.
    pub slot: Slot,
    /// The weight it uses.
    pub role: WeightRole,
    /// The block it belongs to; `None` for the last norm and the head.
    pub layer: Option<u16>,
    /// Prompt or new token.
    pub phase: Phase,
    /// Position of its first row in the sequence.
    pub position: u32,
    /// Rows.
    pub num_tokens: u32,
}

/// The slot calls of one pass, in the order the engine makes them. `logits` tells whether the pass ends in the head.
fn pass(
    config: &Config,
    phase: Phase,
    position: usize,
    tokens: usize,
    logits: bool,
    out: &mut Vec<PlannedCall>,
) {
    let mut push = |slot, role, layer, position: usize, tokens: usize| {
        out.push(PlannedCall {
            index: out.len() as u64,
            slot,
            role,
            layer,
            phase,
            position: position as u32,
            num_tokens: tokens as u32,
        });
    };
    for layer in 0..config.layers {
        let layer = Some(layer as u16);
        let mut call = |slot, role| push(slot, role, layer, position, tokens);
        call(Slot::RmsNorm, WeightRole::AttnNorm);
        call(Slot::LinearQuantized, WeightRole::Q);
        call(Slot::LinearQuantized, WeightRole::K);
        call(Slot::LinearQuantized, WeightRole::V);
        if phase == Phase::Decode {
            call(Slot::AttentionDecode, WeightRole::None);
        }
        call(Slot::LinearQuantized, WeightRole::AttnOutput);
        call(Slot::RmsNorm, WeightRole::FfnNorm);
        call(Slot::LinearQuantized, WeightRole::Gate);
        call(Slot::LinearQuantized, WeightRole::Up);
        call(Slot::SiluAndMul, WeightRole::None);
        call(Slot::LinearQuantized, WeightRole::Down);
    }
    if logits {
        let last = position + tokens - 1;
        push(Slot::RmsNorm, WeightRole::OutputNorm, None, last, 1);
        push(Slot::LinearQuantized, WeightRole::Head, None, last, 1);
    }
}

/// Every slot call of a trajectory of `prompt` tokens and `new` generated ones (the last of which is never fed back).
/// Prompts are fed in pieces of [`MAX_TOKENS`].
#[must_use]
pub fn trajectory(config: &Config, prompt: usize, new: usize) -> Vec<PlannedCall> {
    let mut calls = Vec::new();
    let mut position = 0;
    while position < prompt {
        let tokens = (prompt - position).min(MAX_TOKENS);
        pass(config, Phase::Prefill, position, tokens, position + tokens == prompt, &mut calls);
        position += tokens;
    }
    for step in 1..new {
        pass(config, Phase::Decode, prompt + step - 1, 1, true, &mut calls);
    }
    calls
}

impl PlannedCall {
    /// Cached positions an attention call reads.
    #[must_use]
    pub const fn kv_len(&self) -> u32 {
        self.position + self.num_tokens
    }

    /// The descriptor that a kernel's declared domain is matched against.
    #[must_use]
    pub fn descriptor(&self, model: &Model<'_>) -> CallDescriptor {
        let config = &model.config;
        let plain = CallDescriptor {
            phase: self.phase,
            quant: "dense",
            num_tokens: self.num_tokens,
            last_dim: config.width as u32,
            hidden_dim: None,
            intermediate_dim: None,
            attention: None,
        };
        match self.slot {
            Slot::LinearQuantized => {
                model.matrix(self.role, self.layer).map_or(plain, |matrix| CallDescriptor {
                    quant: matrix.encoding.quant(),
                    last_dim: matrix.cols as u32,
                    hidden_dim: Some(matrix.cols as u32),
                    intermediate_dim: Some(matrix.rows as u32),
                    ..plain
                })
            }
            Slot::RmsNorm => CallDescriptor { hidden_dim: Some(config.width as u32), ..plain },
            Slot::SiluAndMul => CallDescriptor {
                last_dim: 2 * config.feed_forward as u32,
                intermediate_dim: Some(config.feed_forward as u32),
                ..plain
            },
            Slot::AttentionDecode => CallDescriptor {
                last_dim: config.head_dim as u32,
                attention: Some(AttentionDims {
                    kv_len: self.kv_len(),
                    num_q_heads: config.heads as u32,
                    num_kv_heads: config.kv_heads as u32,
                    head_dim: config.head_dim as u32,
                }),
                ..plain
            },
        }
    }
}

impl<'a> Model<'a> {
    /// The matrix a linear call uses.
    #[must_use]
    pub fn matrix(&self, role: WeightRole, layer: Option<u16>) -> Option<&Matrix<'a>> {
        if role == WeightRole::Head {
            return layer.is_none().then_some(&self.head);
        }
        let layer = self.layers.get(usize::from(layer?))?;
        match role {
            WeightRole::Q => Some(&layer.q),
            WeightRole::K => Some(&layer.k),
            WeightRole::V => Some(&layer.v),
            WeightRole::AttnOutput => Some(&layer.attn_output),
            WeightRole::Gate => Some(&layer.gate),
            WeightRole::Up => Some(&layer.up),
            WeightRole::Down => Some(&layer.down),
            _ => None,
        }
    }

    /// The weight a norm call uses.
    #[must_use]
    pub fn norm(&self, role: WeightRole, layer: Option<u16>) -> Option<&[f32]> {
        if role == WeightRole::OutputNorm {
            return layer.is_none().then_some(&self.output_norm);
        }
        let layer = self.layers.get(usize::from(layer?))?;
        match role {
            WeightRole::AttnNorm => Some(&layer.attn_norm),
            WeightRole::FfnNorm => Some(&layer.ffn_norm),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trajectory_has_the_calls_of_its_passes() {
        let config = Config {
            layers: 3,
            width: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            feed_forward: 160,
            vocabulary: 512,
            context: 2048,
            eps: 1e-5,
            rope_base: 1e4,
        };
        let count = |calls: &[PlannedCall], slot| calls.iter().filter(|c| c.slot == slot).count();
        let calls = trajectory(&config, 64, 50);
        assert_eq!(count(&calls, Slot::LinearQuantized), 50 * (3 * 7 + 1));
        assert_eq!(count(&calls, Slot::RmsNorm), 50 * (3 * 2 + 1));
        assert_eq!(count(&calls, Slot::AttentionDecode), 49 * 3);
        assert_eq!(calls.last().map(|c| (c.role, c.position)), Some((WeightRole::Head, 112)));
        assert!(calls.iter().enumerate().all(|(i, c)| c.index == i as u64));
        let long = trajectory(&config, 300, 1);
        assert_eq!(count(&long, Slot::LinearQuantized), 3 * 21 + 1);
        assert_eq!(long.last().map(|c| c.position), Some(299));
        assert!(trajectory(&config, 0, 0).is_empty());
    }
}

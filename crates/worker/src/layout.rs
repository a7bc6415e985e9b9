//! Which buffers a planned call reads and writes: the shim's own knowledge, so that a trace copies what a call of this
//! model must have used, whatever the engine process says. A test compares it with what the engine really passes.

use crate::arena::Table;
use crate::engine::BufferUse;
use cacheon_model::abi::{Phase, Slot, WeightRole};
use cacheon_model::llama::Config;
use cacheon_model::schedule::PlannedCall;

/// Rows of floats in the shared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Byte offset of the first float.
    pub(crate) at: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Floats from one row to the next.
    pub(crate) stride: usize,
    /// Floats of the buffer after the last row.
    pub(crate) slack: usize,
}

impl Region {
    /// Bytes of its rows, without the gaps.
    pub(crate) fn bytes(&self) -> usize {
        self.rows * self.cols * size_of::<f32>()
    }

    /// Byte offset and length of every row.
    pub(crate) fn row_spans(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Self { at, cols, stride, .. } = *self;
        (0..self.rows).map(move |row| (at + row * stride * size_of::<f32>(), cols * size_of::<f32>()))
    }

    /// Byte offset of the first float after the last row.
    pub(crate) fn end(&self) -> usize {
        self.span().end()
    }

    fn span(&self) -> Span {
        Span::new(self.at, self.rows, self.cols, self.stride)
    }

    /// Bytes of the canary behind the last row.
    pub(crate) fn canary_bytes(&self) -> usize {
        self.slack.min(CANARY_FLOATS) * size_of::<f32>()
    }

    /// Whether making `output` ready (its rows and the canary behind them) would write over these rows.
    pub(crate) fn overlaps(&self, output: &Self) -> bool {
        let canary = Span::plain(output.end(), output.canary_bytes());
        self.span().overlaps(&output.span()) || self.span().overlaps(&canary)
    }
}

/// Floats of a canary behind an output, where its buffer has that many left.
pub(crate) const CANARY_FLOATS: usize = 16;

/// Rows of floats from a byte address or offset on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    at: usize,
    rows: usize,
    /// Bytes of a row, and from one row to the next.
    row: usize,
    stride: usize,
}

impl Span {
    /// `rows` rows of `cols` floats, `stride` floats apart.
    pub(crate) fn new(at: usize, rows: usize, cols: usize, stride: usize) -> Self {
        Self { at, rows, row: cols * size_of::<f32>(), stride: stride * size_of::<f32>() }
    }

    /// `bytes` bytes.
    pub(crate) fn plain(at: usize, bytes: usize) -> Self {
        Self { at, rows: 1, row: bytes, stride: bytes }
    }

    /// The address after the last row.
    pub(crate) fn end(&self) -> usize {
        self.at + self.rows.saturating_sub(1) * self.stride + self.row
    }

    /// Whether a row of one lies over a row of the other: exact for rows that alternate in one buffer, careful otherwise.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        if self.row == 0 || other.row == 0 || self.end() <= other.at || other.end() <= self.at {
            return false;
        }
        if self.stride != other.stride || self.stride == 0 {
            return true;
        }
        let (low, high) = if self.at <= other.at { (self, other) } else { (other, self) };
        let shift = (high.at - low.at) % self.stride;
        shift < low.row || self.stride - shift < high.row
    }
}

/// The operands of a planned call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operands {
    /// Dimensions, in the slot's order: linear `[phase, tokens]`, attention `[kv_len, query heads, key-value heads, head
    /// size]`, activation and norm `[tokens, width]`.
    pub(crate) dims: Vec<u32>,
    /// Activations it reads (a norm's weight is named, not listed).
    pub(crate) inputs: Vec<Region>,
    pub(crate) output: Region,
}

/// Operands of `call`; `None` for a call the engine never makes.
pub(crate) fn operands(
    table: &Table,
    config: &Config,
    max_context: usize,
    call: &PlannedCall,
) -> Option<Operands> {
    let place = |used_as, first: usize, rows: usize, cols: usize, stride: usize| {
        let buffer = table.find(used_as)?;
        let used = first + rows.saturating_sub(1) * stride + cols;
        let slack = buffer.floats.checked_sub(used)?;
        Some(Region { at: buffer.offset()? + first * size_of::<f32>(), rows, cols, stride, slack })
    };
    let whole = |used_as, rows, cols| place(used_as, 0, rows, cols, cols);
    let rows = call.num_tokens as usize;
    let (width, kv, ff) = (config.width, config.kv_width(), config.feed_forward);
    let linear = |input, output| {
        Some(Operands {
            dims: vec![call.phase.code(), call.num_tokens],
            inputs: vec![input?],
            output: output?,
        })
    };
    let norm = |first: usize| {
        Some(Operands {
            dims: vec![call.num_tokens, width as u32],
            inputs: vec![place(BufferUse::Residual, first * width, rows, width, width)?],
            output: whole(BufferUse::Normed, rows, width)?,
        })
    };
    let normed = whole(BufferUse::Normed, rows, width);
    match (call.slot, call.role) {
        (Slot::RmsNorm, WeightRole::AttnNorm | WeightRole::FfnNorm) => norm(0),
        // The last row of the pass: a decode pass has one, a prompt piece up to the most tokens of a call.
        (Slot::RmsNorm, WeightRole::OutputNorm) => norm(match call.phase {
            Phase::Decode => 0,
            Phase::Prefill => call.position as usize % cacheon_model::abi::MAX_TOKENS,
        }),
        (Slot::LinearQuantized, WeightRole::Q) => linear(normed, whole(BufferUse::Query, rows, width)),
        (Slot::LinearQuantized, WeightRole::K) => linear(normed, whole(BufferUse::Key, rows, kv)),
        (Slot::LinearQuantized, WeightRole::V) => linear(normed, whole(BufferUse::Value, rows, kv)),
        (Slot::LinearQuantized, WeightRole::AttnOutput) => {
            linear(whole(BufferUse::Attended, rows, width), whole(BufferUse::Projected, rows, width))
        }
        (Slot::LinearQuantized, WeightRole::Gate) => {
            linear(normed, place(BufferUse::GateUp, 0, rows, ff, 2 * ff))
        }
        (Slot::LinearQuantized, WeightRole::Up) => {
            linear(normed, place(BufferUse::GateUp, ff, rows, ff, 2 * ff))
        }
        (Slot::LinearQuantized, WeightRole::Down) => {
            linear(whole(BufferUse::Gated, rows, ff), whole(BufferUse::Projected, rows, width))
        }
        (Slot::LinearQuantized, WeightRole::Head) => {
            linear(whole(BufferUse::Normed, 1, width), whole(BufferUse::Logits, 1, config.vocabulary))
        }
        (Slot::SiluAndMul, WeightRole::None) => Some(Operands {
            dims: vec![call.num_tokens, ff as u32],
            inputs: vec![whole(BufferUse::GateUp, rows, 2 * ff)?],
            output: whole(BufferUse::Gated, rows, ff)?,
        }),
        (Slot::AttentionDecode, WeightRole::None) => {
            let first = usize::from(call.layer?) * max_context * kv;
            let cached = call.kv_len() as usize;
            let heads = [call.kv_len(), config.heads as u32, config.kv_heads as u32, config.head_dim as u32];
            Some(Operands {
                dims: heads.to_vec(),
                inputs: vec![
                    whole(BufferUse::Query, 1, width)?,
                    place(BufferUse::KeyCache, first, cached, kv, kv)?,
                    place(BufferUse::ValueCache, first, cached, kv, kv)?,
                ],
                output: whole(BufferUse::Attended, 1, width)?,
            })
        }
        _ => None,
    }
}

/// Name of the model tensor that a call is given as weights; empty if none. `tied` says that the embedding is the head.
pub(crate) fn weight_name(role: WeightRole, layer: Option<u16>, tied: bool) -> String {
    let part = match role {
        WeightRole::None => return String::new(),
        WeightRole::OutputNorm => return "output_norm.weight".to_owned(),
        WeightRole::Head if tied => return "token_embd.weight".to_owned(),
        WeightRole::Head => return "output.weight".to_owned(),
        block => block.id(),
    };
    layer.map_or_else(String::new, |layer| format!("blk.{layer}.{part}.weight"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_alternate_do_not_overlap() {
        // Gate and up of three rows, eight floats each.
        let gate = Span::new(4096, 3, 8, 16);
        let up = Span::new(4096 + 32, 3, 8, 16);
        assert!(!gate.overlaps(&up) && !up.overlaps(&gate));
        assert!(gate.overlaps(&gate) && up.overlaps(&Span::new(4096 + 32 + 64, 1, 8, 16)));
        assert!(gate.overlaps(&Span::new(4096 + 28, 3, 8, 16)));
        assert!(up.overlaps(&Span::new(4096 + 64 * 3 - 4, 3, 8, 16)));
        assert!(!up.overlaps(&Span::plain(4096 + 64 * 3, 64)));
        assert!(up.overlaps(&Span::plain(4096 + 40, 4)), "other strides: careful");
        assert!(!gate.overlaps(&Span::plain(4100, 0)));
    }

    #[test]
    fn weights_have_the_names_of_the_file() {
        assert_eq!(weight_name(WeightRole::Gate, Some(3), true), "blk.3.ffn_gate.weight");
        assert_eq!(weight_name(WeightRole::Head, None, true), "token_embd.weight");
        assert_eq!(weight_name(WeightRole::Head, None, false), "output.weight");
        assert_eq!(weight_name(WeightRole::None, Some(3), true), "");
    }
}

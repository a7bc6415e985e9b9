//! One slot alone: fresh inputs, the same addresses, as often as the caller likes.

use super::dispatch::{Bindings, Call, Dispatcher, OutputRange, Shape, Target};
use super::memory::{Buffer, BufferAllocator, BufferUse};
use super::observer::{CallObserver, Input, SlotCounters};
use super::{EngineError, KernelSet, ffi};
use cacheon_model::abi::{
    AttentionDims, CallDescriptor, MAX_TOKENS, Phase, Slot, WORKSPACE_BYTES, WeightRole,
};
use cacheon_model::gguf::Encoding;
use std::sync::Arc;

/// The shape of a direct call, with every stride stated (in floats).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlotShape {
    /// `linear.quantized`: needs `weights` of `rows * row_bytes(cols)` bytes.
    Linear {
        /// Q4_1 or Q8_0.
        encoding: Encoding,
        /// Phase announced to the kernel.
        phase: Phase,
        /// Input rows.
        num_tokens: usize,
        /// Output features.
        rows: usize,
        /// Input features.
        cols: usize,
        /// Between input rows.
        x_stride: usize,
        /// Between output rows.
        out_stride: usize,
    },
    /// `attention.decode`
    Attention {
        /// Cached positions.
        kv_len: usize,
        /// Query heads.
        heads: usize,
        /// Key/value heads.
        kv_heads: usize,
        /// Values per head.
        head_dim: usize,
        /// Between cached rows.
        kv_stride: usize,
        /// Factor of the scores.
        scale: f32,
    },
    /// `activation.silu_and_mul`
    Silu {
        /// Input rows.
        num_tokens: usize,
        /// Output width.
        width: usize,
        /// Between input rows.
        x_stride: usize,
        /// Between output rows.
        out_stride: usize,
    },
    /// `norm.rmsnorm`
    RmsNorm {
        /// Input rows.
        num_tokens: usize,
        /// Row width.
        width: usize,
        /// Between input rows.
        x_stride: usize,
        /// Between output rows.
        out_stride: usize,
        /// Epsilon.
        eps: f32,
    },
}

/// Rows, columns and stride of an operand, in floats.
pub type Extent = (usize, usize, usize);

fn floats((rows, cols, stride): Extent) -> usize {
    rows.saturating_sub(1).saturating_mul(stride).saturating_add(cols)
}

impl SlotShape {
    /// The slot.
    #[must_use]
    pub const fn slot(&self) -> Slot {
        match self {
            Self::Linear { .. } => Slot::LinearQuantized,
            Self::Attention { .. } => Slot::AttentionDecode,
            Self::Silu { .. } => Slot::SiluAndMul,
            Self::RmsNorm { .. } => Slot::RmsNorm,
        }
    }

    /// Rows, columns and stride of every input in call order, and of the output.
    #[must_use]
    pub fn extents(&self) -> (Vec<Extent>, Extent) {
        match *self {
            Self::Linear { num_tokens, rows, cols, x_stride, out_stride, .. } => {
                (vec![(num_tokens, cols, x_stride)], (num_tokens, rows, out_stride))
            }
            Self::Attention { kv_len, heads, kv_heads, head_dim, kv_stride, .. } => {
                let (q, kv) = (heads * head_dim, (kv_len, kv_heads * head_dim, kv_stride));
                (vec![(1, q, q), kv, kv], (1, q, q))
            }
            Self::Silu { num_tokens, width, x_stride, out_stride } => {
                (vec![(num_tokens, 2 * width, x_stride)], (num_tokens, width, out_stride))
            }
            Self::RmsNorm { num_tokens, width, x_stride, out_stride, .. } => {
                (vec![(num_tokens, width, x_stride), (1, width, width)], (num_tokens, width, out_stride))
            }
        }
    }

    /// Floats of every input in call order, gaps between rows included.
    #[must_use]
    pub fn input_floats(&self) -> Vec<usize> {
        self.extents().0.into_iter().map(floats).collect()
    }

    /// Floats of the output, gaps between rows included.
    #[must_use]
    pub fn output_floats(&self) -> usize {
        floats(self.extents().1)
    }

    /// Bytes of the weight a linear call (quantised rows) or a norm (binary32, little-endian) needs; 0 for the others.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        match *self {
            Self::Linear { encoding, rows, cols, .. } => {
                encoding.row_bytes(cols).and_then(|bytes| bytes.checked_mul(rows)).unwrap_or(usize::MAX)
            }
            Self::RmsNorm { width, .. } => width.saturating_mul(size_of::<f32>()),
            Self::Attention { .. } | Self::Silu { .. } => 0,
        }
    }

    /// Checks the header's domain. Everything beyond it is the caller's mistake, never the kernel's.
    fn check(&self, weights: &[u8]) -> Result<(), EngineError> {
        const MOST: usize = 1 << 28;
        let slot = self.slot();
        let refuse = |why| Err(EngineError::Shape { slot, why });
        let (tokens, good) = match *self {
            Self::Linear { encoding, rows, cols, num_tokens, phase, .. } => {
                let good = encoding != Encoding::F32
                    && rows >= 1
                    && (32..=16_384).contains(&cols)
                    && cols.is_multiple_of(32)
                    && (phase == Phase::Prefill || num_tokens == 1);
                (num_tokens, good)
            }
            Self::Attention { kv_len, heads, kv_heads, head_dim, scale, .. } => {
                let good = (1..=8192).contains(&kv_len)
                    && (1..=64).contains(&heads)
                    && kv_heads >= 1
                    && heads.is_multiple_of(kv_heads)
                    && (8..=256).contains(&head_dim)
                    && head_dim.is_multiple_of(8)
                    && scale.is_finite();
                (1, good)
            }
            Self::Silu { num_tokens, width, .. } => (num_tokens, (1..=MOST).contains(&width)),
            Self::RmsNorm { num_tokens, width, eps, .. } => {
                (num_tokens, (1..=MOST).contains(&width) && eps > 0.0)
            }
        };
        if !good || !(1..=MAX_TOKENS).contains(&tokens) {
            return refuse("the shape is outside the header's domain");
        }
        let (inputs, output) = self.extents();
        if inputs.iter().chain([&output]).any(|e| e.2 < e.1 || floats(*e) > MOST) {
            return refuse("a stride is shorter than its row, or an operand too large");
        }
        if weights.len() != self.weight_bytes() {
            return refuse("the weight has another size");
        }
        Ok(())
    }

    fn descriptor(&self) -> CallDescriptor {
        let call = |phase, quant, tokens: usize, last: usize, hidden: Option<usize>, inter: Option<usize>| {
            CallDescriptor {
                phase,
                quant,
                num_tokens: tokens as u32,
                last_dim: last as u32,
                hidden_dim: hidden.map(|v| v as u32),
                intermediate_dim: inter.map(|v| v as u32),
                attention: None,
            }
        };
        let phase = |tokens: usize| if tokens == 1 { Phase::Decode } else { Phase::Prefill };
        match *self {
            Self::Linear { encoding, phase, num_tokens, rows, cols, .. } => {
                call(phase, encoding.quant(), num_tokens, cols, Some(cols), Some(rows))
            }
            Self::Attention { kv_len, heads, kv_heads, head_dim, .. } => CallDescriptor {
                attention: Some(AttentionDims {
                    kv_len: kv_len as u32,
                    num_q_heads: heads as u32,
                    num_kv_heads: kv_heads as u32,
                    head_dim: head_dim as u32,
                }),
                ..call(Phase::Decode, "dense", 1, head_dim, None, None)
            },
            Self::Silu { num_tokens, width, .. } => {
                call(phase(num_tokens), "dense", num_tokens, 2 * width, None, Some(width))
            }
            Self::RmsNorm { num_tokens, width, .. } => {
                call(phase(num_tokens), "dense", num_tokens, width, Some(width), None)
            }
        }
    }

    fn shape(&self) -> Shape {
        match *self {
            Self::Linear { x_stride, out_stride, .. } => Shape::Linear { x_stride, out_stride },
            Self::Attention { kv_len, heads, kv_heads, head_dim, kv_stride, scale } => {
                Shape::Attention(ffi::Attention {
                    kv_len: kv_len as u32,
                    num_q_heads: heads as u32,
                    num_kv_heads: kv_heads as u32,
                    head_dim: head_dim as u32,
                    kv_stride: kv_stride as u64,
                    scale,
                    reserved: 0,
                })
            }
            Self::Silu { num_tokens, width, x_stride, out_stride } => Shape::Silu(ffi::Silu {
                num_tokens: num_tokens as u32,
                width: width as u32,
                x_stride: x_stride as u64,
                out_stride: out_stride as u64,
            }),
            Self::RmsNorm { num_tokens, width, x_stride, out_stride, eps } => Shape::RmsNorm(ffi::RmsNorm {
                num_tokens: num_tokens as u32,
                width: width as u32,
                x_stride: x_stride as u64,
                out_stride: out_stride as u64,
                eps,
                reserved: 0,
            }),
        }
    }
}

/// A slot of one publication with buffers of its own.
pub struct SlotSession {
    shape: SlotShape,
    inputs: Vec<Buffer>,
    output: Buffer,
    /// What the descriptor of the weight points into, and the workspace.
    _held: Vec<Buffer>,
    dispatcher: Dispatcher,
    calls: u64,
}

impl SlotSession {
    /// Makes the buffers, copies the weight (quantised ones 64-byte aligned) and prepares it. The call is served by
    /// the op of `kernels` whose declared domain holds it; a call in nobody's domain is refused at [`SlotSession::run`].
    ///
    /// # Errors
    /// A shape outside the header's domain, a weight of another size, no memory, or an overrun arena.
    pub fn open(
        kernels: &Arc<KernelSet>,
        shape: SlotShape,
        weights: &[u8],
        memory: &mut dyn BufferAllocator,
        observer: &mut dyn CallObserver,
    ) -> Result<Self, EngineError> {
        shape.check(weights)?;
        let mut inputs = Vec::new();
        for floats in shape.input_floats() {
            inputs.push(memory.allocate(BufferUse::SlotInput, floats)?);
        }
        let output = memory.allocate(BufferUse::SlotOutput, shape.output_floats())?;
        let mut held = Vec::new();
        let mut descriptor = ffi::Weights::NONE;
        if let SlotShape::Linear { encoding, rows, cols, .. } = shape {
            // Sixteen floats of slack reach the next multiple of 64 bytes, whatever the allocator gives.
            let mut buffer =
                memory.allocate(BufferUse::Workspace, weights.len().div_ceil(size_of::<f32>()) + 16)?;
            let start = buffer.as_mut_slice().as_mut_ptr().cast::<u8>();
            let start = start.wrapping_add(start.align_offset(64));
            // SAFETY: the buffer is at most 60 bytes misaligned and has 64 bytes more than the weight.
            unsafe { std::ptr::copy_nonoverlapping(weights.as_ptr(), start, weights.len()) };
            held.push(buffer);
            descriptor = ffi::Weights {
                data: start.cast_const().cast(),
                bytes: weights.len() as u64,
                row_bytes: (weights.len() / rows) as u64,
                rows: rows as u32,
                cols: cols as u32,
                dtype: encoding.code(),
                reserved: 0,
            };
        } else if let (SlotShape::RmsNorm { width, .. }, Some(weight)) = (shape, inputs.get_mut(1)) {
            for (value, bytes) in weight.as_mut_slice().iter_mut().zip(weights.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
            let bytes = (width * size_of::<f32>()) as u64;
            descriptor = ffi::Weights {
                data: weight.as_ptr().cast_const().cast(),
                bytes,
                row_bytes: bytes,
                rows: 1,
                cols: width as u32,
                ..ffi::Weights::NONE
            };
        }
        let workspace = memory.allocate(BufferUse::Workspace, WORKSPACE_BYTES / size_of::<f32>())?;
        let target = Target {
            slot: shape.slot(),
            role: WeightRole::None,
            layer: None,
            weights: descriptor,
            call: shape.descriptor(),
        };
        let nothing = Arc::new(KernelSet { ops: Vec::new() });
        let bindings = Bindings { stock: nothing, bound: vec![(shape.slot(), Arc::clone(kernels))] };
        let (dispatcher, _) = Dispatcher::bind(&[target], &bindings, workspace.as_ptr(), observer)?;
        held.push(workspace);
        Ok(Self { shape, inputs, output, _held: held, dispatcher, calls: 0 })
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> &SlotShape {
        &self.shape
    }

    /// Input `input` in call order, to fill before [`SlotSession::run`]; empty beyond the last. A norm's second input is its
    /// weight: prepared, and not to be changed.
    #[must_use]
    pub fn input_mut(&mut self, input: usize) -> &mut [f32] {
        self.inputs.get_mut(input).map(Buffer::as_mut_slice).unwrap_or_default()
    }

    /// The output, gaps included.
    #[must_use]
    pub fn output(&self) -> &[f32] {
        self.output.as_slice()
    }

    /// The output, to poison it.
    #[must_use]
    pub fn output_mut(&mut self) -> &mut [f32] {
        self.output.as_mut_slice()
    }

    /// Calls the kernel on what the buffers hold.
    ///
    /// # Errors
    /// No op of the publication serves this shape (not loaded, outside its declared domain, or two claim it).
    pub fn run(&mut self, observer: &mut dyn CallObserver) -> Result<(), EngineError> {
        let descriptor = self.shape.descriptor();
        let (extents, (rows, cols, stride)) = self.shape.extents();
        let inputs: Vec<Input<'_>> = extents
            .into_iter()
            .zip(&self.inputs)
            .map(|((rows, cols, stride), buffer)| Input { data: buffer.as_slice(), rows, cols, stride })
            .collect();
        let start = self.output.as_mut_slice().as_mut_ptr();
        let call = Call {
            prompt: 0,
            index: self.calls,
            slot: self.shape.slot(),
            role: WeightRole::None,
            layer: None,
            phase: descriptor.phase,
            position: 0,
            num_tokens: descriptor.num_tokens,
            kv_len: descriptor.attention.map_or(0, |a| a.kv_len),
            shape: self.shape.shape(),
            inputs: &inputs,
            output: OutputRange { start, capacity: self.output.len(), rows, cols, stride },
        };
        self.calls += 1;
        self.dispatcher.call(0, call, observer)
    }

    /// What happened so far in this slot.
    #[must_use]
    pub fn counters(&self) -> SlotCounters {
        self.dispatcher.counters()[self.shape.slot().index()]
    }
}

//! Passes over the model.

use super::attend::PromptAttention;
use super::dispatch::{Bindings, Call, Dispatcher, OutputRange, Shape, Target};
use super::memory::{Buffer, BufferAllocator, BufferUse};
use super::observer::{CallObserver, Input, SlotCounters};
use super::{EngineError, PrepareReport, ffi};
use cacheon_model::abi::{MAX_TOKENS, Phase, Slot, WORKSPACE_BYTES, WeightRole};
use cacheon_model::gguf::Gguf;
use cacheon_model::llama::{Config, Matrix, Model};
use cacheon_model::quant::dequantize_f32;
use cacheon_model::schedule::PlannedCall;

/// How large the engine's caches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most positions of one sequence, prompt and new tokens together.
    pub max_context: usize,
}

/// Norm, four projections, norm, two projections, one projection: the weights of a block in route order.
const ROUTES_PER_LAYER: usize = 9;

struct Buffers {
    residual: Buffer,
    normed: Buffer,
    query: Buffer,
    key: Buffer,
    value: Buffer,
    key_cache: Buffer,
    value_cache: Buffer,
    attended: Buffer,
    gate_up: Buffer,
    gated: Buffer,
    projected: Buffer,
    logits: Buffer,
    norm_weights: Buffer,
    workspace: Buffer,
}

/// A model ready to run on bound kernels.
pub struct Engine<'m> {
    model: Model<'m>,
    limits: Limits,
    buffers: Buffers,
    /// `[position][head_dim / 2]` of (cos, sin).
    rotations: Vec<[f32; 2]>,
    scores: Vec<f32>,
    dispatcher: Option<Dispatcher>,
}

/// Where in a request a pass stands.
struct Cursor<'o> {
    observer: &'o mut dyn CallObserver,
    prompt: u32,
    index: u64,
    phase: Phase,
    position: usize,
    tokens: usize,
}

fn input(buffer: &Buffer, at: usize, rows: usize, cols: usize, stride: usize) -> Input<'_> {
    let used = rows.saturating_sub(1) * stride + cols;
    Input { data: buffer.as_slice().get(at..at + used).unwrap_or_default(), rows, cols, stride }
}

fn output(buffer: &mut Buffer, at: usize, rows: usize, cols: usize, stride: usize) -> OutputRange {
    let rest = buffer.as_mut_slice().get_mut(at..).unwrap_or_default();
    OutputRange { start: rest.as_mut_ptr(), capacity: rest.len(), rows, cols, stride }
}

fn descriptor(matrix: &Matrix<'_>) -> ffi::Weights {
    ffi::Weights {
        data: matrix.data.as_ptr().cast(),
        bytes: matrix.data.len() as u64,
        row_bytes: matrix.row_bytes() as u64,
        rows: matrix.rows as u32,
        cols: matrix.cols as u32,
        dtype: matrix.encoding.code(),
        reserved: 0,
    }
}

impl<'m> Engine<'m> {
    /// Reads the model and makes all buffers. Nothing foreign runs yet; a process may be forked from here.
    ///
    /// # Errors
    /// A malformed or foreign model file, bytes that do not start at a multiple of 32, or no memory.
    pub fn open(
        bytes: &'m [u8],
        limits: Limits,
        memory: &mut dyn BufferAllocator,
    ) -> Result<Self, EngineError> {
        if !bytes.as_ptr().addr().is_multiple_of(32) {
            return Err(EngineError::Misaligned);
        }
        let model = Model::bind(&Gguf::parse(bytes)?)?;
        let Config { layers, width, feed_forward, vocabulary, context, head_dim, rope_base, .. } =
            model.config;
        let positions = limits.max_context.clamp(1, context);
        let limits = Limits { max_context: positions };
        let kv = model.config.kv_width();
        let mut allocate = |used_as, floats| memory.allocate(used_as, floats);
        let mut buffers = Buffers {
            residual: allocate(BufferUse::Residual, MAX_TOKENS * width)?,
            normed: allocate(BufferUse::Normed, MAX_TOKENS * width)?,
            query: allocate(BufferUse::Query, MAX_TOKENS * width)?,
            key: allocate(BufferUse::Key, MAX_TOKENS * kv)?,
            value: allocate(BufferUse::Value, MAX_TOKENS * kv)?,
            key_cache: allocate(BufferUse::KeyCache, layers * positions * kv)?,
            value_cache: allocate(BufferUse::ValueCache, layers * positions * kv)?,
            attended: allocate(BufferUse::Attended, MAX_TOKENS * width)?,
            gate_up: allocate(BufferUse::GateUp, MAX_TOKENS * 2 * feed_forward)?,
            gated: allocate(BufferUse::Gated, MAX_TOKENS * feed_forward)?,
            projected: allocate(BufferUse::Projected, MAX_TOKENS * width)?,
            logits: allocate(BufferUse::Logits, vocabulary)?,
            norm_weights: allocate(BufferUse::NormWeights, (2 * layers + 1) * width)?,
            workspace: allocate(BufferUse::Workspace, WORKSPACE_BYTES / size_of::<f32>())?,
        };
        let norms = model.layers.iter().flat_map(|layer| [&layer.attn_norm, &layer.ffn_norm]);
        let weights = buffers.norm_weights.as_mut_slice().chunks_exact_mut(width);
        for (values, place) in norms.chain([&model.output_norm]).zip(weights) {
            place.copy_from_slice(values);
        }
        let half = head_dim / 2;
        let rotations = (0..positions * half).map(|i| {
            let frequency = f64::from(rope_base).powf(-2.0 * (i % half) as f64 / head_dim as f64);
            let (sin, cos) = ((i / half) as f64 * frequency).sin_cos();
            [cos as f32, sin as f32]
        });
        Ok(Self {
            rotations: rotations.collect(),
            scores: vec![0.0; positions],
            model,
            limits,
            buffers,
            dispatcher: None,
        })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model<'m> {
        &self.model
    }

    /// Positions the caches hold.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    fn targets(&self) -> Vec<Target> {
        let describe = |slot, role, layer| {
            PlannedCall { index: 0, slot, role, layer, phase: Phase::Decode, position: 0, num_tokens: 1 }
                .descriptor(&self.model)
        };
        let width = self.model.config.width;
        let norm = |role, layer, at: usize| {
            let values = input(&self.buffers.norm_weights, at * width, 1, width, width);
            let bytes = (width * size_of::<f32>()) as u64;
            let weights = ffi::Weights {
                data: values.data.as_ptr().cast(),
                bytes,
                row_bytes: bytes,
                rows: 1,
                cols: width as u32,
                ..ffi::Weights::NONE
            };
            let slot = Slot::RmsNorm;
            Target { slot, role, layer, weights, call: describe(slot, role, layer) }
        };
        let linear = |role, layer, matrix: &Matrix<'_>| {
            let slot = Slot::LinearQuantized;
            Target { slot, role, layer, weights: descriptor(matrix), call: describe(slot, role, layer) }
        };
        let bare = |slot| {
            let role = WeightRole::None;
            Target { slot, role, layer: None, weights: ffi::Weights::NONE, call: describe(slot, role, None) }
        };
        let mut targets = Vec::new();
        for (i, layer) in self.model.layers.iter().enumerate() {
            let at = Some(i as u16);
            targets.extend([
                norm(WeightRole::AttnNorm, at, 2 * i),
                linear(WeightRole::Q, at, &layer.q),
                linear(WeightRole::K, at, &layer.k),
                linear(WeightRole::V, at, &layer.v),
                linear(WeightRole::AttnOutput, at, &layer.attn_output),
                norm(WeightRole::FfnNorm, at, 2 * i + 1),
                linear(WeightRole::Gate, at, &layer.gate),
                linear(WeightRole::Up, at, &layer.up),
                linear(WeightRole::Down, at, &layer.down),
            ]);
        }
        targets.extend([
            norm(WeightRole::OutputNorm, None, 2 * self.model.layers.len()),
            linear(WeightRole::Head, None, &self.model.head),
            bare(Slot::AttentionDecode),
            bare(Slot::SiluAndMul),
        ]);
        targets
    }

    /// Binds kernels and prepares every weight; replaces an earlier binding and its counters.
    ///
    /// # Errors
    /// A slot bound twice, an arena that could not be had or was overrun.
    pub fn bind(
        &mut self,
        bindings: &Bindings,
        observer: &mut dyn CallObserver,
    ) -> Result<Vec<PrepareReport>, EngineError> {
        let workspace = self.buffers.workspace.as_ptr();
        let (dispatcher, reports) = Dispatcher::bind(&self.targets(), bindings, workspace, observer)?;
        self.dispatcher = Some(dispatcher);
        Ok(reports)
    }

    /// What has happened since [`Engine::bind`], by slot.
    #[must_use]
    pub fn counters(&self) -> [SlotCounters; 4] {
        self.dispatcher.as_ref().map(Dispatcher::counters).unwrap_or_default()
    }

    /// Runs the kernels' `destroy` functions and forgets them.
    pub fn close(&mut self) {
        if let Some(dispatcher) = self.dispatcher.take() {
            dispatcher.close();
        }
    }

    fn check(&self, tokens: &[u32], new: usize) -> Result<(), EngineError> {
        let (prompt, limit) = (tokens.len(), self.limits.max_context);
        if prompt == 0 || prompt.checked_add(new).is_none_or(|total| total > limit) {
            return Err(EngineError::Context { prompt, new, limit });
        }
        let vocabulary = self.model.config.vocabulary;
        match tokens.iter().find(|token| **token as usize >= vocabulary) {
            Some(token) => Err(EngineError::Token { token: *token, vocabulary }),
            None => Ok(()),
        }
    }

    /// Extends every prompt by exactly `new` tokens, the likeliest each time (ties and unordered logits go to the lowest
    /// id), one prompt after another.
    ///
    /// # Errors
    /// Prompts outside the context or the vocabulary, or no kernel for a call.
    pub fn generate(
        &mut self,
        prompts: &[Vec<u32>],
        new: usize,
        observer: &mut dyn CallObserver,
    ) -> Result<Vec<Vec<u32>>, EngineError> {
        for prompt in prompts {
            self.check(prompt, new)?;
        }
        let mut all = Vec::with_capacity(prompts.len());
        for (i, prompt) in prompts.iter().enumerate() {
            let mut made = Vec::with_capacity(new);
            self.trajectory(prompt, i as u32, observer, |logits| {
                made.push(likeliest(logits));
                (made.len() < new).then(|| made.last().copied()).flatten()
            })?;
            made.truncate(new);
            all.push(made);
        }
        Ok(all)
    }

    /// Feeds a given sequence through exactly the calls that generating it would have made, and returns the natural-log
    /// probability of each token from `prompt` on: for scoring, and for observing a trajectory call by call.
    ///
    /// # Errors
    /// As [`Engine::generate`]; an empty prompt, or nothing after it.
    pub fn replay(
        &mut self,
        tokens: &[u32],
        prompt: usize,
        observer: &mut dyn CallObserver,
    ) -> Result<Vec<f32>, EngineError> {
        let new = tokens.len().saturating_sub(prompt);
        let limit = self.limits.max_context;
        let Some((given, forced)) =
            tokens.split_at_checked(prompt).filter(|(given, forced)| !given.is_empty() && !forced.is_empty())
        else {
            return Err(EngineError::Context { prompt, new, limit });
        };
        self.check(tokens, 0)?;
        let mut scores = Vec::with_capacity(forced.len());
        self.trajectory(given, 0, observer, |logits| {
            let token = forced[scores.len()];
            scores.push(log_probability(logits, token));
            (scores.len() < forced.len()).then_some(token)
        })?;
        Ok(scores)
    }

    /// Logits after the last of `tokens`, by one prompt pass.
    ///
    /// # Errors
    /// As [`Engine::generate`].
    pub fn logits(&mut self, tokens: &[u32], observer: &mut dyn CallObserver) -> Result<&[f32], EngineError> {
        self.check(tokens, 0)?;
        self.trajectory(tokens, 0, observer, |_| None)?;
        Ok(self.buffers.logits.as_slice())
    }

    /// One sequence: the prompt, then whatever `next` makes of each row of logits until it ends.
    fn trajectory(
        &mut self,
        prompt: &[u32],
        number: u32,
        observer: &mut dyn CallObserver,
        mut next: impl FnMut(&[f32]) -> Option<u32>,
    ) -> Result<(), EngineError> {
        let mut cursor =
            Cursor { observer, prompt: number, index: 0, phase: Phase::Prefill, position: 0, tokens: 0 };
        for piece in prompt.chunks(MAX_TOKENS) {
            cursor.tokens = piece.len();
            let last = cursor.position + piece.len() == prompt.len();
            self.pass(piece, last, &mut cursor)?;
            cursor.position += piece.len();
        }
        cursor.phase = Phase::Decode;
        cursor.tokens = 1;
        while let Some(token) = next(self.buffers.logits.as_slice()) {
            self.pass(&[token], true, &mut cursor)?;
            cursor.position += 1;
        }
        Ok(())
    }

    fn pass(&mut self, tokens: &[u32], logits: bool, at: &mut Cursor<'_>) -> Result<(), EngineError> {
        let Some(dispatcher) = &mut self.dispatcher else { return Err(EngineError::Unbound) };
        let (model, b) = (&self.model, &mut self.buffers);
        let config = &model.config;
        let Config { layers, width, feed_forward, head_dim, .. } = *config;
        let (rows, kv) = (tokens.len(), config.kv_width());
        let embedding = &model.embedding;
        let embedded = b.residual.as_mut_slice().chunks_exact_mut(width);
        for (token, row) in tokens.iter().zip(embedded) {
            dequantize_f32(embedding.encoding, embedding.row(*token as usize), row);
        }
        let rotations = &self.rotations[at.position * head_dim / 2..];
        let mut run = Runner { dispatcher, at, eps: config.eps };
        for layer in 0..layers {
            let route = layer * ROUTES_PER_LAYER;
            let here = Some(layer as u16);
            let cache = layer * self.limits.max_context * kv;

            let x = input(&b.residual, 0, rows, width, width);
            let weight = input(&b.norm_weights, 2 * layer * width, 1, width, width);
            let out = output(&mut b.normed, 0, rows, width, width);
            run.norm(route, WeightRole::AttnNorm, here, &[x, weight], out)?;

            let x = input(&b.normed, 0, rows, width, width);
            run.linear(route + 1, WeightRole::Q, here, x, output(&mut b.query, 0, rows, width, width))?;
            run.linear(route + 2, WeightRole::K, here, x, output(&mut b.key, 0, rows, kv, kv))?;
            run.linear(route + 3, WeightRole::V, here, x, output(&mut b.value, 0, rows, kv, kv))?;
            rotate(rotations, head_dim, width, &mut b.query.as_mut_slice()[..rows * width]);
            rotate(rotations, head_dim, kv, &mut b.key.as_mut_slice()[..rows * kv]);
            let new = cache + run.at.position * kv..cache + (run.at.position + rows) * kv;
            b.key_cache.as_mut_slice()[new.clone()].copy_from_slice(&b.key.as_slice()[..rows * kv]);
            b.value_cache.as_mut_slice()[new].copy_from_slice(&b.value.as_slice()[..rows * kv]);

            let scale = 1.0 / (head_dim as f32).sqrt();
            let cached = run.at.position + rows;
            if run.at.phase == Phase::Prefill {
                let shape = PromptAttention {
                    heads: config.heads,
                    kv_heads: config.kv_heads,
                    head_dim,
                    kv_stride: kv,
                    scale,
                };
                shape.run(
                    run.at.position,
                    &b.query.as_slice()[..rows * width],
                    &b.key_cache.as_slice()[cache..cache + cached * kv],
                    &b.value_cache.as_slice()[cache..cache + cached * kv],
                    &mut self.scores,
                    &mut b.attended.as_mut_slice()[..rows * width],
                );
            } else {
                let shape = ffi::Attention {
                    kv_len: cached as u32,
                    num_q_heads: config.heads as u32,
                    num_kv_heads: config.kv_heads as u32,
                    head_dim: head_dim as u32,
                    kv_stride: kv as u64,
                    scale,
                    reserved: 0,
                };
                let q = input(&b.query, 0, 1, width, width);
                let k = input(&b.key_cache, cache, cached, kv, kv);
                let v = input(&b.value_cache, cache, cached, kv, kv);
                let out = output(&mut b.attended, 0, 1, width, width);
                run.attention(layers * ROUTES_PER_LAYER + 2, here, shape, &[q, k, v], out)?;
            }
            let x = input(&b.attended, 0, rows, width, width);
            let out = output(&mut b.projected, 0, rows, width, width);
            run.linear(route + 4, WeightRole::AttnOutput, here, x, out)?;
            add(&mut b.residual, &b.projected, rows * width);

            let x = input(&b.residual, 0, rows, width, width);
            let weight = input(&b.norm_weights, (2 * layer + 1) * width, 1, width, width);
            let out = output(&mut b.normed, 0, rows, width, width);
            run.norm(route + 5, WeightRole::FfnNorm, here, &[x, weight], out)?;

            let x = input(&b.normed, 0, rows, width, width);
            let pair = 2 * feed_forward;
            let out = output(&mut b.gate_up, 0, rows, feed_forward, pair);
            run.linear(route + 6, WeightRole::Gate, here, x, out)?;
            let out = output(&mut b.gate_up, feed_forward, rows, feed_forward, pair);
            run.linear(route + 7, WeightRole::Up, here, x, out)?;
            let x = input(&b.gate_up, 0, rows, pair, pair);
            let out = output(&mut b.gated, 0, rows, feed_forward, feed_forward);
            run.silu(layers * ROUTES_PER_LAYER + 3, here, x, out)?;
            let x = input(&b.gated, 0, rows, feed_forward, feed_forward);
            let out = output(&mut b.projected, 0, rows, width, width);
            run.linear(route + 8, WeightRole::Down, here, x, out)?;
            add(&mut b.residual, &b.projected, rows * width);
        }
        if logits {
            run.at.position += rows - 1;
            run.at.tokens = 1;
            let route = layers * ROUTES_PER_LAYER;
            let x = input(&b.residual, (rows - 1) * width, 1, width, width);
            let weight = input(&b.norm_weights, 2 * layers * width, 1, width, width);
            let out = output(&mut b.normed, 0, 1, width, width);
            run.norm(route, WeightRole::OutputNorm, None, &[x, weight], out)?;
            let x = input(&b.normed, 0, 1, width, width);
            let rows_out = config.vocabulary;
            let out = output(&mut b.logits, 0, 1, rows_out, rows_out);
            run.linear(route + 1, WeightRole::Head, None, x, out)?;
            run.at.position -= rows - 1;
            run.at.tokens = rows;
        }
        Ok(())
    }
}

/// Makes the calls of a pass.
struct Runner<'r, 'o> {
    dispatcher: &'r mut Dispatcher,
    at: &'r mut Cursor<'o>,
    eps: f32,
}

impl Runner<'_, '_> {
    #[allow(clippy::too_many_arguments)]
    fn call(
        &mut self,
        route: usize,
        slot: Slot,
        role: WeightRole,
        layer: Option<u16>,
        shape: Shape,
        inputs: &[Input<'_>],
        output: OutputRange,
    ) -> Result<(), EngineError> {
        let at = &mut *self.at;
        let call = Call {
            prompt: at.prompt,
            index: at.index,
            slot,
            role,
            layer,
            phase: at.phase,
            position: at.position as u32,
            num_tokens: at.tokens as u32,
            kv_len: (at.position + at.tokens) as u32,
            shape,
            inputs,
            output,
        };
        at.index += 1;
        self.dispatcher.call(route, call, at.observer)
    }

    fn linear(
        &mut self,
        route: usize,
        role: WeightRole,
        layer: Option<u16>,
        x: Input<'_>,
        out: OutputRange,
    ) -> Result<(), EngineError> {
        let shape = Shape::Linear { x_stride: x.stride, out_stride: out.stride };
        self.call(route, Slot::LinearQuantized, role, layer, shape, &[x], out)
    }

    fn norm(
        &mut self,
        route: usize,
        role: WeightRole,
        layer: Option<u16>,
        inputs: &[Input<'_>; 2],
        out: OutputRange,
    ) -> Result<(), EngineError> {
        let [x, _] = inputs;
        let shape = Shape::RmsNorm(ffi::RmsNorm {
            num_tokens: x.rows as u32,
            width: x.cols as u32,
            x_stride: x.stride as u64,
            out_stride: out.stride as u64,
            eps: self.eps,
            reserved: 0,
        });
        self.call(route, Slot::RmsNorm, role, layer, shape, inputs, out)
    }

    fn silu(
        &mut self,
        route: usize,
        layer: Option<u16>,
        x: Input<'_>,
        out: OutputRange,
    ) -> Result<(), EngineError> {
        let shape = Shape::Silu(ffi::Silu {
            num_tokens: x.rows as u32,
            width: out.cols as u32,
            x_stride: x.stride as u64,
            out_stride: out.stride as u64,
        });
        self.call(route, Slot::SiluAndMul, WeightRole::None, layer, shape, &[x], out)
    }

    fn attention(
        &mut self,
        route: usize,
        layer: Option<u16>,
        shape: ffi::Attention,
        inputs: &[Input<'_>; 3],
        out: OutputRange,
    ) -> Result<(), EngineError> {
        let shape = Shape::Attention(shape);
        self.call(route, Slot::AttentionDecode, WeightRole::None, layer, shape, inputs, out)
    }
}

/// Rotates adjacent pairs of every head, row `i` by the `i`th table row.
fn rotate(rotations: &[[f32; 2]], head_dim: usize, width: usize, rows: &mut [f32]) {
    for (row, table) in rows.chunks_exact_mut(width).zip(rotations.chunks_exact(head_dim / 2)) {
        for head in row.chunks_exact_mut(head_dim) {
            for ([a, b], [cos, sin]) in head.as_chunks_mut::<2>().0.iter_mut().zip(table) {
                (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
            }
        }
    }
}

fn add(to: &mut Buffer, from: &Buffer, floats: usize) {
    for (to, from) in to.as_mut_slice().iter_mut().zip(from.as_slice()).take(floats) {
        *to += from;
    }
}

/// The lowest index of the greatest value; NaN is never greatest, and 0 where all are NaN.
fn likeliest(logits: &[f32]) -> u32 {
    let top = greatest(logits);
    logits.iter().position(|v| *v == top).unwrap_or(0) as u32
}

/// Eight running maxima, so that vector registers can be used.
fn greatest(values: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    lanes.into_iter().chain(rest.iter().copied()).fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a })
}

fn log_probability(logits: &[f32], token: u32) -> f32 {
    let Some(chosen) = logits.get(token as usize) else { return f32::NAN };
    let top = f64::from(greatest(logits));
    let total: f64 = logits.iter().map(|v| (f64::from(*v) - top).exp()).sum();
    (f64::from(*chosen) - top - total.ln()) as f32
}

//! The conformance stage: one slot at a time on inputs made by the host, the first call eager, then replays at the same
//! addresses with fresh content. Outputs are compared here, with a binary64 reference that no candidate process holds.

use cacheon_identity::Digest;
use cacheon_identity::digest::Hasher;
use cacheon_identity::float17::Float17;
use cacheon_model::abi::{AttentionDims, CallDescriptor, Domain, KernelOp, Phase, Slot};
use cacheon_model::llama::{Matrix, Model};
use cacheon_model::reference::{self, AttentionShape};
use cacheon_protocol::message::{SlotCall, SlotResult, Weights};
use cacheon_records::cpu::CallFacts;
use cacheon_verdict::cpu::Tolerance;

/// One shape of one slot: what is sent, and what must come back.
#[derive(Debug, Clone)]
pub struct ShapeCase<'m> {
    /// Name, unique within the variant.
    pub shape: String,
    slot: Slot,
    dims: Vec<u32>,
    scalars: Vec<f32>,
    weight: Weight<'m>,
    outputs: Vec<u32>,
    /// Input tensors of each call.
    calls: Vec<Vec<Vec<f32>>>,
}

#[derive(Debug, Clone)]
enum Weight<'m> {
    None,
    Matrix(String, Matrix<'m>),
    Norm(String, Vec<f32>),
}

/// A source of inputs: SHA-256 in counter mode over a seed.
struct Inputs {
    seed: Vec<u8>,
    counter: u64,
    left: Vec<u32>,
}

impl Inputs {
    fn new(seed: &[u8], label: &str) -> Self {
        let mut seed = seed.to_vec();
        seed.extend_from_slice(label.as_bytes());
        Self { seed, counter: 0, left: Vec::new() }
    }

    fn word(&mut self) -> u32 {
        loop {
            if let Some(word) = self.left.pop() {
                return word;
            }
            let mut hasher = Hasher::new();
            hasher.update(&self.seed);
            hasher.update(&self.counter.to_le_bytes());
            self.counter += 1;
            let digest = hasher.finish();
            self.left
                .extend(digest.as_bytes().as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)));
        }
    }

    fn uniform(&mut self) -> f64 {
        (f64::from(self.word()) + 0.5) / 4_294_967_296.0
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Activations as they occur in served models: bell-shaped, of another scale in every call, with a few outlier
    /// channels shared by all rows, and in every third call a row of zeros.
    fn activations(&mut self, rows: usize, width: usize, call: usize) -> Vec<f32> {
        let scale = 0.25 * 4f64.powi(i32::from(self.word() as u8 % 3));
        let outliers: Vec<usize> = (0..1 + width / 200).map(|_| self.word() as usize % width).collect();
        let mut values = Vec::with_capacity(rows * width);
        for row in 0..rows {
            let silent = rows > 1 && call % 3 == 2 && row == rows / 2;
            for column in 0..width {
                let gain = if outliers.contains(&column) { 12.0 } else { 1.0 };
                values.push(if silent { 0.0 } else { (self.normal() * scale * gain) as f32 });
            }
        }
        values
    }
}

/// Token counts of prefill shapes: catalogue sizes and sizes no catalogue lists.
const PREFILL_TOKENS: [u32; 4] = [2, 7, 33, 64];
/// Cached lengths of attention shapes.
const KV_LENGTHS: [u32; 6] = [1, 2, 31, 64, 113, 257];
/// Row counts of element-wise shapes.
const ROWS: [u32; 4] = [1, 3, 17, 64];

/// The shapes of one op that lie inside its declared domain, with inputs drawn from `seed`. `replays` calls follow the
/// eager one.
#[must_use]
pub fn shapes<'m>(model: &Model<'m>, op: &KernelOp, replays: u32, seed: &[u8]) -> Vec<ShapeCase<'m>> {
    let calls = replays as usize + 1;
    match op.slot {
        Slot::LinearQuantized => linear_shapes(model, &op.domain, calls, seed),
        Slot::AttentionDecode => attention_shapes(model, &op.domain, calls, seed),
        Slot::SiluAndMul => silu_shapes(model, &op.domain, calls, seed),
        Slot::RmsNorm => norm_shapes(model, &op.domain, calls, seed),
    }
}

fn descriptor(phase: Phase, quant: &'static str, tokens: u32, last_dim: usize) -> CallDescriptor {
    CallDescriptor {
        phase,
        quant,
        num_tokens: tokens,
        last_dim: last_dim as u32,
        hidden_dim: None,
        intermediate_dim: None,
        attention: None,
    }
}

fn linear_shapes<'m>(model: &Model<'m>, domain: &Domain, calls: usize, seed: &[u8]) -> Vec<ShapeCase<'m>> {
    let last = model.layers.len() - 1;
    let (first_layer, last_layer) = (&model.layers[0], &model.layers[last]);
    let weights = [
        ("blk.0.attn_q.weight".to_owned(), first_layer.q),
        (format!("blk.{last}.attn_k.weight"), last_layer.k),
        ("blk.0.ffn_down.weight".to_owned(), first_layer.down),
        (format!("blk.{last}.ffn_gate.weight"), last_layer.gate),
        ("token_embd.weight".to_owned(), model.head),
    ];
    let mut cases = Vec::new();
    for (name, matrix) in weights {
        let prefill = PREFILL_TOKENS.iter().map(|tokens| (Phase::Prefill, *tokens));
        for (phase, tokens) in std::iter::once((Phase::Decode, 1)).chain(prefill) {
            // A vocabulary head is only ever asked for one row or a few.
            if matrix.rows > 8192 && tokens > 2 {
                continue;
            }
            let call = CallDescriptor {
                hidden_dim: Some(matrix.cols as u32),
                intermediate_dim: Some(matrix.rows as u32),
                ..descriptor(phase, matrix.encoding.quant(), tokens, matrix.cols)
            };
            if !domain.contains(&call) {
                continue;
            }
            let shape = format!("{name}.{}.{tokens}", phase.id());
            let mut inputs = Inputs::new(seed, &shape);
            cases.push(ShapeCase {
                slot: Slot::LinearQuantized,
                dims: vec![phase.code(), tokens],
                scalars: vec![],
                outputs: vec![tokens * matrix.rows as u32 * 4],
                calls: (0..calls)
                    .map(|n| vec![inputs.activations(tokens as usize, matrix.cols, n)])
                    .collect(),
                weight: Weight::Matrix(name.clone(), matrix),
                shape,
            });
        }
    }
    cases
}

fn attention_shapes<'m>(model: &Model<'m>, domain: &Domain, calls: usize, seed: &[u8]) -> Vec<ShapeCase<'m>> {
    let config = &model.config;
    let mut cases = Vec::new();
    for kv_len in KV_LENGTHS {
        let dims = AttentionDims {
            kv_len,
            num_q_heads: config.heads as u32,
            num_kv_heads: config.kv_heads as u32,
            head_dim: config.head_dim as u32,
        };
        let call = CallDescriptor {
            attention: Some(dims),
            ..descriptor(Phase::Decode, "dense", 1, config.head_dim)
        };
        if !domain.contains(&call) {
            continue;
        }
        let shape = format!("kv{kv_len}");
        let mut inputs = Inputs::new(seed, &shape);
        let cached = kv_len as usize * config.kv_width();
        cases.push(ShapeCase {
            slot: Slot::AttentionDecode,
            dims: vec![kv_len, dims.num_q_heads, dims.num_kv_heads, dims.head_dim],
            scalars: vec![(config.head_dim as f32).sqrt().recip()],
            outputs: vec![config.q_width() as u32 * 4],
            calls: (0..calls)
                .map(|n| {
                    vec![
                        inputs.activations(1, config.q_width(), n),
                        inputs.activations(1, cached, n),
                        inputs.activations(1, cached, n),
                    ]
                })
                .collect(),
            weight: Weight::None,
            shape,
        });
    }
    cases
}

fn silu_shapes<'m>(model: &Model<'m>, domain: &Domain, calls: usize, seed: &[u8]) -> Vec<ShapeCase<'m>> {
    let mut cases = Vec::new();
    for (tokens, width) in ROWS
        .iter()
        .map(|rows| (*rows, model.config.feed_forward))
        .chain([(5, model.config.feed_forward / 2 + 1)])
    {
        let phase = if tokens == 1 { Phase::Decode } else { Phase::Prefill };
        if !domain.contains(&descriptor(phase, "dense", tokens, 2 * width)) {
            continue;
        }
        let shape = format!("{tokens}x{width}");
        let mut inputs = Inputs::new(seed, &shape);
        cases.push(ShapeCase {
            slot: Slot::SiluAndMul,
            dims: vec![tokens, width as u32],
            scalars: vec![],
            outputs: vec![tokens * width as u32 * 4],
            calls: (0..calls).map(|n| vec![inputs.activations(tokens as usize, 2 * width, n)]).collect(),
            weight: Weight::None,
            shape,
        });
    }
    cases
}

fn norm_shapes<'m>(model: &Model<'m>, domain: &Domain, calls: usize, seed: &[u8]) -> Vec<ShapeCase<'m>> {
    let last = model.layers.len() - 1;
    let weights = [
        ("blk.0.attn_norm.weight".to_owned(), &model.layers[0].attn_norm),
        (format!("blk.{last}.ffn_norm.weight"), &model.layers[last].ffn_norm),
        ("output_norm.weight".to_owned(), &model.output_norm),
    ];
    let mut cases = Vec::new();
    for (name, weight) in weights {
        for tokens in ROWS {
            let phase = if tokens == 1 { Phase::Decode } else { Phase::Prefill };
            if !domain.contains(&descriptor(phase, "dense", tokens, weight.len())) {
                continue;
            }
            let shape = format!("{name}.{tokens}");
            let mut inputs = Inputs::new(seed, &shape);
            cases.push(ShapeCase {
                slot: Slot::RmsNorm,
                dims: vec![tokens, weight.len() as u32],
                scalars: vec![model.config.eps],
                outputs: vec![tokens * weight.len() as u32 * 4],
                calls: (0..calls)
                    .map(|n| vec![inputs.activations(tokens as usize, weight.len(), n)])
                    .collect(),
                weight: Weight::Norm(name.clone(), weight.clone()),
                shape,
            });
        }
    }
    cases
}

/// Little-endian bytes of binary32 values.
#[must_use]
pub fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Binary32 values of little-endian bytes; a trailing partial value is dropped.
#[must_use]
pub fn from_bytes(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

impl ShapeCase<'_> {
    /// Dimensions in the slot's order.
    #[must_use]
    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    /// The request for one variant.
    #[must_use]
    pub fn request(&self, variant: &str) -> SlotCall {
        SlotCall {
            slot: self.slot.id().to_owned(),
            variant: variant.to_owned(),
            dims: self.dims.clone(),
            scalars: self.scalars.clone(),
            weights: match &self.weight {
                Weight::None => Weights::None,
                Weight::Matrix(name, _) | Weight::Norm(name, _) => Weights::Model(name.clone()),
            },
            outputs: self.outputs.clone(),
            calls: self
                .calls
                .iter()
                .map(|inputs| inputs.iter().map(|input| to_bytes(input)).collect())
                .collect(),
        }
    }

    /// Compares what came back with the reference.
    #[must_use]
    pub fn grade(&self, tolerance: &Tolerance, results: &[SlotResult]) -> Vec<CallFacts> {
        self.calls
            .iter()
            .zip(results)
            .map(|(inputs, result)| {
                let outputs: Vec<f32> = result.outputs.iter().flat_map(|output| from_bytes(output)).collect();
                let reference = reference_output(self.slot, &self.dims, &self.scalars, &self.weight, inputs);
                let found = tolerance.compare(&outputs, &reference);
                CallFacts {
                    elements: found.elements,
                    guards: u32::from(result.guards),
                    hash_at_end: Digest::from_bytes(result.hash_at_end),
                    hash_at_return: Digest::from_bytes(result.hash_at_return),
                    matched: found.matched,
                    non_finite: found.non_finite,
                    worst: Float17::saturating(found.worst),
                }
            })
            .collect()
    }
}

/// Reference output of one audited call, from the candidate's own inputs; `None` when the call is not one the model can
/// make (a tensor the model does not have, inputs of another size).
#[must_use]
pub fn audit_reference(
    model: &Model<'_>,
    slot: Slot,
    dims: &[u32],
    weight: &str,
    inputs: &[Vec<f32>],
) -> Option<Vec<f32>> {
    let config = &model.config;
    let (weight, scalars, sizes) = match (slot, dims) {
        (Slot::LinearQuantized, [_, tokens]) => {
            let matrix = matrix_named(model, weight)?;
            let size = *tokens as usize * matrix.cols;
            (Weight::Matrix(weight.to_owned(), matrix), vec![], vec![size])
        }
        (Slot::AttentionDecode, [kv_len, heads, kv_heads, head_dim]) => {
            let expected = [config.heads, config.kv_heads, config.head_dim].map(|n| n as u32);
            if [*heads, *kv_heads, *head_dim] != expected {
                return None;
            }
            let cached = *kv_len as usize * config.kv_width();
            let scale = (config.head_dim as f32).sqrt().recip();
            (Weight::None, vec![scale], vec![config.q_width(), cached, cached])
        }
        (Slot::SiluAndMul, [tokens, width]) => {
            (Weight::None, vec![], vec![*tokens as usize * 2 * *width as usize])
        }
        (Slot::RmsNorm, [tokens, width]) => {
            let norm = norm_named(model, weight)?;
            if norm.len() != *width as usize {
                return None;
            }
            let size = *tokens as usize * norm.len();
            (Weight::Norm(weight.to_owned(), norm.to_vec()), vec![config.eps], vec![size])
        }
        _ => return None,
    };
    let fits = inputs.iter().map(Vec::len).eq(sizes);
    fits.then(|| reference_output(slot, dims, &scalars, &weight, inputs))
}

fn matrix_named<'m>(model: &Model<'m>, name: &str) -> Option<Matrix<'m>> {
    if name == "token_embd.weight" || name == "output.weight" {
        return Some(model.head);
    }
    let (layer, part) = layer_part(model, name)?;
    Some(match part {
        "attn_q.weight" => layer.q,
        "attn_k.weight" => layer.k,
        "attn_v.weight" => layer.v,
        "attn_output.weight" => layer.attn_output,
        "ffn_gate.weight" => layer.gate,
        "ffn_up.weight" => layer.up,
        "ffn_down.weight" => layer.down,
        _ => return None,
    })
}

fn norm_named<'a>(model: &'a Model<'_>, name: &str) -> Option<&'a [f32]> {
    if name == "output_norm.weight" {
        return Some(&model.output_norm);
    }
    let (layer, part) = layer_part(model, name)?;
    match part {
        "attn_norm.weight" => Some(&layer.attn_norm),
        "ffn_norm.weight" => Some(&layer.ffn_norm),
        _ => None,
    }
}

fn layer_part<'a, 'm, 'n>(
    model: &'a Model<'m>,
    name: &'n str,
) -> Option<(&'a cacheon_model::llama::Layer<'m>, &'n str)> {
    let (number, part) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((model.layers.get(number.parse::<usize>().ok()?)?, part))
}

fn reference_output(
    slot: Slot,
    dims: &[u32],
    scalars: &[f32],
    weight: &Weight<'_>,
    inputs: &[Vec<f32>],
) -> Vec<f32> {
    let wide: Vec<Vec<f64>> = inputs.iter().map(|input| reference::widen(input)).collect();
    let scalar = f64::from(scalars.first().copied().unwrap_or(0.0));
    let output: Vec<f64> = match (slot, weight, &wide[..], dims) {
        (Slot::LinearQuantized, Weight::Matrix(_, matrix), [x], _) => reference::linear(matrix, x),
        (Slot::AttentionDecode, _, [q, k, v], [kv_len, heads, kv_heads, head_dim]) => {
            let shape = AttentionShape {
                kv_len: *kv_len as usize,
                heads: *heads as usize,
                kv_heads: *kv_heads as usize,
                head_dim: *head_dim as usize,
                kv_stride: *kv_heads as usize * *head_dim as usize,
            };
            reference::attention(&shape, scalar, q, k, v)
        }
        (Slot::SiluAndMul, _, [x], [_, width]) => reference::silu_and_mul(*width as usize, x),
        (Slot::RmsNorm, Weight::Norm(_, norm), [x], _) => reference::rmsnorm(norm, scalar, x),
        _ => Vec::new(),
    };
    output.into_iter().map(|value| value as f32).collect()
}

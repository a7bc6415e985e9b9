//! The one architecture the CPU arena serves: pre-norm decoder, rotary positions on adjacent pairs, grouped
//! queries, gated SiLU, tied or separate head (`general.architecture = "llama"`).

use crate::gguf::{Encoding, Gguf, Tensor};
use thiserror::Error;

/// Bounds on hyperparameters: far above any model this engine can serve at sensible speed, far below overflow.
mod limit {
    pub(super) const LAYERS: u64 = 256;
    pub(super) const WIDTH: u64 = 16_384;
    pub(super) const HEADS: u64 = 64;
    pub(super) const HEAD_DIM: u64 = 256;
    pub(super) const FEED_FORWARD: u64 = 65_536;
    pub(super) const VOCABULARY: u64 = 1 << 20;
    pub(super) const CONTEXT: u64 = 1 << 24;
}

/// Why a well-formed GGUF file is not a model this engine can serve.
#[derive(Debug, Error, PartialEq)]
pub enum ModelError {
    /// Another architecture.
    #[error("the model's architecture is {found:?}; the CPU engine serves \"llama\" models only")]
    Architecture {
        /// `general.architecture`.
        found: String,
    },
    /// A hyperparameter that is absent or of the wrong type.
    #[error("the model file has no usable value for {key}")]
    Missing {
        /// The key.
        key: &'static str,
    },
    /// A hyperparameter outside its bounds.
    #[error("the model's {key} is {found}: {why}")]
    Hyperparameter {
        /// The key.
        key: &'static str,
        /// The value.
        found: f64,
        /// The rule it breaks.
        why: &'static str,
    },
    /// A tensor that is absent.
    #[error("the model file has no tensor {name:?}")]
    NoTensor {
        /// Its name.
        name: String,
    },
    /// A tensor of another shape.
    #[error("tensor {name:?} has the shape {found:?}, {expected:?} was expected")]
    Shape {
        /// Its name.
        name: String,
        /// Dimensions in the file, fastest first.
        found: Vec<usize>,
        /// Dimensions the hyperparameters ask for.
        expected: Vec<usize>,
    },
    /// A tensor in an encoding its place does not allow.
    #[error("tensor {name:?} is {found:?}: matrices must be Q4_1 or Q8_0, norms F32")]
    Encoding {
        /// Its name.
        name: String,
        /// Its encoding.
        found: Encoding,
    },
}

/// Hyperparameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Blocks.
    pub layers: usize,
    /// Residual width.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values per head, a multiple of 8.
    pub head_dim: usize,
    /// Feed-forward width.
    pub feed_forward: usize,
    /// Tokens known.
    pub vocabulary: usize,
    /// Longest context the model was made for.
    pub context: usize,
    /// Norm epsilon.
    pub eps: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
}

impl Config {
    /// Width of a cached key or value row.
    #[must_use]
    pub const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Width of the query row.
    #[must_use]
    pub const fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }
}

/// A row-major quantised matrix: `rows` output features of `cols` inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrix<'a> {
    /// Q4_1 or Q8_0.
    pub encoding: Encoding,
    /// Output features.
    pub rows: usize,
    /// Input features, a multiple of 32.
    pub cols: usize,
    /// The rows, without gaps.
    pub data: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// A matrix over `data`, or `None` where the bytes do not fit the shape exactly.
    #[must_use]
    pub fn new(encoding: Encoding, rows: usize, cols: usize, data: &'a [u8]) -> Option<Self> {
        let bytes = encoding.row_bytes(cols)?.checked_mul(rows)?;
        (bytes == data.len() && rows > 0 && cols > 0 && encoding != Encoding::F32).then_some(Self {
            encoding,
            rows,
            cols,
            data,
        })
    }

    /// Bytes of one row.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.data.len() / self.rows
    }

    /// The bytes of row `row`, empty beyond the last.
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [u8] {
        self.data.chunks_exact(self.row_bytes()).nth(row).unwrap_or_default()
    }
}

/// The weights of one block.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// Norm before attention.
    pub attn_norm: Vec<f32>,
    /// Query projection.
    pub q: Matrix<'a>,
    /// Key projection.
    pub k: Matrix<'a>,
    /// Value projection.
    pub v: Matrix<'a>,
    /// Attention output projection.
    pub attn_output: Matrix<'a>,
    /// Norm before the feed-forward part.
    pub ffn_norm: Vec<f32>,
    /// Gate projection.
    pub gate: Matrix<'a>,
    /// Up projection.
    pub up: Matrix<'a>,
    /// Down projection.
    pub down: Matrix<'a>,
}

/// A model whose every tensor has been found with the right shape. Matrices stay in the file's bytes.
#[derive(Clone, Debug)]
pub struct Model<'a> {
    /// Hyperparameters.
    pub config: Config,
    /// One row per token.
    pub embedding: Matrix<'a>,
    /// Blocks in order.
    pub layers: Vec<Layer<'a>>,
    /// Last norm.
    pub output_norm: Vec<f32>,
    /// Vocabulary head; the embedding itself where the file has no other.
    pub head: Matrix<'a>,
}

fn integer(gguf: &Gguf<'_>, key: &'static str, max: u64) -> Result<usize, ModelError> {
    let found = gguf.unsigned(key).ok_or(ModelError::Missing { key })?;
    if found == 0 || found > max {
        let why = "outside the engine's bounds";
        return Err(ModelError::Hyperparameter { key, found: found as f64, why });
    }
    Ok(found as usize)
}

fn config(gguf: &Gguf<'_>) -> Result<Config, ModelError> {
    let architecture = gguf.text("general.architecture").unwrap_or_default();
    if architecture != "llama" {
        return Err(ModelError::Architecture { found: architecture.to_owned() });
    }
    let width = integer(gguf, "llama.embedding_length", limit::WIDTH)?;
    let heads = integer(gguf, "llama.attention.head_count", limit::HEADS)?;
    let kv_heads = integer(gguf, "llama.attention.head_count_kv", limit::HEADS)?;
    let wrong = |key, found: usize, why| ModelError::Hyperparameter { key, found: found as f64, why };
    if !heads.is_multiple_of(kv_heads) {
        return Err(wrong("llama.attention.head_count_kv", kv_heads, "it does not divide the query heads"));
    }
    if !width.is_multiple_of(heads) {
        return Err(wrong("llama.attention.head_count", heads, "it does not divide the width"));
    }
    let head_dim = width / heads;
    if !head_dim.is_multiple_of(8) || head_dim as u64 > limit::HEAD_DIM {
        return Err(wrong(
            "llama.attention.head_count",
            heads,
            "the head size is no multiple of 8, or too large",
        ));
    }
    if gguf.unsigned("llama.rope.dimension_count").is_some_and(|n| n != head_dim as u64) {
        return Err(wrong("llama.rope.dimension_count", head_dim, "only full rotation is supported"));
    }
    let float = |key: &'static str| gguf.float(key).ok_or(ModelError::Missing { key });
    let eps = float("llama.attention.layer_norm_rms_epsilon")?;
    let rope_base = float("llama.rope.freq_base")?;
    for (key, found, good) in [
        ("llama.attention.layer_norm_rms_epsilon", eps, eps > 0.0 && eps < 1.0),
        ("llama.rope.freq_base", rope_base, (1.0..1e12).contains(&rope_base)),
    ] {
        if !good {
            return Err(ModelError::Hyperparameter { key, found, why: "outside the engine's bounds" });
        }
    }
    Ok(Config {
        layers: integer(gguf, "llama.block_count", limit::LAYERS)?,
        width,
        heads,
        kv_heads,
        head_dim,
        feed_forward: integer(gguf, "llama.feed_forward_length", limit::FEED_FORWARD)?,
        vocabulary: integer(gguf, "llama.vocab_size", limit::VOCABULARY)?,
        context: integer(gguf, "llama.context_length", limit::CONTEXT)?,
        eps: eps as f32,
        rope_base: rope_base as f32,
    })
}

fn tensor<'g, 'a>(gguf: &'g Gguf<'a>, name: &str, expected: &[usize]) -> Result<&'g Tensor<'a>, ModelError> {
    let tensor = gguf.tensor(name).ok_or_else(|| ModelError::NoTensor { name: name.to_owned() })?;
    if tensor.dims != expected {
        let (name, found) = (name.to_owned(), tensor.dims.clone());
        return Err(ModelError::Shape { name, found, expected: expected.to_vec() });
    }
    Ok(tensor)
}

fn matrix<'a>(gguf: &Gguf<'a>, name: &str, rows: usize, cols: usize) -> Result<Matrix<'a>, ModelError> {
    let tensor = tensor(gguf, name, &[cols, rows])?;
    Matrix::new(tensor.encoding, rows, cols, tensor.data)
        .ok_or_else(|| ModelError::Encoding { name: name.to_owned(), found: tensor.encoding })
}

fn norm(gguf: &Gguf<'_>, name: &str, width: usize) -> Result<Vec<f32>, ModelError> {
    let tensor = tensor(gguf, name, &[width])?;
    if tensor.encoding != Encoding::F32 {
        return Err(ModelError::Encoding { name: name.to_owned(), found: tensor.encoding });
    }
    Ok(tensor.data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}

impl<'a> Model<'a> {
    /// Reads the hyperparameters and finds every tensor.
    ///
    /// # Errors
    /// The first hyperparameter or tensor that does not fit, as a [`ModelError`].
    pub fn bind(gguf: &Gguf<'a>) -> Result<Self, ModelError> {
        let config = config(gguf)?;
        let Config { width, feed_forward, vocabulary, .. } = config;
        let kv = config.kv_width();
        let mut layers = Vec::with_capacity(config.layers);
        for layer in 0..config.layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            layers.push(Layer {
                attn_norm: norm(gguf, &name("attn_norm"), width)?,
                q: matrix(gguf, &name("attn_q"), width, width)?,
                k: matrix(gguf, &name("attn_k"), kv, width)?,
                v: matrix(gguf, &name("attn_v"), kv, width)?,
                attn_output: matrix(gguf, &name("attn_output"), width, width)?,
                ffn_norm: norm(gguf, &name("ffn_norm"), width)?,
                gate: matrix(gguf, &name("ffn_gate"), feed_forward, width)?,
                up: matrix(gguf, &name("ffn_up"), feed_forward, width)?,
                down: matrix(gguf, &name("ffn_down"), width, feed_forward)?,
            });
        }
        let embedding = matrix(gguf, "token_embd.weight", vocabulary, width)?;
        let head = match gguf.tensor("output.weight") {
            Some(_) => matrix(gguf, "output.weight", vocabulary, width)?,
            None => embedding,
        };
        Ok(Self { config, embedding, layers, output_norm: norm(gguf, "output_norm.weight", width)?, head })
    }
}

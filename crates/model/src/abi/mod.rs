//! The vocabulary of `cacheon-c-abi-v1`: slots, call descriptors, declared domains, the index that lies beside a
//! prebuilt shared object, and the compiler flags every arm is built with (`include/cacheon_kernel.h` states the
//! functions).

mod index;

pub use index::{IndexError, KernelIndex, KernelOp};

use std::collections::BTreeMap;
use std::fmt;

/// The `abi_version` of a manifest whose ops are C functions.
pub const ABI_VERSION: &str = "cacheon-c-abi-v1";

/// The header a build provides as `cacheon_kernel.h`.
pub const HEADER: &str = include_str!("../../../../include/cacheon_kernel.h");

/// File name under which a build provides [`HEADER`].
pub const HEADER_NAME: &str = "cacheon_kernel.h";

/// Most tokens in one call (`CACHEON_MAX_TOKENS`).
pub const MAX_TOKENS: usize = 128;

/// Bytes of the workspace of every call (`CACHEON_WORKSPACE_BYTES`).
pub const WORKSPACE_BYTES: usize = 2 << 20;

/// Smallest arena a `prepare` gets, in bytes; otherwise twice the weight's bytes.
pub const MIN_ARENA_BYTES: usize = 64 << 10;

/// Target flags on x86-64 with AVX2, FMA and F16C.
pub const TARGET_FLAGS_AVX2: &[&str] = &["-march=x86-64-v3", "-mtune=haswell"];

/// Target flags on x86-64 without AVX2.
pub const TARGET_FLAGS_BASELINE: &[&str] = &["-march=x86-64", "-mtune=generic"];

/// Compile flags of every arm; [`target_flags`] and the include paths come on top.
pub const COMPILE_FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-ffp-contract=fast",
    "-fno-ident",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
];

/// Link flags of every arm, before the sources; [`LINK_LIBRARIES`] follow them.
pub const LINK_FLAGS: &[&str] = &[
    "-shared",
    "-nostartfiles",
    "-nostartfiles",
    "-Wl,-z,now",
    "-Wl,-z,relro",
    "-Wl,-z,noexecstack",
    "-Wl,-z,defs",
    "-Wl,--build-id=none",
    "-Wl,-O1",
];

/// Libraries a kernel may name.
pub const LINK_LIBRARIES: &[&str] = &["-lm"];

/// Whether this machine has what [`TARGET_FLAGS_AVX2`] asks for.
#[must_use]
pub fn machine_has_avx2() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("fma")
            && std::is_x86_feature_detected!("f16c")
            && std::is_x86_feature_detected!("bmi2")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// The target flags of this machine, or `None` where kernels cannot be built (not x86-64).
#[must_use]
pub fn target_flags() -> Option<&'static [&'static str]> {
    if !cfg!(target_arch = "x86_64") {
        None
    } else if machine_has_avx2() {
        Some(TARGET_FLAGS_AVX2)
    } else {
        Some(TARGET_FLAGS_BASELINE)
    }
}

/// A replaceable place of the CPU engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// `linear.quantized`
    LinearQuantized,
    /// `attention.decode`
    AttentionDecode,
    /// `activation.silu_and_mul`
    SiluAndMul,
    /// `norm.rmsnorm`
    RmsNorm,
}

impl Slot {
    /// Every slot, in the order of [`Slot::index`].
    pub const ALL: [Self; 4] =
        [Self::LinearQuantized, Self::AttentionDecode, Self::SiluAndMul, Self::RmsNorm];

    /// Position in [`Slot::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::LinearQuantized => 0,
            Self::AttentionDecode => 1,
            Self::SiluAndMul => 2,
            Self::RmsNorm => 3,
        }
    }

    /// The slot's id, as manifests and records spell it.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::LinearQuantized => "linear.quantized",
            Self::AttentionDecode => "attention.decode",
            Self::SiluAndMul => "activation.silu_and_mul",
            Self::RmsNorm => "norm.rmsnorm",
        }
    }

    /// The slot of an id.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|slot| slot.id() == id)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// What a pass is: a whole prompt, or one new token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Prompt tokens, several a call.
    Prefill,
    /// One token a call.
    Decode,
}

impl Phase {
    /// The capability value: `prefill` or `decode`.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }

    /// The phase of an id.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        [Self::Prefill, Self::Decode].into_iter().find(|phase| phase.id() == id)
    }

    /// The number the header gives it.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Prefill => 1,
            Self::Decode => 2,
        }
    }
}

/// Which weight of a layer (or of the model) a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WeightRole {
    /// No weight (attention, activation).
    None,
    /// Norm before attention.
    AttnNorm,
    /// Query projection.
    Q,
    /// Key projection.
    K,
    /// Value projection.
    V,
    /// Attention output projection.
    AttnOutput,
    /// Norm before the feed-forward part.
    FfnNorm,
    /// Gate projection.
    Gate,
    /// Up projection.
    Up,
    /// Down projection.
    Down,
    /// Last norm.
    OutputNorm,
    /// Vocabulary head.
    Head,
}

impl WeightRole {
    /// A stable short name, for records and messages.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AttnNorm => "attn_norm",
            Self::Q => "attn_q",
            Self::K => "attn_k",
            Self::V => "attn_v",
            Self::AttnOutput => "attn_output",
            Self::FfnNorm => "ffn_norm",
            Self::Gate => "ffn_gate",
            Self::Up => "ffn_up",
            Self::Down => "ffn_down",
            Self::OutputNorm => "output_norm",
            Self::Head => "head",
        }
    }

    /// Every role, in declaration order.
    pub const ALL: [Self; 12] = [
        Self::None,
        Self::AttnNorm,
        Self::Q,
        Self::K,
        Self::V,
        Self::AttnOutput,
        Self::FfnNorm,
        Self::Gate,
        Self::Up,
        Self::Down,
        Self::OutputNorm,
        Self::Head,
    ];

    /// The role of a name.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.id() == id)
    }
}

/// A numeric field of a call descriptor (10-contribution §4; the ones a CPU call has).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NumericField {
    /// `batch_size`: always 1.
    BatchSize,
    /// `head_dim` (attention).
    HeadDim,
    /// `hidden_dim`: the first input's last extent (linear, norm).
    HiddenDim,
    /// `intermediate_dim`: output features (linear) or width (activation).
    IntermediateDim,
    /// `kv_len` (attention).
    KvLen,
    /// `last_dim`: last extent of the first input.
    LastDim,
    /// `num_kv_heads` (attention).
    NumKvHeads,
    /// `num_q_heads` (attention).
    NumQHeads,
    /// `num_tokens`: rows of the first input.
    NumTokens,
    /// `q_len` (attention): always 1.
    QLen,
}

impl NumericField {
    const ALL: [Self; 10] = [
        Self::BatchSize,
        Self::HeadDim,
        Self::HiddenDim,
        Self::IntermediateDim,
        Self::KvLen,
        Self::LastDim,
        Self::NumKvHeads,
        Self::NumQHeads,
        Self::NumTokens,
        Self::QLen,
    ];

    /// The field's name in metadata.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::BatchSize => "batch_size",
            Self::HeadDim => "head_dim",
            Self::HiddenDim => "hidden_dim",
            Self::IntermediateDim => "intermediate_dim",
            Self::KvLen => "kv_len",
            Self::LastDim => "last_dim",
            Self::NumKvHeads => "num_kv_heads",
            Self::NumQHeads => "num_q_heads",
            Self::NumTokens => "num_tokens",
            Self::QLen => "q_len",
        }
    }

    /// The field of a name.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.id() == id)
    }
}

/// A text field of a call descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TextField {
    /// `architecture`: `x86_64`.
    Architecture,
    /// `dtype` of activations: `float32`.
    Dtype,
    /// `graph_mode`: `eager`.
    GraphMode,
    /// `layout`: `row_major`.
    Layout,
    /// `phase`: `prefill` or `decode`.
    Phase,
    /// `quant`: `q4_1`, `q8_0` or `dense`.
    Quant,
}

impl TextField {
    const ALL: [Self; 6] =
        [Self::Architecture, Self::Dtype, Self::GraphMode, Self::Layout, Self::Phase, Self::Quant];

    /// The field's name in metadata.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Architecture => "architecture",
            Self::Dtype => "dtype",
            Self::GraphMode => "graph_mode",
            Self::Layout => "layout",
            Self::Phase => "phase",
            Self::Quant => "quant",
        }
    }

    /// The field of a name.
    #[must_use]
    pub fn parse(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.id() == id)
    }
}

/// What one call is, for matching against a [`Domain`]. A field that does not apply is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDescriptor {
    /// Prefill or decode.
    pub phase: Phase,
    /// Weight encoding: `q4_1`, `q8_0`, or `dense` for ops without quantised weights.
    pub quant: &'static str,
    /// Rows of the first input.
    pub num_tokens: u32,
    /// Last extent of the first input.
    pub last_dim: u32,
    /// See [`NumericField::HiddenDim`].
    pub hidden_dim: Option<u32>,
    /// See [`NumericField::IntermediateDim`].
    pub intermediate_dim: Option<u32>,
    /// Attention only.
    pub attention: Option<AttentionDims>,
}

/// The sizes only attention has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionDims {
    /// Cached positions, the new one included.
    pub kv_len: u32,
    /// Query heads.
    pub num_q_heads: u32,
    /// Key/value heads.
    pub num_kv_heads: u32,
    /// Values per head.
    pub head_dim: u32,
}

impl CallDescriptor {
    fn number(&self, field: NumericField) -> Option<u64> {
        let attention = |pick: fn(&AttentionDims) -> u32| self.attention.as_ref().map(pick);
        let value = match field {
            NumericField::BatchSize => Some(1),
            NumericField::NumTokens => Some(self.num_tokens),
            NumericField::LastDim => Some(self.last_dim),
            NumericField::HiddenDim => self.hidden_dim,
            NumericField::IntermediateDim => self.intermediate_dim,
            NumericField::HeadDim => attention(|a| a.head_dim),
            NumericField::KvLen => attention(|a| a.kv_len),
            NumericField::NumKvHeads => attention(|a| a.num_kv_heads),
            NumericField::NumQHeads => attention(|a| a.num_q_heads),
            NumericField::QLen => attention(|_| 1),
        };
        value.map(u64::from)
    }

    fn text(&self, field: TextField) -> &'static str {
        match field {
            TextField::Architecture => "x86_64",
            TextField::Dtype => "float32",
            TextField::GraphMode => "eager",
            TextField::Layout => "row_major",
            TextField::Phase => self.phase.id(),
            TextField::Quant => self.quant,
        }
    }
}

/// Allowed values of one numeric field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumericSet {
    /// Inclusive bounds; an absent one is open.
    Range {
        /// Least value.
        min: Option<u64>,
        /// Greatest value.
        max: Option<u64>,
    },
    /// Exactly these, sorted.
    OneOf(Vec<u64>),
}

impl NumericSet {
    /// Whether a value is allowed.
    #[must_use]
    pub fn contains(&self, value: u64) -> bool {
        match self {
            Self::Range { min, max } => min.is_none_or(|m| value >= m) && max.is_none_or(|m| value <= m),
            Self::OneOf(values) => values.binary_search(&value).is_ok(),
        }
    }
}

/// Where a kernel says it works: the conjunction of its predicates. Empty = the whole slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// Predicates on numbers.
    pub numeric: BTreeMap<NumericField, NumericSet>,
    /// Predicates on texts: sorted allowed values.
    pub text: BTreeMap<TextField, Vec<String>>,
}

impl Domain {
    /// Whether a call lies inside. A constrained field that the call lacks is outside (fails closed).
    #[must_use]
    pub fn contains(&self, call: &CallDescriptor) -> bool {
        self.numeric.iter().all(|(field, set)| call.number(*field).is_some_and(|v| set.contains(v)))
            && self.text.iter().all(|(field, set)| set.iter().any(|v| v == call.text(*field)))
    }
}

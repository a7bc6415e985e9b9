//! The engine: a forward pass whose every slot is a C function from a shared object.
//!
//! It decides nothing and measures nothing that counts: it takes token ids, runs the passes that
//! `cacheon_model::schedule` lists, and gives back token ids, log-probabilities and counters. Everything around a kernel
//! call (poisoning, canaries, copies, watchdogs) is a [`CallObserver`], and every buffer a kernel sees comes from a
//! [`BufferAllocator`], so that the shim can hold both.
//!
//! | Module | Holds |
//! |---|---|
//! | `ffi` | the C ABI, field for field |
//! | `kernels` | shared objects, loaded |
//! | `memory` | buffers and arenas |
//! | `dispatch` | choosing and calling a kernel |
//! | `observer` | call sites, operands, counters |
//! | `forward` | passes over the model |
//! | `attend` | prompt attention, which no slot covers |
//! | `session` | one slot alone, with inputs of the caller's |

mod attend;
mod dispatch;
mod ffi;
mod forward;
mod kernels;
mod memory;
mod observer;
mod session;

pub use dispatch::Bindings;
pub use forward::{Engine, Limits};
pub use kernels::{KernelSet, LoadFailure};
pub use memory::{Buffer, BufferAllocator, BufferUse, GuardedMemory, MemoryError};
pub use observer::{CallObserver, CallSite, Input, Output, PrepareSite, Served, SlotCounters, Unobserved};
pub use session::{Extent, SlotSession, SlotShape};

use cacheon_model::abi::Slot;
use cacheon_model::gguf::GgufError;
use cacheon_model::llama::ModelError;
use thiserror::Error;

/// Why the engine cannot do what it was asked.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The model file is malformed.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model is of another kind.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model's bytes do not start at a multiple of 32.
    #[error("the model's bytes are misaligned: map the file instead of reading it")]
    Misaligned,
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Used before [`Engine::bind`].
    #[error("the engine has no kernels yet: bind it first")]
    Unbound,
    /// Two publications for one slot.
    #[error("slot {slot} is bound twice")]
    BoundTwice {
        /// The slot.
        slot: Slot,
    },
    /// No kernel serves a call, stock included.
    #[error("no loaded kernel of {slot} serves a call of {num_tokens} tokens")]
    NoKernel {
        /// The slot.
        slot: Slot,
        /// Rows of the call.
        num_tokens: u32,
    },
    /// A `prepare` took more than it was offered.
    #[error("prepare of {slot} kept {used} bytes of an arena of {offered}")]
    ArenaOverrun {
        /// The slot.
        slot: Slot,
        /// What it says it took.
        used: u64,
        /// What it was offered.
        offered: u64,
    },
    /// A token outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocabulary}")]
    Token {
        /// The token.
        token: u32,
        /// Tokens known.
        vocabulary: usize,
    },
    /// An empty prompt, or more positions than the engine was opened for.
    #[error("{prompt} prompt tokens and {new} new ones do not fit a context of 1 to {limit}")]
    Context {
        /// Prompt tokens.
        prompt: usize,
        /// New tokens.
        new: usize,
        /// Positions the engine was opened for.
        limit: usize,
    },
    /// A direct call with a shape outside the header's domain, or inputs of another size.
    #[error("a direct call of {slot} cannot be made: {why}")]
    Shape {
        /// The slot.
        slot: Slot,
        /// What is wrong.
        why: &'static str,
    },
}

/// What the preparations of one op cost, over all its weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareReport {
    /// The slot.
    pub slot: Slot,
    /// Which publication.
    pub served: Served,
    /// Which op of its index.
    pub op: u16,
    /// Weights prepared.
    pub weights: u64,
    /// Arena bytes kept.
    pub bytes: u64,
    /// Microseconds by the engine's own clock; advisory.
    pub micros: u64,
}

//! Requests and replies; reading and writing requests.

use crate::body::{ascending, decode_limits, decode_sequence, decode_slot_call, encode_slot_call, name};
use crate::codec::{DecodeError, Reader, Writer, check};
use crate::notes::{Fault, NOTES_BYTES, Notes};
use crate::wire::Kind;

pub use crate::reply::Mismatch;

/// Longest slot or variant name, in bytes.
pub const NAME_MAX: u32 = 64;
/// Publications bound into one container.
pub const PUBLICATIONS_MAX: u32 = 64;
/// Slots of one activation.
pub const SLOTS_MAX: u32 = 64;
/// Prompts of one batch.
pub const PROMPTS_MAX: u32 = 256;
/// Tokens of one prompt or one teacher-forced sequence.
pub const SEQUENCE_MAX: u32 = 32_768;
/// Tokens generated per prompt.
pub const NEW_TOKENS_MAX: u32 = 4096;
/// Sampled call sites of one trace.
pub const SITES_MAX: u32 = 4096;
/// Calls of one conformance request.
pub const CALLS_MAX: u32 = 64;
/// Tensors of one call, and dimensions or scalars of one call.
pub const ARGS_MAX: u32 = 16;
/// One tensor, in bytes.
pub const TENSOR_MAX: u32 = 64 << 20;

/// A whole `Generate` or `Score` may take this many call deadlines. Within the controller's own deadline it makes a kernel
/// that only pretends to make progress end as a typed fault of its arm.
pub const SERVED_CALLS: u32 = 4;
/// A whole `SlotCall` or `Trace` may take this many call deadlines.
pub const INSPECTED_CALLS: u32 = 60;

/// What the shim enforces for the whole conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Deadline of loading one publication, milliseconds (1..=600000).
    pub load_ms: u32,
    /// Deadline of all `prepare` calls of one activation, milliseconds (1..=600000).
    pub prepare_ms: u32,
    /// Byte budget of all `prepare` calls of one activation.
    pub prepare_bytes: u64,
    /// Deadline of one slot call, milliseconds (1..=600000). A whole request may take [`SERVED_CALLS`] or
    /// [`INSPECTED_CALLS`] times as long.
    pub call_ms: u32,
    /// One call in this many runs under full guard in served roles (1 = every call); conformance and trace guard
    /// every call.
    pub guard_period: u32,
    /// Seeds the choice of guarded calls. Known to the shim only.
    pub guard_seed: u64,
}

/// A publication mounted in the container: its number and the SHA-256 of its shared object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publication {
    /// Number; 0 is stock.
    pub id: u16,
    /// SHA-256 of the shared object's bytes.
    pub object_sha256: [u8; 32],
}

/// Which publication serves a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// Slot name, e.g. `linear.quantized`.
    pub slot: String,
    /// Publication number.
    pub publication: u16,
}

/// Where a call's weights come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weights {
    /// The slot takes none.
    None,
    /// Bytes in the ABI's layout, with the ABI's type code.
    Inline {
        /// Type code of the kernel ABI header.
        dtype: u32,
        /// Tensor bytes.
        bytes: Vec<u8>,
    },
    /// A tensor of the mounted model, by name.
    Model(String),
}

/// Conformance: one slot, called on host-made inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotCall {
    /// Slot name.
    pub slot: String,
    /// Variant name within the slot.
    pub variant: String,
    /// Dimensions, in the slot's order.
    pub dims: Vec<u32>,
    /// Float parameters, in the slot's order.
    pub scalars: Vec<f32>,
    /// Weights given to `prepare`.
    pub weights: Weights,
    /// Output tensors, in bytes each.
    pub outputs: Vec<u32>,
    /// Inputs of each call. All calls have inputs of the same sizes and use the same addresses: the first is the
    /// eager call, the rest are replays with fresh content.
    pub calls: Vec<Vec<Vec<u8>>>,
}

/// One call of a trajectory: the `ordinal`-th call (from 0) of `slot` over the whole teacher-forced run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallSite {
    /// Slot name.
    pub slot: String,
    /// Number of the call among that slot's calls.
    pub ordinal: u64,
}

/// A request from the controller.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Must come first and once.
    Ready {
        /// Launch digest, echoed.
        launch: [u8; 32],
        /// Limits.
        limits: Limits,
        /// What must be mounted, re-hashed by the shim before anything is loaded.
        publications: Vec<Publication>,
    },
    /// Kills the running engine process and forks a fresh one that serves `bindings`.
    Activate {
        /// Exactly the previous generation plus one.
        generation: u64,
        /// Sorted by slot, unique.
        bindings: Vec<Binding>,
    },
    /// Greedy generation, end of sequence ignored.
    Generate {
        /// Token ids of each prompt.
        prompts: Vec<Vec<u32>>,
        /// Tokens to generate for each.
        max_new_tokens: u32,
    },
    /// One slot on host-made inputs.
    SlotCall(SlotCall),
    /// Teacher-forced run with sampled calls exported.
    Trace {
        /// Prompt followed by the generated tokens of the timed trajectory.
        tokens: Vec<u32>,
        /// Length of the prompt within `tokens`.
        prompt_len: u32,
        /// Sampled calls, sorted and unique.
        sites: Vec<CallSite>,
    },
    /// Teacher-forced log-probabilities.
    Score {
        /// Prompt followed by the generated tokens.
        tokens: Vec<u32>,
        /// Length of the prompt within `tokens`.
        prompt_len: u32,
    },
    /// End of the conversation.
    Close,
}

/// The size a reply must have, known before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyRule {
    /// Kind of a successful reply.
    pub kind: Kind,
    /// Exact body length in bytes, where the request determines it; otherwise the kind's bound holds.
    pub exact: Option<u32>,
}

/// What the shim found when it started. Facts may only withdraw a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Model: vocabulary size.
    pub vocabulary: u32,
    /// Model: longest context.
    pub context: u32,
    /// Model: layers.
    pub layers: u32,
    /// Model: width of the residual stream.
    pub width: u32,
    /// Model: query heads.
    pub heads: u32,
    /// Model: key-value heads.
    pub kv_heads: u32,
    /// Model: feed-forward width.
    pub feed_forward: u32,
    /// Model file size in bytes.
    pub model_bytes: u64,
    /// Kernel ABI id.
    pub abi: String,
    /// CPU features the engine will use, sorted, e.g. `avx2`, `fma`.
    pub cpu_features: Vec<String>,
    /// Self-checks that held, sorted (`spec/50-execution.md` §4: `no_new_privs`, `no_capabilities`, …).
    pub checks: Vec<String>,
    /// Self-checks that did not hold, sorted.
    pub failed_checks: Vec<String>,
    /// Time from the shim's start to the zygote being warm, microseconds.
    pub warm_us: u64,
}

/// Executions of one slot in one engine process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotCounters {
    /// Slot name.
    pub slot: String,
    /// Process number within the engine (0 on a CPU arena).
    pub process: u32,
    /// Calls routed to the bound publication.
    pub fired: u64,
    /// Of those, calls that returned.
    pub completed: u64,
    /// Calls inside the declared domain that something else served.
    pub fallback: u64,
    /// Loads that failed.
    pub load_failed: u64,
}

/// Receipts of a generation, final because its process is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedGeneration {
    /// Which generation.
    pub generation: u64,
    /// Sorted by slot then process.
    pub counters: Vec<SlotCounters>,
    /// Final notes.
    pub notes: Notes,
}

/// One call of a conformance request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotResult {
    /// Output tensors as they were when the call returned.
    pub outputs: Vec<Vec<u8>>,
    /// SHA-256 over the outputs at return, in order.
    pub hash_at_return: [u8; 32],
    /// SHA-256 over the same buffers when all calls of the request were over or the next call was about to poison
    /// them, whichever was first.
    pub hash_at_end: [u8; 32],
    /// Bit set of guards hit by this call: bit `GuardHit as u8`.
    pub guards: u16,
}

/// One sampled call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedCall {
    /// Which call.
    pub site: CallSite,
    /// Name of the bound publication's variant that served it; empty if unknown.
    pub variant: String,
    /// Dimensions in the slot's order.
    pub dims: Vec<u32>,
    /// Model tensor given as weights, empty if none.
    pub weights: String,
    /// Inputs as they were before the call.
    pub inputs: Vec<Vec<u8>>,
    /// Outputs as the shim copied them at return.
    pub outputs: Vec<Vec<u8>>,
    /// SHA-256 over the outputs at return.
    pub hash_at_return: [u8; 32],
    /// SHA-256 over the same buffers at the end of the step, or when they were about to be reused.
    pub hash_at_end: [u8; 32],
    /// Bit set of guards hit by this call.
    pub guards: u16,
}

/// Calls of a slot over a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotCount {
    /// Slot name.
    pub slot: String,
    /// Process number within the engine.
    pub process: u32,
    /// Calls made.
    pub calls: u64,
}

/// A reply from the shim.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To `Ready`.
    Readied {
        /// The launch digest of the request.
        launch: [u8; 32],
        /// Facts.
        facts: Facts,
    },
    /// To `Activate`: the engine process is loaded and prepared.
    Activated {
        /// The generation of the request.
        generation: u64,
        /// Slots served, as requested.
        slots: Vec<String>,
        /// The generation that this swap ended (always the one before), absent at the first.
        closed: Option<ClosedGeneration>,
        /// Time spent loading and preparing, microseconds, as the shim saw it.
        prepare_us: u64,
        /// Bytes that `prepare` took from the budget.
        prepare_bytes: u64,
    },
    /// To `Generate`.
    Generated {
        /// Prompt tokens the engine observed, per prompt.
        observed: Vec<u32>,
        /// Token ids, per prompt; all of the requested length.
        tokens: Vec<Vec<u32>>,
        /// Notes.
        notes: Notes,
    },
    /// To `SlotCall`.
    SlotReturned {
        /// One per call.
        results: Vec<SlotResult>,
        /// Notes.
        notes: Notes,
    },
    /// To `Trace`.
    Traced {
        /// One per site, in the request's order.
        calls: Vec<TracedCall>,
        /// Counts per slot and process.
        counts: Vec<SlotCount>,
        /// Notes.
        notes: Notes,
    },
    /// To `Score`.
    Scored {
        /// Natural-log probability of each token after the prompt.
        logprobs: Vec<f32>,
        /// Notes.
        notes: Notes,
    },
    /// To `Close`.
    Closed {
        /// The generation that was running, if any.
        closed: Option<ClosedGeneration>,
    },
    /// To anything.
    Fault(Fault),
}

impl Request {
    /// The frame kind.
    pub fn kind(&self) -> Kind {
        match self {
            Request::Ready { .. } => Kind::Ready,
            Request::Activate { .. } => Kind::Activate,
            Request::Generate { .. } => Kind::Generate,
            Request::SlotCall(_) => Kind::SlotCall,
            Request::Trace { .. } => Kind::Trace,
            Request::Score { .. } => Kind::Score,
            Request::Close => Kind::Close,
        }
    }

    /// Kind and size of the reply.
    pub fn reply_rule(&self) -> ReplyRule {
        let (kind, exact) = match self {
            Request::Ready { .. } => (Kind::Readied, None),
            Request::Activate { .. } => (Kind::Activated, None),
            Request::Generate { prompts, max_new_tokens } => {
                let per_prompt = 8 + 4 * u64::from(*max_new_tokens);
                (Kind::Generated, Some(u64::from(NOTES_BYTES) + 4 + prompts.len() as u64 * per_prompt))
            }
            Request::SlotCall(call) => {
                let outputs: u64 = call.outputs.iter().map(|len| 4 + u64::from(*len)).sum();
                let per_call = 4 + outputs + 64 + 2;
                (Kind::SlotReturned, Some(u64::from(NOTES_BYTES) + 4 + call.calls.len() as u64 * per_call))
            }
            Request::Trace { .. } => (Kind::Traced, None),
            Request::Score { tokens, prompt_len } => {
                let scored = tokens.len() as u64 - u64::from(*prompt_len).min(tokens.len() as u64);
                (Kind::Scored, Some(u64::from(NOTES_BYTES) + 4 + 4 * scored))
            }
            Request::Close => (Kind::Closed, None),
        };
        ReplyRule { kind, exact: exact.map(|len| u32::try_from(len).unwrap_or(u32::MAX)) }
    }

    /// The body's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Request::Ready { launch, limits, publications } => {
                w.bytes(launch).u32(limits.load_ms).u32(limits.prepare_ms).u64(limits.prepare_bytes);
                w.u32(limits.call_ms).u32(limits.guard_period).u64(limits.guard_seed);
                w.count(publications.len());
                for publication in publications {
                    w.u16(publication.id).bytes(&publication.object_sha256);
                }
            }
            Request::Activate { generation, bindings } => {
                w.u64(*generation).count(bindings.len());
                for binding in bindings {
                    w.blob(binding.slot.as_bytes()).u16(binding.publication);
                }
            }
            Request::Generate { prompts, max_new_tokens } => {
                w.u32(*max_new_tokens).count(prompts.len());
                for prompt in prompts {
                    w.tokens(prompt);
                }
            }
            Request::SlotCall(call) => encode_slot_call(&mut w, call),
            Request::Trace { tokens, prompt_len, sites } => {
                w.u32(*prompt_len).tokens(tokens).count(sites.len());
                for site in sites {
                    w.blob(site.slot.as_bytes()).u64(site.ordinal);
                }
            }
            Request::Score { tokens, prompt_len } => {
                w.u32(*prompt_len).tokens(tokens);
            }
            Request::Close => {}
        }
        w.finish()
    }

    /// Parses a body of the given kind.
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Request, DecodeError> {
        let mut r = Reader::new(body);
        let request = match kind {
            Kind::Ready => {
                let launch = r.array("launch")?;
                let limits = decode_limits(&mut r)?;
                let count = r.count("publications", PUBLICATIONS_MAX, 34)?;
                let publications = (0..count)
                    .map(|_| {
                        let id = r.u16("publication")?;
                        Ok(Publication { id, object_sha256: r.array("object digest")? })
                    })
                    .collect::<Result<Vec<_>, DecodeError>>()?;
                ascending(&publications, |p| p.id, "publications")?;
                Request::Ready { launch, limits, publications }
            }
            Kind::Activate => {
                let generation = r.u64("generation")?;
                check("generation", generation, 1, u64::MAX)?;
                let count = r.count("bindings", SLOTS_MAX, 6)?;
                let bindings = (0..count)
                    .map(|_| Ok(Binding { slot: name(&mut r, "slot")?, publication: r.u16("publication")? }))
                    .collect::<Result<Vec<_>, DecodeError>>()?;
                ascending(&bindings, |b| b.slot.clone(), "bindings")?;
                Request::Activate { generation, bindings }
            }
            Kind::Generate => {
                let max_new_tokens = r.bounded("new tokens", 1, NEW_TOKENS_MAX)?;
                let count = r.count("prompts", PROMPTS_MAX, 4)?;
                check("prompts", count as u64, 1, u64::from(PROMPTS_MAX))?;
                let prompts = (0..count)
                    .map(|_| {
                        let tokens = r.tokens("prompt tokens", SEQUENCE_MAX)?;
                        check("prompt tokens", tokens.len() as u64, 1, u64::from(SEQUENCE_MAX))?;
                        Ok(tokens)
                    })
                    .collect::<Result<Vec<_>, DecodeError>>()?;
                Request::Generate { prompts, max_new_tokens }
            }
            Kind::SlotCall => Request::SlotCall(decode_slot_call(&mut r)?),
            Kind::Trace => {
                let (tokens, prompt_len) = decode_sequence(&mut r)?;
                let count = r.count("sites", SITES_MAX, 12)?;
                let sites = (0..count)
                    .map(|_| Ok(CallSite { slot: name(&mut r, "slot")?, ordinal: r.u64("ordinal")? }))
                    .collect::<Result<Vec<_>, DecodeError>>()?;
                ascending(&sites, Clone::clone, "sites")?;
                Request::Trace { tokens, prompt_len, sites }
            }
            Kind::Score => {
                let (tokens, prompt_len) = decode_sequence(&mut r)?;
                Request::Score { tokens, prompt_len }
            }
            Kind::Close => Request::Close,
            other => return Err(DecodeError::Unknown { what: "request kind", value: other as u64 }),
        };
        r.finish()?;
        Ok(request)
    }
}

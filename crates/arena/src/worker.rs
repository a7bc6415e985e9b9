//! One container with one worker in it, spoken to through one conversation whose every frame is kept.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use cacheon_identity::Digest;
use cacheon_protocol::message::{
    Binding, ClosedGeneration, Facts, Limits, Publication, SlotCall, SlotResult, TracedCall,
};
use cacheon_protocol::message::{CallSite, SlotCount};
use cacheon_protocol::{
    Exchange, Fault, MonotonicClock, Nonce, Notes, Reply, Request, Session, SessionError, SessionId, Stamps,
};
use cacheon_records::cpu::{ClosedFacts, CounterFacts, SwapRecord};
use cacheon_sandbox::{Container, SandboxError, TeardownProof};

use crate::frames::FrameArchive;

/// Why a worker did not answer.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The shim reports a typed failure; the only kind that can be charged to a candidate.
    #[error("{0}")]
    Fault(Box<Fault>),
    /// The conversation failed.
    #[error("conversation with the worker: {0}")]
    Session(#[from] SessionError),
    /// The container failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The worker is not what was launched.
    #[error("the worker is not fit to serve: {0}")]
    Unfit(String),
    /// No randomness.
    #[error("the system's random source failed: {0}")]
    Random(getrandom::Error),
}

impl WorkerError {
    /// Whether a candidate's own code ended this.
    #[must_use]
    pub fn attributable(&self) -> bool {
        matches!(self, Self::Fault(fault) if fault.attributable())
    }
}

/// `N` random bytes, not all zero.
///
/// # Errors
/// The system's random source.
pub fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    loop {
        let mut bytes = [0u8; N];
        getrandom::fill(&mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(bytes);
        }
    }
}

/// Lowercase hexadecimal text.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a conversation leaves behind.
#[derive(Debug)]
pub struct Ended {
    /// 32 hex digits.
    pub session_id: String,
    /// Head of the frame chain.
    pub chain_head: Digest,
    /// Frames in it.
    pub frames: u64,
    /// All raw frames.
    pub archive: Vec<u8>,
    /// Proof that the container is gone.
    pub teardown: TeardownProof,
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    container: Container,
    session: Session<UnixStream, MonotonicClock, FrameArchive>,
    generation: u64,
    facts: Option<Facts>,
}

/// Deadlines of requests that are not timed.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// From start to the first reply.
    pub ready: Duration,
    /// One activation, load and prepare included.
    pub activate: Duration,
    /// One conformance request, trace or scoring.
    pub work: Duration,
}

impl Worker {
    /// Takes a started container into a conversation.
    ///
    /// # Errors
    /// No randomness, or a container without a socket; the container is then torn down by its drop.
    pub fn converse(mut container: Container) -> Result<Self, WorkerError> {
        let stream =
            container.take_stream().ok_or_else(|| WorkerError::Unfit("it has no socket".to_owned()))?;
        let id = SessionId(random().map_err(WorkerError::Random)?);
        let session = Session::new(stream, id, MonotonicClock, FrameArchive::default());
        Ok(Self { container, session, generation: 0, facts: None })
    }

    /// 32 hex digits.
    #[must_use]
    pub fn session_id(&self) -> String {
        hex(&self.session.id().0)
    }

    /// The container.
    #[must_use]
    pub const fn container(&self) -> &Container {
        &self.container
    }

    /// What the shim found when it started.
    #[must_use]
    pub const fn facts(&self) -> Option<&Facts> {
        self.facts.as_ref()
    }

    fn ask(&mut self, request: &Request, deadline: Duration) -> Result<Exchange, WorkerError> {
        let nonce = Nonce(random().map_err(WorkerError::Random)?);
        let exchange = self.session.request(request, nonce, deadline)?;
        match exchange.reply {
            Reply::Fault(fault) => Err(WorkerError::Fault(Box::new(fault))),
            _ => Ok(exchange),
        }
    }

    /// Opens the conversation; the shim re-hashes what is mounted.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn ready(
        &mut self,
        launch: Digest,
        limits: Limits,
        publications: Vec<Publication>,
        deadline: Duration,
    ) -> Result<Facts, WorkerError> {
        let request = Request::Ready { launch: *launch.as_bytes(), limits, publications };
        match self.ask(&request, deadline)?.reply {
            Reply::Readied { facts, .. } => {
                self.facts = Some(facts.clone());
                Ok(facts)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Replaces the served kernels by a fresh engine process.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn activate(&mut self, bindings: &[Binding], deadline: Duration) -> Result<Activation, WorkerError> {
        self.generation += 1;
        let request = Request::Activate { generation: self.generation, bindings: bindings.to_vec() };
        let exchange = self.ask(&request, deadline)?;
        let (stamps, request_sha256, reply_sha256) =
            (exchange.stamps, exchange.request_sha256, exchange.reply_sha256);
        match exchange.reply {
            Reply::Activated { generation, closed, prepare_us, prepare_bytes, .. } => Ok(Activation {
                swap: SwapRecord {
                    bindings: bindings
                        .iter()
                        .map(|binding| format!("{}={}", binding.slot, binding.publication))
                        .collect(),
                    closed: closed.as_ref().map(closed_facts),
                    generation,
                    last_byte_ns: stamps.last_byte,
                    reply_sha256: Digest::from_bytes(reply_sha256),
                    request_sha256: Digest::from_bytes(request_sha256),
                    write_begun_ns: stamps.write_begun,
                },
                prepare_us,
                prepare_bytes,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Generates for one batch.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn generate(
        &mut self,
        prompts: Vec<Vec<u32>>,
        new_tokens: u32,
        deadline: Duration,
    ) -> Result<Generation, WorkerError> {
        let request = Request::Generate { prompts, max_new_tokens: new_tokens };
        let exchange = self.ask(&request, deadline)?;
        match exchange.reply {
            Reply::Generated { observed, tokens, notes } => Ok(Generation {
                observed,
                tokens,
                notes,
                stamps: exchange.stamps,
                request_sha256: Digest::from_bytes(exchange.request_sha256),
                reply_sha256: Digest::from_bytes(exchange.reply_sha256),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Calls one slot on host-made inputs; the frame digests come along.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn slot_call(&mut self, call: SlotCall, deadline: Duration) -> Result<SlotReply, WorkerError> {
        let exchange = self.ask(&Request::SlotCall(call), deadline)?;
        match exchange.reply {
            Reply::SlotReturned { results, .. } => Ok(SlotReply {
                results,
                request_sha256: Digest::from_bytes(exchange.request_sha256),
                reply_sha256: Digest::from_bytes(exchange.reply_sha256),
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// Runs a trajectory again with sampled calls exported.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn trace(
        &mut self,
        tokens: Vec<u32>,
        prompt_len: u32,
        sites: Vec<CallSite>,
        deadline: Duration,
    ) -> Result<(Vec<TracedCall>, Vec<SlotCount>), WorkerError> {
        match self.ask(&Request::Trace { tokens, prompt_len, sites }, deadline)?.reply {
            Reply::Traced { calls, counts, .. } => Ok((calls, counts)),
            other => Err(unexpected(&other)),
        }
    }

    /// Log-probabilities of a trajectory.
    ///
    /// # Errors
    /// [`WorkerError`].
    pub fn score(
        &mut self,
        tokens: Vec<u32>,
        prompt_len: u32,
        deadline: Duration,
    ) -> Result<Vec<f32>, WorkerError> {
        match self.ask(&Request::Score { tokens, prompt_len }, deadline)?.reply {
            Reply::Scored { logprobs, .. } => Ok(logprobs),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the conversation, destroys the container and proves it gone. The conversation's own end is a courtesy: a
    /// worker that does not answer is killed all the same.
    ///
    /// # Errors
    /// [`SandboxError::Unproven`] outranks anything the container answered.
    pub fn end(mut self) -> Result<Ended, WorkerError> {
        let _ = self.ask(&Request::Close, Duration::from_millis(500));
        let session_id = self.session_id();
        let (chain_head, frames) = (self.session.chain().head(), self.session.chain().frames());
        let archive = std::mem::take(self.session.sink_mut()).into_bytes();
        let teardown = self.container.kill_and_prove()?;
        Ok(Ended { session_id, chain_head: Digest::from_bytes(chain_head), frames, archive, teardown })
    }
}

fn unexpected(reply: &Reply) -> WorkerError {
    WorkerError::Unfit(format!("it answered a request with a {:?} frame", reply.kind()))
}

/// A completed activation.
#[derive(Debug, Clone)]
pub struct Activation {
    /// The record of it.
    pub swap: SwapRecord,
    /// Load and prepare, µs.
    pub prepare_us: u64,
    /// Bytes that `prepare` took.
    pub prepare_bytes: u64,
}

/// A completed batch.
#[derive(Debug, Clone)]
pub struct Generation {
    /// Prompt tokens observed, per prompt.
    pub observed: Vec<u32>,
    /// Tokens, per prompt.
    pub tokens: Vec<Vec<u32>>,
    /// What the shim saw beside it.
    pub notes: Notes,
    /// Controller times.
    pub stamps: Stamps,
    /// Request frame.
    pub request_sha256: Digest,
    /// Reply frame.
    pub reply_sha256: Digest,
}

/// A completed conformance request.
#[derive(Debug, Clone)]
pub struct SlotReply {
    /// One per call.
    pub results: Vec<SlotResult>,
    /// Request frame.
    pub request_sha256: Digest,
    /// Reply frame.
    pub reply_sha256: Digest,
}

/// The record of a closed generation.
#[must_use]
pub fn closed_facts(closed: &ClosedGeneration) -> ClosedFacts {
    ClosedFacts {
        counters: closed
            .counters
            .iter()
            .map(|counter| CounterFacts {
                completed: counter.completed,
                fallback: counter.fallback,
                fired: counter.fired,
                load_failed: counter.load_failed,
                process: counter.process,
                slot: counter.slot.clone(),
            })
            .collect(),
        denied_network: closed.notes.denied_network,
        denied_other: closed.notes.denied_other,
        generation: closed.generation,
        guard_hits: closed.notes.guard_hits,
    }
}

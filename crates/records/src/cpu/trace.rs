//! Raw audit and reference evidence: sampled calls with their tensors, log-probabilities, teardown proofs.

use cacheon_identity::{Digest, record};

use crate::evidence::EvidenceRef;

record! {
    /// One tensor inside a blob artifact: `length` little-endian binary32 values from `offset` bytes on.
    #[derive(Copy)]
    pub struct Tensor {
        /// Values.
        pub length: u64,
        /// Bytes from the start of the blob.
        pub offset: u64,
    }
}

record! {
    /// One sampled call: what the candidate's engine was given, what a candidate-free replay was given at the same place,
    /// what the candidate returned, and what the f64 reference computes from the candidate's own inputs.
    pub struct SampledCall {
        /// Bit set of guards hit.
        pub guards: u32,
        /// Candidate's inputs.
        pub inputs: Vec<Tensor>,
        /// Whether the outputs still had their return hash at the end of the step.
        pub intact: bool,
        /// Call number among that slot's calls in the trajectory.
        pub ordinal: u64,
        /// Candidate's outputs.
        pub outputs: Vec<Tensor>,
        /// Process number.
        pub process: u32,
        /// Reference outputs.
        pub references: Vec<Tensor>,
        /// Inputs of the candidate-free replay.
        pub replay_inputs: Vec<Tensor>,
        /// Slot.
        pub slot: String,
        /// Which timed batch's trajectory.
        pub trajectory: u32,
    }
}

record! {
    /// Calls of a slot over one traced trajectory.
    pub struct SlotCalls {
        /// Calls made.
        pub calls: u64,
        /// Process number.
        pub process: u32,
        /// Slot.
        pub slot: String,
        /// Which timed batch's trajectory.
        pub trajectory: u32,
    }
}

record! {
    /// The audit of one attempt.
    pub struct AuditRaw {
        /// Tensors.
        pub blob: EvidenceRef,
        /// Sampled calls, by trajectory, slot and ordinal.
        pub calls: Vec<SampledCall>,
        /// Calls made per slot and process.
        pub counts: Vec<SlotCalls>,
        /// Launch digest of the candidate's audit container.
        pub launch_digest: Digest,
        /// Launch digest of the candidate-free replay container.
        pub replay_launch_digest: Digest,
        /// Conversation with the replay container.
        pub replay_session: super::SessionRecord,
        /// Conversation with the candidate's audit container.
        pub session: super::SessionRecord,
    }
}

record! {
    /// Log-probabilities of one token sequence under the pristine engine.
    pub struct Rollout {
        /// Natural-log probability of each generated token: 8 hex digits, the big-endian bits of a binary32.
        pub logprobs: Vec<String>,
        /// The generated tokens.
        pub tokens: Vec<u32>,
    }
}

record! {
    /// The pristine reference pass: for each timed batch, in order, three rollouts.
    pub struct ReferenceRaw {
        /// Incumbent's trajectories, from read B.
        pub baseline: Vec<Rollout>,
        /// Candidate's trajectories, from read C.
        pub candidate: Vec<Rollout>,
        /// Trajectories of the pristine engine itself.
        pub control: Vec<Rollout>,
        /// Launch digest of the reference container.
        pub launch_digest: Digest,
        /// The conversation.
        pub session: super::SessionRecord,
    }
}

record! {
    /// Proof that a container is gone: its control group was seen empty and removed, its directory is gone.
    pub struct TeardownRecord {
        /// Controller time of the proof, ns.
        pub at_ns: u64,
        /// Processes seen in the control group at the end.
        pub remaining: u32,
        /// Which container: `baseline`, `candidate`, `audit`, `replay`, `reference`, `conformance`.
        pub role: String,
        /// Session the container served.
        pub session_id: String,
    }
}

//! Raw timed reads: controller stamps around every exchange, the tokens that came back, the receipts of every swap.

use cacheon_identity::{Digest, record};

use crate::evidence::EvidenceRef;

record! {
    /// One conversation with one container.
    pub struct SessionRecord {
        /// Head of the hash chain over all raw frames.
        pub chain_head: Digest,
        /// Frames in the chain.
        pub frames: u64,
        /// The retained frames, in order.
        pub frames_ref: EvidenceRef,
        /// 32 hex digits.
        pub session_id: String,
    }
}

record! {
    /// Executions of one slot in one engine process of a closed generation.
    pub struct CounterFacts {
        /// Calls that returned.
        pub completed: u64,
        /// Calls inside the declared domain that something else served.
        pub fallback: u64,
        /// Calls routed to the bound publication.
        pub fired: u64,
        /// Loads that failed.
        pub load_failed: u64,
        /// Process number.
        pub process: u32,
        /// Slot.
        pub slot: String,
    }
}

record! {
    /// Receipts of a generation whose process is gone.
    pub struct ClosedFacts {
        /// Per slot and process.
        pub counters: Vec<CounterFacts>,
        /// System calls denied: the network, then any other.
        pub denied_network: u64,
        /// See `denied_network`.
        pub denied_other: u64,
        /// Generation.
        pub generation: u64,
        /// Guards hit in the whole generation.
        pub guard_hits: u64,
    }
}

record! {
    /// One activation.
    pub struct SwapRecord {
        /// Publication numbers by slot, sorted: `slot=number`.
        pub bindings: Vec<String>,
        /// The generation that this swap ended.
        pub closed: Option<ClosedFacts>,
        /// The new generation.
        pub generation: u64,
        /// Controller time after the acknowledgement, ns.
        pub last_byte_ns: u64,
        /// SHA-256 of the reply frame.
        pub reply_sha256: Digest,
        /// SHA-256 of the request frame.
        pub request_sha256: Digest,
        /// Controller time before the request, ns.
        pub write_begun_ns: u64,
    }
}

record! {
    /// One batch on one arm.
    pub struct TimedRequest {
        /// Batch index within the sealed workload.
        pub batch: u32,
        /// CPU time of the container over the exchange, read by the host, ns.
        pub cpu_ns: u64,
        /// Controller time after the last byte of the reply, ns.
        pub last_byte_ns: u64,
        /// Prompt tokens the engine observed, per prompt.
        pub observed: Vec<u32>,
        /// SHA-256 of the reply frame.
        pub reply_sha256: Digest,
        /// SHA-256 of the request frame.
        pub request_sha256: Digest,
        /// Tokens that came back, per prompt.
        pub tokens: Vec<Vec<u32>>,
        /// Controller time before the first byte of the request, ns.
        pub write_begun_ns: u64,
    }
}

record! {
    /// One read: an activation, every batch of the workload in order, and for the candidate the return to the incumbent.
    pub struct ReadRecord {
        /// CPU list of the container, read back by the host.
        pub cpus: String,
        /// Lane name.
        pub lane_id: String,
        /// CPU time that the other lane's container used during this read, ns. Frozen means next to none.
        pub other_lane_cpu_ns: u64,
        /// Batches.
        pub requests: Vec<TimedRequest>,
        /// `B`, `C` or `B_prime`.
        pub role: String,
        /// Session this read ran in.
        pub session_id: String,
        /// Activations, in order.
        pub swaps: Vec<SwapRecord>,
    }
}

record! {
    /// All reads of an attempt.
    pub struct SpeedRaw {
        /// B, C and, if it was taken, B′.
        pub reads: Vec<ReadRecord>,
        /// Baseline session, then candidate session.
        pub sessions: Vec<SessionRecord>,
    }
}

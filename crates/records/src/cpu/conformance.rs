//! What the conformance stage saw of each slot call.

use cacheon_identity::float17::Float17;
use cacheon_identity::{Digest, record};

record! {
    /// One call of a conformance case, compared on the host with the f64 reference.
    pub struct CallFacts {
        /// Elements compared.
        pub elements: u64,
        /// Bit set of guards that the shim saw hit.
        pub guards: u32,
        /// SHA-256 of the outputs at the end of the request.
        pub hash_at_end: Digest,
        /// SHA-256 of the outputs when the call returned.
        pub hash_at_return: Digest,
        /// Elements within the tolerance.
        pub matched: u64,
        /// Elements that are not finite although the reference is.
        pub non_finite: u64,
        /// Largest error, as a share of the error cap.
        pub worst: Float17,
    }
}

record! {
    /// One shape of one slot variant: an eager call, then replays at the same addresses with fresh content.
    pub struct ConformanceCase {
        /// The calls, the eager one first.
        pub calls: Vec<CallFacts>,
        /// Dimensions in the slot's order.
        pub dims: Vec<u32>,
        /// Fault code when the request was not served, otherwise empty.
        pub fault: String,
        /// SHA-256 of the reply frame.
        pub reply_sha256: Digest,
        /// SHA-256 of the request frame.
        pub request_sha256: Digest,
        /// Shape name, unique within the variant.
        pub shape: String,
        /// Slot.
        pub slot: String,
        /// Variant.
        pub variant: String,
    }
}

record! {
    /// The whole conformance stage of one candidate.
    pub struct ConformanceRaw {
        /// In the order they ran.
        pub cases: Vec<ConformanceCase>,
        /// Launch digest of the container.
        pub launch_digest: Digest,
        /// The conversation.
        pub session: super::SessionRecord,
    }
}

/// How a shape of a case ended; the graph-evidence kinds that can arise on a CPU (chapter 40 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShapeKind {
    /// Every call matched.
    None,
    /// The first call already failed.
    Eager,
    /// A later call failed.
    Replay,
}

//! The pristine teacher's session.

use super::device::DeviceStateReceipt;
use super::session::{Prebuild, Preflight, RuntimeIdentity};
use crate::fields::{Fixed, Hex128, ascending, literals, require, ruled_record, unruled};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, DecodeError, Digest, Domain};

const SESSION: Domain = Domain::new("cacheon.eval.pristine-reference-session");

literals! {
    /// Schema of [`ReferenceSession`].
    ReferenceSessionSchema = "cacheon.pristine-reference-session.v1";
    /// Schema of [`PristineReferenceExecution`].
    PristineReferenceSchema = "cacheon.oci-pristine-reference-execution.v1";
}

ruled_record! {
    /// One role's tokens and retained supports.
    pub struct ReferenceRoleInput: unruled {
        /// Generated tokens.
        pub output_ids: Vec<u32>,
        /// Per token, ascending; empty at width 0.
        pub supports: Vec<Vec<u32>>,
    }
}

ruled_record! {
    /// One prompt with its three rollouts: baseline, candidate, control.
    pub struct ReferencePromptInput: unruled {
        /// The text.
        pub prompt: String,
        /// The occurrence.
        pub prompt_digest: Digest,
        /// Baseline, candidate, control.
        pub roles: Fixed<ReferenceRoleInput, 3>,
    }
}

ruled_record! {
    /// What the teacher is asked.
    pub struct ReferenceRequest: ReferenceRequest::rules {
        /// The launch.
        pub launch_digest: Digest,
        /// Nonce.
        pub nonce: Hex128,
        /// The plan.
        pub plan_digest: Digest,
        /// Sorted by digest, unique, at least one.
        pub prompts: Vec<ReferencePromptInput>,
        /// Request.
        pub request_id: Hex128,
        /// Index in the session.
        pub request_index: u32,
        /// The session.
        pub session_id: Hex128,
        /// 0 to 256.
        pub support_width: u32,
        /// Tokens of every rollout, at least one.
        pub tokens_per_prompt: u32,
    }
}

impl ReferenceRequest {
    /// Most prompts of a request.
    pub const MAX_PROMPTS: usize = 4096;
    /// Widest support.
    pub const MAX_WIDTH: u32 = 256;
    /// Most tokens a rollout.
    pub const MAX_TOKENS: u32 = 1 << 20;
    /// Most distinct support tokens a rollout.
    const MAX_UNION: usize = 4096;
    /// Most log-probabilities that the teacher computes.
    const MAX_WORK: u64 = 1 << 24;
    /// Longest prompt, bytes.
    const MAX_TEXT: usize = 2_000_000;
    /// Longest prompts together, bytes.
    const MAX_TOTAL_TEXT: usize = 96_000_000;

    fn rules(&self) -> Result<(), DecodeError> {
        let digests: Vec<Digest> = self.prompts.iter().map(|prompt| prompt.prompt_digest).collect();
        let count = digests.len();
        let sorted = count > 0 && count <= Self::MAX_PROMPTS && ascending(&digests);
        require(sorted, "prompts", "prompts are digest-sorted, unique, 1 to 4096", &count)?;
        let tokens = self.tokens_per_prompt;
        require((1..=Self::MAX_TOKENS).contains(&tokens), "tokens_per_prompt", "outside 1..=2^20", &tokens)?;
        require(self.support_width <= Self::MAX_WIDTH, "support_width", "above 256", &self.support_width)?;
        require(self.request_index < u32::MAX, "request_index", "above 2^32 − 2", &self.request_index)?;
        let ids = [&self.session_id, &self.request_id, &self.nonce];
        require(
            crate::fields::distinct(&ids),
            "nonce",
            "session, request and nonce are different",
            &self.nonce,
        )?;
        let (mut text, mut work) = (0usize, 0u64);
        for prompt in &self.prompts {
            let length = prompt.prompt.len();
            let plain = length > 0 && length <= Self::MAX_TEXT && !prompt.prompt.contains('\0');
            require(plain, "prompt", "a prompt has 1 to 2000000 bytes and no NUL", &prompt.prompt_digest)?;
            text = text.saturating_add(length);
            let Fixed(roles) = &prompt.roles;
            for role in roles {
                work = work.saturating_add(self.check_role(role)?);
            }
        }
        require(text <= Self::MAX_TOTAL_TEXT, "prompts", "more than 96000000 bytes of text", &text)?;
        require(work <= Self::MAX_WORK, "prompts", "more than 2^24 log-probabilities", &work)
    }

    /// Checks one rollout and returns its share of the teacher's work: tokens times distinct support tokens.
    fn check_role(&self, role: &ReferenceRoleInput) -> Result<u64, DecodeError> {
        let (tokens, width) = (self.tokens_per_prompt as usize, self.support_width as usize);
        let whole = role.output_ids.len() == tokens && role.supports.len() == tokens;
        require(whole, "output_ids", "not the declared number of tokens", &role.output_ids.len())?;
        let shaped = role.supports.iter().all(|support| support.len() == width && ascending(support));
        require(shaped, "supports", "a support is not ascending and of the declared width", &width)?;
        let signed = |ids: &[u32]| ids.iter().all(|id| i32::try_from(*id).is_ok());
        let small = signed(&role.output_ids) && role.supports.iter().all(|support| signed(support));
        require(small, "output_ids", "a token id of 2^31 or more", &tokens)?;
        let mut union: Vec<u32> = role.supports.iter().flatten().copied().collect();
        union.sort_unstable();
        union.dedup();
        require(
            union.len() <= Self::MAX_UNION,
            "supports",
            "more than 4096 distinct support tokens",
            &union.len(),
        )?;
        Ok(tokens as u64 * union.len() as u64)
    }
}

ruled_record! {
    /// One token under the teacher.
    pub struct ReferenceTokenEvidence: unruled {
        /// Of the support, in its order.
        pub support_logprobs: Vec<Float17>,
        /// Of the generated token.
        pub target_logprob: Float17,
        /// The most likely token.
        pub true_argmax_token_id: u32,
    }
}

ruled_record! {
    /// One rollout under the teacher.
    pub struct ReferenceRoleEvidence: unruled {
        /// Per token.
        pub tokens: Vec<ReferenceTokenEvidence>,
    }
}

ruled_record! {
    /// One prompt under the teacher.
    pub struct ReferencePromptEvidence: unruled {
        /// The occurrence.
        pub prompt_digest: Digest,
        /// Tokens of the prompt as the teacher tokenised it.
        pub prompt_token_count: u32,
        /// SHA-256 of those tokens, big-endian.
        pub prompt_token_sha256: Digest,
        /// Baseline, candidate, control.
        pub roles: Fixed<ReferenceRoleEvidence, 3>,
    }
}

ruled_record! {
    /// What the teacher answered.
    pub struct ReferenceEvidence: unruled {
        /// The launch.
        pub launch_digest: Digest,
        /// Nonce.
        pub nonce: Hex128,
        /// The plan.
        pub plan_digest: Digest,
        /// As in the request.
        pub prompts: Vec<ReferencePromptEvidence>,
        /// Request.
        pub request_id: Hex128,
        /// Index in the session.
        pub request_index: u32,
        /// SHA-256 of the request frame.
        pub request_sha256: Digest,
        /// The session.
        pub session_id: Hex128,
        /// Tokens the teacher knows.
        pub vocab_size: u32,
    }
}

ruled_record! {
    /// One request with its answer.
    pub struct ReferenceExchange: unruled {
        /// The answer.
        pub evidence: ReferenceEvidence,
        /// SHA-256 of its frame.
        pub evidence_frame_sha256: Digest,
        /// The question.
        pub request: ReferenceRequest,
        /// Index in the session.
        pub request_index: u32,
        /// SHA-256 of its frame.
        pub request_sha256: Digest,
        /// s.
        pub request_started_at: Float17,
        /// s.
        pub response_completed_at: Float17,
    }
}

ruled_record! {
    /// The teacher's session.
    pub struct ReferenceSession: unruled {
        /// Exchanges.
        pub exchanges: Vec<ReferenceExchange>,
        /// The launch.
        pub launch_digest: Digest,
        /// Preflight.
        pub preflight: Preflight,
        /// s.
        pub ready_completed_at: Float17,
        /// The pristine manifest.
        pub reference_manifest_digest: Digest,
        /// The request plan.
        pub request_plan_digest: Digest,
        /// Schema literal.
        pub schema: ReferenceSessionSchema,
        /// s.
        pub session_completed_at: Float17,
        /// The session.
        pub session_id: Hex128,
        /// The session plan.
        pub session_plan_digest: Digest,
    }
}

/// What a session digest binds: identities and frame hashes, no stamps.
#[derive(Clone, Debug)]
pub struct SessionPayload<'a> {
    /// Request and evidence frame hashes, in order.
    pub exchanges: &'a [(Digest, Digest)],
    /// The launch.
    pub launch_digest: Digest,
    /// Digest of the preflight facts.
    pub preflight_digest: Digest,
    /// The pristine manifest.
    pub reference_manifest_digest: Digest,
    /// The request plan.
    pub request_plan_digest: Digest,
    /// The session.
    pub session_id: &'a Hex128,
    /// The session plan.
    pub session_plan_digest: Digest,
}

impl Canonical for SessionPayload<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field_with("exchanges", |w| {
                w.array(|a| {
                    for (index, (request, evidence)) in self.exchanges.iter().enumerate() {
                        a.item_with(|w| {
                            w.object(|o| {
                                o.field("evidence_frame_sha256", evidence)
                                    .field("request_index", &(index as u64))
                                    .field("request_sha256", request);
                            });
                        });
                    }
                });
            });
            o.field("launch_digest", &self.launch_digest)
                .field("preflight_digest", &self.preflight_digest)
                .field("reference_manifest_digest", &self.reference_manifest_digest)
                .field("request_plan_digest", &self.request_plan_digest)
                .field("schema", ReferenceSessionSchema::TEXT)
                .field("session_id", self.session_id)
                .field("session_plan_digest", &self.session_plan_digest);
        });
    }
}

impl SessionPayload<'_> {
    /// Identity of the session.
    #[must_use]
    pub fn digest(&self) -> Digest {
        SESSION.digest(self)
    }
}

ruled_record! {
    /// The teacher's launch with its session.
    pub struct PristineReferenceExecution: unruled {
        /// The mounted model.
        pub arena_model_receipt_digest: Digest,
        /// Before, after.
        pub device_receipts: Fixed<DeviceStateReceipt, 2>,
        /// The launch.
        pub launch_digest: Digest,
        /// What was mounted.
        pub native_publication_digest: Digest,
        /// The build.
        pub prebuild: Prebuild,
        /// Leases recovered before.
        pub recovered_lease_ids: Vec<String>,
        /// Resources.
        pub resource_policy_digest: Digest,
        /// Opaque hash of the command.
        pub runtime_argv_sha256: Digest,
        /// Runtime.
        pub runtime_identity: RuntimeIdentity,
        /// Preflight.
        pub runtime_preflight_receipt_sha256: Digest,
        /// Schema literal.
        pub schema: PristineReferenceSchema,
        /// The session.
        pub session: ReferenceSession,
    }
}

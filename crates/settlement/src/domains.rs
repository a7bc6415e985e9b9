//! Every digest domain of this crate's records, with the members of its payload (spec 20 §9, §10 and its data file).

use crate::burn::{BurnAuthority, OwnerBurnAuthority};
use crate::claim::{DiscoveryClaim, StandingClaim};
use crate::economics::{EmissionsPolicy, GlobalContext};
use crate::event::Event;
use crate::lane::{LaneControl, LaneOrientation};
use crate::qualification::{AUDIT_MEMBERS, BASE_MEMBERS, ReproductionIdentity, SelectionEvidence};
use crate::receipt::EvidenceReceipt;
use crate::state::StackState;
use cacheon_identity::Domain;

const STATUS: &[&str] = &["status"];
const PAIR: &[&str] = &["primary", "reproduction"];

/// Qualification shapes v1 and v2; v2 adds `speed_evidence_policy_digest`.
pub const QUALIFICATION: Domain = Domain::with_members("cacheon.settlement.qualification", BASE_MEMBERS);
/// Qualification shape v3.
pub const QUALIFICATION_AUDITED: Domain =
    Domain::with_members("cacheon.settlement.qualification.audit-v1", AUDIT_MEMBERS);
/// Qualification shape v4, audited or not; adds `resident_lane_orientation`.
pub const QUALIFICATION_ORIENTED: Domain = Domain::new("cacheon.settlement.qualification.resident-lane-v1");
/// [`ReproductionIdentity`].
pub const REPRODUCTION_IDENTITY: Domain =
    Domain::with_members("cacheon.settlement.reproduction-identity", ReproductionIdentity::MEMBERS);
/// [`SelectionEvidence`].
pub const SELECTION_EVIDENCE: Domain =
    Domain::with_members("cacheon.settlement.selection-evidence", SelectionEvidence::MEMBERS);
/// What stands for the audit control where no audit was sealed.
pub const LEGACY_AUDIT_CONTROL: Domain =
    Domain::with_members("cacheon.settlement.legacy-audit-control", STATUS);
/// What stands for the audit evidence where no audit was sealed.
pub const LEGACY_AUDIT_EVIDENCE: Domain =
    Domain::with_members("cacheon.settlement.legacy-audit-evidence", STATUS);
/// [`LaneControl`].
pub const LANE_CONTROL: Domain =
    Domain::with_members("cacheon.settlement.resident-lane-control.v1", LaneControl::MEMBERS);
/// [`LaneOrientation`].
pub const LANE_ORIENTATION: Domain =
    Domain::with_members("cacheon.settlement.resident-lane-orientation.v1", LaneOrientation::MEMBERS);
/// A pair without audit and orientation.
pub const CANDIDATE_V2: Domain = Domain::with_members("cacheon.settlement.candidate.v2", PAIR);
/// An audited pair without orientation.
pub const CANDIDATE_V3: Domain = Domain::with_members("cacheon.settlement.candidate.v3", PAIR);
/// An oriented pair.
pub const CANDIDATE_V4: Domain = Domain::with_members("cacheon.settlement.candidate.v4", PAIR);
/// [`EvidenceReceipt`].
pub const EVIDENCE: Domain = Domain::with_members("cacheon.settlement.evidence", EvidenceReceipt::MEMBERS);
/// [`Event`].
pub const EVENT: Domain = Domain::with_members("cacheon.settlement.event", Event::MEMBERS);
/// [`crate::plan::Plan`].
pub const PLAN: Domain = Domain::with_members(
    "cacheon.settlement.plan",
    &["after", "before", "events", "transition", "winner_candidate_digest"],
);
/// The transition id of a stack that nothing has changed yet.
pub const STACK_GENESIS: Domain = Domain::with_members(
    "cacheon.chain.evaluation-stack-genesis",
    &["arena_digest", "stack_digest", "tree_digest"],
);
/// [`StackState`].
pub const STACK_STATE: Domain =
    Domain::with_members("cacheon.chain.evaluation-stack-state", StackState::MEMBERS);
/// [`StandingClaim`].
pub const STANDING_CLAIM: Domain =
    Domain::with_members("cacheon.economics.standing-claim", StandingClaim::MEMBERS);
/// The family of a standing claim.
pub const STANDING_FAMILY: Domain = Domain::with_members(
    "cacheon.economics.standing-family",
    &["arena_digest", "target_id", "target_spec_digest"],
);
/// [`DiscoveryClaim`].
pub const DISCOVERY_CLAIM: Domain =
    Domain::with_members("cacheon.economics.discovery-claim", DiscoveryClaim::MEMBERS);
/// [`EmissionsPolicy`].
pub const EMISSIONS_POLICY: Domain =
    Domain::with_members("cacheon.economics.policy", EmissionsPolicy::MEMBERS);
/// Who was registered at a block.
pub const METAGRAPH: Domain = Domain::with_members(
    "cacheon.economics.metagraph-membership",
    &["block", "block_hash", "chain_scope_digest", "members"],
);
/// [`GlobalContext`].
pub const GLOBAL_CONTEXT: Domain =
    Domain::with_members("cacheon.economics.global-context", GlobalContext::MEMBERS);
/// The context of a single-arena projection.
pub const PROJECTION_CONTEXT: Domain = Domain::with_members(
    "cacheon.economics.projection-context",
    &[
        "chain_scope_digest",
        "current_block",
        "current_block_hash",
        "metagraph_digest",
        "metagraph_members",
        "stack_generation",
        "validator_hotkey",
    ],
);
/// What one arena contributes to a projection.
pub const ARENA_AUTHORITY: Domain = Domain::with_members(
    "cacheon.economics.arena-authority",
    &["arena_digest", "catalog_digest", "stack_digest", "stack_generation", "standing_claims"],
);
/// A projection over every arena.
pub const GLOBAL_PROJECTION: Domain = Domain::with_members(
    "cacheon.economics.global-reward-projection",
    &[
        "arena_authority_digests",
        "context",
        "discovery",
        "expired_discovery_claims",
        "policy_digest",
        "standing",
        "weights",
    ],
);
/// A projection over one arena.
pub const ARENA_PROJECTION: Domain = Domain::with_members(
    "cacheon.economics.reward-projection",
    &[
        "catalog_digest",
        "context",
        "discovery",
        "evaluation_stack_digest",
        "expired_discovery_claims",
        "policy_digest",
        "standing",
        "weights",
    ],
);
/// [`BurnAuthority`].
pub const BURN_AUTHORITY: Domain =
    Domain::with_members("cacheon.chain.burn-weight-authority", BurnAuthority::MEMBERS);
/// [`OwnerBurnAuthority`].
pub const OWNER_BURN_AUTHORITY: Domain =
    Domain::with_members("cacheon.chain.subnet-owner-burn-weight-authority", OwnerBurnAuthority::MEMBERS);

/// All of them, for readers that list or check domains.
pub const ALL: &[Domain] = &[
    QUALIFICATION,
    QUALIFICATION_AUDITED,
    QUALIFICATION_ORIENTED,
    REPRODUCTION_IDENTITY,
    SELECTION_EVIDENCE,
    LEGACY_AUDIT_CONTROL,
    LEGACY_AUDIT_EVIDENCE,
    LANE_CONTROL,
    LANE_ORIENTATION,
    CANDIDATE_V2,
    CANDIDATE_V3,
    CANDIDATE_V4,
    EVIDENCE,
    EVENT,
    PLAN,
    STACK_GENESIS,
    STACK_STATE,
    STANDING_CLAIM,
    STANDING_FAMILY,
    DISCOVERY_CLAIM,
    EMISSIONS_POLICY,
    METAGRAPH,
    GLOBAL_CONTEXT,
    PROJECTION_CONTEXT,
    ARENA_AUTHORITY,
    GLOBAL_PROJECTION,
    ARENA_PROJECTION,
    BURN_AUTHORITY,
    OWNER_BURN_AUTHORITY,
];

//! Claims on rewards: standing ones from crowns, bounties from the discovery lane (spec 20 §9, §10).

use crate::candidate::{Candidate, ClaimFault};
use crate::domains;
use crate::ids::{BountyDigest, ClaimDigest, EvidenceReceiptDigest, FamilyDigest};
use crate::speedup::{ONE_PPM, Speedup};
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Json};
use cacheon_stack::ids::{ArenaDigest, ContributionDigest, TargetSpec};

cacheon_records::text_type! {
    /// Who is paid: 1 to 256 characters without white space (spec 20 §10).
    pub struct Hotkey: "a hotkey is 1..=256 characters without white space", is_hotkey;
    /// The target of a claim: any text but the empty one.
    pub struct ClaimTarget: "a claim names a target", |text| !text.is_empty();
}

fn is_hotkey(text: &str) -> bool {
    // U+001C to U+001F count as white space for the deployed reader, and not for Unicode's property.
    let space = |c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c);
    !text.is_empty() && text.chars().count() <= 256 && !text.chars().any(space)
}

/// A crown's claim on the standing pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingClaim {
    /// The arena.
    pub arena: ArenaDigest,
    /// The contribution that stands in the stack.
    pub contribution: ContributionDigest,
    /// Block at which its submission was finalized.
    pub crowned_block: u64,
    /// Who is paid.
    pub hotkey: Hotkey,
    /// The evidence receipt.
    pub retained_evidence: EvidenceReceiptDigest,
    speedup_ppm: u128,
    /// The target.
    pub target: ClaimTarget,
    /// That target's row in the catalog.
    pub target_spec: TargetSpec,
}

/// Why a candidate gives no claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The speedup floors to one.
    #[error(transparent)]
    Speedup(#[from] ClaimFault),
    /// The candidate changes no stack.
    #[error("the candidate is a discovery; it has no contribution to claim for")]
    NoContribution,
    /// Its hotkey or target breaks the claim's grammar.
    #[error(transparent)]
    Text(#[from] cacheon_records::text::TextError),
}

impl StandingClaim {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "arena_digest",
        "contribution_digest",
        "crowned_block",
        "hotkey",
        "retained_evidence_digest",
        "speedup_ppm",
        "target_id",
        "target_spec_digest",
    ];

    /// The claim a crowned candidate has.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn of_crown(candidate: &Candidate, evidence: EvidenceReceiptDigest) -> Result<Self, ClaimError> {
        if let Some(fault) = candidate.claim_fault() {
            return Err(fault.into());
        }
        let primary = candidate.primary();
        let contribution = candidate.contribution().ok_or(ClaimError::NoContribution)?;
        Ok(Self {
            arena: primary.arena,
            contribution: contribution.digest(),
            crowned_block: primary.position.block,
            hotkey: Hotkey::parse(primary.hotkey.as_str())?,
            retained_evidence: evidence,
            speedup_ppm: candidate.speedup().ppm(),
            target: ClaimTarget::parse(primary.target.as_str())?,
            target_spec: contribution.target_spec(),
        })
    }

    /// The speedup in parts per million, above 1,000,000.
    #[must_use]
    pub const fn speedup_ppm(&self) -> u128 {
        self.speedup_ppm
    }

    /// The claim's digest.
    #[must_use]
    pub fn digest(&self) -> ClaimDigest {
        ClaimDigest::new(domains::STANDING_CLAIM.digest(self))
    }

    /// The family: claims of one target row in one arena.
    #[must_use]
    pub fn family(&self) -> FamilyDigest {
        FamilyDigest::new(domains::STANDING_FAMILY.digest(&Family(self)))
    }
}

struct Family<'a>(&'a StandingClaim);

impl Canonical for Family<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("arena_digest", &self.0.arena)
                .field("target_id", &self.0.target)
                .field("target_spec_digest", &self.0.target_spec);
        });
    }
}

impl Canonical for StandingClaim {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("arena_digest", &self.arena)
                .field("contribution_digest", &self.contribution)
                .field("crowned_block", &self.crowned_block)
                .field("hotkey", &self.hotkey)
                .field("retained_evidence_digest", &self.retained_evidence)
                .field("speedup_ppm", &self.speedup_ppm)
                .field("target_id", &self.target)
                .field("target_spec_digest", &self.target_spec);
        });
    }
}

impl Decode for StandingClaim {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        let speedup = fields.take("speedup_ppm")?;
        let speedup_ppm: u128 = speedup.decode()?;
        if speedup_ppm <= ONE_PPM {
            let kind = DecodeKind::Range { value: speedup_ppm.to_string(), bounds: "1000001 or more".into() };
            return Err(speedup.error(kind));
        }
        Ok(Self {
            arena: fields.decode("arena_digest")?,
            contribution: fields.decode("contribution_digest")?,
            crowned_block: fields.decode("crowned_block")?,
            hotkey: fields.decode("hotkey")?,
            retained_evidence: fields.decode("retained_evidence_digest")?,
            speedup_ppm,
            target: fields.decode("target_id")?,
            target_spec: fields.decode("target_spec_digest")?,
        })
    }
}

/// A discovery's claim on the discovery pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryClaim {
    /// Block of the award.
    pub awarded_block: u64,
    bounty_units: u128,
    /// Who is paid.
    pub hotkey: Hotkey,
    /// The proposal.
    pub proposal: Digest,
    /// The evidence.
    pub retained_evidence: Digest,
}

impl DiscoveryClaim {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] =
        &["awarded_block", "bounty_units", "hotkey", "proposal_digest", "retained_evidence_digest"];

    /// Its share of the pool, at least 1.
    #[must_use]
    pub const fn bounty_units(&self) -> u128 {
        self.bounty_units
    }

    /// The bounty of a measured speedup: max(1, floor(speedup × 10^6) − 10^6).
    #[must_use]
    pub fn units_of(speedup: &Speedup) -> u128 {
        speedup.ppm().saturating_sub(ONE_PPM).max(1)
    }

    /// The claim's digest.
    #[must_use]
    pub fn digest(&self) -> BountyDigest {
        BountyDigest::new(domains::DISCOVERY_CLAIM.digest(self))
    }
}

impl Canonical for DiscoveryClaim {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("awarded_block", &self.awarded_block)
                .field("bounty_units", &self.bounty_units)
                .field("hotkey", &self.hotkey)
                .field("proposal_digest", &self.proposal)
                .field("retained_evidence_digest", &self.retained_evidence);
        });
    }
}

impl Decode for DiscoveryClaim {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, Self::MEMBERS)?;
        let units = fields.take("bounty_units")?;
        let bounty_units: u128 = units.decode()?;
        if bounty_units == 0 {
            return Err(units.error(DecodeKind::Range { value: "0".into(), bounds: "1 or more".into() }));
        }
        Ok(Self {
            awarded_block: fields.decode("awarded_block")?,
            bounty_units,
            hotkey: fields.decode("hotkey")?,
            proposal: fields.decode("proposal_digest")?,
            retained_evidence: fields.decode("retained_evidence_digest")?,
        })
    }
}

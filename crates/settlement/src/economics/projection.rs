//! From arenas, claims and a moment to weights (spec 20 §10).

use crate::claim::{ClaimTarget, DiscoveryClaim, Hotkey, StandingClaim};
use crate::domains;
use crate::economics::arithmetic::{AllocateError, allocate_pool, credit};
use crate::economics::context::GlobalContext;
use crate::economics::policy::{EmissionsPolicy, POOL_PPM};
use crate::ids::{BountyDigest, ClaimDigest, FamilyDigest, PolicyDigest, ProjectionDigest};
use cacheon_identity::{Canonical, CanonicalWriter, Digest};
use cacheon_stack::EvaluationStack;
use cacheon_stack::catalog::{ActiveSetError, Catalog};
use cacheon_stack::ids::{ArenaDigest, CatalogDigest, StackDigest};
use std::collections::{BTreeMap, HashSet};

/// What one arena brings to a projection.
#[derive(Debug, Clone, Copy)]
pub struct ArenaStanding<'a> {
    /// The catalog of the stack.
    pub catalog: &'a Catalog,
    /// Active claims, one for every entry of the stack, in any order.
    pub claims: &'a [StandingClaim],
    /// Transitions so far.
    pub generation: u64,
    /// The stack that stands.
    pub stack: &'a EvaluationStack,
}

/// Why nothing was projected. The whole vector refuses, never a part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProjectError {
    /// No arena.
    #[error("there is no arena to project")]
    NoArena,
    /// The same arena twice.
    #[error("arena {0} stands twice")]
    DuplicateArena(ArenaDigest),
    /// A stack without contributions.
    #[error("arena {0} has no crown")]
    NoCrown(ArenaDigest),
    /// The catalog is not the stack's.
    #[error("arena {arena} uses catalog {expected}, not {found}")]
    Catalog {
        /// The arena.
        arena: ArenaDigest,
        /// The stack's catalog.
        expected: CatalogDigest,
        /// The catalog that was given.
        found: CatalogDigest,
    },
    /// The stack's targets may not stand together.
    #[error("arena {arena}: {reason}")]
    ActiveSet {
        /// The arena.
        arena: ArenaDigest,
        /// Why.
        reason: ActiveSetError,
    },
    /// A target without exactly one claim, or a claim without a target.
    #[error("arena {arena}: target `{target}` must have exactly one claim")]
    ClaimCoverage {
        /// The arena.
        arena: ArenaDigest,
        /// The target.
        target: String,
    },
    /// A claim of another arena.
    #[error("arena {arena}: the claim at `{target}` belongs to arena {found}")]
    ClaimArena {
        /// The arena.
        arena: ArenaDigest,
        /// The target.
        target: ClaimTarget,
        /// The claim's arena.
        found: ArenaDigest,
    },
    /// A claim for another contribution or target row than the one that stands.
    #[error("arena {arena}: the claim at `{target}` is not for the contribution that stands")]
    ClaimStale {
        /// The arena.
        arena: ArenaDigest,
        /// The target.
        target: ClaimTarget,
    },
    /// A claim from a block after the projection's.
    #[error("a claim of block {claim} stands in a projection at block {now}")]
    ClaimFromFuture {
        /// The claim's block.
        claim: u64,
        /// The projection's block.
        now: u64,
    },
    /// Every standing credit has decayed to zero.
    #[error("every standing claim has decayed to zero")]
    DecayedToZero,
    /// A proposal, piece of evidence or claim is paid twice.
    #[error("discovery claim {0} repeats a proposal, its evidence or itself")]
    DiscoveryDuplicate(BountyDigest),
    /// Live discoveries without a pool.
    #[error("discovery claims are live, but the discovery pool is zero")]
    DiscoveryDisabled,
    /// Credits beyond 128 bits.
    #[error("the credits together exceed 128 bits")]
    Overflow,
}

impl From<AllocateError> for ProjectError {
    fn from(error: AllocateError) -> Self {
        match error {
            AllocateError::NoPositiveCredit => Self::DecayedToZero,
            AllocateError::Overflow => Self::Overflow,
        }
    }
}

/// What one arena contributed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArenaAuthority {
    /// The arena.
    pub arena: ArenaDigest,
    /// The catalog.
    pub catalog: CatalogDigest,
    /// The stack.
    pub stack: StackDigest,
    /// Its generation.
    pub generation: u64,
    /// The standing claim of every target, in target order.
    pub standing_claims: Vec<ClaimDigest>,
}

impl ArenaAuthority {
    /// The authority's digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        domains::ARENA_AUTHORITY.digest(self)
    }
}

impl Canonical for ArenaAuthority {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("arena_digest", &self.arena)
                .field("catalog_digest", &self.catalog)
                .field("stack_digest", &self.stack)
                .field("stack_generation", &self.generation)
                .field("standing_claims", &self.standing_claims);
        });
    }
}

cacheon_identity::record! {
    /// One standing claim in a projection.
    pub struct StandingRow {
        /// The arena.
        pub arena_digest: ArenaDigest,
        /// The claim.
        pub claim_digest: ClaimDigest,
        /// Its credit at the block.
        pub credit: u128,
        /// Its family.
        pub family_id: FamilyDigest,
        /// The claimant, registered or not.
        pub hotkey: Hotkey,
        /// The target.
        pub target_id: ClaimTarget,
    }
}

cacheon_identity::record! {
    /// One live discovery in a projection.
    pub struct DiscoveryRow {
        /// The claim.
        pub claim_digest: BountyDigest,
        /// Its bounty units.
        pub credit: u128,
        /// The claimant, registered or not.
        pub hotkey: Hotkey,
    }
}

/// Something that will block or empty a projection, seen before it does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A positive credit that is allocated nothing: the publication layer refuses zero rows, so one old claim would block
    /// all weights. Dropping the row is a consensus change; the owner of the family can renew the claim.
    #[error(
        "at block {block} hotkey `{hotkey}` has credit {credit} and a weight of 0 ppm; such a row blocks publication"
    )]
    Dust {
        /// The block.
        block: u64,
        /// Who would be paid nothing.
        hotkey: Hotkey,
        /// Its credit, standing and discovery together.
        credit: u128,
    },
    /// No standing credit is left.
    #[error("at block {block} every standing claim has decayed to zero; no weights can be projected")]
    AllDecayed {
        /// The block.
        block: u64,
    },
}

/// Checked claims, ready to be projected at a moment.
#[derive(Debug)]
pub struct Projector<'a> {
    policy: EmissionsPolicy,
    context: &'a GlobalContext,
    authorities: Vec<ArenaAuthority>,
    standing: Vec<(ClaimDigest, &'a StandingClaim)>,
    discovery: Vec<(BountyDigest, &'a DiscoveryClaim)>,
    members: HashSet<&'a Hotkey>,
}

/// Credits and weights at one block.
struct Shares {
    /// One per standing claim, in its order.
    standing: Vec<u128>,
    /// Credit of both pools by recipient.
    credits: BTreeMap<Hotkey, u128>,
    weights: BTreeMap<Hotkey, u64>,
}

impl<'a> Projector<'a> {
    /// Checks arenas and claims: arenas by digest, targets by id, then discoveries.
    ///
    /// # Errors
    /// The first [`ProjectError`] in that order, apart from those of a block.
    pub fn new(
        policy: EmissionsPolicy,
        context: &'a GlobalContext,
        arenas: &[ArenaStanding<'a>],
        discovery: &'a [DiscoveryClaim],
    ) -> Result<Self, ProjectError> {
        let mut arenas: Vec<_> = arenas.iter().collect();
        arenas.sort_by_key(|arena| arena.stack.arena);
        if arenas.is_empty() {
            return Err(ProjectError::NoArena);
        }
        if let Some(pair) = arenas.windows(2).find(|pair| pair[0].stack.arena == pair[1].stack.arena) {
            return Err(ProjectError::DuplicateArena(pair[0].stack.arena));
        }
        let mut standing = Vec::new();
        let mut authorities = Vec::with_capacity(arenas.len());
        for arena in arenas {
            authorities.push(check_arena(arena, context.block(), &mut standing)?);
        }
        let mut rows: Vec<_> = discovery.iter().map(|claim| (claim.digest(), claim)).collect();
        rows.sort_by_key(|(digest, _)| *digest);
        let members = context.members().iter().map(|member| &member.hotkey).collect();
        Ok(Self { policy, context, authorities, standing, discovery: rows, members })
    }

    /// Who is paid for a claim: the claimant, or the validator when the claimant has departed.
    fn recipient(&self, claimant: &'a Hotkey) -> &'a Hotkey {
        if self.members.contains(claimant) { claimant } else { self.context.validator() }
    }

    fn is_live(&self, claim: &DiscoveryClaim, block: u64) -> Result<bool, ProjectError> {
        match block.checked_sub(claim.awarded_block) {
            Some(age) => Ok(age < self.policy.discovery_lifetime_blocks()),
            None => Err(ProjectError::ClaimFromFuture { claim: claim.awarded_block, now: block }),
        }
    }

    fn shares(&self, block: u64) -> Result<Shares, ProjectError> {
        let mut credits: BTreeMap<&Hotkey, u128> = BTreeMap::new();
        let mut standing = Vec::with_capacity(self.standing.len());
        for (_, claim) in &self.standing {
            let age = block.saturating_sub(claim.crowned_block);
            let credit = credit(claim.speedup_ppm(), age, self.policy.half_life_blocks());
            standing.push(credit);
            add(&mut credits, self.recipient(&claim.hotkey), credit)?;
        }
        if standing.iter().all(|credit| *credit == 0) {
            return Err(ProjectError::DecayedToZero);
        }
        self.refuse_duplicates()?;
        let mut bounties: BTreeMap<&Hotkey, u128> = BTreeMap::new();
        for (_, claim) in &self.discovery {
            if self.is_live(claim, block)? {
                add(&mut bounties, self.recipient(&claim.hotkey), claim.bounty_units())?;
            }
        }
        let pool = self.policy.discovery_pool_ppm();
        if pool == 0 && !bounties.is_empty() {
            return Err(ProjectError::DiscoveryDisabled);
        }
        let discovery_pool = if bounties.is_empty() { 0 } else { pool };
        let mut weights = allocate_pool(&credits, POOL_PPM - discovery_pool)?;
        if !bounties.is_empty() {
            for (hotkey, share) in allocate_pool(&bounties, discovery_pool)? {
                *weights.entry(hotkey).or_default() += share;
            }
        }
        for (hotkey, units) in bounties {
            add(&mut credits, hotkey, units)?;
        }
        Ok(Shares {
            standing,
            credits: credits.into_iter().map(|(hotkey, credit)| (hotkey.clone(), credit)).collect(),
            weights: weights.into_iter().map(|(hotkey, share)| (hotkey.clone(), share)).collect(),
        })
    }

    fn refuse_duplicates(&self) -> Result<(), ProjectError> {
        let (mut proposals, mut evidence, mut claims) = (HashSet::new(), HashSet::new(), HashSet::new());
        let twin = self.discovery.iter().find(|(digest, claim)| {
            let new = [
                proposals.insert(claim.proposal),
                evidence.insert(claim.retained_evidence),
                claims.insert(*digest),
            ];
            new.contains(&false)
        });
        twin.map_or(Ok(()), |(digest, _)| Err(ProjectError::DiscoveryDuplicate(*digest)))
    }

    /// Projects at the context's block. O(n log n) in claims.
    ///
    /// # Errors
    /// [`ProjectError`].
    pub fn project(&self) -> Result<Projection<'a>, ProjectError> {
        let block = self.context.block();
        let shares = self.shares(block)?;
        let rows = self.standing.iter().zip(&shares.standing).map(|((digest, claim), credit)| StandingRow {
            arena_digest: claim.arena,
            claim_digest: *digest,
            credit: *credit,
            family_id: claim.family(),
            hotkey: claim.hotkey.clone(),
            target_id: claim.target.clone(),
        });
        let standing = rows.collect();
        let (mut discovery, mut expired) = (Vec::new(), Vec::new());
        for (digest, claim) in &self.discovery {
            if self.is_live(claim, block)? {
                let (credit, hotkey) = (claim.bounty_units(), claim.hotkey.clone());
                discovery.push(DiscoveryRow { claim_digest: *digest, credit, hotkey });
            } else {
                expired.push(*digest);
            }
        }
        Ok(Projection {
            authorities: self.authorities.clone(),
            context: self.context,
            credits: shares.credits,
            discovery,
            expired,
            policy: self.policy.digest(),
            standing,
            weights: shares.weights,
        })
    }

    /// What would block or empty a projection at `block`, no earlier than the context's, if nothing else changed. Ask for
    /// a block some days ahead to be warned in time.
    ///
    /// # Errors
    /// A [`ProjectError`] other than decay, which is a fault here.
    pub fn faults_at(&self, block: u64) -> Result<Vec<Fault>, ProjectError> {
        let block = block.max(self.context.block());
        match self.shares(block) {
            Ok(shares) => Ok(dust(block, &shares.weights, &shares.credits)),
            Err(ProjectError::DecayedToZero) => Ok(vec![Fault::AllDecayed { block }]),
            Err(error) => Err(error),
        }
    }
}

fn add<'a>(
    credits: &mut BTreeMap<&'a Hotkey, u128>,
    hotkey: &'a Hotkey,
    more: u128,
) -> Result<(), ProjectError> {
    let credit = credits.entry(hotkey).or_default();
    *credit = credit.checked_add(more).ok_or(ProjectError::Overflow)?;
    Ok(())
}

fn dust(block: u64, weights: &BTreeMap<Hotkey, u64>, credits: &BTreeMap<Hotkey, u128>) -> Vec<Fault> {
    let zero = weights.iter().filter(|(_, weight)| **weight == 0);
    zero.map(|(hotkey, _)| Fault::Dust {
        block,
        hotkey: hotkey.clone(),
        credit: credits.get(hotkey).copied().unwrap_or(0),
    })
    .collect()
}

/// Checks one arena and appends its claims in target order.
fn check_arena<'a>(
    arena: &ArenaStanding<'a>,
    now: u64,
    standing: &mut Vec<(ClaimDigest, &'a StandingClaim)>,
) -> Result<ArenaAuthority, ProjectError> {
    let (stack, id) = (arena.stack, arena.stack.arena);
    if stack.entries().is_empty() {
        return Err(ProjectError::NoCrown(id));
    }
    let (expected, found) = (stack.catalog.digest(), arena.catalog.digest());
    if expected != found {
        return Err(ProjectError::Catalog { arena: id, expected, found });
    }
    arena
        .catalog
        .validate_active(stack.entries().keys())
        .map_err(|reason| ProjectError::ActiveSet { arena: id, reason })?;
    let uncovered = |target: &str| ProjectError::ClaimCoverage { arena: id, target: target.to_owned() };
    let mut claims: BTreeMap<&str, &'a StandingClaim> = BTreeMap::new();
    for claim in arena.claims {
        if claims.insert(claim.target.as_str(), claim).is_some()
            || !stack.entries().contains_key(claim.target.as_str())
        {
            return Err(uncovered(claim.target.as_str()));
        }
    }
    let mut standing_claims = Vec::with_capacity(stack.entries().len());
    for (target, entry) in stack.entries() {
        let claim = *claims.get(target.as_str()).ok_or_else(|| uncovered(target.as_str()))?;
        if claim.arena != id {
            return Err(ProjectError::ClaimArena {
                arena: id,
                target: claim.target.clone(),
                found: claim.arena,
            });
        }
        if claim.contribution != entry.digest() || claim.target_spec != entry.target_spec() {
            return Err(ProjectError::ClaimStale { arena: id, target: claim.target.clone() });
        }
        if claim.crowned_block > now {
            return Err(ProjectError::ClaimFromFuture { claim: claim.crowned_block, now });
        }
        let digest = claim.digest();
        standing_claims.push(digest);
        standing.push((digest, claim));
    }
    Ok(ArenaAuthority {
        arena: id,
        catalog: expected,
        stack: stack.digest(),
        generation: arena.generation,
        standing_claims,
    })
}

/// Weights at a moment, with everything they follow from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection<'a> {
    authorities: Vec<ArenaAuthority>,
    context: &'a GlobalContext,
    credits: BTreeMap<Hotkey, u128>,
    discovery: Vec<DiscoveryRow>,
    expired: Vec<BountyDigest>,
    policy: PolicyDigest,
    standing: Vec<StandingRow>,
    weights: BTreeMap<Hotkey, u64>,
}

impl Projection<'_> {
    /// What each arena contributed, by arena.
    #[must_use]
    pub fn authorities(&self) -> &[ArenaAuthority] {
        &self.authorities
    }

    /// Digests of the arena authorities, sorted by digest value, not by arena.
    #[must_use]
    pub fn authority_digests(&self) -> Vec<Digest> {
        let mut digests: Vec<_> = self.authorities.iter().map(ArenaAuthority::digest).collect();
        digests.sort_unstable();
        digests
    }

    /// Standing claims by arena and target.
    #[must_use]
    pub fn standing(&self) -> &[StandingRow] {
        &self.standing
    }

    /// Live discoveries by claim digest.
    #[must_use]
    pub fn discovery(&self) -> &[DiscoveryRow] {
        &self.discovery
    }

    /// Expired discoveries by claim digest.
    #[must_use]
    pub fn expired(&self) -> &[BountyDigest] {
        &self.expired
    }

    /// Parts per million by hotkey; they sum to 1,000,000. A row may be 0: see [`Fault::Dust`].
    #[must_use]
    pub fn weights(&self) -> &BTreeMap<Hotkey, u64> {
        &self.weights
    }

    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> PolicyDigest {
        self.policy
    }

    /// Rows that would block publication.
    #[must_use]
    pub fn dust(&self) -> Vec<Fault> {
        dust(self.context.block(), &self.weights, &self.credits)
    }

    /// The projection's digest.
    #[must_use]
    pub fn digest(&self) -> ProjectionDigest {
        ProjectionDigest::new(domains::GLOBAL_PROJECTION.digest(self))
    }

    /// The digest of the older, single-arena form; `None` for any other number of arenas.
    #[must_use]
    pub fn single_arena_digest(&self) -> Option<ProjectionDigest> {
        let [authority] = self.authorities.as_slice() else { return None };
        let single = SingleArena { projection: self, authority };
        Some(ProjectionDigest::new(domains::ARENA_PROJECTION.digest(&single)))
    }
}

struct WeightRows<'a>(&'a BTreeMap<Hotkey, u64>);

impl Canonical for WeightRows<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            for (hotkey, weight) in self.0 {
                a.item_with(|w| {
                    w.object(|o| {
                        o.field("hotkey", hotkey).field("weight_ppm", weight);
                    });
                });
            }
        });
    }
}

impl Canonical for Projection<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("arena_authority_digests", &self.authority_digests())
                .field("context", self.context)
                .field("discovery", &self.discovery)
                .field("expired_discovery_claims", &self.expired)
                .field("policy_digest", &self.policy)
                .field("standing", &self.standing)
                .field("weights", &WeightRows(&self.weights));
        });
    }
}

struct SingleArena<'a> {
    projection: &'a Projection<'a>,
    authority: &'a ArenaAuthority,
}

impl Canonical for SingleArena<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let it = self.projection;
        w.object(|o| {
            o.field("catalog_digest", &self.authority.catalog)
                .field("context", &it.context.of_arena(self.authority.generation))
                .field("discovery", &it.discovery)
                .field("evaluation_stack_digest", &self.authority.stack)
                .field("expired_discovery_claims", &it.expired)
                .field("policy_digest", &it.policy)
                .field("standing", &it.standing)
                .field("weights", &WeightRows(&it.weights));
        });
    }
}

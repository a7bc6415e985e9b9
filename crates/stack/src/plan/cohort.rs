//! Several arms measured against one incumbent.

use super::{MarginalArm, StackIdentity};
use crate::contribution::ContributionRef;
use crate::ids::{
    ArmDigest, CohortDigest, ContributionDigest, Entropy, SelectedDelta, StackDigest, TreeDigest,
};
use crate::text::object;
use cacheon_identity::{Canonical, CanonicalWriter, Digest, Domain};
use std::collections::BTreeSet;

const COHORT: Domain = Domain::with_members("cacheon.stack.cohort-plan", CohortPlan::MEMBERS);
const EXECUTION_KEY: Domain =
    Domain::with_members("cacheon.stack.cohort-execution-key", &["entropy_digest", "selected_delta_digest"]);

const SCHEMA_VERSION: u64 = 1;

/// Why arms do not make a cohort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CohortError {
    /// No arm.
    #[error("a cohort has at least one arm")]
    Empty,
    /// Arms on different incumbents.
    #[error("arm {0} was planned on another incumbent than the first")]
    MixedIncumbent(ArmDigest),
    /// Two arms with the same executable difference.
    #[error("two arms have the selected delta {0}")]
    DuplicateDelta(SelectedDelta),
    /// Two arms with the same candidate stack.
    #[error("two arms have the candidate stack {0}")]
    DuplicateStack(StackDigest),
    /// Two arms with the same candidate tree.
    #[error("two arms have the candidate tree {0}")]
    DuplicateTree(TreeDigest),
    /// The authority order does not name each contribution exactly once.
    #[error("the authority order does not name every contribution exactly once: {0}")]
    AuthorityOrder(ContributionDigest),
}

/// Arms of one incumbent, with the order authority gave them and the order entropy runs them in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CohortPlan {
    incumbent: StackIdentity,
    arms: Vec<MarginalArm>,
    authority_order: Vec<ContributionDigest>,
    entropy: Entropy,
    execution_order: Vec<SelectedDelta>,
}

impl CohortPlan {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] =
        &["arms", "authority_order", "entropy_digest", "execution_order", "incumbent", "schema_version"];

    /// The one incumbent.
    #[must_use]
    pub fn incumbent(&self) -> StackIdentity {
        self.incumbent
    }

    /// The arms, by selected delta.
    #[must_use]
    pub fn arms(&self) -> &[MarginalArm] {
        &self.arms
    }

    /// The contributions in the order authority gave.
    #[must_use]
    pub fn authority_order(&self) -> &[ContributionDigest] {
        &self.authority_order
    }

    /// The selected deltas in the order they run.
    #[must_use]
    pub fn execution_order(&self) -> &[SelectedDelta] {
        &self.execution_order
    }

    /// The plan's digest.
    #[must_use]
    pub fn digest(&self) -> CohortDigest {
        CohortDigest::new(COHORT.digest(self))
    }
}

impl Canonical for CohortPlan {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let arms: Vec<ArmDigest> = self.arms.iter().map(MarginalArm::digest).collect();
        w.object(|o| {
            o.field("arms", &arms)
                .field("authority_order", &self.authority_order)
                .field("entropy_digest", &self.entropy)
                .field("execution_order", &self.execution_order)
                .field("incumbent", &self.incumbent)
                .field("schema_version", &SCHEMA_VERSION);
        });
    }
}

fn execution_key(entropy: Entropy, delta: SelectedDelta) -> Digest {
    EXECUTION_KEY.digest(&object(|o| {
        o.field("entropy_digest", &entropy).field("selected_delta_digest", &delta);
    }))
}

/// Plans a cohort.
///
/// # Errors
/// [`CohortError`].
pub fn plan_cohort(
    mut arms: Vec<MarginalArm>,
    authority_order: &[ContributionRef],
    entropy: Entropy,
) -> Result<CohortPlan, CohortError> {
    let Some(incumbent) = arms.first().map(MarginalArm::baseline) else { return Err(CohortError::Empty) };
    let (mut deltas, mut stacks, mut trees) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for arm in &arms {
        if arm.baseline() != incumbent {
            return Err(CohortError::MixedIncumbent(arm.digest()));
        }
        if !deltas.insert(arm.selected_delta()) {
            return Err(CohortError::DuplicateDelta(arm.selected_delta()));
        }
        if !stacks.insert(arm.challenger().stack) {
            return Err(CohortError::DuplicateStack(arm.challenger().stack));
        }
        if !trees.insert(arm.challenger().tree) {
            return Err(CohortError::DuplicateTree(arm.challenger().tree));
        }
    }
    let mut unnamed: BTreeSet<_> = arms.iter().map(|arm| arm.transition().replacement.digest()).collect();
    let order: Vec<_> = authority_order.iter().map(ContributionRef::digest).collect();
    if let Some(strange) = order.iter().find(|digest| !unnamed.remove(digest)) {
        return Err(CohortError::AuthorityOrder(*strange));
    }
    if let Some(missing) = unnamed.first() {
        return Err(CohortError::AuthorityOrder(*missing));
    }
    arms.sort_by_key(MarginalArm::selected_delta);
    let mut execution_order: Vec<_> = deltas.into_iter().collect();
    execution_order.sort_by_cached_key(|delta| (execution_key(entropy, *delta), *delta));
    Ok(CohortPlan { incumbent, arms, authority_order: order, entropy, execution_order })
}

//! One marginal arm: an incumbent with one target replaced.

use super::{StackIdentity, Stale};
use crate::catalog::{ActiveSetError, Catalog};
use crate::contribution::ContributionRef;
use crate::ids::{ArmDigest, CatalogDigest, RollbackDigest, SelectedDelta, TargetId, TargetSpec, TreeDigest};
use crate::manifest::{ContextError, EditError, EvaluationStack, StackContext};
use cacheon_identity::{Canonical, CanonicalWriter, Domain};

const ARM: Domain = Domain::with_members("cacheon.stack.marginal-arm-plan", MarginalArm::MEMBERS);
const ROLLBACK: Domain = Domain::with_members("cacheon.stack.rollback-plan", RollbackPlan::MEMBERS);

const SCHEMA_VERSION: u64 = 1;
const POLICY: &str = "stack-plan.v1";

/// Why an arm cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The incumbent does not belong to the context.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The catalog is not the context's.
    #[error("planning with catalog {found}, the context has {expected}")]
    Catalog {
        /// The context's.
        expected: CatalogDigest,
        /// The one given.
        found: CatalogDigest,
    },
    /// The replacement's target is not registered.
    #[error("target `{0}` is not in the catalog")]
    UnknownTarget(TargetId),
    /// The incumbent's own set is invalid, or the resulting one would be.
    #[error(transparent)]
    Active(#[from] ActiveSetError),
    /// The replacement was made for another row of the catalog.
    #[error("the replacement at `{target}` was made for target spec {found}, the catalog has {expected}")]
    StaleTargetSpec {
        /// The target.
        target: TargetId,
        /// The catalog's.
        expected: TargetSpec,
        /// The replacement's.
        found: TargetSpec,
    },
    /// The target already runs this executable; attribution alone is no difference.
    #[error(
        "the replacement at `{target}` has the active selected delta {delta}: nothing executable changes"
    )]
    NoExecutableDelta {
        /// The target.
        target: TargetId,
        /// The delta both have.
        delta: SelectedDelta,
    },
    /// An active atomic target covers the new one and is never broken up implicitly.
    #[error("target `{target}` is covered by the active target `{by}`, which is not broken up implicitly")]
    DecomposeBlocked {
        /// The new target.
        target: TargetId,
        /// The active one.
        by: TargetId,
    },
    /// Both trees are the same bytes.
    #[error("the candidate's tree is the incumbent's: {0}")]
    TreeUnchanged(TreeDigest),
    /// The manifest could not be edited.
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// What changes at one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The new contribution.
    pub replacement: ContributionRef,
    /// What stood at the target.
    pub prior: Option<ContributionRef>,
    /// What had to go, by target.
    pub displaced: Vec<ContributionRef>,
}

impl Canonical for Transition {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("displaced", &self.displaced)
                .field("prior", &self.prior)
                .field("replacement", &self.replacement)
                .field("target_id", self.replacement.target())
                .field("target_spec_digest", &self.replacement.target_spec());
        });
    }
}

/// An incumbent, and the same stack with one target replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarginalArm {
    incumbent: EvaluationStack,
    candidate: EvaluationStack,
    transition: Transition,
    baseline: StackIdentity,
    challenger: StackIdentity,
}

impl MarginalArm {
    /// The member names of its payload, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "baseline_after",
        "baseline_before",
        "candidate_stack_digest",
        "challenger",
        "incumbent_stack_digest",
        "policy_version",
        "schema_version",
        "transition",
    ];

    /// The incumbent's manifest.
    #[must_use]
    pub fn incumbent(&self) -> &EvaluationStack {
        &self.incumbent
    }

    /// The candidate's manifest.
    #[must_use]
    pub fn candidate(&self) -> &EvaluationStack {
        &self.candidate
    }

    /// What changes.
    #[must_use]
    pub fn transition(&self) -> &Transition {
        &self.transition
    }

    /// The incumbent's stack and tree, before and after the measurement.
    #[must_use]
    pub fn baseline(&self) -> StackIdentity {
        self.baseline
    }

    /// The candidate's stack and tree.
    #[must_use]
    pub fn challenger(&self) -> StackIdentity {
        self.challenger
    }

    /// The executable difference under measurement.
    #[must_use]
    pub fn selected_delta(&self) -> SelectedDelta {
        self.transition.replacement.selected_delta()
    }

    /// The plan's digest.
    #[must_use]
    pub fn digest(&self) -> ArmDigest {
        ArmDigest::new(ARM.digest(self))
    }

    /// Checks that the incumbent is still the current stack.
    ///
    /// # Errors
    /// [`Stale`].
    pub fn check_current(&self, current: StackIdentity) -> Result<(), Box<Stale>> {
        current.check_current(self.baseline)
    }

    /// The way back from the candidate to the incumbent.
    #[must_use]
    pub fn rollback(&self) -> RollbackPlan {
        RollbackPlan { expected_current: self.challenger, restored: self.baseline, source_arm: self.digest() }
    }
}

impl Canonical for MarginalArm {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("baseline_after", &self.baseline)
                .field("baseline_before", &self.baseline)
                .field("candidate_stack_digest", &self.challenger.stack)
                .field("challenger", &self.challenger)
                .field("incumbent_stack_digest", &self.baseline.stack)
                .field("policy_version", POLICY)
                .field("schema_version", &SCHEMA_VERSION)
                .field("transition", &self.transition);
        });
    }
}

/// Plans replacing one target of `incumbent`.
///
/// `incumbent_tree` and `candidate_tree` are the trees the two stacks materialise to; the candidate's may be a
/// placeholder while a caller only wants to know whether the transition is legal and what it displaces, see
/// [`transition`].
///
/// # Errors
/// [`PlanError`], the first in the order of spec 20 §4.
pub fn plan_arm(
    incumbent: &EvaluationStack,
    replacement: ContributionRef,
    catalog: &Catalog,
    context: &StackContext,
    incumbent_tree: TreeDigest,
    candidate_tree: TreeDigest,
) -> Result<MarginalArm, PlanError> {
    let (candidate, transition) = transition(incumbent, replacement, catalog, context)?;
    if incumbent_tree == candidate_tree {
        return Err(PlanError::TreeUnchanged(candidate_tree));
    }
    Ok(MarginalArm {
        baseline: StackIdentity { stack: incumbent.digest(), tree: incumbent_tree },
        challenger: StackIdentity { stack: candidate.digest(), tree: candidate_tree },
        incumbent: incumbent.clone(),
        candidate,
        transition,
    })
}

/// The candidate's manifest and what changes, before any tree is materialised.
///
/// # Errors
/// As [`plan_arm`], trees apart.
pub fn transition(
    incumbent: &EvaluationStack,
    replacement: ContributionRef,
    catalog: &Catalog,
    context: &StackContext,
) -> Result<(EvaluationStack, Transition), PlanError> {
    incumbent.validate_against(context)?;
    if catalog.snapshot() != context.catalog() {
        return Err(PlanError::Catalog { expected: context.catalog().digest(), found: catalog.digest() });
    }
    let id = replacement.target();
    let Some(target) = catalog.target(id) else { return Err(PlanError::UnknownTarget(id.clone())) };
    catalog.validate_active(incumbent.entries().keys())?;
    if replacement.target_spec() != target.spec {
        return Err(PlanError::StaleTargetSpec {
            target: id.clone(),
            expected: target.spec,
            found: replacement.target_spec(),
        });
    }
    let prior = incumbent.entries().get(id).cloned();
    let mut displaced = Vec::new();
    if let Some(prior) = &prior {
        let delta = replacement.selected_delta();
        if prior.selected_delta() == delta {
            return Err(PlanError::NoExecutableDelta { target: id.clone(), delta });
        }
    } else {
        let covers = |active: &&TargetId| {
            catalog.target(active).is_some_and(|active| active.displacement_closure().contains(id))
        };
        if let Some(by) = incumbent.entries().keys().find(covers) {
            return Err(PlanError::DecomposeBlocked { target: id.clone(), by: by.clone() });
        }
        let gone =
            |(active, _): &(&TargetId, &ContributionRef)| target.displacement_closure().contains(*active);
        displaced = incumbent.entries().iter().filter(gone).map(|(_, entry)| entry.clone()).collect();
    }
    let remove: Vec<TargetId> = displaced.iter().map(|entry| entry.target().clone()).collect();
    let candidate = incumbent.with_contribution(replacement.clone(), &remove)?;
    catalog.validate_active(candidate.entries().keys())?;
    Ok((candidate, Transition { replacement, prior, displaced }))
}

/// The inverse of one arm: it applies only while the arm's candidate is the current stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RollbackPlan {
    /// What must be current.
    pub expected_current: StackIdentity,
    /// What comes back.
    pub restored: StackIdentity,
    /// The arm that is undone.
    pub source_arm: ArmDigest,
}

impl RollbackPlan {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] =
        &["expected_current", "restored", "restored_manifest_digest", "schema_version", "source_arm_digest"];

    /// The plan's digest.
    #[must_use]
    pub fn digest(&self) -> RollbackDigest {
        RollbackDigest::new(ROLLBACK.digest(self))
    }

    /// What is current after the rollback.
    ///
    /// # Errors
    /// [`Stale`] unless stack and tree are the arm's candidate.
    pub fn apply(&self, current: StackIdentity) -> Result<StackIdentity, Box<Stale>> {
        current.check_current(self.expected_current)?;
        Ok(self.restored)
    }
}

impl Canonical for RollbackPlan {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("expected_current", &self.expected_current)
                .field("restored", &self.restored)
                .field("restored_manifest_digest", &self.restored.stack)
                .field("schema_version", &SCHEMA_VERSION)
                .field("source_arm_digest", &self.source_arm);
        });
    }
}

//! Stack planning (spec 20 §4): what replacing one target means, who is measured beside whom, and how to go back.
//!
//! Plans are rebuilt from their inputs and compared whole; a recorded plan is never trusted by its digest alone.

mod arm;
mod cohort;

pub use arm::{MarginalArm, PlanError, RollbackPlan, Transition, plan_arm, transition};
pub use cohort::{CohortError, CohortPlan, plan_cohort};

use crate::ids::{StackDigest, TreeDigest};
use cacheon_identity::{Canonical, Json, JsonError};

cacheon_identity::record! {
    /// A stack and the engine tree it materialises to.
    #[derive(Copy, PartialOrd, Ord, Hash)]
    pub struct StackIdentity {
        /// The manifest.
        pub stack as "stack_digest": StackDigest,
        /// The tree.
        pub tree as "tree_digest": TreeDigest,
    }
}

/// The world moved on: a plan names another current stack or tree. Not a fault of the plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the plan was made for stack {} and tree {}, the current ones are {} and {}",
    planned.stack, planned.tree, current.stack, current.tree)]
pub struct Stale {
    /// What the plan expects.
    pub planned: StackIdentity,
    /// What there is.
    pub current: StackIdentity,
}

impl StackIdentity {
    /// Checks that this is what a plan expects.
    ///
    /// # Errors
    /// [`Stale`].
    pub fn check_current(self, planned: Self) -> Result<(), Box<Stale>> {
        if self == planned { Ok(()) } else { Err(Box::new(Stale { planned, current: self })) }
    }
}

/// A recorded plan is not the one its inputs give.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReopenError {
    /// The record is no JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The record differs.
    #[error("the recorded plan differs from the one its inputs give, first at `{0}`")]
    Differs(String),
}

/// Compares a recorded plan with the one rebuilt from its inputs.
///
/// # Errors
/// [`ReopenError`], with the path of the first member that differs.
pub fn confirm_record(rebuilt: &impl Canonical, recorded: &[u8]) -> Result<(), ReopenError> {
    let (rebuilt, recorded) = (rebuilt.to_json()?, Json::parse(recorded)?);
    match first_difference(&rebuilt, &recorded) {
        None => Ok(()),
        Some(path) => Err(ReopenError::Differs(path)),
    }
}

/// The path of the first member or element in which two values differ.
#[must_use]
pub fn first_difference(a: &Json, b: &Json) -> Option<String> {
    if a == b {
        return None;
    }
    let below = |part: String, inner: Option<String>| {
        inner.map(|inner| if inner.is_empty() { part.clone() } else { format!("{part}.{inner}") })
    };
    match (a, b) {
        (Json::Object(a), Json::Object(b)) => {
            a.keys().chain(b.keys()).find_map(|key| match (a.get(key), b.get(key)) {
                (Some(a), Some(b)) => below(key.clone(), first_difference(a, b)),
                _ => Some(key.clone()),
            })
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(index, (a, b))| below(format!("[{index}]"), first_difference(a, b))),
        _ => Some(String::new()),
    }
}

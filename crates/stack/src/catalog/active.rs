//! Which targets may be active together, and in which order they are applied (spec 20 §3).

use super::Catalog;
use crate::ids::TargetId;
use std::collections::{BTreeMap, BTreeSet};

/// Why a set of targets cannot be active together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActiveSetError {
    /// Not in the catalog.
    #[error("target `{0}` is not in the catalog")]
    Unknown(TargetId),
    /// Named twice.
    #[error("target `{0}` is named twice")]
    Duplicate(TargetId),
    /// One displaces the other.
    #[error("target `{by}` displaces `{target}`; they cannot both be active")]
    Conflict {
        /// The displaced one.
        target: TargetId,
        /// The one that displaces it.
        by: TargetId,
    },
    /// A requirement is not active; the stock engine never satisfies one.
    #[error("target `{target}` requires `{missing}`, which is not active")]
    RequirementMissing {
        /// The one that requires.
        target: TargetId,
        /// What it requires.
        missing: TargetId,
    },
}

impl Catalog {
    /// Checks that `targets` may be active together.
    ///
    /// # Errors
    /// [`ActiveSetError`].
    pub fn validate_active<'a>(
        &self,
        targets: impl IntoIterator<Item = &'a TargetId>,
    ) -> Result<BTreeSet<TargetId>, ActiveSetError> {
        let mut active = BTreeSet::new();
        for id in targets {
            if self.target(id).is_none() {
                return Err(ActiveSetError::Unknown(id.clone()));
            }
            if !active.insert(id.clone()) {
                return Err(ActiveSetError::Duplicate(id.clone()));
            }
        }
        let rows = || active.iter().filter_map(|id| self.target(id));
        for target in rows() {
            if let Some(gone) = target.displacement_closure.iter().find(|id| active.contains(*id)) {
                return Err(ActiveSetError::Conflict { target: gone.clone(), by: target.id.clone() });
            }
        }
        for target in rows() {
            if let Some(missing) = target.requirement_closure.iter().find(|id| !active.contains(*id)) {
                return Err(ActiveSetError::RequirementMissing {
                    target: target.id.clone(),
                    missing: missing.clone(),
                });
            }
        }
        Ok(active)
    }

    /// Checks `targets` and puts them into the order in which they are applied: rule precedence first, and always the
    /// smallest id that is ready.
    ///
    /// # Errors
    /// [`ActiveSetError`].
    pub fn ordered_active<'a>(
        &self,
        targets: impl IntoIterator<Item = &'a TargetId>,
    ) -> Result<Vec<TargetId>, ActiveSetError> {
        let active = self.validate_active(targets)?;
        let mut before: BTreeMap<&TargetId, BTreeSet<&TargetId>> =
            active.iter().map(|id| (id, BTreeSet::new())).collect();
        for rule in &self.rules {
            let order: Vec<_> = rule.precedence.iter().filter(|id| active.contains(*id)).collect();
            for (first, second) in order.iter().zip(order.iter().skip(1)) {
                if let Some(waits) = before.get_mut(*second) {
                    waits.insert(first);
                }
            }
        }
        let mut ordered = Vec::with_capacity(active.len());
        // Precedence is acyclic in a checked catalog, so something is always ready.
        while let Some(ready) = before.iter().find(|(_, waits)| waits.is_empty()).map(|(id, _)| *id) {
            before.remove(ready);
            for waits in before.values_mut() {
                waits.remove(ready);
            }
            ordered.push(ready.clone());
        }
        Ok(ordered)
    }
}

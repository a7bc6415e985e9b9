//! The context a manifest is checked against before it is used.

use super::CatalogSnapshot;
use crate::ids::{ArenaDigest, BaseEngine, CatalogDigest, RuntimeDigest, TargetId, TargetSpec};
use cacheon_identity::DecodeError;
use std::collections::{BTreeMap, BTreeSet};

/// What a manifest must agree with before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackContext {
    /// The serving runtime.
    pub runtime: RuntimeDigest,
    /// The pristine engine.
    pub base_engine: BaseEngine,
    /// The arena; evaluation stacks demand it.
    pub arena: Option<ArenaDigest>,
    catalog: CatalogSnapshot,
    specs: BTreeMap<TargetId, TargetSpec>,
}

/// Why a manifest does not belong to a context, or a context is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContextError {
    /// Another runtime.
    #[error("the stack was made for runtime {found}, not {expected}")]
    Runtime {
        /// The context's.
        expected: RuntimeDigest,
        /// The manifest's.
        found: RuntimeDigest,
    },
    /// Another pristine engine.
    #[error("the stack was made for base engine {found}, not {expected}")]
    BaseEngine {
        /// The context's.
        expected: BaseEngine,
        /// The manifest's.
        found: BaseEngine,
    },
    /// Another arena, or a context without one.
    #[error("the stack belongs to arena {found}, which is not this one")]
    Arena {
        /// The manifest's.
        found: ArenaDigest,
    },
    /// Another catalog.
    #[error("the stack uses catalog {found}, not {expected}")]
    Catalog {
        /// The context's.
        expected: CatalogDigest,
        /// The manifest's.
        found: CatalogDigest,
    },
    /// The stated target-spec map is not that of the catalog.
    #[error("the target specs stated for the catalog differ from its rows at `{0}`")]
    Specs(String),
    /// The catalog's rows cannot be read.
    #[error(transparent)]
    Rows(#[from] DecodeError),
    /// An entry's target is not in the catalog.
    #[error("target `{0}` is not in the catalog")]
    TargetAbsent(TargetId),
    /// An entry was made for another row.
    #[error("the entry at `{target}` was made for target spec {found}, not {expected}")]
    TargetSpec {
        /// The target.
        target: TargetId,
        /// The catalog's.
        expected: TargetSpec,
        /// The entry's.
        found: TargetSpec,
    },
}

impl StackContext {
    /// A context; the target specs are computed from the catalog's rows.
    ///
    /// # Errors
    /// [`ContextError::Rows`].
    pub fn new(
        runtime: RuntimeDigest,
        base_engine: BaseEngine,
        arena: Option<ArenaDigest>,
        catalog: CatalogSnapshot,
    ) -> Result<Self, ContextError> {
        let specs = catalog.target_specs()?;
        Ok(Self { runtime, base_engine, arena, catalog, specs })
    }

    /// Checks a stated digest and target-spec map against the catalog's own.
    ///
    /// # Errors
    /// [`ContextError::Catalog`], [`ContextError::Specs`] with the first target that differs.
    pub fn confirm(
        &self,
        catalog: CatalogDigest,
        specs: &BTreeMap<TargetId, TargetSpec>,
    ) -> Result<(), ContextError> {
        if catalog != self.catalog.digest {
            return Err(ContextError::Catalog { expected: self.catalog.digest, found: catalog });
        }
        let all: BTreeSet<_> = specs.keys().chain(self.specs.keys()).collect();
        match all.into_iter().find(|target| specs.get(*target) != self.specs.get(*target)) {
            Some(target) => Err(ContextError::Specs(target.to_string())),
            None => Ok(()),
        }
    }

    /// The catalog.
    #[must_use]
    pub fn catalog(&self) -> &CatalogSnapshot {
        &self.catalog
    }

    /// The target spec of every catalog row.
    #[must_use]
    pub fn target_specs(&self) -> &BTreeMap<TargetId, TargetSpec> {
        &self.specs
    }

    pub(super) fn check_common(
        &self,
        runtime: RuntimeDigest,
        base_engine: BaseEngine,
        catalog: &CatalogSnapshot,
    ) -> Result<(), ContextError> {
        if runtime != self.runtime {
            return Err(ContextError::Runtime { expected: self.runtime, found: runtime });
        }
        if base_engine != self.base_engine {
            return Err(ContextError::BaseEngine { expected: self.base_engine, found: base_engine });
        }
        if *catalog != self.catalog {
            return Err(ContextError::Catalog { expected: self.catalog.digest, found: catalog.digest });
        }
        Ok(())
    }

    pub(super) fn check_entry(&self, target: &TargetId, found: TargetSpec) -> Result<(), ContextError> {
        match self.specs.get(target) {
            None => Err(ContextError::TargetAbsent(target.clone())),
            Some(&expected) if expected != found => {
                Err(ContextError::TargetSpec { target: target.clone(), expected, found })
            }
            Some(_) => Ok(()),
        }
    }
}

//! Stack manifests and the context they are checked against (spec 20 §2).
//!
//! Parsing is context-free: it proves that the object is closed, that every digest is one, and that the embedded
//! catalog is the one its digest names. Before use a manifest is checked against a [`StackContext`].

mod context;

pub use context::{ContextError, StackContext};

use crate::contribution::{ContributionRef, IntegratedRef};
use crate::ids::{ArenaDigest, BaseEngine, CatalogDigest, RuntimeDigest, StackDigest, TargetId, TargetSpec};
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Domain, Fields, Json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SCHEMA_VERSION: u64 = 1;

const EVALUATION: Domain = Domain::with_members("cacheon.stack.evaluation", EvaluationStack::MEMBERS);
const RELEASE: Domain = Domain::with_members("cacheon.stack.release", EngineRelease::MEMBERS);
const CATALOG: Domain = Domain::with_members(
    "cacheon.target-catalog",
    &[
        "artifact_provider_registry",
        "artifact_provider_registry_digest",
        "composition_rules",
        "policy_version",
        "schema_version",
        "targets",
    ],
);
const TARGET_SPEC: Domain = Domain::new("cacheon.target-spec");

/// A rule of this module, as it stands in error messages.
pub mod rule {
    /// The snapshot of a manifest.
    pub const SNAPSHOT: &str = "a catalog snapshot is a non-empty object";
    /// The digest of a manifest's snapshot.
    pub const CATALOG_DIGEST: &str = "the catalog digest is not that of the catalog snapshot beside it";
    /// The keys of a manifest's entries.
    pub const ENTRY_KEY: &str = "an entry stands under another target than its own";
    /// The entries of a release.
    pub const NOT_INTEGRATED: &str = "an engine release holds integrated contributions only";
    /// The rows of a snapshot.
    pub const TARGET_ROWS: &str = "catalog targets are distinct objects with a `target_id`";
}

/// The digest of a catalog's target row.
#[must_use]
pub fn target_spec(row: &Json) -> TargetSpec {
    TargetSpec::new(TARGET_SPEC.digest(row))
}

/// A catalog as it stands inside manifests: a non-empty object and its digest. Its inner structure is read by
/// [`crate::catalog`], not here. Cheap to clone; its canonical bytes are kept once.
#[derive(Debug, Clone)]
pub struct CatalogSnapshot {
    digest: CatalogDigest,
    json: Arc<Json>,
}

impl CatalogSnapshot {
    /// Takes a snapshot object.
    ///
    /// # Errors
    /// Not an object, or an empty one.
    pub fn new(json: Json) -> Result<Self, DecodeError> {
        match &json {
            Json::Object(members) if !members.is_empty() => {}
            other => return Err(DecodeError::invalid(rule::SNAPSHOT, other.kind())),
        }
        Ok(Self { digest: CatalogDigest::new(CATALOG.digest(&json)), json: Arc::new(json) })
    }

    /// The digest of the snapshot.
    #[must_use]
    pub fn digest(&self) -> CatalogDigest {
        self.digest
    }

    /// The snapshot object.
    #[must_use]
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// The target-spec digest of every row, by target.
    ///
    /// # Errors
    /// [`rule::TARGET_ROWS`] when the rows are not distinct objects with a target id.
    pub fn target_specs(&self) -> Result<BTreeMap<TargetId, TargetSpec>, DecodeError> {
        let rows = Fields::open(&self.json)?.take("targets")?.as_array()?;
        let mut specs = BTreeMap::new();
        for row in rows {
            let target: TargetId = Fields::open(row)?.decode("target_id")?;
            if specs.contains_key(&target) {
                return Err(DecodeError::invalid(rule::TARGET_ROWS, &target));
            }
            specs.insert(target, target_spec(row));
        }
        Ok(specs)
    }
}

/// Equal digests are equal canonical bytes.
impl PartialEq for CatalogSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && (Arc::ptr_eq(&self.json, &other.json) || self.json == other.json)
    }
}

impl Eq for CatalogSnapshot {}

impl Canonical for CatalogSnapshot {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.json.write(w);
    }
}

/// The stack an arena measures candidates against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationStack {
    /// The arena that owns it.
    pub arena: ArenaDigest,
    /// The pristine engine below the contributions.
    pub base_engine: BaseEngine,
    /// The catalog its targets come from.
    pub catalog: CatalogSnapshot,
    /// The serving runtime.
    pub runtime: RuntimeDigest,
    entries: BTreeMap<TargetId, ContributionRef>,
}

/// The contributions a release ships; integrated ones only, and no arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineRelease {
    /// The pristine engine below the contributions.
    pub base_engine: BaseEngine,
    /// The catalog its targets come from.
    pub catalog: CatalogSnapshot,
    /// The serving runtime.
    pub runtime: RuntimeDigest,
    entries: BTreeMap<TargetId, IntegratedRef>,
}

/// Why a contribution could not be put into a stack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// A target to remove is not active.
    #[error("target `{0}` is to be removed but is not active")]
    RemoveInactive(TargetId),
    /// A target to remove is named twice.
    #[error("target `{0}` is named twice among those to remove")]
    RemoveTwice(TargetId),
    /// A proposal offered to a release.
    #[error("an engine release holds integrated contributions only; `{0}` is a proposal")]
    NotIntegrated(TargetId),
}

fn edited<T: Clone>(
    entries: &BTreeMap<TargetId, T>,
    target: &TargetId,
    entry: T,
    remove: &[TargetId],
) -> Result<BTreeMap<TargetId, T>, EditError> {
    let mut seen = BTreeSet::new();
    let mut next = entries.clone();
    for gone in remove {
        if !seen.insert(gone) {
            return Err(EditError::RemoveTwice(gone.clone()));
        }
        if next.remove(gone).is_none() {
            return Err(EditError::RemoveInactive(gone.clone()));
        }
    }
    next.insert(target.clone(), entry);
    Ok(next)
}

impl EvaluationStack {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "arena_digest",
        "base_engine_digest",
        "catalog_digest",
        "catalog_snapshot",
        "entries",
        "runtime_digest",
        "schema_version",
        "stack_policy_version",
        "type",
    ];
    /// The value of `type`.
    pub const TYPE: &'static str = "evaluation_stack";
    /// The value of `stack_policy_version`.
    pub const POLICY: &'static str = "evaluation-stack.v1";

    /// A stack with no contribution.
    #[must_use]
    pub fn empty(context: &StackContext, arena: ArenaDigest) -> Self {
        Self {
            arena,
            base_engine: context.base_engine,
            catalog: context.catalog().clone(),
            runtime: context.runtime,
            entries: BTreeMap::new(),
        }
    }

    /// The contributions, by target.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<TargetId, ContributionRef> {
        &self.entries
    }

    /// The manifest's digest: the stack's name.
    #[must_use]
    pub fn digest(&self) -> StackDigest {
        StackDigest::new(EVALUATION.digest(self))
    }

    /// The same stack with `contribution` at its target and the targets of `remove` gone.
    ///
    /// # Errors
    /// A target to remove is inactive or named twice.
    pub fn with_contribution(
        &self,
        contribution: ContributionRef,
        remove: &[TargetId],
    ) -> Result<Self, EditError> {
        let target = contribution.target().clone();
        let entries = edited(&self.entries, &target, contribution, remove)?;
        Ok(Self { entries, ..self.clone() })
    }

    /// Checks the manifest against the context it is to be used in.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn validate_against(&self, context: &StackContext) -> Result<(), ContextError> {
        if context.arena != Some(self.arena) {
            return Err(ContextError::Arena { found: self.arena });
        }
        context.check_common(self.runtime, self.base_engine, &self.catalog)?;
        self.entries.values().try_for_each(|it| context.check_entry(it.target(), it.target_spec()))
    }
}

impl EngineRelease {
    /// The member names, in code-point order.
    pub const MEMBERS: &'static [&'static str] = &[
        "base_engine_digest",
        "catalog_digest",
        "catalog_snapshot",
        "entries",
        "runtime_digest",
        "schema_version",
        "stack_policy_version",
        "type",
    ];
    /// The value of `type`.
    pub const TYPE: &'static str = "engine_release";
    /// The value of `stack_policy_version`.
    pub const POLICY: &'static str = "engine-release.v1";

    /// A release with no contribution.
    #[must_use]
    pub fn empty(context: &StackContext) -> Self {
        Self {
            base_engine: context.base_engine,
            catalog: context.catalog().clone(),
            runtime: context.runtime,
            entries: BTreeMap::new(),
        }
    }

    /// The contributions, by target.
    #[must_use]
    pub fn entries(&self) -> &BTreeMap<TargetId, IntegratedRef> {
        &self.entries
    }

    /// The manifest's digest.
    #[must_use]
    pub fn digest(&self) -> StackDigest {
        StackDigest::new(RELEASE.digest(self))
    }

    /// The same release with `contribution` at its target and the targets of `remove` gone.
    ///
    /// # Errors
    /// A target to remove is inactive or named twice.
    pub fn with_contribution(
        &self,
        contribution: IntegratedRef,
        remove: &[TargetId],
    ) -> Result<Self, EditError> {
        let target = contribution.target.clone();
        let entries = edited(&self.entries, &target, contribution, remove)?;
        Ok(Self { entries, ..self.clone() })
    }

    /// Checks the manifest against the context it is to be used in; the arena is not asked for.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn validate_against(&self, context: &StackContext) -> Result<(), ContextError> {
        context.check_common(self.runtime, self.base_engine, &self.catalog)?;
        self.entries.values().try_for_each(|it| context.check_entry(&it.target, it.target_spec))
    }
}

impl Canonical for EvaluationStack {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("arena_digest", &self.arena)
                .field("base_engine_digest", &self.base_engine)
                .field("catalog_digest", &self.catalog.digest)
                .field("catalog_snapshot", &self.catalog)
                .field("entries", &self.entries)
                .field("runtime_digest", &self.runtime)
                .field("schema_version", &SCHEMA_VERSION)
                .field("stack_policy_version", Self::POLICY)
                .field("type", Self::TYPE);
        });
    }
}

impl Canonical for EngineRelease {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("base_engine_digest", &self.base_engine)
                .field("catalog_digest", &self.catalog.digest)
                .field("catalog_snapshot", &self.catalog)
                .field("entries", &self.entries)
                .field("runtime_digest", &self.runtime)
                .field("schema_version", &SCHEMA_VERSION)
                .field("stack_policy_version", Self::POLICY)
                .field("type", Self::TYPE);
        });
    }
}

/// Opens a manifest of one type and reads what both types hold; entries are left to the caller.
fn open_manifest<'a>(
    json: &'a Json,
    kind: &str,
    policy: &str,
    members: &[&str],
) -> Result<(Fields<'a>, CatalogSnapshot), DecodeError> {
    Fields::open(json)?.take("type")?.exactly(kind)?;
    let mut fields = Fields::closed(json, members)?;
    fields.take("schema_version")?.exactly_int(SCHEMA_VERSION)?;
    fields.take("stack_policy_version")?.exactly(policy)?;
    let claimed = fields.take("catalog_digest")?;
    let digest: CatalogDigest = claimed.decode()?;
    let snapshot = fields.take("catalog_snapshot")?;
    let catalog = CatalogSnapshot::new(snapshot.json().clone()).map_err(|e| e.within(snapshot.name()))?;
    if catalog.digest != digest {
        return Err(claimed.error(DecodeKind::invalid(rule::CATALOG_DIGEST, &digest)));
    }
    Ok((fields, catalog))
}

fn decode_entries<T>(
    fields: &mut Fields<'_>,
    read: impl Fn(&Json) -> Result<T, DecodeError>,
    target: impl Fn(&T) -> &TargetId,
) -> Result<BTreeMap<TargetId, T>, DecodeError> {
    let member = fields.take("entries")?;
    let mut entries = BTreeMap::new();
    for (key, json) in member.as_object()? {
        let located = |error: DecodeError| error.within(key.as_str()).within(member.name());
        let key_id = TargetId::parse(key).map_err(located)?;
        let entry = read(json).map_err(located)?;
        if *target(&entry) != key_id {
            return Err(located(DecodeError::invalid(rule::ENTRY_KEY, target(&entry))));
        }
        entries.insert(key_id, entry);
    }
    Ok(entries)
}

impl Decode for EvaluationStack {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let (mut fields, catalog) = open_manifest(json, Self::TYPE, Self::POLICY, Self::MEMBERS)?;
        Ok(Self {
            arena: fields.decode("arena_digest")?,
            base_engine: fields.decode("base_engine_digest")?,
            catalog,
            runtime: fields.decode("runtime_digest")?,
            entries: decode_entries(&mut fields, ContributionRef::decode, ContributionRef::target)?,
        })
    }
}

impl Decode for EngineRelease {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let (mut fields, catalog) = open_manifest(json, Self::TYPE, Self::POLICY, Self::MEMBERS)?;
        let integrated = |json: &Json| match ContributionRef::decode(json)? {
            ContributionRef::Integrated(it) => Ok(it),
            ContributionRef::Proposal(it) => Err(DecodeError::invalid(rule::NOT_INTEGRATED, &it.target)),
        };
        Ok(Self {
            base_engine: fields.decode("base_engine_digest")?,
            catalog,
            runtime: fields.decode("runtime_digest")?,
            entries: decode_entries(&mut fields, integrated, |it| &it.target)?,
        })
    }
}

/// Either kind of manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackManifest {
    /// Of an arena.
    Evaluation(EvaluationStack),
    /// Of a release.
    Release(EngineRelease),
}

impl StackManifest {
    /// The manifest's digest, in the domain of its kind.
    #[must_use]
    pub fn digest(&self) -> StackDigest {
        match self {
            Self::Evaluation(it) => it.digest(),
            Self::Release(it) => it.digest(),
        }
    }

    /// The contributions, by target.
    #[must_use]
    pub fn entries(&self) -> BTreeMap<TargetId, ContributionRef> {
        match self {
            Self::Evaluation(it) => it.entries.clone(),
            Self::Release(it) => it.entries.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect(),
        }
    }

    /// The catalog its targets come from.
    #[must_use]
    pub fn catalog(&self) -> &CatalogSnapshot {
        match self {
            Self::Evaluation(it) => &it.catalog,
            Self::Release(it) => &it.catalog,
        }
    }

    /// Checks the manifest against the context it is to be used in.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn validate_against(&self, context: &StackContext) -> Result<(), ContextError> {
        match self {
            Self::Evaluation(it) => it.validate_against(context),
            Self::Release(it) => it.validate_against(context),
        }
    }

    /// The same manifest with `contribution` at its target and the targets of `remove` gone.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn with_contribution(
        &self,
        contribution: ContributionRef,
        remove: &[TargetId],
    ) -> Result<Self, EditError> {
        match self {
            Self::Evaluation(it) => it.with_contribution(contribution, remove).map(Self::Evaluation),
            Self::Release(it) => match contribution {
                ContributionRef::Integrated(new) => it.with_contribution(new, remove).map(Self::Release),
                ContributionRef::Proposal(new) => Err(EditError::NotIntegrated(new.target)),
            },
        }
    }
}

impl Canonical for StackManifest {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        match self {
            Self::Evaluation(it) => it.write(w),
            Self::Release(it) => it.write(w),
        }
    }
}

impl Decode for StackManifest {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        match Fields::open(json)?.take("type")?.json().as_str() {
            Some(EngineRelease::TYPE) => EngineRelease::decode(json).map(Self::Release),
            // Anything else is read as an evaluation stack, whose type tag then refuses it.
            _ => EvaluationStack::decode(json).map(Self::Evaluation),
        }
    }
}

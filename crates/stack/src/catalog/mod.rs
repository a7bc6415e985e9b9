//! Target catalogs as versioned data (spec 20 §3, spec 10 §7.2).
//!
//! A catalog is selected by the digest of its snapshot and never rebuilt from code: retained stacks embed the snapshot
//! they were made under. Three snapshots are carried ([`known`]): the two registered ones and that of the CPU arena.

mod active;
mod contract;
mod data;
mod validity;

pub use active::ActiveSetError;
pub use contract::{Correctness, CorrectnessMode, SlotContract, Tolerance};
pub use data::{CPU_1, REGISTERED_2026_08_20, REGISTERED_2026_08_22, by_digest, known};

use crate::ids::{CatalogDigest, TargetId, TargetSpec};
use crate::manifest::{self, CatalogSnapshot};
use cacheon_bundle::{TargetRow, Targets};
use cacheon_identity::{Decode, DecodeError, DecodeKind, Digest, Domain, Fields, Json};
use std::collections::{BTreeMap, BTreeSet};

const POLICY: &str = "target-catalog.v1";
const SCHEMA_VERSION: u64 = 1;
const PROVIDER_REGISTRY: Domain =
    Domain::with_members("cacheon.artifact-provider-registry", &["providers", "schema_version"]);

/// What a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetKind {
    /// One slot, with its contract.
    Slot(Box<SlotContract>),
    /// Several slots replaced together.
    Atomic {
        /// Names what the members mean together.
        semantics: String,
    },
}

/// One row of a catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its id.
    pub id: TargetId,
    /// Slot or atomic.
    pub kind: TargetKind,
    /// The slots it replaces, in the row's order.
    pub members: Vec<TargetId>,
    /// The targets it displaces directly.
    pub displaces: BTreeSet<TargetId>,
    /// The targets it may stand beside under a composition rule.
    pub compatible_with: BTreeSet<TargetId>,
    /// The targets that must be active with it, directly.
    pub requires: BTreeSet<TargetId>,
    /// What a bundle for it may use.
    pub allowed_features: BTreeSet<String>,
    /// The digest of its contract.
    pub contract_digest: Digest,
    /// The digest of the row.
    pub spec: TargetSpec,
    displacement_closure: BTreeSet<TargetId>,
    requirement_closure: BTreeSet<TargetId>,
}

impl Target {
    /// Everything it displaces, directly or not.
    #[must_use]
    pub fn displacement_closure(&self) -> &BTreeSet<TargetId> {
        &self.displacement_closure
    }

    /// Everything that must be active with it, directly or not.
    #[must_use]
    pub fn requirement_closure(&self) -> &BTreeSet<TargetId> {
        &self.requirement_closure
    }

    /// `slot` or `atomic`.
    #[must_use]
    pub const fn kind_name(&self) -> &'static str {
        match self.kind {
            TargetKind::Slot(_) => "slot",
            TargetKind::Atomic { .. } => "atomic",
        }
    }

    /// What bundle inspection needs of the target.
    fn row(&self) -> TargetRow {
        TargetRow {
            id: self.id.to_string(),
            kind: match self.kind {
                TargetKind::Slot(_) => cacheon_bundle::TargetKind::Slot,
                TargetKind::Atomic { .. } => cacheon_bundle::TargetKind::Atomic,
            },
            members: self.members.iter().map(ToString::to_string).collect(),
            features: self.allowed_features.clone(),
            spec_digest: self.spec.digest(),
        }
    }

    /// The contract of a slot target.
    #[must_use]
    pub fn contract(&self) -> Option<&SlotContract> {
        match &self.kind {
            TargetKind::Slot(contract) => Some(contract),
            TargetKind::Atomic { .. } => None,
        }
    }
}

/// How two compatible targets share a call site: the first that applies wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompositionRule {
    /// Its id.
    pub id: String,
    /// Who is asked first.
    pub precedence: Vec<TargetId>,
    /// The binding both share.
    pub binding_family: String,
    /// The digest of that binding's contract.
    pub binding_contract: Digest,
}

/// A catalog whose structure has been checked, with its derived relations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    snapshot: CatalogSnapshot,
    targets: BTreeMap<TargetId, Target>,
    rules: Vec<CompositionRule>,
    provider_registry: Digest,
    rows: Vec<TargetRow>,
}

/// A rule of catalogs, as it stands in error messages.
pub mod rule {
    /// Provider registry.
    pub const PROVIDERS: &str = "the provider registry digest is not that of the registry beside it";
    /// Order of rows.
    pub const SORTED: &str = "catalog rows stand in the order of their ids, each once";
    /// Lists of a row.
    pub const SORTED_SET: &str = "a target's lists are sorted sets";
    /// Contract digest.
    pub const CONTRACT: &str = "the contract digest is not that of the target's contract";
    /// Mode of a rule.
    pub const MODE: &str = "the only composition mode is `first_applicable`";
    /// Kind of a row.
    pub const KIND: &str = "a target is a `slot` or `atomic`";
}

impl Catalog {
    /// Reads and checks a snapshot.
    ///
    /// # Errors
    /// The snapshot is not closed, or breaks a rule of spec 10 §7.2.
    pub fn parse(snapshot: CatalogSnapshot) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(
            snapshot.json(),
            &[
                "artifact_provider_registry",
                "artifact_provider_registry_digest",
                "composition_rules",
                "policy_version",
                "schema_version",
                "targets",
            ],
        )?;
        fields.take("schema_version")?.exactly_int(SCHEMA_VERSION)?;
        fields.take("policy_version")?.exactly(POLICY)?;
        let registry = PROVIDER_REGISTRY.digest(fields.take("artifact_provider_registry")?.json());
        let claimed = fields.take("artifact_provider_registry_digest")?;
        if claimed.digest()? != registry {
            return Err(claimed.error(DecodeKind::invalid(rule::PROVIDERS, &registry)));
        }
        let targets = indexed(fields.take("targets")?.as_array()?, "targets", decode_target, |it| &it.id)?;
        let rules = fields.take("composition_rules")?.as_array()?;
        let rules = indexed(rules, "composition_rules", decode_rule, |it| &it.id)?;
        let mut catalog = Self {
            targets: targets.into_iter().map(|target| (target.id.clone(), target)).collect(),
            rules,
            provider_registry: registry,
            rows: Vec::new(),
            snapshot,
        };
        validity::derive_and_check(&mut catalog)?;
        catalog.rows = catalog.targets.values().map(Target::row).collect();
        Ok(catalog)
    }

    /// The snapshot as it stands inside manifests.
    #[must_use]
    pub fn snapshot(&self) -> &CatalogSnapshot {
        &self.snapshot
    }

    /// The catalog's digest.
    #[must_use]
    pub fn digest(&self) -> CatalogDigest {
        self.snapshot.digest()
    }

    /// The digest of its artifact provider registry.
    #[must_use]
    pub fn provider_registry(&self) -> Digest {
        self.provider_registry
    }

    /// The targets, by id.
    #[must_use]
    pub fn targets(&self) -> &BTreeMap<TargetId, Target> {
        &self.targets
    }

    /// One target.
    #[must_use]
    pub fn target(&self, id: &TargetId) -> Option<&Target> {
        self.targets.get(id)
    }

    /// The composition rules, by id.
    #[must_use]
    pub fn rules(&self) -> &[CompositionRule] {
        &self.rules
    }

    /// The target whose member set equals `slots`, if there is one.
    #[must_use]
    pub fn target_of_members(&self, slots: &BTreeSet<TargetId>) -> Option<&Target> {
        self.targets
            .values()
            .find(|target| target.members.iter().collect::<BTreeSet<_>>() == slots.iter().collect())
    }
}

/// Bundles are resolved and inspected against the catalog's rows.
impl Targets for Catalog {
    fn targets(&self) -> &[TargetRow] {
        &self.rows
    }
}

/// Decodes rows and insists on their order.
fn indexed<T, K: Ord + std::fmt::Display + ?Sized>(
    rows: &[Json],
    member: &str,
    read: impl Fn(&Json) -> Result<T, DecodeError>,
    key: impl Fn(&T) -> &K,
) -> Result<Vec<T>, DecodeError> {
    let mut out: Vec<T> = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        let located = |error: DecodeError| error.within(format!("[{index}]")).within(member);
        let row = read(row).map_err(located)?;
        if out.last().is_some_and(|last| key(last) >= key(&row)) {
            return Err(located(DecodeError::invalid(rule::SORTED, key(&row))));
        }
        out.push(row);
    }
    Ok(out)
}

fn decode_target(json: &Json) -> Result<Target, DecodeError> {
    let mut fields = Fields::open(json)?;
    let id: TargetId = fields.decode("target_id")?;
    let contract = fields.take("contract_digest")?;
    let contract_digest = contract.digest()?;
    let kind_member = fields.take("kind")?;
    let (kind, computed) = match kind_member.as_str()? {
        "slot" => {
            let member = fields.take("contract_ref")?;
            let read: SlotContract = member.decode()?;
            let digest = contract::slot_digest(member.json());
            (TargetKind::Slot(Box::new(read)), digest)
        }
        "atomic" => {
            let semantics: String = fields.decode("atomic_semantics_id")?;
            let members = fields.take("member_contract_digests")?;
            let digest = contract::atomic_digest(&id, &semantics, &members.decode::<Vec<Digest>>()?);
            (TargetKind::Atomic { semantics }, digest)
        }
        other => return Err(kind_member.error(DecodeKind::invalid(rule::KIND, other))),
    };
    if computed != contract_digest {
        return Err(contract.error(DecodeKind::invalid(rule::CONTRACT, &computed)));
    }
    let target = Target {
        kind,
        members: fields.decode("members")?,
        displaces: sorted_set(&mut fields, "displaces")?,
        compatible_with: sorted_set(&mut fields, "compatible_with")?,
        requires: sorted_set(&mut fields, "requires")?,
        allowed_features: sorted_set(&mut fields, "allowed_features")?,
        contract_digest,
        spec: manifest::target_spec(json),
        displacement_closure: BTreeSet::new(),
        requirement_closure: BTreeSet::new(),
        id,
    };
    fields.finish()?;
    Ok(target)
}

fn sorted_set<T: Decode + Ord + std::fmt::Display>(
    fields: &mut Fields<'_>,
    name: &str,
) -> Result<BTreeSet<T>, DecodeError> {
    let member = fields.take(name)?;
    let items: Vec<T> = member.decode()?;
    if let Some((_, late)) = items.iter().zip(items.iter().skip(1)).find(|(a, b)| a >= b) {
        return Err(member.error(DecodeKind::invalid(rule::SORTED_SET, late)));
    }
    Ok(items.into_iter().collect())
}

fn decode_rule(json: &Json) -> Result<CompositionRule, DecodeError> {
    let mut fields = Fields::closed(
        json,
        &[
            "binding_contract_digest",
            "binding_family_id",
            "mode",
            "precedence",
            "rule_id",
            "schema_version",
            "target_ids",
        ],
    )?;
    fields.take("schema_version")?.exactly_int(SCHEMA_VERSION)?;
    fields.take("mode")?.str_where(rule::MODE, |mode| mode == "first_applicable")?;
    let targets: BTreeSet<TargetId> = sorted_set(&mut fields, "target_ids")?;
    let precedence = fields.take("precedence")?;
    let order: Vec<TargetId> = precedence.decode()?;
    let same = order.len() == targets.len() && order.iter().all(|target| targets.contains(target));
    if !same || targets.len() != 2 {
        return Err(precedence.error(DecodeKind::invalid(validity::RULE_PAIR, precedence.json())));
    }
    Ok(CompositionRule {
        id: fields.decode("rule_id")?,
        precedence: order,
        binding_family: fields.decode("binding_family_id")?,
        binding_contract: fields.decode("binding_contract_digest")?,
    })
}

//! The identities of a CPU arena: what its stacks, plans and calibrations are bound to.

use std::collections::BTreeMap;

use cacheon_bundle::capability::Metadata;
use cacheon_bundle::inspect::VariantDomain;
use cacheon_bundle::{Bundle, BundleError, Finding, Inspection, inspect};
use cacheon_identity::{Digest, Domain, Json, record, sha256};
use cacheon_records::arena::{Incumbent, PublishedBundle};
use cacheon_stack::arena::{
    ArenaRuntime, Capacity, CpuRuntime, ServiceManifest, ServiceVersion, Workload, WorkloadCell,
};
use cacheon_stack::catalog::{CPU_1, Catalog, by_digest};
use cacheon_stack::contribution::{ContributionRef, ProposalRef};
use cacheon_stack::ids::{
    ArenaDigest, ArtifactDigest, Attribution, BaseEngine, RuntimeDigest, SelectedPayload, TargetId,
    TargetSpec, TreeDigest,
};
use cacheon_stack::manifest::{EvaluationStack, StackContext};
use cacheon_stack::plan::{MarginalArm, plan_arm, transition};
use cacheon_stack::reference::ReferenceManifest;
use cacheon_stack::tree::{EngineTree, materialize_cpu};
use cacheon_verdict::calibration::CalibrationContext;

use crate::definition::{DEFINITION, Definition};

const RUNTIME: Domain = Domain::with_members("cacheon.rs.cpu.runtime.v1", Runtime::MEMBERS);
const BASE_ENGINE: Domain = Domain::with_members("cacheon.rs.cpu.base-engine.v1", BaseEngineFacts::MEMBERS);
const ATTRIBUTION: Domain = Domain::with_members("cacheon.rs.attribution.v1", &["hotkey"]);
const PLATFORM: Domain = Domain::with_members("cacheon.rs.cpu.platform.v1", &["architecture", "features"]);
const ABSENT: Domain = Domain::with_members("cacheon.rs.absent.v1", &["status"]);

record! {
    /// What serves: the container root, the worker, the container policy.
    struct Runtime {
        container_policy_digest: Digest,
        image_digest: Digest,
        worker_digest: Digest,
    }
}

record! {
    /// The pristine engine: the stock kernels' source and the worker that calls them.
    struct BaseEngineFacts {
        stock_content_hash: Digest,
        worker_digest: Digest,
    }
}

/// Why an identity cannot be formed. Bundle findings are attributable to the bundle.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The bundle breaks a rule.
    #[error("{0}")]
    Finding(Box<Finding>),
    /// The bundle cannot be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A stack, plan or tree refuses.
    #[error("{what}: {why}")]
    Stack {
        /// What was being formed.
        what: &'static str,
        /// The refusal.
        why: String,
    },
}

fn refuse<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> ServiceError {
    move |error| ServiceError::Stack { what, why: error.to_string() }
}

/// A candidate, inspected against the catalog.
#[derive(Debug)]
pub struct Candidate {
    /// The bundle, in memory.
    pub bundle: Bundle,
    /// What the referee sees of it.
    pub inspection: Inspection,
    /// Its reference.
    pub proposal: ProposalRef,
}

/// A planned transition with both trees.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub arm: MarginalArm,
    /// Tree of the candidate stack.
    pub tree: EngineTree,
}

/// Every variant of the stock bundle with its domain. It serves several targets, so it resolves to none.
///
/// # Errors
/// [`ServiceError::Stack`] for a row with metadata or a domain of its own that cannot be read.
pub fn stock_variants(bundle: &Bundle) -> Result<Vec<VariantDomain>, ServiceError> {
    bundle
        .manifest()
        .ops
        .iter()
        .map(|op| {
            if op.metadata.is_some() {
                return Err(ServiceError::Stack { what: "stock", why: format!("{} has metadata", op.slot) });
            }
            let domain = Metadata::default().effective(&op.dtypes, &op.architectures);
            Ok(VariantDomain {
                slot: op.slot.clone(),
                variant: op.variant.clone(),
                entry: op.entry.clone(),
                domain: domain.map_err(refuse("stock"))?,
            })
        })
        .collect()
}

/// The identities of one arena.
#[derive(Debug)]
pub struct Service {
    catalog: &'static Catalog,
    manifest: ServiceManifest,
    context: StackContext,
    runtime: RuntimeDigest,
    base_engine: BaseEngine,
    definition_digest: Digest,
    model: Digest,
    worker: Digest,
    platform: Digest,
}

impl Service {
    /// Forms the identities.
    ///
    /// # Errors
    /// Only for a definition that cannot be a service manifest.
    pub fn new(
        definition: &Definition,
        image_digest: Digest,
        worker_digest: Digest,
        stock_content_hash: Digest,
    ) -> Result<Self, ServiceError> {
        let catalog =
            by_digest(CPU_1).ok_or(ServiceError::Stack { what: "catalog", why: "not carried".into() })?;
        let runtime = RuntimeDigest::new(RUNTIME.digest(&Runtime {
            container_policy_digest: cacheon_records::cpu::CONTAINER_POLICY.digest(&definition.container),
            image_digest,
            worker_digest,
        }));
        let base_engine =
            BaseEngine::new(BASE_ENGINE.digest(&BaseEngineFacts { stock_content_hash, worker_digest }));
        let features = definition.platform.features.join("-");
        let platform = PLATFORM.digest(&definition.platform);
        let cell = &definition.cell;
        let manifest = ServiceManifest {
            version: ServiceVersion::Cpu1,
            capacity: Capacity {
                infrastructure_retry_limit: u64::from(definition.infrastructure_retry_cap),
                max_active_qualifications: 1,
                max_active_screens: 1,
                max_cohort_size: 1,
                max_queue_age_blocks: 1_000_000,
                max_queue_depth: 4096,
                qualification_retry_limit: u64::from(definition.candidate_attempt_cap),
                screen_retry_limit: 1,
            },
            closed_targets: Vec::new(),
            provider: sha256(b"cacheon-arena cpu provider v1"),
            qualification_policy: DEFINITION.digest(definition),
            runtime: ArenaRuntime::Cpu(CpuRuntime {
                arena_id: definition.arena_id.clone(),
                base_engine,
                cores: 2,
                lanes: 2,
                model_content: definition.model.sha256,
                model_manifest: definition.model.sha256,
                model_revision: definition.model.sha256,
                runtime,
                target_architecture: if features.contains("avx2") {
                    format!("{}-avx2", definition.platform.architecture)
                } else {
                    definition.platform.architecture.clone()
                },
                topology_class: "one-core-lanes".to_owned(),
                topology: platform,
                worker_distribution: worker_digest,
            }),
            timeouts_ms: ServiceVersion::Cpu1.stages().iter().map(|_| 600_000).collect(),
            workload: Workload::Cells {
                cells: vec![WorkloadCell {
                    cell_id: cell.cell_id.clone(),
                    concurrency: u64::from(cell.concurrency),
                    input_tokens: u64::from(cell.input_tokens),
                    output_tokens: u64::from(cell.output_tokens),
                    timed_reads: u64::from(cell.timed_reads),
                }],
                prompt_corpus: definition.model.sha256,
                prompt_seed_scheme: crate::prompts::SEED_SCHEME.to_owned(),
            },
        }
        .checked()
        .map_err(refuse("service manifest"))?;
        let context =
            StackContext::new(runtime, base_engine, Some(manifest.digest()), catalog.snapshot().clone())
                .map_err(refuse("stack context"))?;
        Ok(Self {
            catalog,
            manifest,
            context,
            runtime,
            base_engine,
            definition_digest: definition.digest(),
            model: definition.model.sha256,
            worker: worker_digest,
            platform,
        })
    }

    /// The arena's digest.
    #[must_use]
    pub fn digest(&self) -> ArenaDigest {
        self.manifest.digest()
    }

    /// The service manifest.
    #[must_use]
    pub const fn manifest(&self) -> &ServiceManifest {
        &self.manifest
    }

    /// The target catalog.
    #[must_use]
    pub const fn catalog(&self) -> &'static Catalog {
        self.catalog
    }

    /// The context of every stack.
    #[must_use]
    pub const fn context(&self) -> &StackContext {
        &self.context
    }

    /// The workload cell's digest: what both qualifications of a pair share although their prompts differ.
    #[must_use]
    pub fn workload_digest(&self) -> Digest {
        self.manifest.workload.digest()
    }

    /// The stack without contributions, with its tree.
    ///
    /// # Errors
    /// The tree cannot be materialised.
    pub fn genesis(&self) -> Result<(EvaluationStack, EngineTree), ServiceError> {
        let stack = EvaluationStack::empty(&self.context, self.digest());
        let tree = materialize_cpu(&stack, self.catalog, &BTreeMap::new()).map_err(refuse("stock tree"))?;
        Ok((stack, tree))
    }

    /// Reads and inspects a candidate.
    ///
    /// # Errors
    /// [`ServiceError::Finding`] for anything the bundle is to blame for.
    pub fn candidate(&self, published: &PublishedBundle, hotkey: &str) -> Result<Candidate, ServiceError> {
        let bundle = Bundle::read(&published.path)?;
        if bundle.content_hash() != published.content_hash {
            return Err(ServiceError::Stack { what: "bundle", why: "not the published bytes".to_owned() });
        }
        let inspection = inspect(&bundle, self.catalog).map_err(ServiceError::Finding)?;
        let parse = |what: &'static str| refuse::<cacheon_identity::DecodeError>(what);
        let proposal = ProposalRef {
            artifact: ArtifactDigest::new(published.content_hash),
            attribution: Attribution::new(
                ATTRIBUTION.digest(&Json::object([("hotkey", Json::Str(hotkey.to_owned()))])),
            ),
            payload: SelectedPayload::new(inspection.selected_payload_digest),
            target: TargetId::parse(&inspection.target_id).map_err(parse("target"))?,
            target_spec: TargetSpec::new(inspection.target_spec_digest),
        };
        Ok(Candidate { bundle, inspection, proposal })
    }

    /// Plans the candidate against the incumbent and materialises the resulting tree.
    ///
    /// # Errors
    /// An illegal transition, or a tree that cannot be materialised.
    pub fn plan(&self, incumbent: &Incumbent, candidate: &Candidate) -> Result<Planned, ServiceError> {
        use cacheon_identity::Decode as _;
        let stack =
            EvaluationStack::decode_bytes(&incumbent.manifest).map_err(refuse("incumbent manifest"))?;
        stack.validate_against(&self.context).map_err(refuse("incumbent manifest"))?;
        let reference = ContributionRef::Proposal(candidate.proposal.clone());
        let (resulting, _) = transition(&stack, reference.clone(), self.catalog, &self.context)
            .map_err(refuse("transition"))?;
        let mut sources: BTreeMap<TargetId, Bundle> = BTreeMap::new();
        for published in &incumbent.sources {
            let read = Bundle::read(&published.path)?;
            let target = stack
                .entries()
                .iter()
                .find(|(_, entry)| matches!(entry, ContributionRef::Proposal(it) if it.artifact.digest() == published.content_hash));
            if let Some((target, _)) = target {
                sources.insert(target.clone(), read);
            }
        }
        sources.insert(candidate.proposal.target.clone(), candidate.bundle.clone());
        sources.retain(|target, _| resulting.entries().contains_key(target));
        let borrowed: BTreeMap<TargetId, &Bundle> =
            sources.iter().map(|(target, bundle)| (target.clone(), bundle)).collect();
        let tree = materialize_cpu(&resulting, self.catalog, &borrowed).map_err(refuse("candidate tree"))?;
        let arm = plan_arm(
            &stack,
            reference,
            self.catalog,
            &self.context,
            TreeDigest::new(incumbent.tree_digest),
            tree.digest(),
        )
        .map_err(refuse("plan"))?;
        Ok(Planned { arm, tree })
    }

    /// The pristine reference: a candidate-free engine on the stock stack.
    ///
    /// # Errors
    /// The stock tree cannot be materialised.
    pub fn reference(&self, pristine_launch: Digest) -> Result<ReferenceManifest, ServiceError> {
        let (stack, tree) = self.genesis()?;
        let absent = ABSENT.digest(&Json::object([("status", Json::Str("absent".to_owned()))]));
        Ok(ReferenceManifest {
            arena: self.digest(),
            base_engine: self.base_engine,
            catalog: self.catalog.digest(),
            controller_distribution: sha256(concat!("cacheon ", env!("CARGO_PKG_VERSION")).as_bytes()),
            hidden_corpus_commitment: absent,
            hidden_judge: absent,
            logical_hardware: self.platform,
            model_content: self.model,
            model_manifest: self.model,
            model_revision: self.model,
            pristine_launch,
            pristine_stack: stack.digest(),
            pristine_tree: tree.digest(),
            runtime: self.runtime,
            selection_policy: self.definition_digest,
            tokenizer: self.model,
            worker_distribution: self.worker,
            workload: self.workload_digest(),
        })
    }

    /// The context that a calibration of this arena is bound to.
    ///
    /// # Errors
    /// As [`Service::reference`].
    pub fn calibration_context(&self, pristine_launch: Digest) -> Result<CalibrationContext, ServiceError> {
        let reference = self.reference(pristine_launch)?;
        Ok(CalibrationContext {
            arena_digest: self.digest().digest(),
            base_engine_digest: self.base_engine.digest(),
            logical_hardware_digest: self.platform,
            model_content_digest: self.model,
            model_manifest_digest: self.model,
            model_revision_digest: self.model,
            reference_manifest_digest: reference.measured_digest().digest(),
            runtime_digest: self.runtime.digest(),
            verification_policy_digest: self.definition_digest,
            workload_digest: self.workload_digest(),
        })
    }
}

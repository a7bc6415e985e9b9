//! The CPU arena as a provider: its identities, its state directory, and the three things a validator loop asks of it.

use std::path::Path;

use cacheon_bundle::Bundle;
use cacheon_evidence::cpu::derive::Plan;
use cacheon_evidence::cpu::verify::open_calibration;
use cacheon_evidence::selection::{SelectionStore, SelectionStoreError};
use cacheon_evidence::step::Steps;
use cacheon_evidence::store::{EvidenceStore, StoreError};
use cacheon_identity::{Canonical as _, Decode as _, Digest, Json};
use cacheon_model::abi::Slot;
use cacheon_model::llama::Model;
use cacheon_model::tokenizer::Tokenizer;
use cacheon_protocol::Clock as _;
use cacheon_protocol::MonotonicClock;
use cacheon_protocol::message::Binding;
use cacheon_records::arena::{
    Arena, ArenaFault, Decision, Incumbent, OnProgress, Outcome, Progress, PublishedBundle,
    QualificationOrder,
};
use cacheon_records::cpu::CpuLaunch;
use cacheon_records::evidence::EvidenceRef;
use cacheon_stack::contribution::ContributionRef;
use cacheon_stack::manifest::EvaluationStack;
use cacheon_stack::tree::{EngineTree, PublishTreeError, reopen as reopen_tree};
use cacheon_verdict::calibration::CalibrationManifest;

use crate::attempt::AttemptError;
use crate::definition::Definition;
use crate::environment::{Environment, Kernels};
use crate::home::{Home, HomeError};
use crate::prebuild::{Prebuild, PrebuildError};
use crate::service::{Candidate, Planned, Service, ServiceError};
use crate::worker::{WorkerError, hex, random};

/// Why the arena cannot work. Never a verdict on a candidate.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The state directory.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// Identities, plans, trees.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// Prebuilding.
    #[error(transparent)]
    Prebuild(#[from] PrebuildError),
    /// Secrets.
    #[error(transparent)]
    Selection(#[from] SelectionStoreError),
    /// Evidence.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Publishing a tree.
    #[error(transparent)]
    Tree(#[from] PublishTreeError),
    /// A worker.
    #[error(transparent)]
    Worker(#[from] WorkerError),
    /// No calibration.
    #[error("this arena has no frozen calibration for this machine; make one with `cacheon arena calibrate`")]
    NotCalibrated,
    /// A record of ours is damaged.
    #[error("{what}: {why}")]
    Record {
        /// Which.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
}

/// The parts a CPU arena is assembled from.
#[derive(Debug)]
pub struct Parts<'m> {
    /// State directory, locked by the caller.
    pub home: Home,
    /// Sealed definition.
    pub definition: Definition,
    /// Lanes, sandbox, engine root, model descriptor.
    pub env: Environment,
    /// The compiler.
    pub prebuild: Prebuild,
    /// The model as data.
    pub model: Model<'m>,
    /// Its tokeniser.
    pub tokenizer: Tokenizer,
    /// The stock bundle's folder.
    pub stock: &'m Path,
    /// Observer of durable steps, for crash tests.
    pub steps: Steps,
}

/// The CPU arena.
#[derive(Debug)]
pub struct CpuArena<'m> {
    pub(crate) home: Home,
    pub(crate) definition: Definition,
    pub(crate) env: Environment,
    pub(crate) service: Service,
    pub(crate) model: Model<'m>,
    pub(crate) tokenizer: Tokenizer,
    pub(crate) store: EvidenceStore,
    /// The same store, with room for whole conversations.
    pub(crate) frames: EvidenceStore,
    pub(crate) selection: SelectionStore,
    pub(crate) stock: Kernels,
    pub(crate) steps: Steps,
    /// This controller's instance, 32 hex digits.
    pub(crate) instance: String,
    prebuild: Prebuild,
}

/// A candidate with everything its attempt mounts and serves.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) candidate: Candidate,
    pub(crate) planned: Planned,
    /// The candidate's own kernels.
    pub(crate) kernels: Kernels,
    stock: Kernels,
    /// Kernels of the incumbent's contributions with the slots each serves.
    incumbents: Vec<(Kernels, Vec<String>)>,
}

impl Subject {
    /// Publications by number: stock, the incumbent's contributions, the candidate last.
    pub(crate) fn mounted(&self) -> Vec<&Kernels> {
        let mut mounted = vec![&self.stock];
        mounted.extend(self.incumbents.iter().map(|(kernels, _)| kernels));
        mounted.push(&self.kernels);
        mounted
    }

    /// Every slot served by stock.
    pub(crate) fn stock_bindings() -> Vec<Binding> {
        let mut bindings: Vec<Binding> =
            Slot::ALL.iter().map(|slot| Binding { slot: slot.id().to_owned(), publication: 0 }).collect();
        bindings.sort_by(|a, b| a.slot.cmp(&b.slot));
        bindings
    }

    /// What each arm serves with.
    pub(crate) fn arms(&self) -> crate::attempt::Arms {
        let mut incumbent = Self::stock_bindings();
        for (number, (_, slots)) in self.incumbents.iter().enumerate() {
            for binding in incumbent.iter_mut().filter(|binding| slots.contains(&binding.slot)) {
                binding.publication = number as u16 + 1;
            }
        }
        let mut candidate = incumbent.clone();
        let own = self.incumbents.len() as u16 + 1;
        for binding in candidate.iter_mut() {
            if self.candidate.inspection.members.contains(&binding.slot) {
                binding.publication = own;
            }
        }
        crate::attempt::Arms { incumbent, candidate }
    }
}

/// The incumbent as an attempt sees it, from its manifest.
fn decode_stack(manifest: &[u8]) -> Result<EvaluationStack, ArenaError> {
    EvaluationStack::decode_bytes(manifest)
        .map_err(|error| ArenaError::Record { what: "incumbent manifest", why: error.to_string() })
}

impl<'m> CpuArena<'m> {
    /// Assembles the arena; the stock kernels are prebuilt like any other bundle.
    ///
    /// # Errors
    /// [`ArenaError`].
    pub fn open(parts: Parts<'m>) -> Result<Self, ArenaError> {
        let Parts { home, definition, env, prebuild, model, tokenizer, stock, steps } = parts;
        let bundle = Bundle::read(stock).map_err(ServiceError::from)?;
        let service =
            Service::new(&definition, env.image_digest(), env.worker_digest(), bundle.content_hash())?;
        let variants = crate::service::stock_variants(&bundle)?;
        let stock = prebuild.kernels(env.sandbox(), &home.publications(), &bundle, &variants)?;
        let store = EvidenceStore::new(home.evidence()).with_steps(steps.clone());
        let frames = EvidenceStore::new(home.evidence()).with_limit(1 << 30).with_steps(steps.clone());
        let selection = SelectionStore::open(&home.private(), steps.clone())?;
        selection.discard_partials()?;
        let instance = random::<16>()
            .map_err(|error| ArenaError::Record { what: "random source", why: error.to_string() })?;
        Ok(Self {
            home,
            definition,
            env,
            service,
            model,
            tokenizer,
            store,
            frames,
            selection,
            stock,
            steps,
            instance: hex(&instance),
            prebuild,
        })
    }

    /// The identities.
    #[must_use]
    pub const fn service(&self) -> &Service {
        &self.service
    }

    /// The definition.
    #[must_use]
    pub const fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Whether results may be crowned.
    #[must_use]
    pub fn crownable(&self) -> bool {
        self.env.crownable()
    }

    /// The evidence store.
    #[must_use]
    pub const fn store(&self) -> &EvidenceStore {
        &self.store
    }

    /// The controller's monotonic clock, s.
    pub(crate) fn monotonic_seconds(&self) -> f64 {
        MonotonicClock.now_ns() as f64 / 1e9
    }

    /// What a candidate-free engine runs.
    pub(crate) fn reference_launch(&self) -> Result<CpuLaunch, ArenaError> {
        let (_, tree) = self.service.genesis()?;
        Ok(self.env.launch(tree.digest().digest(), &[&self.stock]))
    }

    /// The frozen calibration of this arena on this machine, derived again from its observations.
    ///
    /// # Errors
    /// [`ArenaError::NotCalibrated`] when there is none or it is of another context.
    pub fn calibration(&self) -> Result<(EvidenceRef, CalibrationManifest), ArenaError> {
        let bytes = match std::fs::read(self.home.calibration()) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(ArenaError::NotCalibrated);
            }
            Err(error) => {
                return Err(ArenaError::Record { what: "calibration.json", why: error.to_string() });
            }
        };
        let damaged = |why: String| ArenaError::Record { what: "calibration.json", why };
        let json =
            Json::parse(bytes.strip_suffix(b"\n").unwrap_or(&bytes)).map_err(|e| damaged(e.to_string()))?;
        let reference = EvidenceRef::decode(&json).map_err(|error| damaged(error.to_string()))?;
        let manifest =
            open_calibration(&self.store, &reference).map_err(|error| damaged(error.to_string()))?;
        let launch = self.reference_launch()?;
        let expected = self.service.calibration_context(launch.digest())?;
        if manifest.require_context(&expected).is_err() {
            return Err(ArenaError::NotCalibrated);
        }
        Ok((reference, manifest))
    }

    /// The kernels of a bundle.
    pub(crate) fn kernels(&self, candidate: &Candidate) -> Result<Kernels, PrebuildError> {
        let variants = &candidate.inspection.variants;
        self.prebuild.kernels(self.env.sandbox(), &self.home.publications(), &candidate.bundle, variants)
    }

    /// Everything an attempt of this candidate against this incumbent needs. Publishes both trees.
    pub(crate) fn subject(
        &self,
        incumbent: &Incumbent,
        published: &PublishedBundle,
        hotkey: &str,
    ) -> Result<Subject, ArenaError> {
        let candidate = self.service.candidate(published, hotkey)?;
        let planned = self.service.plan(incumbent, &candidate)?;
        self.publish_tree(&planned.tree)?;
        let stack = decode_stack(&incumbent.manifest)?;
        let mut incumbents = Vec::new();
        for entry in stack.entries().values() {
            let ContributionRef::Proposal(proposal) = entry else { continue };
            let source = incumbent.sources.iter().find(|it| it.content_hash == proposal.artifact.digest());
            let source = source.ok_or(ArenaError::Record {
                what: "incumbent",
                why: format!("the bundle of {} is not published here", proposal.target),
            })?;
            let crowned = self.service.candidate(source, hotkey)?;
            let slots = crowned.inspection.members.iter().cloned().collect();
            incumbents.push((self.kernels(&crowned)?, slots));
        }
        let kernels = self.kernels(&candidate)?;
        Ok(Subject { candidate, planned, kernels, stock: self.stock.clone(), incumbents })
    }

    /// The subject of a sealed plan, from the published bundles that it names.
    pub(crate) fn subject_of_plan(&self, plan: &Plan) -> Result<Subject, ArenaError> {
        let published = |content_hash: Digest| PublishedBundle {
            content_hash,
            path: self.home.bundles().join(content_hash.to_string()),
        };
        let sources = plan
            .incumbent
            .entries()
            .values()
            .filter_map(|entry| match entry {
                ContributionRef::Proposal(proposal) => Some(published(proposal.artifact.digest())),
                ContributionRef::Integrated(_) => None,
            })
            .collect();
        let incumbent = Incumbent {
            manifest: plan.incumbent.to_canonical(),
            tree_digest: plan.sealed.incumbent_tree_digest,
            sources,
        };
        let subject = self.subject(&incumbent, &published(plan.sealed.content_hash), &plan.sealed.hotkey)?;
        let same = subject.planned.tree.digest().digest() == plan.sealed.candidate_tree_digest
            && subject.planned.arm.digest().digest() == plan.sealed.arm_plan_digest;
        if same {
            Ok(subject)
        } else {
            Err(ArenaError::Record { what: "plan", why: "the sealed plan cannot be rebuilt here".to_owned() })
        }
    }

    /// Writes a tree below the home, or reopens the one that is there.
    fn publish_tree(&self, tree: &EngineTree) -> Result<(), ArenaError> {
        let path = self.home.trees().join(tree.digest().to_string());
        if path.exists() {
            reopen_tree(&path, tree.digest())
                .map_err(|error| ArenaError::Record { what: "engine tree", why: error.to_string() })?;
            return Ok(());
        }
        tree.publish(&path, &[])?;
        Ok(())
    }

    /// The screens: static scan, inspection and plan, build, and the object's loading and preparation in a container.
    fn screens(&self, order: &QualificationOrder, progress: OnProgress<'_>) -> Result<Outcome, ArenaError> {
        let mut say = |stage: &'static str, text: String| progress(Progress { stage, text });
        say("static", "scanning sources as data".to_owned());
        let bundle = match Bundle::read(&order.candidate.path) {
            Ok(bundle) => bundle,
            Err(error) => match error.finding() {
                Some(finding) => return Ok(rejected("static_policy", finding.to_string())),
                None => return Err(ServiceError::from(error).into()),
            },
        };
        let report = bundle.scan();
        if let Some(finding) = report.findings().iter().find(|finding| !finding.rule.advisory()) {
            return Ok(rejected("static_policy", finding.to_string()));
        }
        let advisories: Vec<String> = report.findings().iter().map(ToString::to_string).collect();
        let candidate = match self.service.candidate(&order.candidate, &order.hotkey) {
            Ok(candidate) => candidate,
            Err(ServiceError::Finding(finding)) => return Ok(rejected("static_policy", finding.to_string())),
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = self.service.plan(&order.incumbent, &candidate) {
            return Ok(rejected("qualification_plan", error.to_string()));
        }
        say("build", format!("compiling {} in a container", candidate.inspection.target_id));
        let kernels = match self.kernels(&candidate) {
            Ok(kernels) => kernels,
            Err(PrebuildError::Refused(refusal)) => return Ok(rejected("build_failed", refusal.to_string())),
            Err(error) => return Err(error.into()),
        };
        say("abi", format!("object {}", &kernels.object_sha256.to_string()[..12]));
        Ok(Outcome {
            decision: Decision::Pass,
            reason: "screened".to_owned(),
            charged: false,
            attempt: None,
            speedup: None,
            bar: None,
            lanes: None,
            advisories,
            detail: format!("target {}", candidate.inspection.target_id),
        })
    }
}

fn rejected(reason: &str, detail: String) -> Outcome {
    Outcome {
        decision: Decision::Fail,
        reason: reason.to_owned(),
        charged: false,
        attempt: None,
        speedup: None,
        bar: None,
        lanes: None,
        advisories: Vec::new(),
        detail,
    }
}

fn fault(error: impl std::error::Error + Send + Sync + 'static) -> ArenaFault {
    ArenaFault(Box::new(error))
}

impl Arena for CpuArena<'_> {
    fn service_digest(&self) -> Digest {
        self.service.digest().digest()
    }

    fn genesis(&self) -> Result<Incumbent, ArenaFault> {
        let (stack, tree) = self.service.genesis().map_err(fault)?;
        self.publish_tree(&tree).map_err(fault)?;
        Ok(Incumbent {
            manifest: stack.to_canonical(),
            tree_digest: tree.digest().digest(),
            sources: Vec::new(),
        })
    }

    fn screen(
        &mut self,
        order: &QualificationOrder,
        progress: OnProgress<'_>,
    ) -> Result<Outcome, ArenaFault> {
        self.screens(order, progress).map_err(fault)
    }

    fn qualify(
        &mut self,
        order: &QualificationOrder,
        progress: OnProgress<'_>,
    ) -> Result<Outcome, ArenaFault> {
        self.run_attempt(order, progress).map_err(|error: AttemptError| fault(error))
    }

    fn successor(
        &self,
        incumbent: &Incumbent,
        candidate: &PublishedBundle,
        hotkey: &str,
    ) -> Result<Incumbent, ArenaFault> {
        let inspected = self.service.candidate(candidate, hotkey).map_err(fault)?;
        let planned = self.service.plan(incumbent, &inspected).map_err(fault)?;
        self.publish_tree(&planned.tree).map_err(fault)?;
        let stack = planned.arm.candidate();
        let mut sources = incumbent.sources.clone();
        sources.push(candidate.clone());
        sources.retain(|source| {
            stack.entries().values().any(|entry| {
                matches!(entry, ContributionRef::Proposal(it) if it.artifact.digest() == source.content_hash)
            })
        });
        Ok(Incumbent { manifest: stack.to_canonical(), tree_digest: planned.tree.digest().digest(), sources })
    }
}

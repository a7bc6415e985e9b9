//! A scripted arena: bundles whose fate is written down beforehand, retained attempts that are small but real bytes, and
//! a journal that outlives the controller.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cacheon_bundle::{Bundle, inspect};
use cacheon_evidence::cpu::attempt::Artifact;
use cacheon_evidence::{EvidenceStore, Steps};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical as _, Decode as _, Digest, sha256};
use cacheon_intake::campaign::reopen::{Outline, Reopen, ReopenError, Reopened, SelectionFacts};
use cacheon_intake::campaign::report::Report;
use cacheon_intake::campaign::{Campaign, CampaignError, Config, Submission};
use cacheon_intake::local::open_ledger;
use cacheon_ledger::Ledger;
use cacheon_records::arena::{
    Arena, ArenaFault, Decision, Incumbent, LanePair, OnProgress, Outcome, Progress, PublishedBundle,
    QualificationOrder, Role,
};
use cacheon_records::audit::{AuditControl, AuditPolicy, ValidatorSeed};
use cacheon_records::cpu::CpuLane;
use cacheon_records::text::EngineToken;
use cacheon_settlement::lane::LaneControl;
use cacheon_settlement::qualification::{AuditBinding, SPEED_POLICY_V3};
use cacheon_stack::catalog::{CPU_1, Catalog, by_digest};
use cacheon_stack::contribution::{ContributionRef, ProposalRef};
use cacheon_stack::ids::{
    ArenaDigest, ArmDigest, ArtifactDigest, Attribution, BaseEngine, RuntimeDigest, SelectedPayload,
    TargetId, TargetSpec, TreeDigest,
};
use cacheon_stack::manifest::{EvaluationStack, StackContext};
use cacheon_stack::plan::transition;

/// How one attempt ends.
#[derive(Debug, Clone)]
pub struct Fate {
    pub decision: Decision,
    pub reason: &'static str,
    pub charged: bool,
    pub speedup: Option<&'static str>,
    /// Whether anything is retained.
    pub retained: bool,
    /// What the arena claims instead of what it retains.
    pub claims: Option<(Decision, &'static str)>,
    /// Changes what is retained.
    pub twist: Option<Twist>,
}

/// A way in which evidence does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Twist {
    /// The same prompts in every attempt.
    SharedPrompts,
    /// The reproduction keeps the primary's lanes.
    SameLanes,
    /// Made for another reservation.
    OtherReservation,
    /// The bytes do not verify.
    Unverifiable,
    /// Another workload in each role.
    OtherControl,
}

pub fn pass(speedup: &'static str) -> Fate {
    Fate { speedup: Some(speedup), ..ends(Decision::Pass, "qualified") }
}

pub fn ends(decision: Decision, reason: &'static str) -> Fate {
    Fate { decision, reason, charged: false, speedup: None, retained: true, claims: None, twist: None }
}

pub fn crash() -> Fate {
    Fate { charged: true, ..ends(Decision::NoDecision, "candidate_worker") }
}

/// Everything that outlives a controller.
#[derive(Debug, Default)]
pub struct World {
    /// Fates by bundle name and role; the last one repeats.
    pub fates: BTreeMap<(String, &'static str), Vec<Fate>>,
    /// Screens that do not pass, by bundle name.
    pub screens: BTreeMap<String, Vec<(Decision, &'static str)>>,
    /// The journal: how each attempt ended.
    pub concluded: BTreeMap<(Digest, &'static str, u32), Outcome>,
    /// Executions of each attempt.
    pub ran: BTreeMap<(Digest, &'static str, u32), u32>,
    /// What each order was: name, role, attempt, incumbent stack.
    pub orders: Vec<(String, Role, u32, String)>,
    /// Retained attempts.
    pub attempts: BTreeMap<Digest, Result<Reopened, String>>,
    /// Faults to raise before an attempt of this bundle, counted down.
    pub faults: BTreeMap<String, u32>,
}

/// A home with bundles, a world, and no controller.
pub struct Stage {
    pub folder: tempfile::TempDir,
    pub world: Rc<RefCell<World>>,
    pub bundles: Vec<PathBuf>,
    pub crownable: bool,
}

fn named(parts: &[&str]) -> Digest {
    sha256(parts.join("\0").as_bytes())
}

fn catalog() -> &'static Catalog {
    by_digest(CPU_1).unwrap()
}

pub fn arena_digest() -> ArenaDigest {
    ArenaDigest::new(named(&["arena"]))
}

fn context() -> StackContext {
    StackContext::new(
        RuntimeDigest::new(named(&["runtime"])),
        BaseEngine::new(named(&["engine"])),
        Some(arena_digest()),
        catalog().snapshot().clone(),
    )
    .unwrap()
}

fn tree_of(stack: &EvaluationStack) -> TreeDigest {
    TreeDigest::new(named(&["tree", &stack.digest().to_string()]))
}

impl Stage {
    /// A home with one small C bundle per (name, target).
    pub fn new(bundles: &[(&str, &str)]) -> Self {
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let mut stage = Self { folder, world: Rc::default(), bundles: Vec::new(), crownable: true };
        for sub in ["home", "home/bundles", "home/evidence", "home/journal", "in"] {
            let path = stage.folder.path().join(sub);
            fs::create_dir_all(&path).unwrap();
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        for (name, target) in bundles {
            let path = stage.write_bundle(name, target);
            stage.bundles.push(path);
        }
        stage
    }

    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub fn write_bundle(&self, name: &str, target: &str) -> PathBuf {
        let path = self.folder.path().join("in").join(name);
        fs::create_dir_all(path.join("src")).unwrap();
        let manifest = format!(
            "bundle_id = \"{name}\"\nabi_version = \"cacheon-c-abi-v1\"\n\n[competition]\ntarget = \"{target}\"\n\
             mode = \"slot\"\n\n[[ops]]\nslot = \"{target}\"\nentry = \"k\"\nsource = \"src/k.c\"\n\
             c_sources = [\"src/k.c\"]\n"
        );
        fs::write(path.join("manifest.toml"), manifest).unwrap();
        fs::write(path.join("src/k.c"), format!("/* {name} */\nint k_run(void) {{ return 0; }}\n")).unwrap();
        path
    }

    /// Writes down how the attempts of a bundle end; the last fate repeats.
    pub fn fate(&self, name: &str, role: Role, fates: Vec<Fate>) {
        self.world.borrow_mut().fates.insert((name.to_owned(), role.as_str()), fates);
    }

    /// Both roles end the same way.
    pub fn both(&self, name: &str, fate: Fate) {
        self.fate(name, Role::Primary, vec![fate.clone()]);
        self.fate(name, Role::Reproduction, vec![fate]);
    }

    pub fn submissions(&self) -> Vec<Submission> {
        let one =
            |path: &PathBuf| Submission { path: path.clone(), hotkey: "alice".to_owned(), again: false };
        self.bundles.iter().map(one).collect()
    }

    pub fn ledger_path(&self) -> PathBuf {
        self.home().join("ledger.sqlite")
    }

    pub fn open(&self, steps: Steps) -> Result<Ledger, cacheon_ledger::LedgerError> {
        open_ledger(&self.ledger_path(), "test", steps)
    }

    fn arena(&self) -> Scripted {
        Scripted { world: self.world.clone(), store: EvidenceStore::new(self.home().join("evidence")) }
    }

    pub fn config(&self) -> Config {
        Config {
            bundles: self.home().join("bundles"),
            evidence: self.home().join("evidence"),
            candidate_attempt_cap: 2,
            infrastructure_attempt_cap: 3,
            crownable: self.crownable,
        }
    }

    /// One controller's run, from opening the ledger to its report.
    pub fn run_with(&self, submissions: &[Submission], steps: Steps) -> Result<Report, CampaignError> {
        let mut ledger = self.open(steps)?;
        let mut arena = self.arena();
        let retained = Scripted { world: self.world.clone(), store: EvidenceStore::new("/nonexistent") };
        let mut campaign = Campaign::open(&mut ledger, &mut arena, &retained, self.config())?;
        campaign.run(submissions, &mut |_, _| {})
    }

    pub fn run(&self) -> Report {
        self.run_with(&self.submissions(), Steps::none()).unwrap()
    }

    /// (bundle, decision, reason) of every result.
    pub fn verdicts(report: &Report) -> Vec<(String, &'static str, String)> {
        let row = |it: &cacheon_intake::campaign::report::BundleResult| {
            (it.bundle.clone(), it.decision.as_str(), it.reason.clone())
        };
        report.results.iter().map(row).collect()
    }
}

/// The arena and the reopener of a world.
pub struct Scripted {
    world: Rc<RefCell<World>>,
    store: EvidenceStore,
}

fn candidate(published: &PublishedBundle, hotkey: &str) -> (String, ProposalRef) {
    let bundle = Bundle::read(&published.path).unwrap();
    let inspection = inspect(&bundle, catalog()).unwrap();
    let proposal = ProposalRef {
        artifact: ArtifactDigest::new(published.content_hash),
        attribution: Attribution::new(named(&["attribution", hotkey])),
        payload: SelectedPayload::new(inspection.selected_payload_digest),
        target: TargetId::parse(&inspection.target_id).unwrap(),
        target_spec: TargetSpec::new(inspection.target_spec_digest),
    };
    (bundle.manifest().bundle_id.clone(), proposal)
}

fn lane(id: &str, cpus: &str) -> CpuLane {
    CpuLane { cpus: cpus.to_owned(), lane_id: id.to_owned() }
}

impl Scripted {
    fn attempt(&self, order: &QualificationOrder, fate: &Fate) -> Outcome {
        let (_, proposal) = candidate(&order.candidate, &order.hotkey);
        let incumbent = EvaluationStack::decode_bytes(&order.incumbent.manifest).unwrap();
        assert_eq!(order.incumbent.tree_digest, tree_of(&incumbent).digest());
        assert_eq!(order.incumbent.sources.len(), incumbent.entries().len());
        let target = proposal.target.to_string();
        let delta = proposal.selected_delta();
        let (resulting, _) =
            transition(&incumbent, ContributionRef::Proposal(proposal), catalog(), &context()).unwrap();
        let key = format!("{}/{}/{}", order.reservation, order.role.as_str(), order.attempt);
        let bytes = format!("{{\"attempt\":\"{key}\",\"reason\":\"{}\"}}", fate.reason);
        let reference = self.store.publish(&Artifact::Attempt.label().unwrap(), bytes.as_bytes()).unwrap();
        let swapped = order.role == Role::Reproduction && fate.twist != Some(Twist::SameLanes);
        let (a, b) = (lane("A", "0"), lane("B", "1"));
        let prompts = if fate.twist == Some(Twist::SharedPrompts) { "always" } else { &key };
        let workload = if fate.twist == Some(Twist::OtherControl) { &key } else { "cell" };
        let float = |value: f64| Float17::new(value).unwrap();
        let reservation = match fate.twist {
            Some(Twist::OtherReservation) => named(&["another"]),
            _ => order.reservation,
        };
        let seed = format!("{:.32}", named(&["seed", &key]).to_string());
        let reopened = Reopened {
            sha256: reference.sha256,
            record: named(&["record", &key]),
            plan: named(&["plan", &key]),
            arena: arena_digest(),
            arm: ArmDigest::new(named(&["arm", &delta.to_string(), &incumbent.digest().to_string()])),
            reservation,
            hotkey: order.hotkey.clone(),
            content_hash: order.candidate.content_hash,
            role: order.role,
            number: order.attempt,
            target: target.clone(),
            selected_delta: delta,
            incumbent_tree: tree_of(&incumbent),
            incumbent,
            candidate_tree: tree_of(&resulting),
            candidate: resulting,
            decision: fate.decision,
            reason: fate.reason.to_owned(),
            charged: fate.charged,
            speedup: fate.speedup.map(str::to_owned),
            bar: fate.speedup.map(|_| "1.05".to_owned()),
            baseline_lane: if swapped { b.clone() } else { a.clone() },
            candidate_lane: if swapped { a } else { b },
            control: LaneControl {
                max_noise: float(0.02),
                max_qualification_seconds: 7200,
                max_stage_seconds: 3600,
                min_margin: float(0.05),
                noise_multiplier: float(3.0),
                resident_policy_version: 7,
                runtime_resource_policies: vec![named(&["policy"]); 2],
                speed_evidence_policy: SPEED_POLICY_V3,
                workload: named(&[workload]),
            },
            prompts: (0..3).map(|n| named(&["prompt", prompts, &n.to_string()])).collect::<BTreeSet<_>>(),
            audit: Some(AuditBinding {
                evidence: named(&["audit", &key]),
                policy: AuditPolicy {
                    control: AuditControl::new(1, vec![EngineToken::parse(&target).unwrap()], 8, 1000)
                        .unwrap(),
                    validator_seed: ValidatorSeed::parse(&seed).unwrap(),
                },
            }),
            selection: Some(SelectionFacts {
                commitment: named(&["commitment", &key]),
                secret_commitment: named(&["secret", &key]),
                evidence: named(&["selection", &key]),
            }),
        };
        let (decision, reason) = fate.claims.unwrap_or((fate.decision, fate.reason));
        let stored = match fate.twist {
            Some(Twist::Unverifiable) => Err("a frame is missing".to_owned()),
            _ => Ok(reopened),
        };
        self.world.borrow_mut().attempts.insert(reference.sha256, stored);
        Outcome {
            decision,
            reason: reason.to_owned(),
            charged: fate.charged,
            attempt: fate.retained.then_some(reference),
            speedup: fate.speedup.map(str::to_owned),
            bar: None,
            lanes: Some(LanePair { baseline: "A:0".to_owned(), candidate: "B:1".to_owned() }),
            advisories: Vec::new(),
            detail: format!("{} of {key}", fate.reason),
        }
    }
}

fn said(decision: Decision, reason: &str) -> Outcome {
    Outcome {
        decision,
        reason: reason.to_owned(),
        charged: false,
        attempt: None,
        speedup: None,
        bar: None,
        lanes: None,
        advisories: vec!["the scan advises".to_owned()],
        detail: format!("screen said {reason}"),
    }
}

impl Arena for Scripted {
    fn service_digest(&self) -> Digest {
        arena_digest().digest()
    }

    fn genesis(&self) -> Result<Incumbent, ArenaFault> {
        let stack = EvaluationStack::empty(&context(), arena_digest());
        Ok(Incumbent {
            manifest: stack.to_canonical(),
            tree_digest: tree_of(&stack).digest(),
            sources: Vec::new(),
        })
    }

    fn screen(
        &mut self,
        order: &QualificationOrder,
        progress: OnProgress<'_>,
    ) -> Result<Outcome, ArenaFault> {
        let (name, _) = candidate(&order.candidate, &order.hotkey);
        for stage in ["static", "build", "abi"] {
            progress(Progress { stage, text: String::new() });
        }
        let mut world = self.world.borrow_mut();
        let screens = world.screens.entry(name).or_default();
        let (decision, reason) = match screens.len() {
            0 => (Decision::Pass, "screened"),
            1 => screens[0],
            _ => screens.remove(0),
        };
        Ok(said(decision, reason))
    }

    fn qualify(&mut self, order: &QualificationOrder, _: OnProgress<'_>) -> Result<Outcome, ArenaFault> {
        let (name, _) = candidate(&order.candidate, &order.hotkey);
        let key = (order.reservation, order.role.as_str(), order.attempt);
        if let Some(outcome) = self.world.borrow().concluded.get(&key) {
            return Ok(outcome.clone());
        }
        if let Some(left) = self.world.borrow_mut().faults.get_mut(&name).filter(|left| **left > 0) {
            *left -= 1;
            return Err(ArenaFault("the disk is full".into()));
        }
        let stack = EvaluationStack::decode_bytes(&order.incumbent.manifest).unwrap().digest().to_string();
        let fate = {
            let mut world = self.world.borrow_mut();
            world.orders.push((name.clone(), order.role, order.attempt, stack));
            *world.ran.entry(key).or_default() += 1;
            let fates = world.fates.get_mut(&(name.clone(), order.role.as_str())).expect("a fate");
            fates[(order.attempt as usize - 1).min(fates.len() - 1)].clone()
        };
        let outcome = self.attempt(order, &fate);
        self.world.borrow_mut().concluded.insert(key, outcome.clone());
        Ok(outcome)
    }

    fn successor(&self, _: &Incumbent, _: &PublishedBundle, _: &str) -> Result<Incumbent, ArenaFault> {
        Err(ArenaFault("the loop takes the successor from evidence".into()))
    }
}

impl Reopen for Scripted {
    fn reopen(&self, attempt: Digest) -> Result<Reopened, ReopenError> {
        match self.world.borrow().attempts.get(&attempt) {
            Some(Ok(reopened)) => Ok(reopened.clone()),
            Some(Err(why)) => Err(ReopenError::Record { what: "frames", why: why.clone() }),
            None => Err(ReopenError::Record { what: "attempt", why: "absent".to_owned() }),
        }
    }

    fn outline(&self, attempt: Digest) -> Result<Outline, ReopenError> {
        self.reopen(attempt).map(|it| it.outline())
    }
}

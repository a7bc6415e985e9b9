//! A small arena for tests: bundles whose fate is written in their names, driven through the local ledger.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_evidence::{EvidenceLabel, EvidenceStore, Steps};
use cacheon_identity::{Digest, Json, OrEmpty, sha256};
use cacheon_ledger::attempts::Attempt;
use cacheon_ledger::local::{Conclusion, LocalSubmission};
use cacheon_ledger::qualify::{Batch, BatchOutcome, RetryPlan, Verdict};
use cacheon_ledger::screen::{ScreenGrade, ScreenReceipt, ScreenStage, StageResult};
use cacheon_ledger::status::ScreenDecision;
use cacheon_ledger::{
    Decision, Fingerprint, IntakePolicy, Lane, Ledger, OpenOptions, ReservationId, Result, Scope, Stage,
    Status,
};
use cacheon_records::text::SettlementIdentifier;
use cacheon_settlement::lane::{LaneOrientation, LaneOrientationFacts};
use cacheon_settlement::qualification::{
    ArmIdentity, FinalizedPosition, Independence, Lane as QualificationLane, Qualification,
    QualificationFacts, SPEED_POLICY_V3,
};
use cacheon_settlement::{Speedup, receipt::ATTEMPT_DOMAIN};
use cacheon_stack::contribution::{ContributionRef, ProposalRef};
use cacheon_stack::ids::{
    ArenaDigest, ArmDigest, ArtifactDigest, Attribution, BaseEngine, RuntimeDigest, SelectedPayload,
    TargetId, TreeDigest,
};
use cacheon_stack::manifest::{EvaluationStack, StackContext};
use std::path::{Path, PathBuf};

/// What the arena finds out about a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Passes twice at this speedup.
    Wins(&'static str),
    /// FAIL with this reason.
    Fails(&'static str),
    /// Ends its worker in every attempt.
    Crashes,
    /// The first attempt is ambiguous, then it passes at this speedup.
    HoldsOnce(&'static str),
    /// A screen stage fails.
    Rejected,
}

/// A bundle: name, target and fate.
#[derive(Debug, Clone, Copy)]
pub struct Bundle(pub &'static str, pub &'static str, pub Fate);

/// The bundles of the tests: two contenders on one target, one alone on another, and losers of each kind.
pub const BUNDLES: [Bundle; 6] = [
    Bundle("prefetch", "linear.quantized", Fate::Wins("1.4")),
    Bundle("packed", "linear.quantized", Fate::Wins("1.6")),
    Bundle("attention", "attention.decode", Fate::HoldsOnce("1.2")),
    Bundle("slow", "norm.rmsnorm", Fate::Fails("candidate_slower")),
    Bundle("crash", "linear.quantized", Fate::Crashes),
    Bundle("broken", "linear.quantized", Fate::Rejected),
];

/// Charged attempts before a crashing candidate is out.
pub const CAP: u64 = 2;

fn named(parts: &[&str]) -> Digest {
    sha256(parts.join("\0").as_bytes())
}

/// A directory in memory where there is one: these tests are about order, not about the device.
pub fn home() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    made.or_else(|_| tempfile::tempdir()).expect("a directory")
}

pub struct World {
    pub home: PathBuf,
    /// Qualifications run, by (bundle, lane, attempt): the arena's journal in miniature.
    pub ran: std::cell::RefCell<Vec<(String, Lane, u32)>>,
}

impl World {
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned(), ran: std::cell::RefCell::default() }
    }

    pub fn path(&self) -> PathBuf {
        self.home.join("state").join("ledger.sqlite3")
    }

    pub fn evidence(&self) -> PathBuf {
        self.home.join("evidence")
    }

    pub fn open(&self, steps: Steps) -> Result<Ledger> {
        let scope = Scope::local("test");
        Ledger::open(
            &self.path(),
            OpenOptions { policy: IntakePolicy::local(), scope, recovery: false, steps },
        )
    }

    pub fn arena() -> ArenaDigest {
        ArenaDigest::new(named(&["arena"]))
    }

    fn context() -> &'static StackContext {
        static CONTEXT: std::sync::OnceLock<StackContext> = std::sync::OnceLock::new();
        CONTEXT.get_or_init(Self::make_context)
    }

    fn make_context() -> StackContext {
        let catalog = cacheon_stack::catalog::known().last().expect("a catalog").snapshot().clone();
        StackContext::new(
            RuntimeDigest::new(named(&["runtime"])),
            BaseEngine::new(named(&["engine"])),
            Some(Self::arena()),
            catalog,
        )
        .expect("a context")
    }

    pub fn genesis() -> (EvaluationStack, TreeDigest) {
        (EvaluationStack::empty(Self::context(), Self::arena()), TreeDigest::new(named(&["tree", "stock"])))
    }

    fn proposal(bundle: &Bundle) -> ProposalRef {
        let target = TargetId::parse(bundle.1).expect("a target");
        let target_spec = Self::context().target_specs()[&target];
        ProposalRef {
            artifact: ArtifactDigest::new(named(&["artifact", bundle.0])),
            attribution: Attribution::new(named(&["attribution", bundle.0])),
            payload: SelectedPayload::new(named(&["payload", bundle.0])),
            target,
            target_spec,
        }
    }

    pub fn fingerprint(bundle: &Bundle) -> Fingerprint {
        let delta = Self::proposal(bundle).selected_delta();
        Fingerprint {
            advisory_fingerprints: Vec::new(),
            containment_fingerprints: vec![named(&["fragment", bundle.0])],
            exact_payload_digest: named(&["payload", bundle.0]),
            members: vec![bundle.1.to_owned()],
            normalized_delta_digest: OrEmpty(Some(named(&["normal", bundle.0]))),
            product_kind: "component".to_owned(),
            selected_delta_digest: delta.digest(),
            target_id: bundle.1.to_owned(),
            target_spec_digest: OrEmpty(Some(Self::proposal(bundle).target_spec.digest())),
        }
    }

    pub fn submit(&self, ledger: &mut Ledger, bundle: &Bundle) -> Result<ReservationId> {
        self.submission(bundle, |submission| ledger.submit_local(submission))
    }

    pub fn resubmit(&self, ledger: &mut Ledger, bundle: &Bundle) -> Result<ReservationId> {
        self.submission(bundle, |submission| ledger.resubmit_local(submission))
    }

    fn submission<T>(&self, bundle: &Bundle, with: impl FnOnce(&LocalSubmission<'_>) -> T) -> T {
        with(&LocalSubmission {
            hotkey: &format!("author-{}", bundle.0),
            content_hash: named(&["content", bundle.0]),
            fingerprint: &Self::fingerprint(bundle),
            publication: named(&["publication", bundle.0]),
            publication_root: "/srv/publications/x",
        })
    }

    fn screen(&self, ledger: &mut Ledger, bundle: &Bundle, id: &ReservationId) -> Result<Status> {
        let lease = ledger.claim_local(Stage::Screen, "worker", id)?;
        let (lane, attempt) = ledger.next_screen(id)?;
        let service = named(&["service"]);
        let rejected = bundle.2 == Fate::Rejected;
        let stages = if rejected { 2 } else { ScreenStage::ALL.len() };
        let results = ScreenStage::ALL.iter().take(stages).map(|stage| StageResult {
            elapsed_ms: 1,
            evidence_digest: named(&[
                "screen",
                bundle.0,
                stage.as_str(),
                lane.as_str(),
                &attempt.to_string(),
            ]),
            grade: if rejected && *stage == ScreenStage::Build {
                ScreenGrade::Fail
            } else {
                ScreenGrade::Pass
            },
            stage: *stage,
        });
        let decision = if rejected { ScreenDecision::Reject } else { ScreenDecision::Promote };
        let candidate = named(&["binding", bundle.0, &attempt.to_string()]);
        let receipt = ScreenReceipt::new(candidate, decision, results.collect(), attempt, service)?;
        ledger.conclude_screen(&lease, &service, &receipt)
    }

    fn qualify(&self, ledger: &mut Ledger, bundle: &Bundle, id: &ReservationId) -> Result<Status> {
        let lease = ledger.claim_local(Stage::Qualification, "worker", id)?;
        let row = ledger.read(|tx| tx.reservation(id))?;
        let lane = row.lane();
        let number = ledger.attempts(id)?.iter().filter(|it| it.lane == lane).count() as u32 + 1;
        self.ran.borrow_mut().push((bundle.0.to_owned(), lane, number));
        let run = format!("{}-{}-{number}", bundle.0, lane);
        let authority = named(&["authority", &run]);
        let manifest = Json::object([("run", Json::from(run.as_str()))]);
        let speedup = match bundle.2 {
            Fate::Wins(speedup) => Some(speedup),
            Fate::HoldsOnce(speedup) if number > 1 || lane == Lane::Reproduction => Some(speedup),
            _ => None,
        };
        let attempt = |charged, decision, reason: &str, evidence| Attempt {
            lane,
            number,
            charged,
            decision,
            reason: reason.to_owned(),
            evidence,
            block: row.block,
        };
        let delta = Self::fingerprint(bundle).selected_delta_digest;
        let mut conclude = |conclusion: Conclusion, attempt: Attempt| {
            ledger.conclude_local(&lease, &authority, &manifest, &conclusion, &attempt, CAP)
        };
        let batch = |verdict, reason: &str, reference, retry| {
            Conclusion::Batch(Box::new(Batch {
                authority,
                outcomes: vec![BatchOutcome {
                    reservation: *id,
                    selected_delta: delta,
                    verdict,
                    reason: reason.to_owned(),
                }],
                attempt: reference,
                retry,
                block: row.block + 1000,
                evidence_root: Some(self.evidence().to_str().unwrap().to_owned()),
            }))
        };
        if let Fate::HoldsOnce(_) = bundle.2
            && speedup.is_none()
        {
            let reason = "remote_qualification_hold:resident_evidence_unavailable".to_owned();
            return conclude(
                Conclusion::Hold { reason: reason.clone() },
                attempt(false, Decision::None, &reason, None),
            );
        }
        if bundle.2 == Fate::Crashes {
            let verdict = Verdict::Failure { failure: named(&["failure", &run]) };
            let retry = Some(RetryPlan::requeue(&[*id]));
            let conclusion = batch(verdict, "candidate_worker", None, retry);
            return conclude(conclusion, attempt(true, Decision::NoDecision, "candidate_worker", None));
        }
        let label = EvidenceLabel::json(ATTEMPT_DOMAIN, "cacheon.qualification.cohort-attempt.v1").unwrap();
        let store = EvidenceStore::new(self.evidence());
        let reference = store.publish(&label, format!("attempt {run}").as_bytes()).expect("published");
        let report = named(&["report", &run]);
        let evidence = Some(reference.sha256);
        match (bundle.2, speedup) {
            (Fate::Fails(reason), _) => {
                let conclusion = batch(Verdict::Fail { report }, reason, Some(reference), None);
                conclude(conclusion, attempt(false, Decision::Fail, reason, evidence))
            }
            (_, Some(speedup)) => {
                let qualification =
                    self.pass(bundle, &row, lane, &run, speedup, reference.sha256, report, authority);
                let verdict = Verdict::Pass { report, qualification: Box::new(qualification) };
                let conclusion = batch(verdict, "qualified", Some(reference), None);
                conclude(conclusion, attempt(false, Decision::Pass, "qualified", evidence))
            }
            other => panic!("{other:?}"),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn pass(
        &self,
        bundle: &Bundle,
        row: &cacheon_ledger::Reservation,
        lane: Lane,
        run: &str,
        speedup: &str,
        attempt: Digest,
        report: Digest,
        authority: Digest,
    ) -> Qualification {
        let (incumbent_manifest, tree) = Self::genesis();
        let proposal = Self::proposal(bundle);
        let delta = proposal.selected_delta();
        let candidate_manifest = incumbent_manifest
            .with_contribution(ContributionRef::Proposal(proposal), &[])
            .expect("a candidate");
        let lanes = [named(&["lane", "a"]), named(&["lane", "b"])];
        let [baseline, candidate] = if lane == Lane::Primary { lanes } else { [lanes[1], lanes[0]] };
        let identifier = |text: &str| SettlementIdentifier::parse(text).expect("an identifier");
        Qualification::new(QualificationFacts {
            arena: Self::arena(),
            arm: ArmDigest::new(named(&["arm", bundle.0])),
            audit: None,
            candidate: ArmIdentity {
                stack: candidate_manifest.digest(),
                tree: TreeDigest::new(named(&["tree", bundle.0])),
            },
            position: FinalizedPosition {
                block: row.block,
                event_index: row.event_index,
                event_subindex: row.event_subindex,
            },
            hotkey: identifier(&row.hotkey),
            incumbent: ArmIdentity { stack: incumbent_manifest.digest(), tree },
            incumbent_manifest,
            lane: QualificationLane::Registered { candidate_manifest },
            members: vec![identifier(bundle.1)],
            independence: Independence {
                authority,
                plan: named(&["plan", run]),
                attempt,
                report,
                selection_commitment: named(&["commitment", run]),
                secret_commitment: named(&["secret", run]),
                selection_evidence: named(&["selection", run]),
            },
            orientation: Some(
                LaneOrientation::new(LaneOrientationFacts {
                    baseline_physical_lane_digest: baseline,
                    candidate_physical_lane_digest: candidate,
                    control_digest: named(&["control"]),
                    speed_evidence_policy_digest: SPEED_POLICY_V3,
                })
                .expect("an orientation"),
            ),
            reservation: row.id,
            selected_delta: delta,
            speed_policy: Some(SPEED_POLICY_V3),
            speedup: Speedup::parse(speedup).expect("a speedup"),
            target: identifier(bundle.1),
        })
        .expect("a qualification")
    }

    /// Drives every bundle to its end and settles what qualified. Called again after an interruption it goes on.
    pub fn drive(&self, ledger: &mut Ledger) -> Result<()> {
        let (manifest, tree) = Self::genesis();
        if ledger.stack(Self::arena())?.is_none() {
            ledger.initialize_stack(&manifest, tree)?;
        }
        let mut ids = Vec::new();
        for bundle in &BUNDLES {
            ids.push(self.submit(ledger, bundle)?);
        }
        for (bundle, id) in BUNDLES.iter().zip(&ids) {
            loop {
                let row = ledger.read(|tx| tx.reservation(id))?;
                match row.status {
                    Status::Published | Status::ReproductionPending => drop(self.screen(ledger, bundle, id)?),
                    Status::Promoted => drop(self.qualify(ledger, bundle, id)?),
                    Status::Held => drop(ledger.release_hold(id, "operator_release")?),
                    Status::Failed | Status::Qualified => break,
                    other => panic!("{}: {other}", bundle.0),
                }
            }
        }
        ledger.settle_local()?;
        Ok(())
    }
}

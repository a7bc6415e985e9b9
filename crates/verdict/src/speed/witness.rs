//! Retained speed evidence: a witness that regrades alone (40-qualification §2.6).

use super::grade::{GradeError, Outcome, grade_witness};
use super::policy::SpeedPolicy;
use super::read::ReadRate;
use crate::calibration::{CalibrationError, CalibrationManifest};
use crate::decision::Decision;
use crate::fields::{AnyDigest, Fixed, Hex128, Instant, require};
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json};

const RESIDENT: Domain = Domain::new("cacheon.qualification.resident-speed-witness.v1");
const LIVE: Domain = Domain::new("cacheon.qualification.resident-live-speed-witness.v1");

/// Why a witness does not regrade.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WitnessError {
    /// The record is malformed or its digest does not re-derive.
    #[error("speed witness: {0}")]
    Record(#[from] DecodeError),
    /// The presented calibration is unusable.
    #[error(transparent)]
    Calibration(#[from] CalibrationError),
    /// The presented calibration gives another policy, context or workload.
    #[error("the witness's {what} is {found}; the presented calibration gives {expected}")]
    Foreign {
        /// What differs.
        what: &'static str,
        /// The witness's digest.
        found: Digest,
        /// The calibration's digest.
        expected: Digest,
    },
    /// The reads are unusable or incomplete.
    #[error(transparent)]
    Grade(#[from] GradeError),
    /// No speedup is accepted from a policy below version 6.
    #[error("policy version {0} has no accepted resident speedup")]
    Version(u64),
}

/// What both kinds of witness bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeedBinding {
    /// The selected delta.
    pub selected_delta_digest: AnyDigest,
    /// The candidate's launch.
    pub candidate_launch_digest: AnyDigest,
    /// The workload.
    pub workload_digest: AnyDigest,
    /// Runtime resource policy of the baseline lane.
    pub baseline_runtime_resource_policy_digest: AnyDigest,
    /// Runtime resource policy of the candidate lane.
    pub candidate_runtime_resource_policy_digest: AnyDigest,
    /// The crossover plan.
    pub plan_digest: AnyDigest,
    /// The baseline's lane.
    pub baseline_lane_digest: AnyDigest,
    /// The candidate's lane.
    pub candidate_lane_digest: AnyDigest,
    /// The raw crossover evidence.
    pub raw_crossover_digest: AnyDigest,
    /// The policy of the reads; it names calibration and context.
    pub policy: SpeedPolicy,
    /// The reads in order.
    pub rates: Vec<ReadRate>,
    /// Start of the stage, s.
    pub started: Instant,
    /// End of the stage, s.
    pub completed: Instant,
}

impl SpeedBinding {
    fn check(&self) -> Result<(), DecodeError> {
        let version = self.policy.version();
        let roles = version.roles(self.rates.len()).unwrap_or(&[]);
        let found: Vec<&str> = self.rates.iter().map(|read| read.role.as_str()).collect();
        let rule = "the reads have no such shape under this policy version";
        let shaped = !roles.is_empty() && self.rates.iter().map(|read| read.role).eq(roles.iter().copied());
        require(shaped, "rates", rule, &found.join(","))?;
        let rule = "windows are retained from version 3 on, and only then";
        let windowed = self.rates.iter().all(|read| read.windows.is_empty() != version.has_windows());
        require(windowed, "rates", rule, &version.number())?;
        let (started, completed) = (self.started.get(), self.completed.get());
        let rule = "the stage does not end after it starts, within its budget";
        let wall = completed > started && completed - started <= self.policy.max_stage_seconds() as f64;
        require(wall, "completed_monotonic_s", rule, &self.completed)?;
        self.check_arms()
    }

    fn check_arms(&self) -> Result<(), DecodeError> {
        for read in &self.rates {
            let (lane, name) = if read.role.is_baseline() {
                (self.baseline_lane_digest, "baseline_lane_digest")
            } else {
                (self.candidate_lane_digest, "candidate_lane_digest")
            };
            require(read.lane_digest == lane, name, "a read ran on another lane", &read.lane_digest)?;
            let launched = read.role.is_baseline() || read.launch_digest == self.candidate_launch_digest;
            require(
                launched,
                "candidate_launch_digest",
                "a candidate read ran another launch",
                &read.launch_digest,
            )?;
            let first = self.rates.iter().find(|other| other.role.is_baseline() == read.role.is_baseline());
            let same = first.is_some_and(|first| {
                first.session_id == read.session_id && first.launch_digest == read.launch_digest
            });
            require(same, "rates", "the reads of one arm are of one session and launch", &read.session_id)?;
        }
        Ok(())
    }

    fn regrade(&self, calibration: &CalibrationManifest) -> Result<Regrade, WitnessError> {
        let rebuilt = SpeedPolicy::from_calibration(calibration, &calibration.context, self.policy.frame())?;
        let equal = |what: &'static str, found: Digest, expected: Digest| {
            if found == expected { Ok(()) } else { Err(WitnessError::Foreign { what, found, expected }) }
        };
        equal("calibration", self.policy.calibration_digest().0, calibration.digest())?;
        equal(
            "calibration context",
            self.policy.calibration_context_digest().0,
            calibration.context.digest(),
        )?;
        equal("workload", self.workload_digest.0, calibration.context.workload_digest)?;
        equal("policy", self.policy.digest(), rebuilt.digest())?;
        let outcome = grade_witness(&self.policy, &self.rates)?;
        Ok(Regrade { outcome })
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Self, DecodeError> {
        let policy: SpeedPolicy = fields.decode("resident_policy")?;
        let named = |fields: &mut Fields<'_>, member: &'static str, own: AnyDigest| {
            let found: AnyDigest = fields.decode(member)?;
            require(found == own, member, "not the one that the policy names", &found)
        };
        named(fields, "calibration_digest", policy.calibration_digest())?;
        named(fields, "calibration_context_digest", policy.calibration_context_digest())?;
        Ok(Self {
            selected_delta_digest: fields.decode("selected_delta_digest")?,
            candidate_launch_digest: fields.decode("candidate_launch_digest")?,
            workload_digest: fields.decode("workload_digest")?,
            baseline_runtime_resource_policy_digest: fields
                .decode("baseline_runtime_resource_policy_digest")?,
            candidate_runtime_resource_policy_digest: fields
                .decode("candidate_runtime_resource_policy_digest")?,
            plan_digest: fields.decode("plan_digest")?,
            baseline_lane_digest: fields.decode("baseline_lane_digest")?,
            candidate_lane_digest: fields.decode("candidate_lane_digest")?,
            raw_crossover_digest: fields.decode("raw_crossover_digest")?,
            policy,
            rates: fields.decode("rates")?,
            started: fields.decode("started_monotonic_s")?,
            completed: fields.decode("completed_monotonic_s")?,
        })
    }
}

/// The regrade of a witness.
#[derive(Clone, Debug, PartialEq)]
pub struct Regrade {
    /// Verdicts and decision.
    pub outcome: Outcome,
}

impl Regrade {
    /// The decision.
    #[must_use]
    pub fn decision(&self) -> Decision {
        self.outcome.decision
    }

    /// The deciding speedup.
    #[must_use]
    pub fn speedup(&self) -> f64 {
        self.outcome.deciding.speedup
    }

    /// The deciding bar.
    #[must_use]
    pub fn required(&self) -> f64 {
        self.outcome.deciding.required
    }

    /// The code in records; none for PASS.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        self.outcome.reason()
    }
}

/// The two teardown proofs that retire a read set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WitnessLinks {
    /// Quiescence of the baseline lane.
    pub baseline_quiescence_digest: AnyDigest,
    /// Quiescence of the candidate lane.
    pub candidate_quiescence_digest: AnyDigest,
}

/// A resident speed witness (domain `cacheon.qualification.resident-speed-witness.v1`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidentSpeedWitness {
    binding: SpeedBinding,
    links: WitnessLinks,
}

impl ResidentSpeedWitness {
    /// Checks shape, lanes, windows and wall time.
    ///
    /// # Errors
    /// Names the member and the rule.
    pub fn new(binding: SpeedBinding, links: WitnessLinks) -> Result<Self, DecodeError> {
        binding.check()?;
        Ok(Self { binding, links })
    }

    /// What it binds.
    #[must_use]
    pub fn binding(&self) -> &SpeedBinding {
        &self.binding
    }

    /// The teardown proofs.
    #[must_use]
    pub fn links(&self) -> WitnessLinks {
        self.links
    }

    /// The evidence digest.
    #[must_use]
    pub fn evidence_digest(&self) -> Digest {
        RESIDENT.digest(&ResidentPayload(self))
    }

    /// Grades the reads again under the presented calibration.
    ///
    /// # Errors
    /// A foreign or unusable calibration, or reads that do not stand as complete evidence.
    pub fn regrade(&self, calibration: &CalibrationManifest) -> Result<Regrade, WitnessError> {
        self.binding.regrade(calibration)
    }

    /// The speedup that settlement takes from a regraded witness: versions 6 to 8 only.
    ///
    /// # Errors
    /// As [`Self::regrade`], and below version 6.
    pub fn accepted_speedup(&self, calibration: &CalibrationManifest) -> Result<f64, WitnessError> {
        let regrade = self.regrade(calibration)?;
        let version = self.binding.policy.version();
        if version.is_conditional() {
            Ok(regrade.speedup())
        } else {
            Err(WitnessError::Version(version.number()))
        }
    }
}

struct ResidentPayload<'a>(&'a ResidentSpeedWitness);

impl Canonical for ResidentPayload<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let (b, links) = (&self.0.binding, &self.0.links);
        w.object(|o| {
            o.field("baseline_lane", &b.baseline_lane_digest)
                .field("baseline_quiescence", &links.baseline_quiescence_digest)
                .field("baseline_runtime_resource_policy", &b.baseline_runtime_resource_policy_digest)
                .field("calibration", &b.policy.calibration_digest())
                .field("calibration_context", &b.policy.calibration_context_digest())
                .field("candidate_lane", &b.candidate_lane_digest)
                .field("candidate_launch", &b.candidate_launch_digest)
                .field("candidate_quiescence", &links.candidate_quiescence_digest)
                .field("candidate_runtime_resource_policy", &b.candidate_runtime_resource_policy_digest)
                .field("completed_monotonic_s", &b.completed)
                .field("plan", &b.plan_digest)
                .field("policy", &b.policy.digest())
                .field("rates", &b.rates)
                .field("raw_crossover", &b.raw_crossover_digest)
                .field("selected_delta", &b.selected_delta_digest)
                .field("started_monotonic_s", &b.started)
                .field("workload", &b.workload_digest);
        });
    }
}

impl Canonical for ResidentSpeedWitness {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let (b, links) = (&self.binding, &self.links);
        w.object(|o| {
            o.field("baseline_lane_digest", &b.baseline_lane_digest)
                .field("baseline_quiescence_digest", &links.baseline_quiescence_digest)
                .field("baseline_runtime_resource_policy_digest", &b.baseline_runtime_resource_policy_digest)
                .field("calibration_context_digest", &b.policy.calibration_context_digest())
                .field("calibration_digest", &b.policy.calibration_digest())
                .field("candidate_lane_digest", &b.candidate_lane_digest)
                .field("candidate_launch_digest", &b.candidate_launch_digest)
                .field("candidate_quiescence_digest", &links.candidate_quiescence_digest)
                .field(
                    "candidate_runtime_resource_policy_digest",
                    &b.candidate_runtime_resource_policy_digest,
                )
                .field("completed_monotonic_s", &b.completed)
                .field("evidence_digest", &self.evidence_digest())
                .field("plan_digest", &b.plan_digest)
                .field("rates", &b.rates)
                .field("raw_crossover_digest", &b.raw_crossover_digest)
                .field("resident_policy", &b.policy)
                .field("selected_delta_digest", &b.selected_delta_digest)
                .field("started_monotonic_s", &b.started)
                .field("workload_digest", &b.workload_digest);
        });
    }
}

fn check_digest(claimed: AnyDigest, own: Digest) -> Result<(), DecodeError> {
    require(claimed == own, "evidence_digest", "does not re-derive from the witness", &claimed)
}

impl Decode for ResidentSpeedWitness {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let binding = SpeedBinding::decode(&mut fields)?;
        let links = WitnessLinks {
            baseline_quiescence_digest: fields.decode("baseline_quiescence_digest")?,
            candidate_quiescence_digest: fields.decode("candidate_quiescence_digest")?,
        };
        let claimed: AnyDigest = fields.decode("evidence_digest")?;
        fields.finish()?;
        let witness = Self::new(binding, links)?;
        check_digest(claimed, witness.evidence_digest())?;
        Ok(witness)
    }
}

/// What ties a live witness to a pair that stays alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveWitnessLinks {
    /// The pair's runtime binding.
    pub pair_binding_digest: AnyDigest,
    /// The two engine sessions, different.
    pub pair_session_ids: Fixed<Hex128, 2>,
    /// One proof of return to stock per read.
    pub stock_return_digests: Vec<AnyDigest>,
}

/// A speed witness of a pair that was not retired (domain `cacheon.qualification.resident-live-speed-witness.v1`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSpeedWitness {
    binding: SpeedBinding,
    links: LiveWitnessLinks,
}

impl LiveSpeedWitness {
    /// Checks shape, lanes, windows, wall time, sessions and stock returns.
    ///
    /// # Errors
    /// Names the member and the rule.
    pub fn new(binding: SpeedBinding, links: LiveWitnessLinks) -> Result<Self, DecodeError> {
        binding.check()?;
        let Fixed([first, second]) = &links.pair_session_ids;
        require(first != second, "pair_session_ids", "the two lanes share a session", first)?;
        let known = |read: &ReadRate| read.session_id == *first || read.session_id == *second;
        let stranger = binding.rates.iter().find(|read| !known(read));
        let rule = "a read ran in a session that is not of the pair";
        require(
            stranger.is_none(),
            "pair_session_ids",
            rule,
            &stranger.map_or("", |read| read.session_id.as_str()),
        )?;
        let rule = "not one stock return per read";
        let returns = links.stock_return_digests.len();
        require(returns == binding.rates.len(), "stock_return_digests", rule, &returns)?;
        Ok(Self { binding, links })
    }

    /// What it binds.
    #[must_use]
    pub fn binding(&self) -> &SpeedBinding {
        &self.binding
    }

    /// Pair, sessions and returns.
    #[must_use]
    pub fn links(&self) -> &LiveWitnessLinks {
        &self.links
    }

    /// The evidence digest.
    #[must_use]
    pub fn evidence_digest(&self) -> Digest {
        LIVE.digest(&LivePayload(self))
    }

    /// Grades the reads again under the presented calibration.
    ///
    /// # Errors
    /// As [`ResidentSpeedWitness::regrade`].
    pub fn regrade(&self, calibration: &CalibrationManifest) -> Result<Regrade, WitnessError> {
        self.binding.regrade(calibration)
    }
}

struct LivePayload<'a>(&'a LiveSpeedWitness);

impl Canonical for LivePayload<'_> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let (b, links) = (&self.0.binding, &self.0.links);
        w.object(|o| {
            o.field("baseline_lane", &b.baseline_lane_digest)
                .field("baseline_runtime_resource_policy", &b.baseline_runtime_resource_policy_digest)
                .field("calibration", &b.policy.calibration_digest())
                .field("calibration_context", &b.policy.calibration_context_digest())
                .field("candidate_lane", &b.candidate_lane_digest)
                .field("candidate_launch", &b.candidate_launch_digest)
                .field("candidate_runtime_resource_policy", &b.candidate_runtime_resource_policy_digest)
                .field("completed_monotonic_s", &b.completed)
                .field("pair_binding", &links.pair_binding_digest)
                .field("pair_sessions", &links.pair_session_ids)
                .field("plan", &b.plan_digest)
                .field("policy", &b.policy.digest())
                .field("rates", &b.rates)
                .field("raw_crossover", &b.raw_crossover_digest)
                .field("selected_delta", &b.selected_delta_digest)
                .field("started_monotonic_s", &b.started)
                .field("stock_returns", &links.stock_return_digests)
                .field("workload", &b.workload_digest);
        });
    }
}

impl Canonical for LiveSpeedWitness {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let (b, links) = (&self.binding, &self.links);
        w.object(|o| {
            o.field("baseline_lane_digest", &b.baseline_lane_digest)
                .field("baseline_runtime_resource_policy_digest", &b.baseline_runtime_resource_policy_digest)
                .field("calibration_context_digest", &b.policy.calibration_context_digest())
                .field("calibration_digest", &b.policy.calibration_digest())
                .field("candidate_lane_digest", &b.candidate_lane_digest)
                .field("candidate_launch_digest", &b.candidate_launch_digest)
                .field(
                    "candidate_runtime_resource_policy_digest",
                    &b.candidate_runtime_resource_policy_digest,
                )
                .field("completed_monotonic_s", &b.completed)
                .field("evidence_digest", &self.evidence_digest())
                .field("pair_binding_digest", &links.pair_binding_digest)
                .field("pair_session_ids", &links.pair_session_ids)
                .field("plan_digest", &b.plan_digest)
                .field("rates", &b.rates)
                .field("raw_crossover_digest", &b.raw_crossover_digest)
                .field("resident_policy", &b.policy)
                .field("selected_delta_digest", &b.selected_delta_digest)
                .field("started_monotonic_s", &b.started)
                .field("stock_return_digests", &links.stock_return_digests)
                .field("workload_digest", &b.workload_digest);
        });
    }
}

impl Decode for LiveSpeedWitness {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let binding = SpeedBinding::decode(&mut fields)?;
        let links = LiveWitnessLinks {
            pair_binding_digest: fields.decode("pair_binding_digest")?,
            pair_session_ids: fields.decode("pair_session_ids")?,
            stock_return_digests: fields.decode("stock_return_digests")?,
        };
        let claimed: AnyDigest = fields.decode("evidence_digest")?;
        fields.finish()?;
        let witness = Self::new(binding, links)?;
        check_digest(claimed, witness.evidence_digest())?;
        Ok(witness)
    }
}

/// A speed witness of either kind. They share no member set, so a record says by itself which it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpeedWitness {
    /// The pair was retired.
    Resident(ResidentSpeedWitness),
    /// The pair stays alive.
    Live(LiveSpeedWitness),
}

impl SpeedWitness {
    /// What it binds.
    #[must_use]
    pub fn binding(&self) -> &SpeedBinding {
        match self {
            Self::Resident(witness) => witness.binding(),
            Self::Live(witness) => witness.binding(),
        }
    }

    /// The evidence digest.
    #[must_use]
    pub fn evidence_digest(&self) -> Digest {
        match self {
            Self::Resident(witness) => witness.evidence_digest(),
            Self::Live(witness) => witness.evidence_digest(),
        }
    }

    /// Grades the reads again under the presented calibration.
    ///
    /// # Errors
    /// As [`ResidentSpeedWitness::regrade`].
    pub fn regrade(&self, calibration: &CalibrationManifest) -> Result<Regrade, WitnessError> {
        self.binding().regrade(calibration)
    }
}

impl Canonical for SpeedWitness {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        match self {
            Self::Resident(witness) => witness.write(w),
            Self::Live(witness) => witness.write(w),
        }
    }
}

impl Decode for SpeedWitness {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let live = matches!(json, Json::Object(members) if members.contains_key("pair_binding_digest"));
        if live {
            LiveSpeedWitness::decode(json).map(Self::Live)
        } else {
            ResidentSpeedWitness::decode(json).map(Self::Resident)
        }
    }
}

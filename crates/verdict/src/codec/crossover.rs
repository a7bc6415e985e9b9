//! Raw crossover evidence of both substrates.

use super::process::QuiescenceReceipt;
use super::resident::{BatchShape, LaneId, PairBinding, ResidentRequestSlice};
use super::session::EngineExecution;
use crate::decision::Decision;
use crate::fields::{AnyDigest, Fixed, Hex128, require, ruled_record, unruled};
use crate::speed::{
    ReadRate, Role, SpeedPolicy, SpeedPolicyParts, SpeedupVerdict, TimedWindow, Version, WindowRules,
};
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, Digest, Domain, Fields, Json};

const PAIR_EVIDENCE: Domain = Domain::new("cacheon.eval.resident-pair-crossover-evidence.v1");

/// The codec form of a speed policy: window members always present, zero below version 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodecPolicy(pub SpeedPolicy);

impl Canonical for CodecPolicy {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let parts = self.0.parts();
        let float = |value: Option<Float17>| value.map_or_else(|| "0".to_owned(), |value| value.to_string());
        let windows = parts.windows;
        w.object(|o| {
            o.field("calibration_context_digest", &parts.calibration_context_digest)
                .field("calibration_digest", &parts.calibration_digest)
                .field("max_conditioning_slowdown", &float(windows.map(|w| w.max_conditioning_slowdown)))
                .field("max_noise", &parts.max_noise)
                .field("max_qualification_seconds", &parts.max_qualification_seconds)
                .field("max_stage_seconds", &parts.max_stage_seconds)
                .field("max_window_scatter", &float(windows.map(|w| w.max_window_scatter)))
                .field("min_margin", &parts.min_margin)
                .field("min_windows", &windows.map_or(0, |w| w.min_windows))
                .field("noise_multiplier", &parts.noise_multiplier)
                .field("version", &parts.version.number());
        });
    }
}

impl Decode for CodecPolicy {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let number = fields.take("version")?.u64_in(1, 8)?;
        let version =
            Version::from_number(number).ok_or_else(|| DecodeError::invalid("no such version", &number))?;
        let rules = WindowRules {
            min_windows: fields.decode("min_windows")?,
            max_window_scatter: fields.decode("max_window_scatter")?,
            max_conditioning_slowdown: fields.decode("max_conditioning_slowdown")?,
        };
        let absent = rules.min_windows == 0
            && rules.max_window_scatter.get() == 0.0
            && rules.max_conditioning_slowdown.get() == 0.0;
        let parts = SpeedPolicyParts {
            version,
            max_stage_seconds: fields.decode("max_stage_seconds")?,
            max_qualification_seconds: fields.decode("max_qualification_seconds")?,
            min_margin: fields.decode("min_margin")?,
            noise_multiplier: fields.decode("noise_multiplier")?,
            max_noise: fields.decode("max_noise")?,
            calibration_digest: fields.decode("calibration_digest")?,
            calibration_context_digest: fields.decode("calibration_context_digest")?,
            windows: (!absent).then_some(rules),
        };
        fields.finish()?;
        SpeedPolicy::new(parts).map(Self)
    }
}

/// The codec form of a read: flat batch indices, the charged rate, windows always present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecRead(pub ReadRate);

impl Canonical for CodecRead {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        let read = &self.0;
        let text = cacheon_identity::float17::format;
        w.object(|o| {
            o.field("charged_seconds", &text(read.charged_seconds()))
                .field("charged_tokens", &read.charged_tokens())
                .field("conditioning_seconds", &read.conditioning_seconds)
                .field("conditioning_tokens", &read.conditioning_tokens)
                .field("first_batch_index", &read.batches.0)
                .field("first_timed_batch_index", &read.timed_batches.0)
                .field("lane_digest", &read.lane_digest)
                .field("last_batch_index", &read.batches.1)
                .field("last_timed_batch_index", &read.timed_batches.1)
                .field("launch_digest", &read.launch_digest)
                .field("role", &read.role)
                .field("session_id", &read.session_id)
                .field("timed_seconds", &read.timed_seconds)
                .field("timed_tokens", &read.timed_tokens)
                .field("tokens_per_second", &text(read.charged_rate()))
                .field("windows", &read.windows);
        });
    }
}

impl Decode for CodecRead {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::open(json)?;
        let index = |fields: &mut Fields<'_>, name: &str| fields.decode::<u64>(name);
        let read = ReadRate {
            role: fields.decode::<Role>("role")?,
            lane_digest: fields.decode::<AnyDigest>("lane_digest")?,
            launch_digest: fields.decode("launch_digest")?,
            session_id: fields.decode::<Hex128>("session_id")?,
            batches: (index(&mut fields, "first_batch_index")?, index(&mut fields, "last_batch_index")?),
            timed_batches: (
                index(&mut fields, "first_timed_batch_index")?,
                index(&mut fields, "last_timed_batch_index")?,
            ),
            conditioning_tokens: fields.decode("conditioning_tokens")?,
            timed_tokens: fields.decode("timed_tokens")?,
            conditioning_seconds: fields.decode("conditioning_seconds")?,
            timed_seconds: fields.decode("timed_seconds")?,
            windows: fields.decode::<Vec<TimedWindow>>("windows")?,
        };
        let tokens: u64 = fields.decode("charged_tokens")?;
        let seconds: Float17 = fields.decode("charged_seconds")?;
        let rate: Float17 = fields.decode("tokens_per_second")?;
        fields.finish()?;
        let read = read.checked()?;
        let derived = tokens == read.charged_tokens()
            && seconds.get() == read.charged_seconds()
            && rate.get() == read.charged_rate();
        require(derived, "tokens_per_second", "charged members do not follow from the read", &rate)?;
        Ok(Self(read))
    }
}

ruled_record! {
    /// The deployed codec form of a verdict. Its noise must be finite, so a drift-excluded verdict has no such form; see
    /// [`crate::speed::SpeedOutcomeRecord`] for ours.
    pub struct CodecVerdict: unruled {
        /// Noise measured and within the ceiling.
        pub confident: bool,
        /// Text for a person.
        pub detail: String,
        /// Baseline reads.
        pub n_baselines: u32,
        /// Candidate reads.
        pub n_candidates: u32,
        /// Relative spread.
        pub noise: Float17,
        /// Reached the bar with confidence.
        pub passed_speedup: bool,
        /// The bar.
        pub required: Float17,
        /// Ratio of means.
        pub speedup: Float17,
    }
}

impl TryFrom<&SpeedupVerdict> for CodecVerdict {
    type Error = DecodeError;

    fn try_from(verdict: &SpeedupVerdict) -> Result<Self, DecodeError> {
        let float = |member: &'static str, value: f64| {
            Float17::new(value)
                .map_err(|_| DecodeError::invalid("not a finite number", &value).within(member))
        };
        Ok(Self {
            confident: verdict.confident,
            detail: verdict.detail.clone(),
            n_baselines: verdict.n_baselines,
            n_candidates: verdict.n_candidates,
            noise: float("noise", verdict.noise)?,
            passed_speedup: verdict.passed_speedup,
            required: float("required", verdict.required)?,
            speedup: float("speedup", verdict.speedup)?,
        })
    }
}

ruled_record! {
    /// Two processes, three reads.
    pub struct CrossoverEvidence: unruled {
        /// The baseline's launch.
        pub baseline_execution: EngineExecution,
        /// The baseline's lane.
        pub baseline_lane_digest: Digest,
        /// The baseline gone.
        pub baseline_quiescence: QuiescenceReceipt,
        /// The candidate's launch.
        pub candidate_execution: EngineExecution,
        /// The candidate's lane.
        pub candidate_lane_digest: Digest,
        /// The candidate gone.
        pub candidate_quiescence: QuiescenceReceipt,
        /// s.
        pub completed_monotonic_s: Float17,
        /// The decision.
        pub decision: Decision,
        /// Whether reads were added.
        pub escalated: bool,
        /// `clear_` or `borderline_` and the decision in lower case.
        pub exit_reason: String,
        /// The deciding verdict.
        pub final_verdict: CodecVerdict,
        /// The first verdict.
        pub initial_verdict: CodecVerdict,
        /// The plan.
        pub plan_digest: Digest,
        /// The policy.
        pub policy: CodecPolicy,
        /// Reads.
        pub rates: Vec<CodecRead>,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// s.
        pub started_monotonic_s: Float17,
        /// The workload.
        pub workload_digest: Digest,
    }
}

/// The exit label of a crossover: `clear_pass`, `borderline_fail`, ….
#[must_use]
pub fn exit_label(decision: Decision, escalated: bool) -> String {
    let how = if escalated { "borderline" } else { "clear" };
    format!("{how}_{}", decision.as_str().to_ascii_lowercase())
}

ruled_record! {
    /// A standing pair, two or three reads.
    pub struct PairCrossoverEvidence: unruled {
        /// The shape of every batch.
        pub batch_shape: BatchShape,
        /// The candidate.
        pub candidate_bundle_digest: Digest,
        /// s.
        pub completed_monotonic_s: Float17,
        /// s.
        pub deadline_monotonic_s: Float17,
        /// The decision.
        pub decision: Decision,
        /// Whether reads were added.
        pub escalated: bool,
        /// The deciding verdict.
        pub final_verdict: CodecVerdict,
        /// The first verdict.
        pub initial_verdict: CodecVerdict,
        /// Baseline lane, candidate lane.
        pub orientation: Fixed<LaneId, 2>,
        /// The pair.
        pub pair_binding: PairBinding,
        /// Of the lanes in the same order.
        pub physical_lane_digests: Fixed<Digest, 2>,
        /// The plan.
        pub plan_digest: Digest,
        /// The policy.
        pub policy: CodecPolicy,
        /// Digest of the nested prompt list.
        pub prompt_batches_digest: Digest,
        /// Reads.
        pub rates: Vec<CodecRead>,
        /// One slice a read.
        pub request_slices: Vec<ResidentRequestSlice>,
        /// The delta.
        pub selected_delta_digest: Digest,
        /// s.
        pub started_monotonic_s: Float17,
        /// The workload.
        pub workload_digest: Digest,
    }
}

impl PairCrossoverEvidence {
    /// Identity: the witness's `raw_crossover_digest`.
    #[must_use]
    pub fn digest(&self) -> Digest {
        PAIR_EVIDENCE.digest(&super::Borrowed(self))
    }
}

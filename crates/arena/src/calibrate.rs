//! Calibration: three controls measured on this machine, graded against the sealed thresholds, frozen only when each
//! grades as it must (chapter 40 §3).
//!
//! Every control is read like a candidate: stock on lane A, the control on lane B, stock again. Each series has one value,
//! of the kind that a verdict grades:
//!
//! | Series | Value |
//! |---|---|
//! | `speed_noise` | relative spread of the two stock reads' rates, each the median over its windows |
//! | `mean_nll` | stock: \|incumbent − pristine\|; else the rise over stock, 0 when it fell; mean over all tokens |
//! | `tail_rate` | the same, of the share of tokens above the tail threshold |
//!
//! A control that does not grade as it must is measured again, a few times: a neighbour's burst on a shared machine is no
//! property of the arena. Every measurement is said aloud; the calibration keeps the ones it was derived from.

use cacheon_evidence::cpu::verify::CalibrationRecord;
use cacheon_identity::decimal::Decimal;
use cacheon_identity::{Canonical as _, Digest, sha256};
use cacheon_protocol::message::Binding;
use cacheon_records::arena::{OnProgress, Progress, PublishedBundle};
use cacheon_records::evidence::EvidenceLabel;
use cacheon_verdict::Decision;
use cacheon_verdict::arith::exact;
use cacheon_verdict::calibration::{
    CalibrationEvidenceSet, CalibrationManifest, CalibrationMeasurement, CalibrationObservation,
    CalibrationThresholdPolicy, ControlKind, Direction, EVIDENCE_DOMAIN, EVIDENCE_SCHEMA, EvidencePolicyV1,
    MetricCalibration, MetricName, SpeedCalibration, Status, TEACHER_FAMILYWISE_V1, ThresholdPolicyV1,
    derive_manifest, grade_control,
};
use cacheon_verdict::fields::{Name, SchemaOne};

use crate::cpu::{ArenaError, CpuArena, Subject};
use crate::environment::Kernels;
use crate::home::write_durably;
use crate::lanes::LaneId;
use crate::worker::{Worker, WorkerError, random};

/// Evidence domain of a frozen calibration.
const DOMAIN: &str = "cpu.calibration";
/// Its schema.
const SCHEMA: &str = "cacheon.rs.cpu.calibration.v1";

/// The two kernels that bound the controls.
#[derive(Debug, Clone)]
pub struct Controls {
    /// An honest kernel with rounding of its own: must pass.
    pub positive: PublishedBundle,
    /// A kernel that degrades the text: must fail.
    pub negative: PublishedBundle,
}

/// Generated tokens, per prompt.
type Trajectories = Vec<Vec<u32>>;
/// Negative log-likelihoods, per prompt and token.
type Likelihoods = Vec<Vec<f64>>;

/// Windows and trajectories of one read.
struct Read {
    seconds: Vec<f64>,
    tokens: Trajectories,
}

fn record<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> ArenaError {
    move |error| ArenaError::Record { what, why: error.to_string() }
}

/// How often a control is measured before the machine is given up as too noisy.
const TRIES: u32 = 8;

/// Whether the stock reads around a control agree within the sealed noise.
fn quiet(policy: &CalibrationThresholdPolicy, observed: &CalibrationObservation) -> bool {
    let noise = observed.series("speed_noise").unwrap_or_default();
    noise.iter().all(|value| value.to_f64() <= policy.speed.max_noise.to_f64())
}

/// The measured series in one line.
fn summary(observed: &CalibrationObservation, decision: Decision) -> String {
    let series = observed.measurements.iter().map(|series| {
        let values: Vec<String> =
            series.values.iter().map(|value| format!("{:.4}", value.to_f64())).collect();
        format!("{} {}", series.name.as_str(), values.join(" "))
    });
    let series = series.collect::<Vec<_>>().join("; ");
    format!("{} control {}: {series}", observed.control_kind.as_str(), decision.as_str())
}

/// A policy decimal of at most nine places.
fn decimal(value: f64) -> Result<Decimal, ArenaError> {
    let text = format!("{value:.9}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    Decimal::parse(if text.is_empty() { "0" } else { text }).map_err(record("calibration"))
}

impl CpuArena<'_> {
    /// Measures the controls and freezes the calibration that follows from them.
    ///
    /// # Errors
    /// A control that does not grade as it must (a machine too noisy for the sealed bar, for example), or any failure
    /// of the machine. Nothing is kept then.
    pub fn calibrate(
        &mut self,
        controls: &Controls,
        progress: OnProgress<'_>,
    ) -> Result<CalibrationManifest, ArenaError> {
        let policy = self.threshold_policy()?;
        let mut observations = Vec::new();
        for kind in [ControlKind::Negative, ControlKind::Positive, ControlKind::Stock] {
            progress(Progress {
                stage: "calibrate",
                text: format!("measuring the {} control", kind.as_str()),
            });
            let control = match kind {
                ControlKind::Negative => Some(&controls.negative),
                ControlKind::Positive => Some(&controls.positive),
                ControlKind::Stock => None,
            };
            observations.push(self.settled(kind, control, &policy, progress)?);
        }
        let manifest = derive_manifest(&policy, &observations).map_err(record("calibration"))?;
        let set = CalibrationEvidenceSet {
            configured_manifest_digest: manifest.digest(),
            observations,
            policy_version: EvidencePolicyV1,
            schema_version: SchemaOne,
            threshold_policy_digest: policy.digest(),
        };
        let label = EvidenceLabel::json(EVIDENCE_DOMAIN, EVIDENCE_SCHEMA).map_err(record("calibration"))?;
        let evidence = self.store.publish(&label, &set.to_canonical())?;
        let kept = CalibrationRecord { evidence, manifest: manifest.clone(), policy };
        let label = EvidenceLabel::json(DOMAIN, SCHEMA).map_err(record("calibration"))?;
        let reference = self.store.publish(&label, &kept.to_canonical())?;
        let mut bytes = reference.to_canonical();
        bytes.push(b'\n');
        write_durably(&self.home.calibration(), &bytes)?;
        Ok(manifest)
    }

    /// Measures a control until it grades as it must, at most [`TRIES`] times; the last measurement otherwise.
    fn settled(
        &self,
        kind: ControlKind,
        control: Option<&PublishedBundle>,
        policy: &CalibrationThresholdPolicy,
        progress: OnProgress<'_>,
    ) -> Result<CalibrationObservation, ArenaError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let seed = sha256(&random::<32>().map_err(record("random source"))?);
            let observed = self.observe(kind, control, &self.calibration_prompts()?, seed)?;
            let decision = grade_control(policy, &observed).map_err(record("calibration"))?.decision;
            progress(Progress { stage: "calibrate", text: summary(&observed, decision) });
            let good = match kind {
                // Failing for noise would prove nothing about the text.
                ControlKind::Negative => decision == Decision::Fail && quiet(policy, &observed),
                ControlKind::Positive | ControlKind::Stock => decision == Decision::Pass,
            };
            if good || tries >= TRIES {
                return Ok(observed);
            }
        }
    }

    fn threshold_policy(&self) -> Result<CalibrationThresholdPolicy, ArenaError> {
        let rules = &self.definition;
        let parse = |text: &str| Decimal::parse(text).map_err(record("thresholds"));
        let metrics = rules
            .quality
            .metrics
            .iter()
            .map(|rule| {
                Ok(MetricCalibration {
                    absolute_floor: None,
                    candidate_delta: parse(&rule.candidate_delta)?,
                    direction: Direction::Lower,
                    name: MetricName::parse(&rule.metric)
                        .ok_or_else(|| ArenaError::Record { what: "thresholds", why: rule.metric.clone() })?,
                    stock_envelope: parse(&rule.stock_envelope)?,
                })
            })
            .collect::<Result<Vec<_>, ArenaError>>()?;
        let launch = self.reference_launch()?;
        CalibrationThresholdPolicy {
            algorithm_id: Name::parse(TEACHER_FAMILYWISE_V1).map_err(record("thresholds"))?,
            context: self.service.calibration_context(launch.digest())?,
            familywise_z: parse(&rules.quality.familywise_z)?,
            policy_version: ThresholdPolicyV1,
            quality_metrics: metrics,
            schema_version: SchemaOne,
            speed: SpeedCalibration {
                max_noise: parse(&rules.speed.max_noise)?,
                min_margin: parse(&rules.speed.min_margin)?,
                noise_multiplier: parse(&rules.speed.noise_multiplier)?,
            },
            status: Status::Frozen,
        }
        .checked()
        .map_err(record("thresholds"))
    }

    fn calibration_prompts(&self) -> Result<Vec<Vec<u32>>, ArenaError> {
        let secret = random::<32>().map_err(record("random source"))?;
        let batches = self.definition.warmup_count as usize + self.definition.cell.timed_reads as usize;
        let length = self.definition.cell.input_tokens as usize;
        let drawn =
            crate::prompts::draw(&self.tokenizer, &secret, batches, length).map_err(record("prompts"))?;
        Ok(drawn.into_iter().map(|prompt| prompt.tokens).collect())
    }

    /// One control: stock, control, stock on two lanes; then the pristine engine over the trajectories.
    fn observe(
        &self,
        kind: ControlKind,
        control: Option<&PublishedBundle>,
        prompts: &[Vec<u32>],
        seed: Digest,
    ) -> Result<CalibrationObservation, ArenaError> {
        let stock = Subject::stock_bindings();
        let candidate = control.map(|bundle| self.service.candidate(bundle, "calibration")).transpose()?;
        let kernels = candidate.as_ref().map(|candidate| self.kernels(candidate)).transpose()?;
        let mut bindings = stock.clone();
        if let Some(candidate) = &candidate {
            for binding in bindings.iter_mut() {
                binding.publication = u16::from(candidate.inspection.members.contains(&binding.slot));
            }
        }
        let mut mounted: Vec<&Kernels> = vec![&self.stock];
        mounted.extend(kernels.as_ref());
        let (_, tree) = self.service.genesis()?;
        let launch = self.env.launch(tree.digest().digest(), &mounted);
        let reference = self.reference_launch()?;
        let mut a = self.env.start("engine", LaneId::A, &reference, &[&self.stock])?;
        let mut b = self.env.start("engine", LaneId::B, &launch, &mounted)?;
        let measured = self.bracket(&mut a, &mut b, &stock, &bindings, prompts);
        self.env.lanes.seat_controller(None).map_err(record("lanes"))?;
        if self.env.crownable() {
            a.container().thaw().map_err(WorkerError::from)?;
            b.container().thaw().map_err(WorkerError::from)?;
        }
        b.end()?;
        let [first, control, second] = match measured {
            Ok(reads) => reads,
            Err(error) => {
                a.end()?;
                return Err(error.into());
            }
        };
        let scored = self.nll(&mut a, prompts, [&first.tokens, &control.tokens]);
        a.end()?;
        let [stock_nll, control_nll, pristine_nll] = scored?;
        self.observation(kind, seed, (&first, &second), [&stock_nll, &control_nll, &pristine_nll])
    }

    fn bracket(
        &self,
        a: &mut Worker,
        b: &mut Worker,
        stock: &[Binding],
        control: &[Binding],
        prompts: &[Vec<u32>],
    ) -> Result<[Read; 3], WorkerError> {
        let first = self.calibration_read(a, LaneId::A, b, stock, prompts)?;
        let measured = self.calibration_read(b, LaneId::B, a, control, prompts)?;
        let second = self.calibration_read(a, LaneId::A, b, stock, prompts)?;
        Ok([first, measured, second])
    }

    fn calibration_read(
        &self,
        active: &mut Worker,
        lane: LaneId,
        idle: &Worker,
        bindings: &[Binding],
        prompts: &[Vec<u32>],
    ) -> Result<Read, WorkerError> {
        if self.env.crownable() {
            idle.container().freeze()?;
            active.container().thaw()?;
        }
        self.env.lanes.seat_controller(Some(lane.other())).map_err(|e| WorkerError::Unfit(e.to_string()))?;
        active.activate(bindings, self.env.patience.activate)?;
        let deadline = std::time::Duration::from_millis(u64::from(self.definition.batch_timeout_ms));
        let (mut seconds, mut tokens) = (Vec::new(), Vec::new());
        for (index, prompt) in prompts.iter().enumerate() {
            let done = active.generate(vec![prompt.clone()], self.definition.cell.output_tokens, deadline)?;
            if index >= self.definition.warmup_count as usize {
                seconds.push(done.stamps.elapsed_ns() as f64 / 1e9);
                tokens.extend(done.tokens);
            }
        }
        if self.env.crownable() {
            idle.container().thaw()?;
        }
        Ok(Read { seconds, tokens })
    }

    /// Negative log-likelihoods under a pristine engine, per prompt and token: of each list of trajectories, then of the
    /// engine's own.
    fn nll(
        &self,
        worker: &mut Worker,
        prompts: &[Vec<u32>],
        trajectories: [&Trajectories; 2],
    ) -> Result<[Likelihoods; 3], WorkerError> {
        worker.activate(&Subject::stock_bindings(), self.env.patience.activate)?;
        let timed = &prompts[self.definition.warmup_count as usize..];
        let mut own = Vec::new();
        for prompt in timed {
            let length = self.definition.cell.output_tokens;
            own.extend(worker.generate(vec![prompt.clone()], length, self.env.patience.work)?.tokens);
        }
        let mut score = |lists: &Trajectories| -> Result<Likelihoods, WorkerError> {
            timed
                .iter()
                .zip(lists)
                .map(|(prompt, generated)| {
                    let tokens = [prompt.as_slice(), generated].concat();
                    let logprobs = worker.score(tokens, prompt.len() as u32, self.env.patience.work)?;
                    Ok(logprobs.into_iter().map(|logprob| (-f64::from(logprob)).max(0.0)).collect())
                })
                .collect()
        };
        Ok([score(trajectories[0])?, score(trajectories[1])?, score(&own)?])
    }

    fn observation(
        &self,
        kind: ControlKind,
        seed: Digest,
        (first, second): (&Read, &Read),
        [stock, control, pristine]: [&Likelihoods; 3],
    ) -> Result<CalibrationObservation, ArenaError> {
        let threshold: f64 = self.definition.quality.tail_threshold.parse().map_err(record("thresholds"))?;
        let other = if kind == ControlKind::Stock { pristine } else { control };
        let mean = |nll: &[f64]| exact::mean(nll).unwrap_or(0.0);
        let tail =
            |nll: &[f64]| nll.iter().filter(|one| **one > threshold).count() as f64 / nll.len().max(1) as f64;
        let rise = |of: &dyn Fn(&[f64]) -> f64| {
            let rise = of(&other.concat()) - of(&stock.concat());
            decimal(if kind == ControlKind::Stock { rise.abs() } else { rise.max(0.0) })
                .map(|value| vec![value])
        };
        let rate = |read: &Read| 1.0 / exact::median(&read.seconds).unwrap_or(f64::MAX);
        let (a, b) = (rate(first), rate(second));
        let noise = vec![decimal((a - b).abs() / ((a + b) / 2.0))?];
        let named = |name: &str, values| {
            Ok::<_, ArenaError>(CalibrationMeasurement {
                name: Name::parse(name).map_err(record("calibration"))?,
                values,
            })
        };
        let mut measurements = vec![named("speed_noise", noise)?];
        for rule in &self.definition.quality.metrics {
            let values = match rule.metric.as_str() {
                "mean_nll" => rise(&mean)?,
                "tail_rate" => rise(&tail)?,
                other => {
                    return Err(ArenaError::Record {
                        what: "thresholds",
                        why: format!("{other} is not measured"),
                    });
                }
            };
            measurements.push(named(&rule.metric, values)?);
        }
        measurements.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        CalibrationObservation { control_kind: kind, measurements, seed_digest: seed }
            .checked()
            .map_err(record("calibration"))
    }
}

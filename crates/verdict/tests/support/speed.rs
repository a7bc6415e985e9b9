//! Reads, policies, calibrations and witnesses for tests that need no vectors.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use cacheon_identity::decimal::Decimal;
use cacheon_identity::float17::Float17;
use cacheon_identity::{Digest, sha256};
use cacheon_verdict::calibration::{
    CalibrationContext, CalibrationControl, CalibrationManifest, ControlKind, ManifestPolicyV1,
    MetricCalibration, MetricName, SpeedCalibration, Status, TEACHER_FAMILYWISE_V1,
};
use cacheon_verdict::fields::{AnyDigest, Hex128, Instant, Name, SchemaOne};
use cacheon_verdict::speed::{
    PolicyFrame, ReadRate, ResidentSpeedWitness, Role, SpeedBinding, SpeedPolicy, TimedWindow, Version,
    WindowRules, WitnessLinks,
};

pub(crate) fn digest(name: &str) -> Digest {
    sha256(name.as_bytes())
}

pub(crate) fn float(value: f64) -> Float17 {
    Float17::new(value).unwrap()
}

pub(crate) fn decimal(text: &str) -> Decimal {
    Decimal::parse(text).unwrap()
}

pub(crate) fn session(name: &str) -> Hex128 {
    Hex128::parse(&digest(name).to_string()[..32]).unwrap()
}

pub(crate) fn context() -> CalibrationContext {
    CalibrationContext {
        arena_digest: digest("arena"),
        base_engine_digest: digest("base"),
        logical_hardware_digest: digest("hardware"),
        model_content_digest: digest("content"),
        model_manifest_digest: digest("manifest"),
        model_revision_digest: digest("revision"),
        reference_manifest_digest: digest("reference"),
        runtime_digest: digest("runtime"),
        verification_policy_digest: digest("verification"),
        workload_digest: digest("workload"),
    }
}

/// A frozen calibration with the given margin; noise ceiling 2 %, multiplier 2.
pub(crate) fn calibration(margin: &str) -> CalibrationManifest {
    let control = |kind: &ControlKind| CalibrationControl {
        expected_outcome: kind.expected(),
        kind: *kind,
        raw_evidence_digest: digest(kind.as_str()),
        seed_digest: digest("seed"),
    };
    CalibrationManifest {
        algorithm_id: Name::parse(TEACHER_FAMILYWISE_V1).unwrap(),
        context: context(),
        controls: ControlKind::ALL.iter().map(control).collect(),
        familywise_z: decimal("3"),
        policy_version: ManifestPolicyV1,
        quality_metrics: vec![MetricCalibration {
            absolute_floor: None,
            candidate_delta: decimal("0.1"),
            direction: MetricName::MeanNll.direction(),
            name: MetricName::MeanNll,
            stock_envelope: decimal("0.1"),
        }],
        raw_evidence_digest: digest("raw"),
        schema_version: SchemaOne,
        seed_digests: vec![digest("seed")],
        speed: SpeedCalibration {
            max_noise: decimal("0.02"),
            min_margin: decimal(margin),
            noise_multiplier: decimal("2"),
        },
        status: Status::Frozen,
    }
    .checked()
    .unwrap()
}

pub(crate) fn policy(version: Version, calibration: &CalibrationManifest) -> SpeedPolicy {
    let windows = version.has_windows().then(|| WindowRules {
        min_windows: 3,
        max_window_scatter: float(0.05),
        max_conditioning_slowdown: float(1.5),
    });
    let frame = PolicyFrame { version, max_stage_seconds: 3600, max_qualification_seconds: 7200, windows };
    SpeedPolicy::from_calibration(calibration, &context(), frame).unwrap()
}

/// A read of 1000 tokens per window at the given rate, conditioned in two seconds.
pub(crate) fn read(role: Role, rate: f64) -> ReadRate {
    read_windows(role, &[rate; 3])
}

pub(crate) fn read_windows(role: Role, rates: &[f64]) -> ReadRate {
    let baseline = role.is_baseline();
    let first = match role {
        Role::B | Role::C => 0,
        _ => 10,
    };
    let windows: Vec<TimedWindow> = rates
        .iter()
        .enumerate()
        .map(|(index, rate)| TimedWindow {
            batch_index: first + 1 + index as u64,
            seconds: float(1000.0 / rate),
            tokens: 1000,
        })
        .collect();
    let last = first + rates.len() as u64;
    ReadRate {
        role,
        lane_digest: AnyDigest(digest(if baseline { "lane-b" } else { "lane-c" })),
        launch_digest: AnyDigest(digest(if baseline { "launch-b" } else { "launch-c" })),
        session_id: session(if baseline { "session-b" } else { "session-c" }),
        batches: (first, last),
        timed_batches: (first + 1, last),
        conditioning_tokens: 500,
        timed_tokens: 1000 * rates.len() as u64,
        conditioning_seconds: float(2.0),
        timed_seconds: float(windows.iter().map(|window| window.seconds.get()).sum()),
        windows,
    }
    .checked()
    .unwrap()
}

pub(crate) fn binding(policy: SpeedPolicy, rates: Vec<ReadRate>) -> SpeedBinding {
    SpeedBinding {
        selected_delta_digest: AnyDigest(digest("delta")),
        candidate_launch_digest: AnyDigest(digest("launch-c")),
        workload_digest: AnyDigest(digest("workload")),
        baseline_runtime_resource_policy_digest: AnyDigest(digest("runtime-b")),
        candidate_runtime_resource_policy_digest: AnyDigest(digest("runtime-c")),
        plan_digest: AnyDigest(digest("plan")),
        baseline_lane_digest: AnyDigest(digest("lane-b")),
        candidate_lane_digest: AnyDigest(digest("lane-c")),
        raw_crossover_digest: AnyDigest(digest("crossover")),
        policy,
        rates,
        started: Instant::new(1000.25).unwrap(),
        completed: Instant::new(1300.5).unwrap(),
    }
}

pub(crate) fn links() -> WitnessLinks {
    WitnessLinks {
        baseline_quiescence_digest: AnyDigest(digest("quiescence-b")),
        candidate_quiescence_digest: AnyDigest(digest("quiescence-c")),
    }
}

pub(crate) fn witness(policy: SpeedPolicy, rates: Vec<ReadRate>) -> ResidentSpeedWitness {
    ResidentSpeedWitness::new(binding(policy, rates), links()).unwrap()
}

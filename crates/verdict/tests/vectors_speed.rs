//! Golden cases of speed policies, reads, arithmetic, grades and witnesses.
#![allow(clippy::unwrap_used)]

mod support;

use cacheon_identity::Canonical;
use cacheon_identity::float17::Float17;
use cacheon_vectors::{Case, unknown_op};
use cacheon_verdict::calibration::CalibrationManifest;
use cacheon_verdict::decision::Decision;
use cacheon_verdict::fields::AnyDigest;
use cacheon_verdict::speed::{
    self, Bar, ReadRate, SpeedPolicy, SpeedPolicyParts, SpeedupVerdict, TwoReadLimits, Version, WindowRules,
    score,
};
use cacheon_verdict::speed::{EvidencePolicy, LegacySpeedWitness};
use cacheon_verdict::speed::{
    LiveSpeedWitness, PolicyFrame, Regrade, ResidentSpeedWitness, SpeedBinding, WitnessLinks,
};
use serde_json::{Value, json};
use support::*;

fn construct(input: &Value) -> Result<SpeedPolicy, String> {
    let float17 = |member: &str| Float17::new(float_at(input, member)?).map_err(|error| error.to_string());
    let integer = |member: &str, default: u64| match input.get(member) {
        None => Ok(default),
        Some(value) => value.as_u64().ok_or_else(|| format!("`{member}` is not an integer")),
    };
    let version = Version::from_number(integer("version", 0)?).ok_or("no such version")?;
    let given = |member: &str| input.get(member).is_some();
    let windows = if given("min_windows") || given("max_window_scatter") || given("max_conditioning_slowdown")
    {
        Some(WindowRules {
            min_windows: integer("min_windows", 0)?,
            max_window_scatter: if given("max_window_scatter") {
                float17("max_window_scatter")?
            } else {
                Float17::new(0.0).unwrap()
            },
            max_conditioning_slowdown: if given("max_conditioning_slowdown") {
                float17("max_conditioning_slowdown")?
            } else {
                Float17::new(0.0).unwrap()
            },
        })
    } else {
        None
    };
    let digest = |member: &str| AnyDigest::parse(text_at(input, member)?).map_err(|error| error.to_string());
    SpeedPolicy::new(SpeedPolicyParts {
        version,
        max_stage_seconds: integer("max_stage_seconds", 0)?,
        max_qualification_seconds: integer(
            "max_qualification_seconds",
            SpeedPolicy::DEFAULT_QUALIFICATION_SECONDS,
        )?,
        min_margin: float17("min_margin")?,
        noise_multiplier: float17("noise_multiplier")?,
        max_noise: float17("max_noise")?,
        calibration_digest: digest("calibration_digest")?,
        calibration_context_digest: digest("calibration_context_digest")?,
        windows,
    })
    .map_err(|error| error.to_string())
}

#[test]
fn vectors_qualification_speed_policy() {
    cacheon_vectors::run("qualification-speed-policy", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "construct" => {
                let Some(policy) = outcome(value, construct(case.get("input")?))? else { return Ok(()) };
                only(expected, &["ok", "canonical_sha256", "digest", "to_dict"])?;
                same_digest(expected, "canonical_sha256", policy.canonical_sha256())?;
                same_digest(expected, "digest", policy.digest())?;
                same_record(expected, "to_dict", &policy)
            }
            "parse" => {
                let Some(policy) = outcome(value, decode::<SpeedPolicy>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "digest", "version"])?;
                same_digest(expected, "digest", policy.digest())?;
                same_value(expected, "version", &json!(policy.version().number()))?;
                same_record(value, "input", &policy)
            }
            op => Err(unknown_op(op)),
        }
    });
}

fn base_policy(case: &Case<'_>, version: &str, overrides: Option<&Value>) -> Result<SpeedPolicy, String> {
    let mut policy = at(at(case.file, "base_policies")?, version)?.clone();
    if let (Some(Value::Object(overrides)), Some(members)) = (overrides, policy.as_object_mut()) {
        for (name, value) in overrides {
            if members.contains_key(name) {
                members.insert(name.clone(), value.clone());
            }
        }
    }
    decode(&policy)
}

const VERSIONS: [&str; 8] = ["v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"];

#[test]
fn vectors_qualification_speed_reads() {
    cacheon_vectors::run("qualification-speed-reads", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "score" => {
                only(expected, &[&VERSIONS[..], &["charged", "scatter_v4"]].concat())?;
                let read: ReadRate = decode(case.get("input")?)?;
                if expected.get("charged").is_some() {
                    same_text(expected, "charged", &text17(read.charged_rate()))?;
                    same_text(expected, "scatter_v4", &text17(read.scatter().ok_or("no windows")?))?;
                }
                for version in VERSIONS {
                    let policy = base_policy(case, version, value.get("policy_overrides"))?;
                    let wanted = json!({ "expect": at(expected, version)? });
                    if let Some(rate) = outcome(&wanted, read.scored_rate(&policy))? {
                        same_text(at(expected, version)?, "scored", &text17(rate))
                            .map_err(|error| format!("{version}: {error}"))?;
                    }
                }
                Ok(())
            }
            "parse" => {
                let Some(read) = outcome(value, decode::<ReadRate>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "tokens_per_second"])?;
                same_text(expected, "tokens_per_second", &text17(read.charged_rate()))?;
                same_record(value, "input", &read)
            }
            "conditioning" => {
                only(expected, &VERSIONS)?;
                let reads: Vec<ReadRate> =
                    list_at(value, "input")?.iter().map(decode::<ReadRate>).collect::<Result<_, _>>()?;
                for version in VERSIONS {
                    let limit = json!({ "max_conditioning_slowdown": case.get("limit")? });
                    let policy = base_policy(case, version, Some(&limit))?;
                    let found = speed::conditioning_regressed(&policy, &reads[0], &reads[1]);
                    let wanted = match at(expected, version)? {
                        Value::Bool(regressed) => Some(*regressed),
                        object => object.get("value").and_then(Value::as_bool),
                    };
                    if found.clone().ok() != wanted {
                        return Err(format!("{version}: expected {wanted:?}, found {found:?}"));
                    }
                }
                Ok(())
            }
            op => Err(unknown_op(op)),
        }
    });
}

#[test]
fn vectors_qualification_speed_score() {
    cacheon_vectors::run("qualification-speed-score", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        let input = case.get("input")?;
        match case.op() {
            "score" => {
                let grade = || -> Result<SpeedupVerdict, String> {
                    let bar = Bar::new(
                        float_at(input, "min_margin")?,
                        float_at(input, "k")?,
                        float_at(input, "max_noise")?,
                    )
                    .map_err(|error| error.to_string())?;
                    let (baselines, candidates) =
                        (floats(at(input, "baselines")?)?, floats(at(input, "candidates")?)?);
                    score::score(&bar, &baselines, &candidates).map_err(|error| error.to_string())
                };
                let Some(verdict) = outcome(value, grade())? else { return Ok(()) };
                only(
                    expected,
                    &[
                        "ok",
                        "confident",
                        "n_baselines",
                        "n_candidates",
                        "noise",
                        "passed_speedup",
                        "required",
                        "speedup",
                    ],
                )?;
                same_verdict(expected, &verdict)
            }
            "fail_reason" => {
                only(expected, &["conditioning_failed", "plain"])?;
                let (speedup, required) = (float_at(input, "speedup")?, float_at(input, "required")?);
                same_text(expected, "plain", score::fail_reason(speedup, required, false).code())?;
                same_text(expected, "conditioning_failed", score::fail_reason(speedup, required, true).code())
            }
            "conditional_limits" => {
                only(expected, &["fail_below", "pass_at"])?;
                let bar = Bar::new(
                    float_at(input, "min_margin")?,
                    float_at(input, "noise_multiplier")?,
                    float_at(input, "max_noise")?,
                )
                .map_err(|error| error.to_string())?;
                let limits = TwoReadLimits::of(&bar);
                same_text(expected, "fail_below", &text17(limits.fail_below))?;
                same_text(expected, "pass_at", &text17(limits.pass_at))
            }
            "invariant" => {
                only(expected, &["decision"])?;
                let (baselines, candidates) =
                    (floats(at(input, "baselines")?)?, floats(at(input, "candidates")?)?);
                let decision = score::invariant(float_at(input, "required")?, &baselines, &candidates);
                same_value(expected, "decision", &json!(decision.map(Decision::as_str)))
            }
            "roles" => {
                only(expected, &["roles"])?;
                let version = Version::from_number(u64_at(input, "version")?).ok_or("no such version")?;
                let roles =
                    usize::try_from(u64_at(input, "count")?).ok().and_then(|count| version.roles(count));
                let roles = roles.map(|roles| roles.iter().map(|role| role.as_str()).collect::<Vec<_>>());
                same_value(expected, "roles", &json!(roles))
            }
            "relative_spread" => {
                let spread = score::relative_spread(&floats(input)?).map_err(|error| error.to_string())?;
                same_text(value, "expect", &text17(spread))
            }
            op => Err(unknown_op(op)),
        }
    });
}

fn same_verdict(expected: &Value, verdict: &SpeedupVerdict) -> Result<(), String> {
    same_value(expected, "confident", &json!(verdict.confident))?;
    same_text(expected, "noise", &text17(verdict.noise))?;
    same_value(expected, "passed_speedup", &json!(verdict.passed_speedup))?;
    same_text(expected, "required", &text17(verdict.required))?;
    same_text(expected, "speedup", &text17(verdict.speedup))?;
    if expected.get("n_baselines").is_some() {
        same_value(expected, "n_baselines", &json!(verdict.n_baselines))?;
        same_value(expected, "n_candidates", &json!(verdict.n_candidates))?;
    }
    Ok(())
}

fn reads(value: &Value) -> Result<Vec<ReadRate>, String> {
    list_at(value, "reads")?.iter().map(decode).collect()
}

const VERDICT: [&str; 7] =
    ["confident", "n_baselines", "n_candidates", "noise", "passed_speedup", "required", "speedup"];

#[test]
fn vectors_qualification_speed_grade() {
    cacheon_vectors::run("qualification-speed-grade", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        let policy: SpeedPolicy = decode(case.get("policy")?)?;
        let reads = reads(value)?;
        match case.op() {
            "grade" => {
                let concluding = case.get("concluding")?.as_bool().ok_or("`concluding` is no boolean")?;
                let Some(graded) = outcome(value, speed::grade(&policy, &reads, concluding))? else {
                    return Ok(());
                };
                only(expected, &["ok", "decision", "verdict", "reason_without_conditioning"])?;
                only(at(expected, "verdict")?, &VERDICT)?;
                same_verdict(at(expected, "verdict")?, &graded.verdict)?;
                same_value(expected, "decision", &json!(graded.decision.map(Decision::as_str)))?;
                if expected.get("reason_without_conditioning").is_some() {
                    let verdict = &graded.verdict;
                    let reason = score::fail_reason(verdict.speedup, verdict.required, false).code();
                    same_text(expected, "reason_without_conditioning", reason)?;
                }
                Ok(())
            }
            "conditional_grade" => {
                let Some(found) = outcome(value, speed::grade_conditional(&policy, &reads))? else {
                    return Ok(());
                };
                only(expected, &["ok", "decision", "final", "initial"])?;
                same_verdict(at(expected, "initial")?, &found.initial)?;
                same_verdict(at(expected, "final")?, &found.deciding)?;
                same_text(expected, "decision", found.decision.as_str())
            }
            op => Err(unknown_op(op)),
        }
    });
}

fn check_regrade(expected: &Value, result: Result<Regrade, speed::WitnessError>) -> Result<(), String> {
    let expected = at(expected, "regrade")?;
    let wrapped = json!({ "expect": expected });
    let Some(regrade) = outcome(&wrapped, result)? else { return Ok(()) };
    only(expected, &["ok", "decision", "reason", "speedup"])?;
    same_text(expected, "decision", regrade.decision().as_str())?;
    same_value(expected, "reason", &json!(regrade.reason()))?;
    same_text(expected, "speedup", &text17(regrade.speedup()))
}

fn frame(version: Version) -> PolicyFrame {
    let float = |value: f64| Float17::new(value).unwrap();
    PolicyFrame {
        version,
        max_stage_seconds: 3600,
        max_qualification_seconds: 7200,
        windows: version.has_windows().then(|| WindowRules {
            min_windows: 3,
            max_window_scatter: float(0.05),
            max_conditioning_slowdown: float(1.5),
        }),
    }
}

fn build_witness(case: &Case<'_>) -> Result<ResidentSpeedWitness, String> {
    let (value, fixed) = (case.value, at(case.file, "fixed")?);
    let calibration = calibration(case)?;
    let version = Version::from_number(u64_at(value, "version")?).ok_or("no such version")?;
    let derived = SpeedPolicy::from_calibration(&calibration, &calibration.context, frame(version));
    let policy = match case.get("policy")? {
        Value::Null => derived.map_err(|error| error.to_string())?,
        record => decode(record)?,
    };
    let digest = |member: &str| AnyDigest::parse(text_at(fixed, member)?).map_err(|error| error.to_string());
    let instant = |member: &str| -> Result<_, String> { decode(case.get(member)?) };
    let binding = SpeedBinding {
        selected_delta_digest: digest("selected_delta_digest")?,
        candidate_launch_digest: digest("candidate_launch_digest")?,
        workload_digest: digest("workload_digest")?,
        baseline_runtime_resource_policy_digest: digest("baseline_runtime_resource_policy_digest")?,
        candidate_runtime_resource_policy_digest: digest("candidate_runtime_resource_policy_digest")?,
        plan_digest: digest("plan_digest")?,
        baseline_lane_digest: digest("baseline_lane_digest")?,
        candidate_lane_digest: digest("candidate_lane_digest")?,
        raw_crossover_digest: digest("raw_crossover_digest")?,
        policy,
        rates: reads(value)?,
        started: instant("started")?,
        completed: instant("completed")?,
    };
    let links = WitnessLinks {
        baseline_quiescence_digest: digest("baseline_quiescence_digest")?,
        candidate_quiescence_digest: digest("candidate_quiescence_digest")?,
    };
    ResidentSpeedWitness::new(binding, links).map_err(|error| error.to_string())
}

fn calibration(case: &Case<'_>) -> Result<CalibrationManifest, String> {
    let found = match case.get("calibration")? {
        Value::String(name) => at(at(case.file, "calibrations")?, name)?,
        record => record,
    };
    let manifest: CalibrationManifest = decode(found)?;
    if let Value::String(name) = case.get("calibration")? {
        same_digest(at(case.file, "calibration_digests")?, name, manifest.digest())?;
        same_digest(at(case.file, "context_digests")?, name, manifest.context.digest())?;
    }
    Ok(manifest)
}

/// A parse case: accepted records re-serialise, or are refused later because they do not (here: already when read,
/// where the spelling is not strict JSON).
fn check_parse<T: cacheon_identity::Decode + Canonical>(
    case: &Case<'_>,
    digest: impl Fn(&T) -> cacheon_identity::Digest,
) -> Result<(), String> {
    let (value, expected) = (case.value, expect(case.value)?);
    let input = case.get("input")?;
    let identical = expected.get("reserialises_identically").and_then(Value::as_bool);
    let found = decode::<T>(input);
    if identical == Some(false) && found.is_err() {
        return if json(input).is_err() {
            Ok(())
        } else {
            Err(format!("refused: {}", found.err().unwrap_or_default()))
        };
    }
    let Some(witness) = outcome(value, found)? else { return Ok(()) };
    only(expected, &["ok", "evidence_digest", "reserialises_identically"])?;
    same_digest(expected, "evidence_digest", digest(&witness))?;
    let again: Value = serde_json::from_slice(&witness.to_canonical()).map_err(|error| error.to_string())?;
    if Some(again == *input) == identical {
        Ok(())
    } else {
        Err("re-serialises differently than expected".to_owned())
    }
}

#[test]
fn vectors_qualification_speed_witness() {
    cacheon_vectors::run("qualification-speed-witness", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "witness" => {
                let Some(witness) = outcome(value, build_witness(case))? else { return Ok(()) };
                only(
                    expected,
                    &[
                        "ok",
                        "accepted_speedup",
                        "canonical_sha256",
                        "evidence_digest",
                        "regrade",
                        "roundtrip",
                        "witness",
                    ],
                )?;
                same_record(expected, "witness", &witness)?;
                same_digest(expected, "canonical_sha256", witness.canonical_sha256())?;
                same_digest(expected, "evidence_digest", witness.evidence_digest())?;
                let again: ResidentSpeedWitness = decode(at(expected, "witness")?)?;
                same_value(expected, "roundtrip", &json!(again == witness))?;
                let calibration = calibration(case)?;
                check_regrade(expected, witness.regrade(&calibration))?;
                let wanted = at(expected, "accepted_speedup")?;
                let wrapped = json!({ "expect": wanted });
                match outcome(&wrapped, witness.accepted_speedup(&calibration))? {
                    Some(speedup) => same_text(wanted, "value", &text17(speedup)),
                    None => Ok(()),
                }
            }
            "parse" if case.get("input")?.get("pair_binding_digest").is_some() => {
                check_parse::<LiveSpeedWitness>(case, LiveSpeedWitness::evidence_digest)
            }
            "parse" => check_parse::<ResidentSpeedWitness>(case, ResidentSpeedWitness::evidence_digest),
            "regrade_foreign" => {
                let witness: ResidentSpeedWitness = decode(case.get("witness")?)?;
                outcome(value, witness.regrade(&calibration(case)?))?;
                Ok(())
            }
            "live_witness" => {
                only(expected, &["evidence_digest", "regrade", "witness"])?;
                let witness: LiveSpeedWitness = decode(at(expected, "witness")?)?;
                same_record(expected, "witness", &witness)?;
                same_digest(expected, "evidence_digest", witness.evidence_digest())?;
                check_regrade(expected, witness.regrade(&calibration(case)?))
            }
            op => Err(unknown_op(op)),
        }
    });
}

#[test]
fn vectors_qualification_retained_regrade() {
    cacheon_vectors::run("qualification-retained-regrade", &[], |case| match case.op() {
        "regrade" => {
            let (value, expected) = (case.value, expect(case.value)?);
            let policy = json!({
                "version": case.get("version")?, "min_margin": case.get("min_margin")?, "max_noise": case.get("max_noise")?,
                "noise_multiplier": case.get("noise_multiplier")?, "max_stage_seconds": 3600,
                "calibration_digest": "0".repeat(64), "calibration_context_digest": "0".repeat(64),
            });
            let Some(policy) = outcome(value, construct(&policy))? else { return Ok(()) };
            only(
                expected,
                &[
                    "ok",
                    "concluding_decision",
                    "fail_reason_if_failed",
                    "initial_decision",
                    "initial_limits",
                    "scored_tokens_per_second",
                    "verdict",
                ],
            )?;
            let session = "1".repeat(32);
            let mut reads = Vec::new();
            for read in list_at(case.file, "reads")? {
                let mut read = read.clone();
                for (member, filler) in [
                    ("lane_digest", "0".repeat(64)),
                    ("launch_digest", "0".repeat(64)),
                    ("session_id", session.clone()),
                ] {
                    read.as_object_mut()
                        .ok_or("a read is no object")?
                        .insert(member.to_owned(), json!(filler));
                }
                reads.push(decode::<ReadRate>(&read)?);
            }
            let scored: Vec<String> = reads
                .iter()
                .map(|read| read.scored_rate(&policy).map(text17).map_err(|error| error.to_string()))
                .collect::<Result<_, _>>()?;
            same_value(expected, "scored_tokens_per_second", &json!(scored))?;
            let initial = speed::grade(&policy, &reads, false).map_err(|error| error.to_string())?;
            same_value(expected, "initial_decision", &json!(initial.decision.map(Decision::as_str)))?;
            let (low, high) = speed::margin_limits(&policy, initial.verdict.required);
            same_text(at(expected, "initial_limits")?, "fail_at_or_below", &text17(low))?;
            same_text(at(expected, "initial_limits")?, "pass_at_or_above", &text17(high))?;
            let last = speed::grade(&policy, &reads, true).map_err(|error| error.to_string())?;
            same_verdict(at(expected, "verdict")?, &last.verdict)?;
            same_value(expected, "concluding_decision", &json!(last.decision.map(Decision::as_str)))?;
            let reason = score::fail_reason(last.verdict.speedup, last.verdict.required, false).code();
            same_text(expected, "fail_reason_if_failed", reason)
        }
        op => Err(unknown_op(op)),
    });
}

#[test]
fn vectors_qualification_speed_legacy_witness() {
    cacheon_vectors::run("qualification-speed-legacy-witness", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "witness" => {
                only(
                    expected,
                    &["evidence_digest", "evidence_policy", "evidence_policy_digest", "regrade", "witness"],
                )?;
                let witness: LegacySpeedWitness = decode(at(expected, "witness")?)?;
                same_record(expected, "witness", &witness)?;
                same_digest(expected, "evidence_digest", witness.evidence_digest())?;
                same_record(expected, "evidence_policy", &witness.evidence_policy())?;
                same_digest(expected, "evidence_policy_digest", witness.evidence_policy().digest())?;
                let calibration: CalibrationManifest = decode(at(case.file, "calibration")?)?;
                let wanted = at(expected, "regrade")?;
                let wrapped = json!({ "expect": wanted });
                let Some(regrade) = outcome(&wrapped, witness.regrade(&calibration))? else { return Ok(()) };
                only(wanted, &["ok", "decision", "reason", "speedup"])?;
                same_text(wanted, "decision", regrade.decision.as_str())?;
                same_value(wanted, "reason", &json!(regrade.reason()))?;
                same_text(wanted, "speedup", &text17(regrade.verdict.speedup))
            }
            "parse" => {
                let Some(witness) = outcome(value, decode::<LegacySpeedWitness>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "evidence_digest"])?;
                same_digest(expected, "evidence_digest", witness.evidence_digest())
            }
            "evidence_policy" => match value.get("input") {
                Some(input) => {
                    let members = || Some((input[0].as_u64()?, input[1].as_u64()?, input[2].as_str()?));
                    let found = members().and_then(|(version, reads, name)| {
                        EvidencePolicy::from_members(version, reads, name)
                    });
                    outcome(value, found.ok_or("no such policy"))?;
                    Ok(())
                }
                None => {
                    only(expected, &["digest", "to_dict"])?;
                    let policy: EvidencePolicy = decode(at(expected, "to_dict")?)?;
                    same_record(expected, "to_dict", &policy)?;
                    same_digest(expected, "digest", policy.digest())
                }
            },
            op => Err(unknown_op(op)),
        }
    });
}

//! Golden cases of the resident screen.
#![allow(clippy::unwrap_used)]

mod support;

use cacheon_identity::Digest;
use cacheon_identity::float17::Float17;
use cacheon_vectors::{Case, unknown_op};
use cacheon_verdict::codec::{ResidentExecution, SwapReceipt};
use cacheon_verdict::fields::SlotToken;
use cacheon_verdict::screen::{
    self, CandidateScreenVerdict, Lifetime, ScreenCandidate, ScreenError, ScreenGrade, ScreenPolicy,
    ScreenReceipt, ScreenSession, ScreenStage, Screened, StageEvidence, SwapTraits, TimedBatch,
};
use cacheon_verdict::speed::Bar;
use serde_json::{Value, json};
use support::*;

fn policy(overrides: &Value) -> Result<ScreenPolicy, String> {
    let float = |member: &str, default: f64| match overrides.get(member) {
        Some(value) => float(value),
        None => Ok(default),
    };
    let bar = Bar {
        min_margin: float("min_margin", 0.0075)?,
        noise_multiplier: float("noise_multiplier", 2.0)?,
        max_noise: float("max_noise", 0.10)?,
    };
    let (band, tolerance) = (float("escalation_band", 0.02)?, float("canary_tolerance", 0.012)?);
    let most = match overrides.get("max_candidates_per_lifetime") {
        Some(value) => value.as_u64().ok_or("no integer")?,
        None => 8,
    };
    ScreenPolicy::new(bar, band, tolerance, most).map_err(|error| error.to_string())
}

/// Replays a case's script.
struct Scripted<'a> {
    steps: &'a [Value],
    at: usize,
    clock: f64,
    generation: u64,
    commands: Vec<String>,
}

impl Scripted<'_> {
    fn step(&mut self, command: &str) -> Result<Value, String> {
        let step = self.steps.get(self.at).cloned().ok_or("the script ended")?;
        self.at += 1;
        if step["do"].as_str() != Some(command) {
            return Err(format!("the script has {}, the loop asked for {command}", step["do"]));
        }
        self.commands.push(command.to_owned());
        Ok(step)
    }
}

impl ScreenSession for Scripted<'_> {
    type Error = String;

    fn swap(&mut self, candidate: Option<&ScreenCandidate>) -> Result<SwapReceipt, String> {
        let step = self.step(if candidate.is_some() { "swap_in" } else { "swap_out" })?;
        let requested = self.clock;
        self.clock += 1.5;
        let closed = i64::try_from(self.generation).unwrap();
        self.generation += 1;
        let slots = match (candidate, step.get("slots")) {
            (None, _) => Vec::new(),
            (Some(_), Some(list)) => decode::<Vec<SlotToken>>(list)?,
            (Some(_), None) => vec![SlotToken::parse("slot.a").unwrap()],
        };
        Ok(SwapReceipt {
            bundle_digest: candidate.map(ScreenCandidate::bundle_digest),
            completed_at: Float17::new(self.clock).unwrap(),
            execution: ResidentExecution {
                prior_execution_ranks: step.get("ranks").and_then(Value::as_i64).unwrap_or(2),
                prior_generation: step.get("prior_generation").and_then(Value::as_i64).unwrap_or(closed),
            },
            expected_ranks: 2,
            generation: self.generation,
            requested_at: Float17::new(requested).unwrap(),
            slots,
            swap_index: self.generation - 1,
        })
    }

    fn read(&mut self) -> Result<TimedBatch, String> {
        let command = match self.steps.get(self.at).and_then(|step| step["do"].as_str()) {
            Some("candidate") => "candidate",
            _ => "stock",
        };
        let step = self.step(command)?;
        let started = self.clock;
        self.clock += float_at(&step, "seconds")?;
        Ok(TimedBatch { tokens: 4096, started, completed: self.clock })
    }
}

fn texts(values: &[f64]) -> Vec<String> {
    values.iter().map(|value| text17(*value)).collect()
}

fn record(bracket: &CandidateScreenVerdict) -> Value {
    let verdict = bracket.verdict.as_ref().map(|verdict| {
        json!({
            "confident": verdict.confident, "n_baselines": verdict.n_baselines, "n_candidates": verdict.n_candidates,
            "noise": text17(verdict.noise), "passed_speedup": verdict.passed_speedup,
            "required": text17(verdict.required), "speedup": text17(verdict.speedup),
        })
    });
    json!({
        "baseline_throughputs": texts(&bracket.baseline_throughputs), "batch_indices": bracket.batch_indices,
        "bundle_digest": bracket.bundle_digest.to_string(), "candidate_id": bracket.candidate_id,
        "candidate_throughputs": texts(&bracket.candidate_throughputs), "escalated": bracket.escalated,
        "failure": bracket.failure, "slots": bracket.slots, "verdict": verdict,
    })
}

fn result(screened: &Screened, lifetime: &Lifetime) -> Value {
    let stopped = lifetime.stopped_reason();
    let passed = |bracket: &CandidateScreenVerdict| {
        bracket.failure.is_none() && bracket.verdict.as_ref().is_some_and(|verdict| verdict.passed_speedup)
    };
    match screened {
        Screened::Untouched => json!({ "stopped_reason": stopped, "untouched": true }),
        Screened::Graded { record: bracket, grade, rejected_dispatch } => json!({
            "passed": passed(bracket), "rejected_dispatch": rejected_dispatch,
            "stage_grade": if *grade == ScreenGrade::Pass { "pass" } else { "fail" }, "stopped_reason": stopped,
            "verdict": record(bracket), "withdrawn": false, "withdrawn_reference": null,
        }),
        Screened::Withdrawn { record: bracket, reference } => json!({
            "passed": false, "rejected_dispatch": false, "stage_grade": "ResidentScreenLaneError",
            "stopped_reason": stopped, "verdict": record(bracket), "withdrawn": true,
            "withdrawn_reference": text17(*reference),
        }),
    }
}

fn screen_loop(case: &Case<'_>, value: &Value, expected: &Value) -> Result<(), String> {
    let steps = list_at(value, "script")?;
    let mut session = Scripted { steps, at: 0, clock: 100.0, generation: 0, commands: Vec::new() };
    let mut lifetime = Lifetime::new(policy(case.get("policy_overrides")?)?);
    let bundles: Vec<&Value> = match expected.get("results").and_then(Value::as_array) {
        Some(results) => results.iter().map(|it| &it["verdict"]["bundle_digest"]).collect(),
        None => Vec::new(),
    };
    let mut results = Vec::new();
    for number in 0..u64_at(value, "candidates")? {
        let bundle = bundles.get(usize::try_from(number).unwrap()).and_then(|it| it.as_str()).unwrap_or("");
        let bundle = Digest::parse(bundle).unwrap_or_else(|_| cacheon_identity::sha256(b"bundle"));
        let candidate = ScreenCandidate::new(&format!("cand-{number}"), bundle, vec!["slot.a".to_owned()])
            .map_err(|error| error.to_string())?;
        match lifetime.screen(&candidate, &mut session) {
            Ok(screened) => results.push(result(&screened, &lifetime)),
            Err(ScreenError::Session(error)) => return Err(error),
            Err(error) => {
                outcome::<(), _>(value, Err(error.to_string()))?;
                return Ok(());
            }
        }
    }
    let finished: Result<(), String> = Ok(());
    if outcome(value, finished)?.is_none() {
        return Ok(());
    }
    only(expected, &["ok", "commands", "processed", "results", "stock_throughputs"])?;
    same_value(expected, "commands", &json!(session.commands))?;
    same_value(expected, "processed", &json!(lifetime.processed()))?;
    same_value(expected, "stock_throughputs", &json!(texts(lifetime.stock_throughputs())))?;
    same_value(expected, "results", &Value::Array(results))
}

#[test]
fn vectors_qualification_screen() {
    cacheon_vectors::run("qualification-screen", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        let flag = |member: &str| case.get(member).map(|value| value.as_bool() == Some(true));
        match case.op() {
            "swappability" => {
                only(expected, &["ok", "refusal", "speed_policy_version"])?;
                let traits = SwapTraits {
                    aot_exports: flag("aot_exports")?,
                    dep_patches: flag("dep_patches")?,
                    cuda_sources: flag("cuda_sources")?,
                    setup: flag("setup")?,
                };
                same_value(expected, "refusal", &json!(screen::swap_refusal(traits)))?;
                same_value(expected, "speed_policy_version", &json!(traits.speed_version().number()))
            }
            "slot_quant_requirements" => {
                let slots: Vec<&str> = match value.get("slots") {
                    Some(list) => {
                        list.as_array().ok_or("no list")?.iter().filter_map(Value::as_str).collect()
                    }
                    None => screen::QUANTIZED_SLOTS.to_vec(),
                };
                let served =
                    case.get("model_quantization")?.as_str().ok_or("not a text").map_err(str::to_owned);
                let rows = served.and_then(|served| {
                    screen::slot_quant_requirements(served, &slots).map_err(|error| error.to_string())
                });
                let Some(rows) = outcome(value, rows)? else { return Ok(()) };
                only(expected, &["ok", "rows"])?;
                same_value(expected, "rows", &json!(rows))
            }
            "screen_policy" => {
                let Some(policy) = outcome(value, policy(case.get("override")?))? else { return Ok(()) };
                only(expected, &["ok", "max_candidates_per_lifetime"])?;
                same_value(expected, "max_candidates_per_lifetime", &json!(policy.max_candidates()))
            }
            "screen_candidate" => {
                let bundle = cacheon_identity::sha256(b"bundle");
                outcome(value, ScreenCandidate::new(case.text("candidate_id")?, bundle, Vec::new()))?;
                Ok(())
            }
            "screen_loop" => screen_loop(case, value, expected),
            "screen_receipt" => {
                let Some(receipt) = outcome(value, decode::<ScreenReceipt>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", receipt.digest())
            }
            "lane_waiver_digest" => {
                only(expected, &["ok", "digest", "domain"])?;
                let payload = case.get("payload")?;
                let (candidate, content) = (
                    digest_at(payload, "candidate_digest")?,
                    digest_at(payload, "publication_content_hash")?,
                );
                same_text(expected, "domain", "cacheon.arena.resident-screen-waiver.v1")?;
                let digest = screen::lane_waiver_digest(candidate, content, text_at(payload, "reason")?);
                same_digest(expected, "digest", digest)
            }
            "service_waiver_digest" => {
                only(expected, &["ok", "digest", "domain"])?;
                let payload = case.get("payload")?;
                let stage = ScreenStage::parse(text_at(payload, "stage")?).ok_or("no such stage")?;
                same_text(expected, "domain", "cacheon.arena.screen-waiver.v1")?;
                let digest = screen::service_waiver_digest(
                    digest_at(payload, "candidate_digest")?,
                    digest_at(payload, "service_digest")?,
                    digest_at(payload, "source_evidence_digest")?,
                    stage,
                    text_at(payload, "reason")?,
                );
                same_digest(expected, "digest", digest)
            }
            "stage_evidence_digest" => {
                only(expected, &["ok", "digest", "domain"])?;
                let evidence: StageEvidence = decode(case.get("payload")?)?;
                same_text(expected, "domain", "cacheon.arena.resident-screen-stage.v2")?;
                same_digest(expected, "digest", screen::stage_evidence_digest(&evidence))
            }
            op => Err(unknown_op(op)),
        }
    });
}

//! Golden cases of the numeric judge, fixed-stock counts and the typed codec.
#![allow(clippy::unwrap_used)]

mod support;

use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, Digest};
use cacheon_vectors::{Case, unknown_op};
use cacheon_verdict::codec;
use cacheon_verdict::count::{
    self, CountEnvelope, CountEvidence, CountObservation, CountPolicy, CountStockAuthority, CountVerdict,
    Gold, LaneAdmission, NumericJudge, RegisteredCount, RegisteredCountAuthority, RegisteredCountResult,
};
use cacheon_verdict::fields::decode_canonical;
use cacheon_verdict::selection::HiddenJudgeBinding;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use support::*;

#[test]
fn vectors_qualification_count_judge() {
    cacheon_vectors::run("qualification-count-judge", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "parse" => {
                only(expected, &["ok", "value"])?;
                let found = count::numeric_answer(case.text("text")?).map(text17);
                same_value(expected, "value", &json!(found))
            }
            "tolerance" => {
                only(expected, &["ok", "passed"])?;
                let answer = |member: &str| case.text(member).map(count::numeric_answer);
                same_value(
                    expected,
                    "passed",
                    &json!(count::agree(answer("gold_text")?, answer("output_text")?)),
                )
            }
            "hidden_task_policy_digest" => {
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", count::hidden_task_policy_digest())
            }
            "numeric_judge_digest" => {
                let record = json!({
                    "accepted_token_subsequences": case.get("accepted_token_subsequences")?,
                    "hidden_corpus_commitment": case.get("hidden_corpus_commitment")?,
                });
                let Some(judge) = outcome(value, decode::<NumericJudge>(&record))? else { return Ok(()) };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", judge.digest())
            }
            "prompt_plan" => {
                let binding: HiddenJudgeBinding = decode(case.get("judge_binding")?)?;
                let batches: Vec<Vec<String>> = decode(case.get("prompt_batches")?)?;
                let tasks = value.get("hidden_tasks_per_prompt").and_then(Value::as_u64).unwrap_or(1);
                let workload = digest_at(value, "workload_digest")?;
                let Some(plan) = outcome(value, count::prompt_plan(workload, &batches, &binding, tasks))?
                else {
                    return Ok(());
                };
                only(expected, &["ok", "first_only_plan_digest", "occurrences", "plan_digest"])?;
                same_record(expected, "occurrences", &plan)?;
                same_digest(expected, "plan_digest", count::prompt_plan_digest(&plan))?;
                same_digest(expected, "first_only_plan_digest", count::prompt_plan_digest(&plan[..1]))
            }
            op => Err(unknown_op(op)),
        }
    });
}

/// Gold answers by prompt (a plan is given) or by ordinal, and texts by token.
struct Source {
    by_prompt: BTreeMap<Digest, Vec<u64>>,
    by_ordinal: Vec<Vec<u64>>,
    texts: BTreeMap<u64, String>,
    unknown: String,
}

impl Gold for Source {
    fn gold(&self, prompt: &Digest, ordinal: u64) -> Option<Vec<u64>> {
        let at = usize::try_from(ordinal).ok()?;
        self.by_prompt.get(prompt).or_else(|| self.by_ordinal.get(at)).cloned()
    }

    fn decode(&self, tokens: &[u64]) -> String {
        tokens.iter().map(|token| self.texts.get(token).unwrap_or(&self.unknown).as_str()).collect()
    }
}

fn source(case: &Case<'_>, envelope: &CountEnvelope) -> Result<Source, String> {
    let judge: NumericJudge = decode(&json!({
        "accepted_token_subsequences": case.get("accepted_token_subsequences")?,
        "hidden_corpus_commitment": envelope.judge_binding.hidden_corpus_commitment.to_string(),
    }))?;
    let mut by_prompt = BTreeMap::new();
    if let Some(batches) = case.value.get("prompt_batches") {
        let batches: Vec<Vec<String>> = decode(batches)?;
        let plan = count::prompt_plan(envelope.reference.workload, &batches, &envelope.judge_binding, 1)
            .map_err(|error| error.to_string())?;
        if count::prompt_plan_digest(&plan) != envelope.prompt_plan_digest {
            return Err("the plan is not the envelope's".to_owned());
        }
        for (row, gold) in plan.iter().zip(judge.golds()) {
            by_prompt.insert(row.prompt_digest, gold.to_vec());
        }
    }
    let mut texts = BTreeMap::new();
    for (token, text) in case.get("token_text")?.as_object().ok_or("no texts")? {
        texts.insert(token.parse().map_err(|_| "a token")?, text.as_str().ok_or("a text")?.to_owned());
    }
    let unknown = case.value.get("unknown_token_text").and_then(Value::as_str).unwrap_or("").to_owned();
    Ok(Source { by_prompt, by_ordinal: judge.golds().map(<[u64]>::to_vec).collect(), texts, unknown })
}

#[test]
fn vectors_qualification_count() {
    cacheon_vectors::run("qualification-count", &[], |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "score" => {
                let graded = || -> Result<(CountEvidence, CountPolicy), String> {
                    let members = [
                        "candidate_correct",
                        "candidate_observation_digest",
                        "stock_correct",
                        "stock_observation_digest",
                        "total",
                    ];
                    let record: serde_json::Map<String, Value> = members
                        .iter()
                        .map(|name| Ok(((*name).to_owned(), case.get(name)?.clone())))
                        .collect::<Result<_, String>>()?;
                    let policy =
                        json!({ "regression_threshold_drop": case.get("regression_threshold_drop")? });
                    Ok((decode(&Value::Object(record))?, decode(&policy)?))
                };
                let Some((evidence, policy)) = outcome(value, graded())? else { return Ok(()) };
                only(expected, &["ok", "evidence_digest", "policy_digest", "verdict", "verdict_digest"])?;
                let verdict = CountVerdict::of(&evidence, &policy);
                same_digest(expected, "evidence_digest", evidence.digest())?;
                same_digest(expected, "policy_digest", policy.digest())?;
                same_record(expected, "verdict", &verdict)?;
                same_digest(expected, "verdict_digest", verdict.digest())
            }
            "envelope" => {
                only(expected, &["ok", "digest"])?;
                let envelope: CountEnvelope = decode(case.get("input")?)?;
                same_digest(expected, "digest", envelope.digest())
            }
            "batch_shape" => {
                only(expected, &["ok", "digest"])?;
                let temperature =
                    Float17::new(float_at(value, "temperature")?).map_err(|error| error.to_string())?;
                let (tokens, width) = (u64_at(value, "max_new_tokens")?, u64_at(value, "top_logprobs_num")?);
                same_digest(expected, "digest", count::batch_shape_digest(tokens, temperature, width))
            }
            "admission" => {
                let Some(record) = outcome(value, decode::<LaneAdmission>(case.get("input")?))? else {
                    return Ok(());
                };
                only(expected, &["ok", "digest"])?;
                same_digest(expected, "digest", record.digest())
            }
            "stock_authority" => {
                only(expected, &["ok", "digest"])?;
                let record: CountStockAuthority = decode(case.get("input")?)?;
                same_digest(expected, "digest", record.digest())
            }
            "observation_reopen" => {
                let payload = case.text("payload_utf8")?.as_bytes();
                let Some(record) = outcome(value, decode_canonical::<CountObservation>(payload))? else {
                    return Ok(());
                };
                only(expected, &["ok", "correct", "digest", "total"])?;
                same_digest(expected, "digest", record.digest())?;
                same_value(expected, "correct", &json!(record.claimed_correct()))?;
                same_value(expected, "total", &json!(record.prompts.len()))
            }
            "rejudge" => {
                let observation: CountObservation = decode(case.get("observation")?)?;
                let judged = count::rejudge(&observation, &source(case, &observation.envelope)?);
                let Some(correct) = outcome(value, judged)? else { return Ok(()) };
                only(expected, &["ok", "correct"])?;
                same_value(expected, "correct", &json!(correct))
            }
            "registered_target_id" => {
                let record = json!({
                    "catalog_digest": "1".repeat(64), "execution_envelope_digest": "1".repeat(64),
                    "execution_plan_digest": "1".repeat(64), "fixed_stock_authority_digest": "1".repeat(64),
                    "judge_binding_digest": "1".repeat(64), "policy": { "regression_threshold_drop": 1 },
                    "schema": "cacheon.eval.registered-resident-count-quality-authority.v1",
                    "target_id": case.get("target_id")?, "target_spec_digest": "1".repeat(64),
                    "tokenizer_digest": "1".repeat(64),
                });
                let Some(record) = outcome(value, decode::<RegisteredCountAuthority>(&record))? else {
                    return Ok(());
                };
                only(expected, &["ok", "target_id"])?;
                same_text(expected, "target_id", &record.target_id)
            }
            "compare" => compare(case, value, expected),
            op => Err(unknown_op(op)),
        }
    });
}

fn compare(case: &Case<'_>, value: &Value, expected: &Value) -> Result<(), String> {
    only(
        expected,
        &[
            "ok",
            "candidate_canonical_sha256",
            "candidate_observation_digest",
            "decision",
            "registered_authority",
            "registered_authority_digest",
            "registered_result",
            "registered_result_digest",
            "result",
            "result_digest",
            "stock_observation_digest",
        ],
    )?;
    let stock: CountObservation = decode(case.get("stock")?)?;
    let candidate: CountObservation = decode(case.get("candidate")?)?;
    let policy: CountPolicy = decode(case.get("policy")?)?;
    let texts = source(case, &stock.envelope)?;
    let Some(result) = outcome(value, count::compare(&stock, &candidate, policy, &texts))? else {
        return Ok(());
    };
    same_digest(expected, "candidate_canonical_sha256", candidate.canonical_sha256())?;
    same_digest(expected, "candidate_observation_digest", candidate.digest())?;
    same_digest(expected, "stock_observation_digest", stock.digest())?;
    same_record(expected, "result", &result)?;
    same_digest(expected, "result_digest", result.digest())?;
    same_text(expected, "decision", result.verdict.decision.as_str())?;
    let authority: RegisteredCountAuthority = decode(at(expected, "registered_authority")?)?;
    same_digest(expected, "registered_authority_digest", authority.digest())?;
    let wanted = at(expected, "registered_result")?;
    let registered: RegisteredCountResult = count::register(
        &authority,
        result,
        RegisteredCount {
            candidate_bundle_digest: digest_at(wanted, "candidate_bundle_digest")?,
            pair_binding_digest: digest_at(wanted, "pair_binding_digest")?,
            raw_execution_evidence_digest: digest_at(wanted, "raw_execution_evidence_digest")?,
        },
    )
    .map_err(|error| error.to_string())?;
    same_record(expected, "registered_result", &registered)?;
    same_digest(expected, "registered_result_digest", registered.digest())
}

#[test]
fn vectors_qualification_continuation_codec() {
    // Records, scenarios and the failure ledger live in the evidence crate and run there.
    let deferred = ["record", "scenario", "failure_ledger"];
    cacheon_vectors::run("qualification-continuation", &deferred, |case| {
        let (value, expected) = (case.value, expect(case.value)?);
        match case.op() {
            "codec" if expects_ok(value) => {
                only(expected, &["ok", "decoded_equal", "encoded"])?;
                let encoded = at(expected, "encoded")?;
                let (_, bytes) = codec::reencode(&json(encoded)?).map_err(|error| error.to_string())?;
                let again: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
                same_value(expected, "encoded", &again)?;
                same_value(expected, "decoded_equal", &json!(true))
            }
            // An object of an unregistered type cannot be handed to the encoder here: it has no `Root`.
            "codec" => only(expected, &["ok", "error_class"]),
            "codec_decode" => {
                let read = json(case.get("input")?)
                    .and_then(|json| codec::reencode(&json).map_err(|error| error.to_string()));
                let Some((key, _)) = outcome(value, read)? else { return Ok(()) };
                only(expected, &["ok", "type"])?;
                same_text(expected, "type", key.rsplit('.').next().unwrap_or(key))
            }
            op => Err(unknown_op(op)),
        }
    });
}

//! The CPU arena's own service record.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_identity::{Canonical, Decode, Json, sha256};
use cacheon_stack::TargetId;
use cacheon_stack::arena::{
    ArenaRuntime, CandidateBinding, Capacity, CpuRuntime, PromptAuthority, ScreenDecision, ScreenReservation,
    ServiceManifest, ServiceVersion, Stage, StageGrade, StageResult, screen,
};

fn digest(name: &str) -> cacheon_identity::Digest {
    sha256(name.as_bytes())
}

fn authority() -> PromptAuthority {
    let digests = ["hidden_corpus_commitment", "hidden_judge_digest", "hidden_task_policy_digest"];
    let digests = digests.iter().chain(&["selection_policy_digest", "tokenizer_digest"]);
    let digests: String = digests.map(|name| format!("\"{name}\":\"{}\",", digest(name))).collect();
    let text = format!(
        "{{{digests}\"closed_targets\":[],\"prompt_batches\":[[\"a\"],[\"b\"],[\"c\"]],\"prompt_seed_scheme\":\"sealed-v1\",\
         \"workload_cell\":{{\"cell_id\":\"cpu-64x50-c1\",\"concurrency\":1,\"input_tokens\":64,\"output_tokens\":50,\
         \"timed_reads\":7}}}}"
    );
    PromptAuthority::parse(text.as_bytes()).unwrap()
}

fn manifest() -> ServiceManifest {
    let authority = authority();
    assert_eq!(authority.context_tokens(), 242);
    ServiceManifest {
        version: ServiceVersion::Cpu1,
        capacity: Capacity::STANDING,
        closed_targets: vec![TargetId::parse("norm.rmsnorm").unwrap()],
        provider: digest("provider"),
        qualification_policy: digest("policy"),
        runtime: ArenaRuntime::Cpu(CpuRuntime {
            arena_id: "cpu-smollm2-135m".to_owned(),
            base_engine: digest("base").to_string().parse().unwrap(),
            cores: 2,
            lanes: 2,
            model_content: digest("content"),
            model_manifest: digest("manifest"),
            model_revision: digest("revision"),
            runtime: digest("runtime").to_string().parse().unwrap(),
            target_architecture: "x86_64-avx2".to_owned(),
            topology_class: "one-core-per-lane".to_owned(),
            topology: digest("topology"),
            worker_distribution: digest("worker"),
        }),
        timeouts_ms: vec![60_000, 600_000, 60_000, 60_000],
        workload: authority.workload(),
    }
}

#[test]
fn the_record_reads_back_and_holds_no_gpu_fact() {
    let it = manifest().checked().unwrap();
    assert_eq!(it.service_id(), format!("cpu-smollm2-135m@{}", it.digest()));
    assert!(it.is_closed(&TargetId::parse("norm.rmsnorm").unwrap()));
    let text = String::from_utf8(it.to_canonical()).unwrap();
    for word in ["gpu", "sm10", "tensor_parallel", "abbreviated_serving", "overlay"] {
        assert!(!text.contains(word), "{word}");
    }
}

#[test]
fn what_it_may_not_say_is_refused() {
    let set = |path: &[&str], value: Json| {
        fn put(json: &mut Json, path: &[&str], value: Json) {
            let Json::Object(members) = json else { panic!("no object") };
            match path {
                [last] => drop(members.insert((*last).to_owned(), value)),
                [first, rest @ ..] => put(members.get_mut(*first).unwrap(), rest, value),
                [] => {}
            }
        }
        let mut json = manifest().to_json().unwrap();
        put(&mut json, path, value);
        ServiceManifest::decode(&json)
    };
    assert!(set(&["runtime", "arena_id"], "cpu".into()).is_ok());
    for (path, value) in [
        (&["type"][..], Json::from("arena")),
        (&["schema_version"], 2.into()),
        (&["runtime", "gpu_count"], 1.into()),
        (&["runtime", "lanes"], 1.into()),
        (&["runtime", "cores"], 1.into()),
        (&["runtime", "target_architecture"], "x86-64 avx2".into()),
        (&["runtime", "target_architecture"], "".into()),
        (&["closed_targets"], Json::Array(vec!["moe.fused_experts".into()])),
    ] {
        assert!(set(path, value).is_err(), "{path:?}");
    }
}

#[test]
fn nothing_is_waived() {
    let manifest = manifest();
    let reservation = ScreenReservation {
        finalized_block: 1,
        finalized_event_index: 0,
        finalized_event_subindex: 0,
        hotkey: "miner".parse().unwrap(),
        reservation: digest("r"),
        selected_delta: digest("d").to_string().parse().unwrap(),
        submission: digest("p"),
        target: TargetId::parse("linear.quantized").unwrap(),
        members: vec![TargetId::parse("linear.quantized").unwrap()],
    };
    let run = |attempt: u64, grade: StageGrade, elapsed_ms: u64| {
        let binding = CandidateBinding::new::<()>(digest("p"), reservation.clone(), attempt).unwrap();
        let screened = screen::<()>(&manifest, &binding, |stage| {
            let of = |hit: StageGrade| if stage == Stage::Graph { hit } else { StageGrade::Pass };
            let elapsed_ms = if stage == Stage::Graph { elapsed_ms } else { 1 };
            Ok(StageResult { elapsed_ms, evidence: digest("e"), grade: of(grade), stage })
        });
        let screened = screened.unwrap();
        assert!(screened.waivers.is_empty());
        screened.receipt.decision()
    };
    assert_eq!(run(1, StageGrade::Pass, 1), ScreenDecision::Promote);
    assert_eq!(run(1, StageGrade::Fail, 1), ScreenDecision::Reject);
    assert_eq!(run(1, StageGrade::NoDecision, 1), ScreenDecision::Retry);
    assert_eq!(run(2, StageGrade::NoDecision, 1), ScreenDecision::Hold);
    assert_eq!(run(1, StageGrade::Fail, 60_001), ScreenDecision::Retry, "late evidence decides nothing");
}

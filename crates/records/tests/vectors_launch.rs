//! Golden cases of launch, lane and runtime identities.
#![allow(clippy::unwrap_used)]

use cacheon_identity::{Canonical, Decode, DecodeError, Int, Json, domain::envelope_digest};
use cacheon_records::arena::Role;
use cacheon_records::audit::{AuditControl, AuditPolicy};
use cacheon_records::lane::{LaneId, LanePair, PairBinding, PairLane, QualificationLane};
use cacheon_records::launch::preflight::{Distribution, Platform, PreflightReceipt};
use cacheon_records::launch::resources::{
    Cpusets, PrebuildLimits, PrebuildPolicy, RuntimeLimits, RuntimeResourcePolicy,
};
use cacheon_records::launch::session::{EngineConfig, EngineConfigFacts, EngineDtype, RuntimePreflightFacts};
use cacheon_records::launch::{EngineLaunch, LogicalHardware, ModelMount, PreflightIdentity};
use cacheon_vectors::{Case, unknown_op};
use serde_json::{Value, json as value};

/// Outputs by name, or why the input was refused.
type Outcome = Result<Vec<(&'static str, Value)>, String>;

fn read<T: Decode>(input: &Value) -> Result<T, String> {
    let json = Json::parse(input.to_string().as_bytes()).map_err(|e| e.to_string())?;
    T::decode(&json).map_err(|e| e.to_string())
}

fn text(error: DecodeError) -> String {
    error.to_string()
}

/// A record reads back as what it writes, and names the digest.
fn round<T: Decode + Canonical + PartialEq + std::fmt::Debug>(input: &Value) -> Result<T, String> {
    let record: T = read(input)?;
    assert_eq!(T::decode_bytes(&record.to_canonical()).as_ref(), Ok(&record));
    assert_eq!(serde_json::from_slice::<Value>(&record.to_canonical()).unwrap(), *input);
    Ok(record)
}

fn digest(value: impl std::fmt::Display) -> (&'static str, Value) {
    ("digest", value.to_string().into())
}

fn hex(bytes: &[u8]) -> Value {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<String>().into()
}

fn identity(identity: PreflightIdentity) -> Value {
    value!({
        "image_digest": identity.image.to_string(),
        "platform_digest": identity.platform.to_string(),
        "worker_distribution_digest": identity.worker_distribution.to_string(),
    })
}

/// Members of an input whose numbers may be floats.
struct Input<'a>(&'a Value);

impl Input<'_> {
    fn float(&self, name: &str) -> Result<f64, String> {
        self.0[name].as_f64().ok_or_else(|| format!("{name} is no number"))
    }

    fn get<T: Decode>(&self, name: &str) -> Result<T, String> {
        read(&self.0[name]).map_err(|e| format!("{name}: {e}"))
    }

    fn closed(&self, known: &[&str]) -> Result<(), String> {
        let extra = self.0.as_object().unwrap().keys().find(|key| !known.contains(&key.as_str()));
        extra.map_or(Ok(()), |key| Err(format!("`{key}` is not known")))
    }
}

fn runtime_policy(input: &Value) -> Result<RuntimeResourcePolicy, String> {
    let it = Input(input);
    let limits = RuntimeLimits {
        batch_timeout_seconds: it.float("batch_timeout_seconds")?,
        cache_bytes: it.get("cache_bytes")?,
        cache_inodes: it.get("cache_inodes")?,
        container_python: it.get("container_python")?,
        cpu_millis: it.get("cpu_millis")?,
        cpuset_cpus: it.get("cpuset_cpus")?,
        cpuset_mems: it.get("cpuset_mems")?,
        gid: it.get("gid")?,
        init_timeout_seconds: it.float("init_timeout_seconds")?,
        memory_bytes: it.get("memory_bytes")?,
        nofile_limit: it.get("nofile_limit")?,
        pids_limit: it.get("pids_limit")?,
        shm_bytes: it.get("shm_bytes")?,
        tmpfs_bytes: it.get("tmpfs_bytes")?,
        uid: it.get("uid")?,
    };
    RuntimeResourcePolicy::new(limits).map_err(text)
}

fn prebuild_policy(input: &Value) -> Result<PrebuildPolicy, String> {
    let it = Input(input);
    let limits = PrebuildLimits {
        build_path: it.get("build_path")?,
        build_tmpdir: it.get("build_tmpdir")?,
        container_python: it.get("container_python")?,
        cpu_millis: it.get("cpu_millis")?,
        cpuset_cpus: it.get("cpuset_cpus")?,
        cpuset_mems: it.get("cpuset_mems")?,
        gid: it.get("gid")?,
        memory_bytes: it.get("memory_bytes")?,
        native_compile_timeout_seconds: it.get("native_compile_timeout_seconds")?,
        pids_limit: it.get("pids_limit")?,
        pinned_build_roots: it.get("pinned_build_roots")?,
        runtime_policy: it.get("runtime_policy_digest")?,
        stage_bytes: it.get("stage_bytes")?,
        stage_inodes: it.get("stage_inodes")?,
        timeout_seconds: it.float("timeout_seconds")?,
        tmpfs_bytes: it.get("tmpfs_bytes")?,
        uid: it.get("uid")?,
    };
    PrebuildPolicy::new(limits).map_err(text)
}

fn engine_config(input: &Value) -> Result<EngineConfig, String> {
    let it = Input(input);
    it.closed(EngineConfig::MEMBERS)?;
    let dtype: String = it.get("dtype")?;
    let facts = EngineConfigFacts {
        attention_backend: it.get("attention_backend")?,
        deterministic: it.get("deterministic")?,
        disable_cuda_graph: it.get("disable_cuda_graph")?,
        disable_custom_all_reduce: it.get("disable_custom_all_reduce")?,
        dtype: EngineDtype::parse(&dtype).ok_or("dtype")?,
        engine_kwargs: it.get("engine_kwargs")?,
        log_level: it.get("log_level")?,
        max_running_requests: it.get("max_running_requests")?,
        mem_fraction_static: it.float("mem_fraction_static")?,
        model_path: it.get("model_path")?,
        moe_runner_backend: it.get("moe_runner_backend")?,
        seam_bindings: it.get("seam_bindings")?,
        tp_size: it.get("tp_size")?,
    };
    EngineConfig::new(facts).map_err(text)
}

fn preflight(input: &Value) -> Outcome {
    let receipt: PreflightReceipt = round(input)?;
    Ok(vec![
        ("sha256", receipt.sha256().to_string().into()),
        ("launch_identity", identity(receipt.identity())),
        ("runtime_digest", receipt.runtime_digest().to_string().into()),
        ("base_engine_digest", receipt.base_engine_digest().to_string().into()),
        ("validator_overlay_digest", receipt.validator_overlay_digest().to_string().into()),
    ])
}

fn run(case: &Case<'_>) -> Option<Outcome> {
    let input = &case.value["input"];
    Some(match case.op() {
        "canonical_digest" => canonical_digest(input),
        "logical_hardware" => round(input).map(|it: LogicalHardware| vec![digest(it.digest())]),
        "engine_launch" => round(input).map(|it: EngineLaunch| {
            vec![
                digest(it.digest()),
                ("measured_digest", it.measured_digest().to_string().into()),
                ("canonical_hex", hex(&it.to_canonical())),
                ("preflight_identity", identity(it.preflight_identity())),
            ]
        }),
        "arena_model_mount" => round(input).map(|it: ModelMount| vec![digest(it.digest())]),
        "engine_session_config" => engine_config(input).map(|it| vec![digest(it.digest())]),
        "runtime_preflight_facts" => round(input).map(|it: RuntimePreflightFacts| vec![digest(it.digest())]),
        "slot_audit_control" => round(input).map(|it: AuditControl| vec![digest(it.digest())]),
        "slot_audit_policy" => round(input).map(|it: AuditPolicy| {
            let environment = value!({
                "CACHEON_SLOT_AUDIT": it.control.sample_rate_text(),
                "CACHEON_SLOT_AUDIT_SEED": it.validator_seed.decimal_text(),
            });
            let control = it.control.digest().to_string();
            vec![digest(it.digest()), ("control_digest", control.into()), ("env", environment)]
        }),
        "runtime_resource_policy" => runtime_policy(input).map(|it| vec![digest(it.digest())]),
        "prebuild_policy" => prebuild_policy(input).map(|it| {
            vec![
                ("resource_policy_digest", it.resource_digest().to_string().into()),
                ("dependency_policy_digest", it.dependency_digest().to_string().into()),
            ]
        }),
        "cpuset_pair" => cpusets(input),
        "runtime_preflight_receipt" => preflight(input),
        "platform_digest" => round(input).map(|it: Platform| vec![digest(it.digest())]),
        "worker_distribution_digest" => round(input).and_then(|it: Distribution| {
            it.check().map_err(text)?;
            let (count, total) = (it.files.len().into(), it.total_bytes().into());
            Ok(vec![digest(it.digest()), ("file_count", count), ("total_bytes", total)])
        }),
        "qualification_lane" => round(input).map(|it: QualificationLane| vec![digest(it.digest())]),
        "qualification_lane_pair" => lane_pair(input),
        "resident_pair_runtime_binding" => round(input).map(|it: PairBinding| {
            let lanes = it.lanes().iter().map(PairLane::digest).map(|d| Value::from(d.to_string())).collect();
            vec![digest(it.digest()), ("lane_digests", lanes)]
        }),
        _ => return None,
    })
}

fn canonical_digest(input: &Value) -> Outcome {
    let payload = Json::parse(input["payload"].to_string().as_bytes()).map_err(|e| e.to_string())?;
    let version =
        Int::decode(&Json::parse(input["schema_version"].to_string().as_bytes()).unwrap()).map_err(text)?;
    let got =
        envelope_digest(input["domain"].as_str().unwrap(), &payload, &version).map_err(|e| e.to_string())?;
    Ok(vec![digest(got), ("canonical_hex", hex(&payload.to_canonical()))])
}

fn cpusets(input: &Value) -> Outcome {
    let it = Input(input);
    let (cpus, mems): (Option<String>, Option<String>) = (it.get("cpuset_cpus")?, it.get("cpuset_mems")?);
    let sets = Cpusets::new(cpus.as_deref(), mems.as_deref(), it.get("cpu_millis")?).map_err(text)?;
    let lists = sets.get().map(|(cpus, mems)| (cpus.as_str(), mems.as_str()));
    Ok(vec![("cpus", value!(lists.map(|it| it.0))), ("mems", value!(lists.map(|it| it.1)))])
}

fn lane_pair(input: &Value) -> Outcome {
    let pair = LanePair::new(round(&input["lane_a"])?, round(&input["lane_b"])?).map_err(text)?;
    let candidate = |role| Value::from(LanePair::candidate_lane(role).as_str());
    assert_eq!(LanePair::candidate_lane(Role::Primary).other(), LaneId::B);
    Ok(vec![
        digest(pair.digest()),
        ("role_swap_digest", LanePair::role_swap_digest().to_string().into()),
        ("primary_candidate", candidate(Role::Primary)),
        ("reproduction_candidate", candidate(Role::Reproduction)),
    ])
}

/// Operations that other crates own: native builds and profiles are in the stack crate; device telemetry belongs to the
/// host side of the GPU arena, which is later work.
const DEFERRED: [&str; 10] = [
    "native_build_spec",
    "native_compile_profile",
    "native_compiler_policy_digest",
    "native_patcher_digest",
    "native_toolchain_digest",
    "compute_cap_to_architecture",
    "device_state_policy",
    "gpu_process_monitor",
    "gpu_query_csv",
    "topology_matrix_digest",
];

#[test]
fn vectors_execution_launch() {
    cacheon_vectors::run("execution_launch", &DEFERRED, |case| {
        let expect = case.get("expect")?;
        let Some(outcome) = run(case) else { return Err(unknown_op(case.op())) };
        match (outcome, expect["ok"] == true) {
            (Err(_), false) => Ok(()),
            (Err(why), true) => Err(format!("refused: {why}")),
            (Ok(_), false) => Err("accepted".into()),
            (Ok(outputs), true) => {
                for key in expect.as_object().into_iter().flat_map(|o| o.keys()).filter(|key| *key != "ok") {
                    if !outputs.iter().any(|(name, _)| name == key) {
                        return Err(format!("expectation `{key}` is not read"));
                    }
                }
                match outputs.iter().find(|(name, got)| expect[*name] != *got) {
                    Some((name, got)) => Err(format!("{name}: got {got}, expected {}", expect[*name])),
                    None => Ok(()),
                }
            }
        }
    });
}

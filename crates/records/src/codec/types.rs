//! The types of the typed codec (spec 40 §10.1 and its data file): keys, members and shapes, as data.
//!
//! Only a root's key appears in encoded bytes. Keys are the deployed implementation's dotted names and are protocol
//! constants. The table is compared with the data file by a test.

use super::Shape::{Flag, Float, Integer, List, Optional, Record, Text, Tuple, Word};
use super::{Type, rule};
use crate::audit::{AuditPolicy, AuditReceipt};
use crate::evidence::EvidenceRef;
use crate::lane::PairBinding;
use crate::launch::session::RuntimePreflightFacts;

/// Declares types: name, key, values of `schema`, rule, and members in code-point order.
macro_rules! types {
    ($($name:ident = $key:literal [$($schema:literal),*] $rule:expr => { $($field:ident: $shape:expr),+ $(,)? })+) => {
        $(pub(super) static $name: Type = Type {
            key: $key,
            schemas: &[$($schema),*],
            rule: $rule,
            fields: &[$((stringify!($field), $shape)),+],
        };)+
    };
}

types! {
    AUDIT_RECEIPT_FACTS = "cacheon.eval.oci_session_protocol.AuditReceiptFacts"
        [] rule::of::<AuditReceipt> => {
        baseline_refused: Integer, compare_errors: Integer, min_ratio: Optional(&Float),
        mode: Optional(&Text), n: Integer, pid: Integer, rank: Integer, slot: Text, violations: Integer,
        world_size: Integer, worst_frac: Float,
    }
    AUDIT_WITNESS = "cacheon.eval.qualification_runner.AuditWitness"
        [] rule::none => {
        candidate_launch_digest: Text, decision: Word(&["PASS", "FAIL", "NO_DECISION"]), detail: Text,
        execution_identity_digest: Text, policy: Record(&SLOT_AUDIT_POLICY),
        receipts: List(&Record(&AUDIT_RECEIPT_FACTS)), runtime_resource_policy_digest: Text,
        selected_delta_digest: Text, session_id: Text,
    }
    BATCH_EVIDENCE = "cacheon.eval.oci_session_protocol.BatchEvidence"
        [] rule::none => {
        prompts: List(&Record(&PROMPT_EVIDENCE)),
    }
    BATCH_EXECUTION_EVIDENCE = "cacheon.eval.oci_outer_session.BatchExecutionEvidence"
        [] rule::none => {
        audit_receipts: List(&Record(&AUDIT_RECEIPT_FACTS)), batch_index: Integer,
        evidence: Record(&BATCH_EVIDENCE), nonce: Text, request_id: Text, request_started_at: Float,
        response_completed_at: Float, token_numerator: Integer,
    }
    CANDIDATE_FREE_RUNTIME_IDENTITY = "cacheon.eval.oci_backend.CandidateFreeRuntimeIdentity"
        [] rule::none => {
        base_engine_digest: Text, runtime_digest: Text, validator_overlay_digest: Text,
    }
    COUNT_QUALITY_EVIDENCE = "cacheon.eval.count_quality.CountQualityEvidence"
        [] rule::none => {
        candidate_correct: Integer, candidate_observation_digest: Text, stock_correct: Integer,
        stock_observation_digest: Text, total: Integer,
    }
    COUNT_QUALITY_POLICY = "cacheon.eval.count_quality.CountQualityPolicy"
        [] rule::none => {
        regression_threshold_drop: Integer,
    }
    COUNT_QUALITY_VERDICT = "cacheon.eval.count_quality.CountQualityVerdict"
        [] rule::none => {
        decision: Text, evidence_digest: Text, observed_drop: Integer, policy_digest: Text,
        regression_threshold_drop: Integer,
    }
    DEVICE_STATE_ACTIVE_RECEIPT = "cacheon.eval.device_state.DeviceStateActiveReceipt"
        ["cacheon.device-state-active-receipt.v2"] rule::none => {
        completed_monotonic_s: Float, configuration_sha256: Text, consecutive_active_samples: Integer,
        event: Text, launch_id: Text, policy_sha256: Text, post_release_ready_samples: Integer,
        release_sample_index: Integer, samples: List(&Record(&DEVICE_STATE_SAMPLE)), schema: Text,
        selected_physical_gpu_ids: List(&Integer), sequence: Integer, started_monotonic_s: Float,
    }
    DEVICE_STATE_RECEIPT = "cacheon.eval.device_state.DeviceStateReceipt"
        ["cacheon.device-state-receipt.v1"] rule::none => {
        completed_monotonic_s: Float, configuration_sha256: Text, consecutive_idle_samples: Integer,
        launch_id: Text, phase: Text, policy_sha256: Text, samples: List(&Record(&DEVICE_STATE_SAMPLE)),
        schema: Text, selected_physical_gpu_ids: List(&Integer), sequence: Integer,
        started_monotonic_s: Float,
    }
    DEVICE_STATE_SAMPLE = "cacheon.eval.device_state.DeviceStateSample"
        [] rule::none => {
        active_envelope_passed: Flag, active_envelope_reason: Text, idle: Flag, idle_reason: Text,
        monotonic_s: Float, processes: List(&Record(&GPU_PROCESS)), telemetry: List(&Record(&GPU_TELEMETRY)),
    }
    ENGINE_EXECUTION_EVIDENCE = "cacheon.eval.oci_backend.EngineExecutionEvidence"
        ["cacheon.oci-engine-execution.v1", "cacheon.oci-resident-engine-execution.v1"] rule::none => {
        arena_model_receipt_digest: Text,
        device_receipts: Tuple(&[Record(&DEVICE_STATE_RECEIPT), Record(&DEVICE_STATE_ACTIVE_RECEIPT), Record(&DEVICE_STATE_RECEIPT)]),
        launch_digest: Text, native_publication_digest: Text, prebuild: Record(&OCI_PREBUILD_RESULT),
        recovered_lease_ids: List(&Text), resource_policy_digest: Text, runtime_argv_sha256: Text,
        runtime_identity: Record(&CANDIDATE_FREE_RUNTIME_IDENTITY), runtime_preflight_receipt_sha256: Text,
        schema: Text, session: Record(&SESSION_EXECUTION_EVIDENCE),
    }
    EVIDENCE_ARTIFACT_REF = "cacheon.eval.evidence_store.EvidenceArtifactRef"
        [] rule::of::<EvidenceRef> => {
        domain: Text, media_type: Text, schema: Text, sha256: Text, size: Integer,
    }
    GPU_PROCESS = "cacheon.eval.device_state.GPUProcess"
        [] rule::none => {
        kind: Text, physical_id: Integer, pid: Integer, process_name: Text,
    }
    GPU_TELEMETRY = "cacheon.eval.device_state.GPUTelemetry"
        [] rule::none => {
        current_graphics_clock_mhz: Optional(&Integer), current_memory_clock_mhz: Optional(&Integer),
        gpu_utilization_percent: Integer, memory_utilization_percent: Integer, physical_id: Integer,
        power_draw_mw: Optional(&Integer), pstate: Text, temperature_c: Integer, uuid: Text,
    }
    NATIVE_ARTIFACT_FILE = "cacheon.eval.native_artifact.NativeArtifactFile"
        [] rule::none => {
        path: Text, sha256: Text, size: Integer,
    }
    NATIVE_ARTIFACT_PUBLICATION = "cacheon.eval.native_artifact.NativeArtifactPublication"
        [] rule::none => {
        build_spec_digest: Text, directories: List(&Text), files: List(&Record(&NATIVE_ARTIFACT_FILE)),
        publication_digest: Text, reused: Flag, root: Text,
    }
    OCI_PREBUILD_RESULT = "cacheon.eval.oci_prebuild.OCIPrebuildResult"
        [] rule::none => {
        build_spec_digest: Text, container_elapsed_seconds: Optional(&Float), launch_digest: Text,
        publication: Record(&NATIVE_ARTIFACT_PUBLICATION), security_argv_digest: Optional(&Text),
    }
    OCI_QUIESCENCE_RECEIPT = "cacheon.eval.oci_process.OCIQuiescenceReceipt"
        ["cacheon.oci-quiescence.v1"] rule::quiescence => {
        container_ids: List(&Text), executor_id: Text, lease_records: List(&Text), manager_instance_id: Text,
        namespace_digest: Text, observed_monotonic_s: Float, resource_entries: List(&Text), schema: Text,
        sequence: Integer,
    }
    PRISTINE_REFERENCE_EXECUTION_EVIDENCE = "cacheon.eval.oci_backend.PristineReferenceExecutionEvidence"
        ["cacheon.oci-pristine-reference-execution.v1"] rule::none => {
        arena_model_receipt_digest: Text,
        device_receipts: Tuple(&[Record(&DEVICE_STATE_RECEIPT), Record(&DEVICE_STATE_RECEIPT)]),
        launch_digest: Text, native_publication_digest: Text, prebuild: Record(&OCI_PREBUILD_RESULT),
        recovered_lease_ids: List(&Text), resource_policy_digest: Text, runtime_argv_sha256: Text,
        runtime_identity: Record(&CANDIDATE_FREE_RUNTIME_IDENTITY), runtime_preflight_receipt_sha256: Text,
        schema: Text, session: Record(&REFERENCE_SESSION_EVIDENCE),
    }
    PROMPT_EVIDENCE = "cacheon.eval.oci_session_protocol.PromptEvidence"
        [] rule::none => {
        output_ids: List(&Integer), prompt_tokens: Integer,
        top_logprobs: List(&List(&Tuple(&[Float, Integer]))),
    }
    REFERENCE_EVIDENCE = "cacheon.eval.reference_protocol.ReferenceEvidence"
        [] rule::none => {
        launch_digest: Text, nonce: Text, plan_digest: Text,
        prompts: List(&Record(&REFERENCE_PROMPT_EVIDENCE)), request_id: Text, request_index: Integer,
        request_sha256: Text, session_id: Text, vocab_size: Integer,
    }
    REFERENCE_EXCHANGE_EVIDENCE = "cacheon.eval.oci_reference_session.ReferenceExchangeEvidence"
        [] rule::none => {
        evidence: Record(&REFERENCE_EVIDENCE), evidence_frame_sha256: Text,
        request: Record(&REFERENCE_REQUEST), request_index: Integer, request_sha256: Text,
        request_started_at: Float, response_completed_at: Float,
    }
    REFERENCE_PROMPT_EVIDENCE = "cacheon.eval.reference_protocol.ReferencePromptEvidence"
        [] rule::none => {
        prompt_digest: Text, prompt_token_count: Integer, prompt_token_sha256: Text,
        roles: Tuple(&[Record(&REFERENCE_ROLE_EVIDENCE), Record(&REFERENCE_ROLE_EVIDENCE), Record(&REFERENCE_ROLE_EVIDENCE)]),
    }
    REFERENCE_PROMPT_INPUT = "cacheon.eval.reference_protocol.ReferencePromptInput"
        [] rule::none => {
        prompt: Text, prompt_digest: Text,
        roles: Tuple(&[Record(&REFERENCE_ROLE_INPUT), Record(&REFERENCE_ROLE_INPUT), Record(&REFERENCE_ROLE_INPUT)]),
    }
    REFERENCE_REQUEST = "cacheon.eval.reference_protocol.ReferenceRequest"
        [] rule::none => {
        launch_digest: Text, nonce: Text, plan_digest: Text, prompts: List(&Record(&REFERENCE_PROMPT_INPUT)),
        request_id: Text, request_index: Integer, session_id: Text, support_width: Integer,
        tokens_per_prompt: Integer,
    }
    REFERENCE_ROLE_EVIDENCE = "cacheon.eval.reference_protocol.ReferenceRoleEvidence"
        [] rule::none => {
        tokens: List(&Record(&REFERENCE_TOKEN_EVIDENCE)),
    }
    REFERENCE_ROLE_INPUT = "cacheon.eval.reference_protocol.ReferenceRoleInput"
        [] rule::none => {
        output_ids: List(&Integer), supports: List(&List(&Integer)),
    }
    REFERENCE_SESSION_EVIDENCE = "cacheon.eval.oci_reference_session.ReferenceSessionEvidence"
        ["cacheon.pristine-reference-session.v1"] rule::none => {
        exchanges: List(&Record(&REFERENCE_EXCHANGE_EVIDENCE)), launch_digest: Text,
        preflight: Record(&RUNTIME_PREFLIGHT_FACTS), ready_completed_at: Float,
        reference_manifest_digest: Text, request_plan_digest: Text, schema: Text, session_completed_at: Float,
        session_id: Text, session_plan_digest: Text,
    }
    REFERENCE_TOKEN_EVIDENCE = "cacheon.eval.reference_protocol.ReferenceTokenEvidence"
        [] rule::none => {
        support_logprobs: List(&Float), target_logprob: Float, true_argmax_token_id: Integer,
    }
    REGISTERED_RESIDENT_COUNT_QUALITY_RESULT = "cacheon.eval.registered_resident_count_quality.RegisteredResidentCountQualityResult"
        [] rule::none => {
        candidate_bundle_digest: Text, candidate_observation_digest: Text, catalog_digest: Text,
        count_quality_result: Record(&RESIDENT_COUNT_QUALITY_RESULT), count_quality_result_digest: Text,
        execution_envelope_digest: Text, execution_plan_digest: Text, fixed_stock_authority_digest: Text,
        pair_binding_digest: Text, policy_digest: Text, profile_digest: Text,
        raw_execution_evidence_digest: Text, stock_observation_digest: Text, target_id: Text,
        target_spec_digest: Text,
    }
    RESIDENT_BATCH_EVIDENCE = "cacheon.eval.oci_resident_session.ResidentBatchEvidence"
        [] rule::none => {
        active_slots: List(&Text), batch_index: Integer, canary: Flag, evidence: Record(&BATCH_EVIDENCE),
        generation: Integer, nonce: Text, request_id: Text, request_started_at: Float,
        response_completed_at: Float, token_numerator: Integer,
    }
    RESIDENT_BATCH_SHAPE = "cacheon.eval.oci_resident_session.ResidentBatchShape"
        [] rule::none => {
        expected_prompt_tokens: Optional(&Integer), max_new_tokens: Integer, temperature: Float,
        top_logprobs_num: Integer,
    }
    RESIDENT_COUNT_QUALITY_CHECKPOINT = "cacheon.eval.qualification_continuation.ResidentCountQualityCheckpoint"
        ["cacheon.eval.resident-count-quality-checkpoint.v2"] rule::none => {
        candidate_observation: Record(&EVIDENCE_ARTIFACT_REF), candidate_observation_semantic_digest: Text,
        execution_plan_digest: Text, fixed_stock_authority_digest: Text, pair_binding_digest: Text,
        raw_execution_evidence: Record(&EVIDENCE_ARTIFACT_REF), raw_execution_evidence_semantic_digest: Text,
        schema: Text,
    }
    RESIDENT_COUNT_QUALITY_EXECUTION_EVIDENCE = "cacheon.eval.resident_count_quality_execution.ResidentCountQualityExecutionEvidence"
        ["cacheon.eval.resident-count-quality-execution-evidence.v1"] rule::none => {
        candidate_bundle_digest: Text, envelope_digest: Text, execution_plan_digest: Text,
        pair_binding: Record(&RESIDENT_PAIR_RUNTIME_BINDING),
        request_slices: Tuple(&[Record(&RESIDENT_REQUEST_SLICE), Record(&RESIDENT_REQUEST_SLICE)]),
        schema: Text,
    }
    RESIDENT_COUNT_QUALITY_RESULT = "cacheon.eval.resident_count_quality.ResidentCountQualityResult"
        [] rule::none => {
        candidate_observation_digest: Text, evidence: Record(&COUNT_QUALITY_EVIDENCE),
        policy: Record(&COUNT_QUALITY_POLICY), stock_observation_digest: Text,
        verdict: Record(&COUNT_QUALITY_VERDICT),
    }
    RESIDENT_COUNT_QUALITY_STOCK_AUTHORITY = "cacheon.eval.resident_count_quality.ResidentCountQualityStockAuthority"
        [] rule::none => {
        artifact: Record(&EVIDENCE_ARTIFACT_REF), envelope_digest: Text, observation_digest: Text,
        policy: Record(&COUNT_QUALITY_POLICY),
    }
    RESIDENT_CROSSOVER_EVIDENCE = "cacheon.eval.crossover_runtime.ResidentCrossoverEvidence"
        [] rule::none => {
        baseline_execution: Record(&ENGINE_EXECUTION_EVIDENCE), baseline_lane_digest: Text,
        baseline_quiescence: Record(&OCI_QUIESCENCE_RECEIPT),
        candidate_execution: Record(&ENGINE_EXECUTION_EVIDENCE), candidate_lane_digest: Text,
        candidate_quiescence: Record(&OCI_QUIESCENCE_RECEIPT), completed_monotonic_s: Float,
        decision: Word(&["PASS", "FAIL", "NO_DECISION"]), escalated: Flag, exit_reason: Text,
        final_verdict: Record(&SPEEDUP_VERDICT), initial_verdict: Record(&SPEEDUP_VERDICT), plan_digest: Text,
        policy: Record(&RESIDENT_SPEED_POLICY), rates: List(&Record(&RESIDENT_READ_RATE)),
        selected_delta_digest: Text, started_monotonic_s: Float, workload_digest: Text,
    }
    RESIDENT_EXECUTION_EVIDENCE = "cacheon.eval.resident_execution_evidence.ResidentExecutionEvidence"
        [] rule::none => {
        prior_execution_ranks: Integer, prior_generation: Integer,
    }
    RESIDENT_PAIR_CROSSOVER_EVIDENCE = "cacheon.eval.resident_pair_crossover.ResidentPairCrossoverEvidence"
        [] rule::none => {
        batch_shape: Record(&RESIDENT_BATCH_SHAPE), candidate_bundle_digest: Text,
        completed_monotonic_s: Float, deadline_monotonic_s: Float,
        decision: Word(&["PASS", "FAIL", "NO_DECISION"]), escalated: Flag,
        final_verdict: Record(&SPEEDUP_VERDICT), initial_verdict: Record(&SPEEDUP_VERDICT),
        orientation: Tuple(&[Text, Text]), pair_binding: Record(&RESIDENT_PAIR_RUNTIME_BINDING),
        physical_lane_digests: Tuple(&[Text, Text]), plan_digest: Text,
        policy: Record(&RESIDENT_SPEED_POLICY), prompt_batches_digest: Text,
        rates: List(&Record(&RESIDENT_READ_RATE)), request_slices: List(&Record(&RESIDENT_REQUEST_SLICE)),
        selected_delta_digest: Text, started_monotonic_s: Float, workload_digest: Text,
    }
    RESIDENT_PAIR_LANE_BINDING = "cacheon.eval.resident_pair_binding.ResidentPairLaneBinding"
        [] rule::none => {
        allocation_digest: Text, executor_namespace_digest: Text, lane_digest: Text, lane_id: Text,
        session_id: Text, stock_launch_digest: Text,
    }
    RESIDENT_PAIR_LANE_RETIREMENT = "cacheon.eval.qualification_continuation.ResidentPairLaneRetirement"
        [] rule::none => {
        arena_model_receipt_digest: Text, commissioning_digest: Text,
        device_receipts: Tuple(&[Record(&DEVICE_STATE_RECEIPT), Record(&DEVICE_STATE_RECEIPT)]),
        lane_id: Text, native_publication_digest: Text, quiescence: Record(&OCI_QUIESCENCE_RECEIPT),
        recovered_lease_ids: List(&Text), resource_policy_digest: Text, runtime_argv_sha256: Text,
        runtime_identity: Record(&CANDIDATE_FREE_RUNTIME_IDENTITY), runtime_preflight_receipt_sha256: Text,
        session_completed_at: Float, session_digest: Text, session_ready_completed_at: Float,
    }
    RESIDENT_PAIR_QUALIFICATION_CLOSURE = "cacheon.eval.resident_pair_quality_lifecycle.ResidentPairQualificationClosure"
        [] rule::none => {
        count_checkpoint: Record(&RESIDENT_COUNT_QUALITY_CHECKPOINT),
        count_result: Record(&REGISTERED_RESIDENT_COUNT_QUALITY_RESULT),
        retirement: Record(&RESIDENT_PAIR_RETIREMENT_CHECKPOINT),
        stock_authority: Record(&RESIDENT_COUNT_QUALITY_STOCK_AUTHORITY),
    }
    RESIDENT_PAIR_RETIREMENT_CHECKPOINT = "cacheon.eval.qualification_continuation.ResidentPairRetirementCheckpoint"
        ["cacheon.eval.resident-pair-retirement-checkpoint.v1"] rule::none => {
        authenticated_request_digest: Text, count_evidence_digest: Optional(&Text),
        count_plan_digest: Optional(&Text),
        lanes: Tuple(&[Record(&RESIDENT_PAIR_LANE_RETIREMENT), Record(&RESIDENT_PAIR_LANE_RETIREMENT)]),
        pair_binding: Record(&RESIDENT_PAIR_RUNTIME_BINDING), qualification_authority_digest: Text,
        request_epoch_digest: Text, request_history_slice_digests: List(&Text), schema: Text,
        speed_evidence_digest: Text, speed_plan_digest: Text, target_profile_digest: Text,
    }
    RESIDENT_PAIR_RUNTIME_BINDING = "cacheon.eval.resident_pair_binding.ResidentPairRuntimeBinding"
        [] rule::of::<PairBinding> => {
        lanes: Tuple(&[Record(&RESIDENT_PAIR_LANE_BINDING), Record(&RESIDENT_PAIR_LANE_BINDING)]),
        service_epoch_digest: Text,
    }
    RESIDENT_READ_RATE = "cacheon.eval.crossover_runtime.ResidentReadRate"
        [] rule::none => {
        charged_seconds: Float, charged_tokens: Integer, conditioning_seconds: Float,
        conditioning_tokens: Integer, first_batch_index: Integer, first_timed_batch_index: Integer,
        lane_digest: Text, last_batch_index: Integer, last_timed_batch_index: Integer, launch_digest: Text,
        role: Text, session_id: Text, timed_seconds: Float, timed_tokens: Integer, tokens_per_second: Float,
        windows: List(&Record(&TIMED_WINDOW)),
    }
    RESIDENT_REQUEST_SLICE = "cacheon.eval.resident_evaluation_pair.ResidentRequestSlice"
        [] rule::none => {
        bundle_digest: Text, ending_bundle_digest: Optional(&Text), ending_generation: Integer,
        ending_slots: List(&Text), evaluation_id: Text, expected_batch_count: Integer,
        expected_swap_count: Integer, host_completed_at: Float, host_started_at: Float, lane_id: Text,
        new_batches: List(&Record(&RESIDENT_BATCH_EVIDENCE)), new_swaps: List(&Record(&SWAP_RECEIPT)),
        request_id: Text, session_id: Text, starting_generation: Integer,
    }
    RESIDENT_SESSION_EVIDENCE = "cacheon.eval.oci_resident_session.ResidentSessionEvidence"
        [] rule::none => {
        batches: List(&Record(&RESIDENT_BATCH_EVIDENCE)), launch_digest: Text,
        preflight: Record(&RUNTIME_PREFLIGHT_FACTS), ready_completed_at: Float, session_completed_at: Float,
        session_id: Text, swaps: List(&Record(&SWAP_RECEIPT)),
    }
    RESIDENT_SPEED_POLICY = "cacheon.eval.crossover_runtime.ResidentSpeedPolicy"
        [] rule::none => {
        calibration_context_digest: Text, calibration_digest: Text, max_conditioning_slowdown: Float,
        max_noise: Float, max_qualification_seconds: Integer, max_stage_seconds: Integer,
        max_window_scatter: Float, min_margin: Float, min_windows: Integer, noise_multiplier: Float,
        version: Integer,
    }
    RUNTIME_PREFLIGHT_FACTS = "cacheon.eval.oci_session_protocol.RuntimePreflightFacts"
        [] rule::of::<RuntimePreflightFacts> => {
        engine_config_digest: Text, gpu_architectures: List(&Text), launch_digest: Text, loopback_only: Flag,
        model_content_digest: Text, model_manifest_digest: Text, model_revision_digest: Text,
        private_writable_cache: Flag, read_only_inputs: Flag, runtime_digest: Text, sglang_version: Text,
        stack_digest: Text, topology_digest: Text, tree_digest: Text, worker_distribution_digest: Text,
    }
    SELECTION_ENTROPY_RECEIPT = "cacheon.eval.qualification.SelectionEntropyReceipt"
        [] rule::none => {
        authority_receipt_digest: Text, commitment_digest: Text, entropy_digest: Text, source_digest: Text,
    }
    SESSION_EXECUTION_EVIDENCE = "cacheon.eval.oci_outer_session.SessionExecutionEvidence"
        [] rule::none => {
        audit_policy_digest: Optional(&Text), batches: List(&Record(&BATCH_EXECUTION_EVIDENCE)),
        conditioning_count: Integer, conditioning_started_at: Float, conditioning_token_numerator: Integer,
        first_timed_completed_at: Float, launch_digest: Text, preflight: Record(&RUNTIME_PREFLIGHT_FACTS),
        ready_completed_at: Float, session_completed_at: Float, session_id: Text, warmup_count: Integer,
    }
    SLOT_AUDIT_POLICY = "cacheon.eval.oci_session_protocol.SlotAuditPolicy"
        [] rule::of::<AuditPolicy> => {
        expected_member_count: Integer, expected_slots: List(&Text), minimum_calls: Integer,
        sample_rate_ppm: Integer, validator_seed: Text,
    }
    SPEEDUP_VERDICT = "cacheon.eval.scoring.SpeedupVerdict"
        [] rule::none => {
        confident: Flag, detail: Text, n_baselines: Integer, n_candidates: Integer, noise: Float,
        passed_speedup: Flag, required: Float, speedup: Float,
    }
    SWAP_RECEIPT = "cacheon.eval.oci_resident_session.SwapReceipt"
        [] rule::none => {
        bundle_digest: Optional(&Text), completed_at: Float, execution: Record(&RESIDENT_EXECUTION_EVIDENCE),
        expected_ranks: Integer, generation: Integer, requested_at: Float, slots: List(&Text),
        swap_index: Integer,
    }
    TIMED_WINDOW = "cacheon.eval.crossover_runtime.TimedWindow"
        [] rule::none => {
        batch_index: Integer, seconds: Float, tokens: Integer,
    }
}

/// Every type that may stand at the root.
pub(super) static ROOTS: &[&Type] = &[
    &AUDIT_WITNESS,
    &ENGINE_EXECUTION_EVIDENCE,
    &EVIDENCE_ARTIFACT_REF,
    &OCI_QUIESCENCE_RECEIPT,
    &PRISTINE_REFERENCE_EXECUTION_EVIDENCE,
    &REFERENCE_REQUEST,
    &REGISTERED_RESIDENT_COUNT_QUALITY_RESULT,
    &RESIDENT_COUNT_QUALITY_CHECKPOINT,
    &RESIDENT_COUNT_QUALITY_EXECUTION_EVIDENCE,
    &RESIDENT_CROSSOVER_EVIDENCE,
    &RESIDENT_PAIR_CROSSOVER_EVIDENCE,
    &RESIDENT_PAIR_QUALIFICATION_CLOSURE,
    &RESIDENT_PAIR_RETIREMENT_CHECKPOINT,
    &RESIDENT_REQUEST_SLICE,
    &RESIDENT_SESSION_EVIDENCE,
    &SELECTION_ENTROPY_RECEIPT,
];

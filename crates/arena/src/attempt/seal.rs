//! The sealed plan: everything that decides an attempt, fixed before the first engine starts.

use cacheon_evidence::cpu::graph::ShapeDescriptor;
use cacheon_identity::decimal::Decimal;
use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, Digest, Json};
use cacheon_records::arena::{QualificationOrder, Role};
use cacheon_records::audit::{AuditControl, AuditPolicy, ValidatorSeed};
use cacheon_records::cpu::{PlannedPrompt, SealedPlan};
use cacheon_records::text::EngineToken;
use cacheon_stack::ids::TargetId;
use cacheon_verdict::fields::{Identifier, SchemaOne};
use cacheon_verdict::graph::{
    GraphPolicyV1, GraphRequirement, GraphVariantRequirement, MemberBinding, VerificationBinding,
};
use cacheon_verdict::quality::support_policy_digest;
use cacheon_verdict::selection::{
    CommitmentParts, ProfilePolicyV1, QualificationProfile, Secret, SelectionCommitment, audit_seed,
};
use cacheon_verdict::speed::{PolicyFrame, SpeedPolicy, Version, WindowRules};
use cacheon_verdict::workload::{Workload, WorkloadRevision};

use super::{AttemptError, secret_reference};
use crate::conformance;
use crate::cpu::{ArenaError, CpuArena, Subject};
use crate::lanes::{LaneId, Lanes};
use crate::worker::{hex, random};

fn record<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> AttemptError {
    move |error| AttemptError::Record { what, why: error.to_string() }
}

fn json(what: &'static str, value: &impl Canonical) -> Result<Json, AttemptError> {
    value.to_json().map_err(record(what))
}

/// The prompts of an attempt with the workload they make.
struct Drawn {
    prompts: Vec<Vec<PlannedPrompt>>,
    workload_digest: Digest,
}

impl CpuArena<'_> {
    /// Draws a secret and prompts, plans the transition, prebuilds what it mounts, and writes it all down.
    pub(super) fn seal(&mut self, order: &QualificationOrder) -> Result<SealedPlan, AttemptError> {
        let subject = self.subject(&order.incumbent, &order.candidate, &order.hotkey)?;
        let definition = self.definition.clone();
        let attempt_id = hex(&random::<16>().map_err(record("random source"))?);
        let secret = random::<32>().map_err(record("random source"))?;
        self.selection
            .put_secret(&secret_reference(&attempt_id), &secret)
            .map_err(record("selection secret"))?;
        let secret = Secret::new(secret).map_err(record("selection secret"))?;
        let drawn = self.draw(secret.as_bytes())?;

        let (calibration_ref, calibration) = self.calibration()?;
        let reference_launch = self.reference_launch()?;
        let reference = self.service.reference(reference_launch.digest()).map_err(ArenaError::from)?;
        let expected =
            self.service.calibration_context(reference_launch.digest()).map_err(ArenaError::from)?;
        calibration.require_context(&expected).map_err(record("calibration"))?;
        let rules = &definition.speed;
        let frame = PolicyFrame {
            version: Version::V7,
            max_stage_seconds: rules.max_stage_seconds,
            max_qualification_seconds: rules.max_qualification_seconds,
            windows: Some(WindowRules {
                min_windows: rules.min_windows,
                max_window_scatter: rules.max_window_scatter,
                max_conditioning_slowdown: rules.max_conditioning_slowdown,
            }),
        };
        let speed =
            SpeedPolicy::from_calibration(&calibration, &expected, frame).map_err(record("speed policy"))?;

        let (baseline_lane, candidate_lane) = match order.role {
            Role::Primary => (LaneId::A, LaneId::B),
            Role::Reproduction => (LaneId::B, LaneId::A),
        };
        let lane = |lane: LaneId| Lanes::record(lane, &self.env.lanes.cpu(lane).to_string());
        let mounted = subject.mounted();
        let candidate_launch = self.env.launch(subject.planned.tree.digest().digest(), &mounted);
        let baseline_launch = self.env.launch(order.incumbent.tree_digest, &mounted[..mounted.len() - 1]);
        let requirement = self.requirement(&subject, candidate_launch.digest())?;
        let timed = definition.warmup_count as usize;
        let pool: Vec<Digest> =
            drawn.prompts.iter().skip(timed).flatten().map(|prompt| prompt.digest).collect();
        let select_count = pool.len() as u64;
        let commitment = SelectionCommitment::seal(CommitmentParts {
            reference: &reference,
            source_plan_digest: drawn.workload_digest,
            secret: &secret,
            pool,
            select_count,
        })
        .map_err(record("commitment"))?;
        let delta = subject.candidate.proposal.selected_delta().digest();
        let seed = audit_seed(&secret, delta)
            .ok_or_else(|| AttemptError::Record { what: "audit seed", why: "all zero".to_owned() })?;
        let members = &subject.candidate.inspection.members;
        let slots: Vec<EngineToken> =
            members.iter().map(|slot| EngineToken::parse(slot)).collect::<Result<_, _>>()?;
        let audit = AuditPolicy {
            control: AuditControl::new(
                1,
                slots,
                definition.audit.minimum_calls,
                definition.audit.sample_rate_ppm,
            )?,
            validator_seed: ValidatorSeed::parse(seed.as_str())?,
        };
        let metrics = definition.quality.metrics.iter().map(|rule| Identifier::parse(&rule.metric));
        let profile = QualificationProfile {
            calibration_context_digest: expected.digest(),
            calibration_digest: calibration.digest(),
            graph_requirement_digest: requirement.digest(),
            hidden_task_policy_digest: reference.hidden_judge,
            hidden_tasks_per_prompt: 0,
            hidden_tasks_required: false,
            minimum_prompt_count: select_count.max(2),
            nll_tail_threshold: Decimal::parse(&definition.quality.tail_threshold)
                .map_err(record("quality"))?,
            policy_version: ProfilePolicyV1,
            reference,
            required_quality_metrics: metrics.collect::<Result<_, _>>()?,
            runtime_resource_policy_digest: candidate_launch.container_policy_digest,
            schema_version: SchemaOne,
            support_policy_digest: support_policy_digest(),
            tokens_per_prompt: u64::from(definition.cell.output_tokens),
            topk_width: 0,
        }
        .checked()?;
        let tolerances =
            definition.tolerances.iter().filter(|rules| members.contains(&rules.slot)).cloned().collect();
        Ok(SealedPlan {
            arena_digest: self.service.digest().digest(),
            arm_plan_digest: subject.planned.arm.digest().digest(),
            attempt: order.attempt,
            attempt_id,
            audit_policy: json("audit policy", &audit)?,
            baseline_lane: lane(baseline_lane),
            baseline_launch_digest: baseline_launch.digest(),
            batch_timeout_ms: definition.batch_timeout_ms,
            calibration: calibration_ref,
            calibration_digest: calibration.digest(),
            candidate_lane: lane(candidate_lane),
            candidate_launch_digest: candidate_launch.digest(),
            candidate_manifest: json("candidate manifest", subject.planned.arm.candidate())?,
            candidate_tree_digest: subject.planned.tree.digest().digest(),
            cell: definition.cell.clone(),
            commitment: json("commitment", &commitment)?,
            conditioning_count: definition.conditioning_count,
            content_hash: order.candidate.content_hash,
            graph_requirement: json("graph requirement", &requirement)?,
            hotkey: order.hotkey.clone(),
            incumbent_manifest: json("incumbent manifest", subject.planned.arm.incumbent())?,
            incumbent_tree_digest: order.incumbent.tree_digest,
            prompts: drawn.prompts,
            quality_profile: json("quality profile", &profile)?,
            reference_launch_digest: reference_launch.digest(),
            reservation: order.reservation,
            role: order.role.as_str().to_owned(),
            schema: SealedPlan::SCHEMA.to_owned(),
            select_count: select_count as u32,
            selected_delta_digest: delta,
            speed_policy: json("speed policy", &speed)?,
            target_id: subject.candidate.inspection.target_id.clone(),
            tolerances,
            warmup_count: definition.warmup_count,
            workload_digest: drawn.workload_digest,
        })
    }

    /// The prompts that a secret gives, each with its occurrence digest.
    fn draw(&self, secret: &[u8]) -> Result<Drawn, AttemptError> {
        let definition = &self.definition;
        let batches = definition.warmup_count as usize + definition.cell.timed_reads as usize;
        let drawn =
            crate::prompts::draw(&self.tokenizer, secret, batches, definition.cell.input_tokens as usize)
                .map_err(record("prompts"))?;
        let workload = Workload {
            conditioning_count: u64::from(definition.conditioning_count),
            warmup_count: u64::from(definition.warmup_count),
            engine_config_digest: definition.digest(),
            expected_prompt_tokens: Some(u64::from(definition.cell.input_tokens)),
            max_new_tokens: u64::from(definition.cell.output_tokens),
            prompt_batches: drawn.iter().map(|prompt| vec![prompt.text.clone()]).collect(),
            temperature: Float17::new(0.0).map_err(record("workload"))?,
            top_logprobs_num: 0,
        }
        .checked()
        .map_err(record("workload"))?;
        let workload_digest = workload.digest(WorkloadRevision::V2);
        let prompts = drawn
            .into_iter()
            .zip(workload.occurrences(workload_digest))
            .map(|(prompt, digests)| {
                let planned = |digest| PlannedPrompt {
                    digest,
                    text: prompt.text.clone(),
                    tokens: prompt.tokens.clone(),
                };
                digests.into_iter().map(planned).collect()
            })
            .collect();
        Ok(Drawn { prompts, workload_digest })
    }

    /// Every shape of every variant of the candidate, each of which must pass.
    fn requirement(&self, subject: &Subject, launch: Digest) -> Result<GraphRequirement, AttemptError> {
        let mut variants: Vec<GraphVariantRequirement> = Vec::new();
        for op in subject.kernels.index.ops() {
            let shapes = conformance::shapes(&self.model, op, self.definition.graph_replays, b"descriptors");
            let descriptor = |case: &conformance::ShapeCase<'_>| ShapeDescriptor {
                dims: case.dims().to_vec(),
                shape: case.shape.clone(),
                slot: op.slot.id().to_owned(),
                variant: op.variant.clone(),
            };
            let mut digests: Vec<Digest> = shapes.iter().map(|case| descriptor(case).digest()).collect();
            digests.sort();
            variants.push(GraphVariantRequirement {
                applicable_shape_descriptor_digests: digests.clone(),
                context_applicable: !digests.is_empty(),
                shape_descriptor_digests: digests,
                slot_id: Identifier::parse(op.slot.id())?,
                variant_id: Identifier::parse(&op.variant)?,
            });
        }
        variants.sort_by(|a, b| (&a.slot_id, &a.variant_id).cmp(&(&b.slot_id, &b.variant_id)));
        let catalog = self.service.catalog();
        let proposal = &subject.candidate.proposal;
        let member = |slot: &String| {
            let row = catalog.target(&TargetId::parse(slot)?).ok_or_else(|| AttemptError::Record {
                what: "catalog",
                why: format!("slot {slot} has no target of its own"),
            })?;
            let profile = row.contract().map_or("none", |contract| contract.verification_profile.as_str());
            Ok(MemberBinding {
                contract_digest: row.contract_digest,
                slot_id: Identifier::parse(slot)?,
                target_spec_digest: row.spec.digest(),
                verification_profile_id: Identifier::parse(profile)?,
            })
        };
        let members = subject
            .candidate
            .inspection
            .members
            .iter()
            .map(member)
            .collect::<Result<Vec<_>, AttemptError>>()?;
        let binding = VerificationBinding {
            candidate_launch_digest: launch,
            catalog_digest: catalog.digest().digest(),
            contribution_ref_digest: proposal.digest().digest(),
            marginal_arm_digest: subject.planned.arm.digest().digest(),
            members,
            selected_delta_digest: proposal.selected_delta().digest(),
            target_id: Identifier::parse(&subject.candidate.inspection.target_id)?,
            target_spec_digest: proposal.target_spec.digest(),
            verification_policy_digest: self.definition.digest(),
        };
        Ok(GraphRequirement {
            binding: binding.checked()?,
            expected_graph_replays: u64::from(self.definition.graph_replays),
            policy_version: GraphPolicyV1,
            schema_version: SchemaOne,
            variants,
        }
        .checked()?)
    }
}

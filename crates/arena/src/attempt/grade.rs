//! The stages after the clock: audit beside a candidate-free replay, then the pristine reference.

use std::collections::BTreeMap;

use cacheon_evidence::cpu::attempt::{Artifact, RevealFacts};
use cacheon_evidence::cpu::derive::Plan;
use cacheon_evidence::cpu::quality::logprob_text;
use cacheon_evidence::cpu::speed::trajectories;
use cacheon_evidence::quiescence::Quiescence;
use cacheon_identity::Digest;
use cacheon_model::abi::Slot;
use cacheon_model::schedule::trajectory;
use cacheon_protocol::message::{Binding, CallSite, TracedCall};
use cacheon_records::arena::OnProgress;
use cacheon_records::cpu::{
    AuditRaw, CpuLaunch, ReferenceRaw, Rollout, SampledCall, SessionRecord, SlotCalls, SpeedRaw, Tensor,
};
use cacheon_verdict::cpu::sampled_calls;
use cacheon_verdict::selection::{EntropyReceipt, Secret, reveal};
use cacheon_verdict::speed::Role;

use super::collect::{Ended, Stop, finished, lanes, stopped};
use super::{AttemptError, StageResult, say, secret_reference, tree};
use crate::conformance::{audit_reference, from_bytes, to_bytes};
use crate::cpu::{CpuArena, Subject};
use crate::environment::Kernels;
use crate::lanes::LaneId;
use crate::worker::{Worker, WorkerError, hex, random};

/// Sampled calls with the trajectory each belongs to, and the calls made per slot.
type Traced = (Vec<(u32, TracedCall)>, Vec<SlotCalls>);

/// A traced container that is gone, or the stage result that its failure makes.
enum Pass {
    Done(Traced, SessionRecord),
    Stopped(StageResult),
}

/// What a traced container runs.
struct Tracing<'a> {
    role: &'static str,
    lane: LaneId,
    launch: &'a CpuLaunch,
    mounted: &'a [&'a Kernels],
    bindings: &'a [Binding],
}

impl CpuArena<'_> {
    /// Audit: the candidate's timed trajectories once more, untimed, with calls sampled by the sealed seed, beside a
    /// candidate-free replay.
    pub(super) fn collect_audit(
        &mut self,
        plan: &Plan,
        speed: &SpeedRaw,
        progress: OnProgress<'_>,
    ) -> Result<StageResult, AttemptError> {
        let subject = self.subject_of_plan(plan)?;
        let (_, lane) = lanes(plan);
        let mounted = subject.mounted();
        let launch = self.env.launch(plan.sealed.candidate_tree_digest, &mounted);
        let traced = trajectories(&plan.sealed, speed, Role::C);
        let sites = self.audit_sites(plan, traced.len());
        let count: usize = sites.iter().map(Vec::len).sum();
        say(progress, "audit", format!("{} trajectories, {count} sampled calls", traced.len()));
        let arms = subject.arms();
        let mut ended = Ended::new();

        let audited =
            Tracing { role: "audit", lane, launch: &launch, mounted: &mounted, bindings: &arms.candidate };
        let ((calls, counts), session) = match self.traced(plan, &audited, &traced, &sites, &mut ended)? {
            Pass::Done(found, session) => (found, session),
            Pass::Stopped(result) => return Ok(result),
        };
        let replay_launch = self.reference_launch()?;
        let stock = [&self.stock];
        let bindings = Subject::stock_bindings();
        let replaying =
            Tracing { role: "replay", lane, launch: &replay_launch, mounted: &stock, bindings: &bindings };
        let ((replayed, _), replay_session) =
            match self.traced(plan, &replaying, &traced, &sites, &mut ended)? {
                Pass::Done(found, session) => (found, session),
                Pass::Stopped(result) => return Ok(result),
            };

        let mut blob = Vec::new();
        let mut sampled = Vec::new();
        for ((index, call), (_, stock_call)) in calls.iter().zip(&replayed) {
            sampled.push(self.sampled(*index, call, stock_call, &mut blob));
        }
        let raw = AuditRaw {
            blob: self.frames.publish(&Artifact::Tensors.label()?, &blob)?,
            calls: sampled,
            counts,
            launch_digest: launch.digest(),
            replay_launch_digest: replay_launch.digest(),
            replay_session,
            session,
        };
        Ok(finished(self.keep(Artifact::Audit, &raw)?, ended))
    }

    /// Starts a container, traces every trajectory in it, and ends it.
    fn traced(
        &self,
        plan: &Plan,
        what: &Tracing<'_>,
        traced: &[&[u32]],
        sites: &[Vec<CallSite>],
        ended: &mut Ended,
    ) -> Result<Pass, AttemptError> {
        let stop = |error: &WorkerError, ended: &mut Ended| {
            Ok(Pass::Stopped(stopped("audit", error, std::mem::take(ended))))
        };
        let mut worker = match self.env.start("engine", what.lane, what.launch, what.mounted) {
            Ok(worker) => worker,
            Err(error) => return stop(&error, ended),
        };
        let outcome = worker
            .activate(what.bindings, self.env.patience.activate)
            .and_then(|_| self.trace_all(plan, &mut worker, traced, sites));
        let session = self.end(what.role, worker, ended)?;
        match outcome {
            Ok(found) => Ok(Pass::Done(found, session)),
            Err(error) => stop(&error, ended),
        }
    }

    /// Which calls of each trajectory are sampled.
    fn audit_sites(&self, plan: &Plan, trajectories: usize) -> Vec<Vec<CallSite>> {
        let cell = &plan.sealed.cell;
        let planned = trajectory(&self.model.config, cell.input_tokens as usize, cell.output_tokens as usize);
        let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
        for call in &planned {
            *totals.entry(call.slot.id()).or_default() += 1;
        }
        let each = plan.audit.control.minimum_calls().div_ceil(trajectories.max(1) as u64);
        let seed = &plan.audit.validator_seed;
        (0..trajectories)
            .map(|index| {
                let mut sites = Vec::new();
                for slot in plan.audit.control.expected_slots() {
                    let calls = totals.get(slot.as_str()).copied().unwrap_or(0);
                    let chosen = sampled_calls(seed, slot.as_str(), index as u32, calls, each);
                    let site = |ordinal| CallSite { slot: slot.as_str().to_owned(), ordinal };
                    sites.extend(chosen.into_iter().map(site));
                }
                sites.sort();
                sites
            })
            .collect()
    }

    fn trace_all(
        &self,
        plan: &Plan,
        worker: &mut Worker,
        traced: &[&[u32]],
        sites: &[Vec<CallSite>],
    ) -> Result<Traced, WorkerError> {
        let prompts = plan.sealed.prompts.iter().skip(plan.sealed.warmup_count as usize).flatten();
        let (mut calls, mut counts) = (Vec::new(), Vec::new());
        for (index, ((prompt, generated), sites)) in prompts.zip(traced).zip(sites).enumerate() {
            let tokens = [prompt.tokens.as_slice(), generated].concat();
            let length = prompt.tokens.len() as u32;
            let (found, counted) = worker.trace(tokens, length, sites.clone(), self.env.patience.work)?;
            calls.extend(found.into_iter().map(|call| (index as u32, call)));
            counts.extend(counted.into_iter().map(|count| SlotCalls {
                calls: count.calls,
                process: count.process,
                slot: count.slot,
                trajectory: index as u32,
            }));
        }
        Ok((calls, counts))
    }

    /// One sampled call with its replay and its reference, tensors appended to the blob.
    fn sampled(
        &self,
        trajectory: u32,
        call: &TracedCall,
        replay: &TracedCall,
        blob: &mut Vec<u8>,
    ) -> SampledCall {
        let inputs: Vec<Vec<f32>> = call.inputs.iter().map(|bytes| from_bytes(bytes)).collect();
        let reference = Slot::parse(&call.site.slot)
            .and_then(|slot| audit_reference(&self.model, slot, &call.dims, &call.weights, &inputs))
            .unwrap_or_default();
        let mut keep = |values: &[u8]| {
            let whole = values.len() / 4 * 4;
            let tensor = Tensor { length: (whole / 4) as u64, offset: blob.len() as u64 };
            blob.extend_from_slice(&values[..whole]);
            tensor
        };
        SampledCall {
            guards: u32::from(call.guards),
            inputs: call.inputs.iter().map(|bytes| keep(bytes)).collect(),
            intact: call.hash_at_return == call.hash_at_end,
            ordinal: call.site.ordinal,
            outputs: call.outputs.iter().map(|bytes| keep(bytes)).collect(),
            process: 0,
            references: vec![keep(&to_bytes(&reference))],
            replay_inputs: replay.inputs.iter().map(|bytes| keep(bytes)).collect(),
            slot: call.site.slot.clone(),
            trajectory,
        }
    }

    /// Entropy, selection, and the pristine pass over every timed trajectory.
    pub(super) fn collect_reference(
        &mut self,
        plan: &Plan,
        speed: &SpeedRaw,
        trajectory: Digest,
        progress: OnProgress<'_>,
    ) -> Result<StageResult, AttemptError> {
        let disclosed = self.disclose(plan, trajectory)?;
        let (lane, _) = lanes(plan);
        let launch = self.reference_launch()?;
        let mut ended = Ended::new();
        say(progress, "reference", "scoring every timed trajectory on a pristine engine");
        let mut worker = match self.env.start("engine", lane, &launch, &[&self.stock]) {
            Ok(worker) => worker,
            Err(error) => return Ok(stopped("reference", &error, ended)),
        };
        let outcome = worker
            .activate(&Subject::stock_bindings(), self.env.patience.activate)
            .map_err(Stop::from)
            .and_then(|_| self.score_all(plan, &mut worker, speed));
        let session = self.end("reference", worker, &mut ended)?;
        match outcome {
            Ok([baseline, candidate, control]) => {
                let raw =
                    ReferenceRaw { baseline, candidate, control, launch_digest: launch.digest(), session };
                let mut result = finished(self.keep(Artifact::Reference, &raw)?, ended);
                result.reveal = Some(disclosed);
                Ok(result)
            }
            Err(Stop::Worker(error)) => Ok(stopped("reference", &error, ended)),
            Err(Stop::Controller(error)) => Err(error),
        }
    }

    /// Baseline, candidate and control rollouts of every timed prompt.
    fn score_all(
        &self,
        plan: &Plan,
        worker: &mut Worker,
        speed: &SpeedRaw,
    ) -> Result<[Vec<Rollout>; 3], Stop> {
        let timed = plan.sealed.prompts.iter().skip(plan.sealed.warmup_count as usize).flatten();
        let prompts: Vec<&[u32]> = timed.map(|prompt| prompt.tokens.as_slice()).collect();
        let work = self.env.patience.work;
        let mut control = Vec::new();
        for prompt in &prompts {
            control
                .extend(worker.generate(vec![prompt.to_vec()], plan.sealed.cell.output_tokens, work)?.tokens);
        }
        let mut score = |trajectories: Vec<&[u32]>| -> Result<Vec<Rollout>, Stop> {
            let one = |(prompt, generated): (&&[u32], &[u32])| {
                let tokens = [*prompt, generated].concat();
                let logprobs = worker.score(tokens, prompt.len() as u32, work)?;
                let logprobs = logprobs.into_iter().map(logprob_text).collect();
                Ok(Rollout { logprobs, tokens: generated.to_vec() })
            };
            prompts.iter().zip(trajectories).map(one).collect()
        };
        Ok([
            score(trajectories(&plan.sealed, speed, Role::B))?,
            score(trajectories(&plan.sealed, speed, Role::C))?,
            score(control.iter().map(Vec::as_slice).collect())?,
        ])
    }

    /// Draws entropy now that every candidate process is gone, and reveals the selection. Drawn once for a commitment.
    fn disclose(&self, plan: &Plan, trajectory: Digest) -> Result<RevealFacts, AttemptError> {
        fn fail<E: std::fmt::Display>(error: E) -> AttemptError {
            AttemptError::Record { what: "selection", why: error.to_string() }
        }
        let at = self.monotonic_seconds();
        let quiescence =
            Quiescence::new("cacheon-arena", &self.instance, self.service.digest().digest(), 1, at)
                .map_err(fail)?;
        let entropy = random::<32>().map_err(fail)?;
        let commitment = tree(&plan.commitment)?;
        let stored = self.selection.entropy(&commitment, &quiescence, || entropy.to_vec()).map_err(fail)?;
        let receipt = EntropyReceipt {
            authority_receipt_digest: stored.authority_receipt_digest,
            commitment_digest: stored.commitment_digest,
            entropy_digest: stored.entropy_digest,
            source_digest: stored.source_digest,
        };
        let bytes = self.selection.secret(&secret_reference(&plan.sealed.attempt_id)).map_err(fail)?;
        let secret = Secret::new(bytes.clone()).map_err(fail)?;
        let selection = reveal(&plan.commitment, &secret, &receipt, trajectory).map_err(fail)?;
        Ok(RevealFacts {
            entropy: tree(&receipt)?,
            quiescence_digest: stored.teardown_digest,
            secret: hex(&bytes),
            selection: tree(&selection)?,
        })
    }
}

//! Timed reads: one arm runs, the other lane is frozen, the controller waits on the other lane's CPU.

use std::time::Duration;

use cacheon_evidence::cpu::derive::Plan;
use cacheon_protocol::message::Binding;
use cacheon_records::cpu::{CpuLane, ReadRecord, TimedRequest};
use cacheon_verdict::speed::Role;

use crate::cpu::CpuArena;
use crate::lanes::LaneId;
use crate::worker::{Worker, WorkerError};

/// A worker with the lane it runs on.
pub(super) struct Seated {
    pub(super) worker: Worker,
    pub(super) lane: LaneId,
}

/// The two arms' bindings.
#[derive(Debug, Clone)]
pub(crate) struct Arms {
    /// What the incumbent serves with.
    pub(crate) incumbent: Vec<Binding>,
    /// What the candidate serves with.
    pub(crate) candidate: Vec<Binding>,
}

impl CpuArena<'_> {
    /// One read on `active` while `idle` is frozen.
    pub(super) fn read(
        &self,
        plan: &Plan,
        role: Role,
        active: &mut Seated,
        idle: &Seated,
        arms: &Arms,
    ) -> Result<ReadRecord, WorkerError> {
        let governed = self.env.crownable();
        if governed {
            idle.worker.container().freeze()?;
            active.worker.container().thaw()?;
        }
        let seat = |lane| self.env.lanes.seat_controller(lane).map_err(|e| WorkerError::Unfit(e.to_string()));
        seat(Some(idle.lane))?;
        let record = self.frozen_read(plan, role, active, idle, arms);
        seat(None)?;
        if governed {
            idle.worker.container().thaw()?;
        }
        record
    }

    fn frozen_read(
        &self,
        plan: &Plan,
        role: Role,
        active: &mut Seated,
        idle: &Seated,
        arms: &Arms,
    ) -> Result<ReadRecord, WorkerError> {
        let idle_before = self.cpu_time(&idle.worker)?;
        let entering = if role.is_baseline() { &arms.incumbent } else { &arms.candidate };
        let mut swaps = vec![active.worker.activate(entering, self.env.patience.activate)?.swap];
        let mut requests = Vec::with_capacity(plan.sealed.prompts.len());
        let deadline = Duration::from_millis(u64::from(plan.sealed.batch_timeout_ms));
        for (index, batch) in plan.sealed.prompts.iter().enumerate() {
            let prompts = batch.iter().map(|prompt| prompt.tokens.clone()).collect();
            let cpu_before = self.cpu_time(&active.worker)?;
            let done = active.worker.generate(prompts, plan.sealed.cell.output_tokens, deadline)?;
            requests.push(TimedRequest {
                batch: index as u32,
                cpu_ns: self.cpu_time(&active.worker)?.saturating_sub(cpu_before),
                last_byte_ns: done.stamps.last_byte,
                observed: done.observed,
                reply_sha256: done.reply_sha256,
                request_sha256: done.request_sha256,
                tokens: done.tokens,
                write_begun_ns: done.stamps.write_begun,
            });
        }
        if !role.is_baseline() {
            swaps.push(active.worker.activate(&arms.incumbent, self.env.patience.activate)?.swap);
        }
        Ok(ReadRecord {
            cpus: self.lane_record(active)?.cpus,
            lane_id: active.lane.as_str().to_owned(),
            other_lane_cpu_ns: self.cpu_time(&idle.worker)?.saturating_sub(idle_before),
            requests,
            role: role.as_str().to_owned(),
            session_id: active.worker.session_id(),
            swaps,
        })
    }

    /// Host-read CPU time of a container; 0 where there is no control group to read it from.
    fn cpu_time(&self, worker: &Worker) -> Result<u64, WorkerError> {
        if self.env.crownable() { Ok(worker.container().cpu_time_ns()?) } else { Ok(0) }
    }

    /// The lane with the CPU list that the host reads back.
    fn lane_record(&self, seated: &Seated) -> Result<CpuLane, WorkerError> {
        let cpus = if self.env.crownable() {
            seated.worker.container().cpuset()?.0
        } else {
            self.env.lanes.cpu(seated.lane).to_string()
        };
        Ok(crate::lanes::Lanes::record(seated.lane, &cpus))
    }
}

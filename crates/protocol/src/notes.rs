//! What the shim saw beside the answer. Notes may withdraw or qualify a result, never improve one.

use crate::codec::{DecodeError, Reader, Writer, check};

/// First guard that was hit in a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GuardHit {
    /// Some output element was still poison when the call returned.
    OutputUnwritten = 1,
    /// An output changed after its call had returned.
    OutputChanged = 2,
    /// An input changed during a call.
    InputChanged = 3,
    /// A canary beside a buffer changed.
    Canary = 4,
    /// The floating-point control word differs from what it was before the call.
    ControlWord = 5,
    /// A signal disposition or mask differs from what it was before the load.
    SignalState = 6,
    /// More threads or processes than the engine itself started.
    StrayTask = 7,
}

impl GuardHit {
    /// Every guard, in code order.
    pub const ALL: [GuardHit; 7] = [
        GuardHit::OutputUnwritten,
        GuardHit::OutputChanged,
        GuardHit::InputChanged,
        GuardHit::Canary,
        GuardHit::ControlWord,
        GuardHit::SignalState,
        GuardHit::StrayTask,
    ];

    /// Name used in records.
    pub fn name(self) -> &'static str {
        match self {
            GuardHit::OutputUnwritten => "output_unwritten",
            GuardHit::OutputChanged => "output_changed",
            GuardHit::InputChanged => "input_changed",
            GuardHit::Canary => "canary",
            GuardHit::ControlWord => "control_word",
            GuardHit::SignalState => "signal_state",
            GuardHit::StrayTask => "stray_task",
        }
    }

    /// Parses the wire code; 0 is "none".
    pub fn from_code(code: u8) -> Result<Option<GuardHit>, DecodeError> {
        if code == 0 {
            return Ok(None);
        }
        GuardHit::ALL
            .into_iter()
            .find(|hit| *hit as u8 == code)
            .map(Some)
            .ok_or(DecodeError::Unknown { what: "guard", value: u64::from(code) })
    }
}

/// Counts of the running generation, cumulative since it was activated. 41 bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notes {
    /// Network system calls that were denied (advisory: the call failed with EPERM and the kernel went on).
    pub denied_network: u64,
    /// Other system calls that were denied in the same way.
    pub denied_other: u64,
    /// Calls that ran under guard.
    pub guard_checks: u64,
    /// Guards hit.
    pub guard_hits: u64,
    /// Slot calls made.
    pub calls: u64,
    /// The first guard hit, if any.
    pub first_hit: Option<GuardHit>,
}

/// Wire size of [`Notes`] in bytes.
pub const NOTES_BYTES: u32 = 41;

impl Notes {
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u64(self.denied_network).u64(self.denied_other).u64(self.guard_checks).u64(self.guard_hits);
        w.u64(self.calls).u8(self.first_hit.map_or(0, |hit| hit as u8));
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Notes, DecodeError> {
        let notes = Notes {
            denied_network: r.u64("denied network calls")?,
            denied_other: r.u64("denied calls")?,
            guard_checks: r.u64("guard checks")?,
            guard_hits: r.u64("guard hits")?,
            calls: r.u64("slot calls")?,
            first_hit: GuardHit::from_code(r.u8("guard")?)?,
        };
        if notes.first_hit.is_some() != (notes.guard_hits > 0) {
            return Err(DecodeError::NotCanonical("first guard hit"));
        }
        Ok(notes)
    }
}

/// Whose code was running when a request failed. Decided by the shim from what it had bound, not by the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FaultArm {
    /// The shim itself, its container or its input.
    Shim = 1,
    /// An engine process that serves publication 0 (stock) only.
    Stock = 2,
    /// An engine process that maps any other publication.
    Candidate = 3,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FaultKind {
    /// The engine process died (`signal` says how, 0 for an exit).
    Crash = 1,
    /// A slot call, a load or a step went past its deadline.
    Hang = 2,
    /// The shared object could not be loaded, or lacks a symbol.
    Load = 3,
    /// `prepare` went past its deadline.
    PrepareDeadline = 4,
    /// `prepare` asked for more bytes than its budget.
    PrepareBudget = 5,
    /// `prepare` reported failure.
    PrepareFailed = 6,
    /// The engine process answered something that is not an answer.
    Protocol = 7,
    /// The container is out of memory, processes or scratch space.
    Resource = 8,
    /// The request cannot be served in this state or with these arguments.
    Refused = 9,
    /// The model file is not the one the engine can run.
    Model = 10,
    /// The engine cannot run on this machine (missing CPU features).
    Unsupported = 11,
    /// Anything else.
    Internal = 12,
}

impl FaultArm {
    fn from_code(code: u8) -> Result<FaultArm, DecodeError> {
        [FaultArm::Shim, FaultArm::Stock, FaultArm::Candidate]
            .into_iter()
            .find(|arm| *arm as u8 == code)
            .ok_or(DecodeError::Unknown { what: "fault arm", value: u64::from(code) })
    }
}

impl FaultKind {
    /// Every kind, in code order.
    pub const ALL: [FaultKind; 12] = [
        FaultKind::Crash,
        FaultKind::Hang,
        FaultKind::Load,
        FaultKind::PrepareDeadline,
        FaultKind::PrepareBudget,
        FaultKind::PrepareFailed,
        FaultKind::Protocol,
        FaultKind::Resource,
        FaultKind::Refused,
        FaultKind::Model,
        FaultKind::Unsupported,
        FaultKind::Internal,
    ];

    fn name(self) -> &'static str {
        match self {
            FaultKind::Crash => "crash",
            FaultKind::Hang => "hang",
            FaultKind::Load => "load",
            FaultKind::PrepareDeadline => "prepare_deadline",
            FaultKind::PrepareBudget => "prepare_budget",
            FaultKind::PrepareFailed => "prepare_failed",
            FaultKind::Protocol => "protocol",
            FaultKind::Resource => "resource",
            FaultKind::Refused => "refused",
            FaultKind::Model => "model",
            FaultKind::Unsupported => "unsupported",
            FaultKind::Internal => "internal",
        }
    }
}

/// Longest free text in a fault, in bytes.
pub const DETAIL_MAX: u32 = 512;

/// A request that was not served. The conversation continues; the generation it happened in does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Whose code was running.
    pub arm: FaultArm,
    /// What went wrong.
    pub kind: FaultKind,
    /// Generation it happened in; 0 before the first.
    pub generation: u64,
    /// Signal that ended the engine process, 0 if none did.
    pub signal: u32,
    /// Slot being called, when the shim knows it; otherwise empty.
    pub slot: String,
    /// The generation's notes up to the fault.
    pub notes: Notes,
    /// Diagnostic text, never evidence.
    pub detail: String,
}

impl Fault {
    /// The closed code: `candidate_hang`, `stock_crash`, `shim_refused`, …
    pub fn code(&self) -> String {
        let arm = match self.arm {
            FaultArm::Shim => "shim",
            FaultArm::Stock => "stock",
            FaultArm::Candidate => "candidate",
        };
        format!("{arm}_{}", self.kind.name())
    }

    /// Whether the candidate's own code may be charged (`spec/50-execution.md` §6.5).
    pub fn attributable(&self) -> bool {
        self.arm == FaultArm::Candidate
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u8(self.arm as u8).u8(self.kind as u8).u64(self.generation).u32(self.signal);
        w.blob(self.slot.as_bytes());
        self.notes.encode(w);
        w.blob(&self.detail.as_bytes()[..floor_boundary(&self.detail, DETAIL_MAX as usize)]);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Fault, DecodeError> {
        let arm = FaultArm::from_code(r.u8("fault arm")?)?;
        let code = r.u8("fault kind")?;
        let kind = FaultKind::ALL
            .into_iter()
            .find(|kind| *kind as u8 == code)
            .ok_or(DecodeError::Unknown { what: "fault kind", value: u64::from(code) })?;
        let generation = r.u64("generation")?;
        let signal = r.u32("signal")?;
        check("signal", u64::from(signal), 0, 64)?;
        let slot = text(r.blob("slot", 64)?, "slot")?;
        let notes = Notes::decode(r)?;
        let detail = text(r.blob("detail", DETAIL_MAX)?, "detail")?;
        Ok(Fault { arm, kind, generation, signal, slot, notes, detail })
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in generation {}", self.code(), self.generation)?;
        if !self.slot.is_empty() {
            write!(f, ", slot {}", self.slot)?;
        }
        if self.signal != 0 {
            write!(f, ", signal {}", self.signal)?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

fn floor_boundary(s: &str, most: usize) -> usize {
    let mut end = s.len().min(most);
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    end
}

pub(crate) fn text(bytes: Vec<u8>, what: &'static str) -> Result<String, DecodeError> {
    String::from_utf8(bytes).map_err(|_| DecodeError::NotCanonical(what))
}

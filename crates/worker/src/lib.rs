//! What runs inside the container. Nothing here decides anything.
//!
//! One binary, three roles (`spec/50-execution.md` §15):
//!
//! - the **shim** (user S) holds the protocol socket, the clocks of deadlines, the shared memory and the guards; it runs
//!   no foreign code;
//! - the **zygote** (user E) has the model open and forks engine processes; it loads nothing and holds no descriptor of
//!   the host;
//! - an **engine process** (user E) maps the kernels of one generation, serves it, and is killed. A process that has
//!   mapped a candidate's bytes never serves anything else.
//!
//! The shim, as process 1 of its container, opens the model, forks the zygote, and gives up root. Every `Activate` ends
//! the running engine process and has a fresh one forked; every conformance request has a process of its own.
//!
//! # What is watched, and by whom
//!
//! | Guard | Generate, Score | Trace | SlotCall |
//! |---|---|---|---|
//! | pages that cannot be touched on both sides of every buffer | always | always | always |
//! | weights and, in SlotCall, inputs that cannot be written | always | always | always |
//! | output poisoned with NaN before the call | every call | every call | every call, by the shim |
//! | canary behind the output, pattern before the buffer | every call; pattern between requests | same | by the shim |
//! | control words of the floating-point unit | every call, reported per request | same | per call |
//! | poison left, input changed, gap between rows changed | sampled | every call, by the shim | every call, by the shim |
//! | output changed after return | sampled | sampled sites, by the shim | every call, by the shim |
//! | threads, signal state | between requests, by the shim | same | after every call, by the shim |
//! | denied system calls | always | always | always |
//!
//! "By the shim" means from another process, on memory both map; the rest runs in the engine process.
//!
//! # What a kernel can learn and do
//!
//! A kernel shares its process with the host code around it. It can therefore, if it looks hard enough: find the schedule
//! of the current request in memory and read which calls will be looked at closely (not those of other requests: bits
//! are drawn from a secret that never enters its process); write to counters and canaries; forge an answer on the
//! channel, or close it. None of this improves a result: what an engine process says can only withdraw one. Outputs are
//! judged on the tokens it returned (pristine reference), on copies the shim took (trace) and in conformance. It cannot
//! make a thread or a process, open a file, reach the network, write to weights, map executable memory, or touch the
//! shim or the zygote: those calls are refused before its first instruction.
//!
//! A watched replay stops around every call. Nothing a kernel is told or made to wait for tells it *which* calls are
//! sampled, since the shim does the same work around each; and while it serves it has no clock to notice the stops with:
//! the system calls are refused, the vDSO's data is blank, and the processor's counter answers with a number that counts
//! questions (self-check `no_clock`; on a machine that does not allow it, a kernel can tell a watched replay from a served
//! request, and what remains is the pristine reference over the served one).
//!
//! A kernel that hangs while it writes to its own progress counter is not seen by the per-call watchdog; the deadline of
//! the whole request ends it, as a fault of its arm all the same.
//!
//! # Modules
//!
//! [`engine`] is the forward pass and knows nothing of the rest.
#![allow(unsafe_code)]

mod arena;
mod channel;
mod checks;
mod clocks;
mod confine;
mod control;
pub mod engine;
mod layout;
mod process;
mod roles;
mod settings;
mod shapes;
mod shim;
mod start;
mod sys;
mod words;
mod zygote;

pub use settings::{Settings, SettingsError};
pub use start::{WorkerError, run};

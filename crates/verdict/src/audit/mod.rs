//! Slot audit: the host's gate over raw receipts, and the witness that regrades (40-qualification §6).
//!
//! Policy, control and receipt records live in `cacheon_records::audit`: the worker's protocol reads them too.

mod gate;
mod witness;

pub use gate::{Gate, GateAuthority, GateRow, gate, gate_receipts, receive};
pub use witness::{AuditExecution, AuditWitness, AuditWitnessParts};

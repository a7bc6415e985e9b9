//! Graders of the CPU arena's own evidence: tensors compared on the host, outside any candidate's process.

mod compare;
mod sample;

pub use compare::{Comparison, Tolerance, ToleranceError, input_distance};
pub use sample::sampled_calls;

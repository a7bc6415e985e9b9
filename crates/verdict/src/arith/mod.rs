//! Exact arithmetic: the same bits on every machine.

pub mod decimal;
pub mod exact;
mod transcendental;

pub use decimal::{Decimal, Precision};

//! Durable records that several authorities read or write, and the arena trait.

pub mod arena;
pub mod cpu;
pub mod evidence;

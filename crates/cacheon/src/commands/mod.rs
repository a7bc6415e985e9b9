//! The commands, each a thin walk over the crates that decide.

pub(crate) mod arena;
pub(crate) mod bundle;
pub(crate) mod digest;
pub(crate) mod evidence;
pub(crate) mod stack;
pub(crate) mod weights;

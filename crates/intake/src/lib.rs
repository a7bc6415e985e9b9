//! Intake: from a submitted bundle to a settled crown, with the arena behind its trait.

pub mod publish;

//! Intake: from a submitted bundle to a settled crown, with the arena behind its trait.
//!
//! | Module | Holds |
//! |---|---|
//! | [`publish`] | immutable copies of submitted bundles |
//! | [`local`] | the ledger of one machine, and admission to it |
//! | [`campaign`] | the validator loop: screen, qualify, reproduce, settle, report |

pub mod campaign;
pub mod local;
pub mod publish;

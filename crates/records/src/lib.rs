//! Durable records that several authorities read or write.
//!
//! A record lives here when two crates that must not depend on each other both need its bytes to mean the same. Records
//! with one owner live with their owner.
//!
//! | Module | Holds |
//! |---|---|
//! | [`arena`] | the arena as the validator loop sees it |
//! | [`audit`] | slot-audit control, policy and receipts (spec 50 §6.4) |
//! | [`codec`] | the typed codec of retained evidence (spec 40 §10.1) |
//! | [`cpu`] | raw records of the CPU arena |
//! | [`domains`] | every digest domain of this crate, with its members |
//! | [`evidence`] | references to retained bytes (spec 20 §2.2) |
//! | [`lane`] | the deployed lanes, their pair and its binding (spec 50 §8) |
//! | [`launch`] | what exactly was started, on what, under which limits (spec 50 §2) |
//! | [`text`] | identifier grammars shared by records |

pub mod arena;
pub mod audit;
pub mod codec;
pub mod cpu;
pub mod domains;
pub mod evidence;
pub mod lane;
pub mod launch;
pub mod text;

//! Graders and the decision table of qualification: pure functions from retained records to a verdict, with no input
//! or output of their own (spec chapter 40).
//!
//! | Module | Holds |
//! |---|---|
//! | [`arith`] | correctly rounded binary64 sums and deviations, decimals of stated precision |
//! | [`speed`] | speed policies 1–8, reads, brackets, live and witness grades, witnesses |
//! | [`calibration`] | manifests, contexts, control grading, derivation |
//! | [`audit`] | the host's gate over raw receipts, witnesses |
//! | [`selection`] | commitment, entropy, reveal, profiles, hidden tasks |
//! | [`workload`] | workload identity, prompt occurrences |
//! | [`quality`] | teacher evidence, exact derivation, familywise verdict |
//! | [`count`] | fixed-stock counts and their numeric judge |
//! | [`graph`] | requirement, raw evidence, veto, exits |
//! | [`execution`] | per-rank tri-state |
//! | [`table`] | the aggregate and every situation that ends an attempt |
//! | [`bind`] | authority, plans, executions, trajectories, lifecycles |
//! | [`attempt`] | candidate reports, cohort attempts, reopening |
//! | [`stage`] | stage exits |
//! | [`product`] | holds, intake batches, remote products, retries |
//! | [`screen`] | resident screens |
//! | [`wire`] | the teacher's frames |
//! | [`codec`] | the typed codec of durable products, GPU substrates |
//! | [`cpu`] | graders of the CPU arena's own evidence |
//! | [`fields`] | member types shared by records |
#![warn(missing_docs)]

pub mod arith;
pub mod attempt;
pub mod audit;
pub mod bind;
pub mod calibration;
pub mod codec;
pub mod count;
pub mod cpu;
pub mod decision;
pub mod execution;
pub mod fields;
pub mod graph;
pub mod product;
pub mod quality;
pub mod screen;
pub mod selection;
pub mod speed;
pub mod stage;
pub mod table;
pub mod unicode;
pub mod wire;
pub mod workload;

pub use decision::Decision;

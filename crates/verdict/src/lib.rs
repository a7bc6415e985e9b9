//! Graders and the decision table of qualification: pure functions from retained records to a verdict, with no input
//! or output of their own (spec chapter 40).
//!
//! | Module | Holds |
//! |---|---|
//! | [`arith`] | correctly rounded binary64 sums and deviations, decimals of stated precision |
//! | [`speed`] | speed policies 1–8, reads, brackets, live and witness grades, witnesses |
//! | [`calibration`] | manifests, contexts, control grading, derivation |
//! | [`fields`] | member types shared by records |
#![warn(missing_docs)]

pub mod arith;
pub mod calibration;
pub mod decision;
pub mod fields;
pub mod speed;
pub mod unicode;

pub use decision::Decision;

//! Copy fingerprints: what two contributions have in common, whatever their layout (`spec/10-contribution.md` §10).
//!
//! | Module | Holds |
//! |---|---|
//! | [`normal`] | normal forms of Python, CUDA and patches |
//! | [`definitions`] | the projections of a Python file that containment compares |
//! | [`values`] | the fingerprint of a contribution |
//! | [`decision`] | the verdict on a pair, and on a published corpus |

pub mod corpus;
pub mod decision;
pub mod definitions;
pub mod normal;
pub mod values;

pub use corpus::Corpus;
pub use decision::{Decision, Reason, compare};
pub use values::{Fingerprint, fingerprint};

/// Code points below which a fragment is too small to tell anything.
pub const SUBSTANTIAL: usize = 80;

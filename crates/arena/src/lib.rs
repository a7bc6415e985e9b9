//! The CPU arena: lanes, screens, prebuild and the qualification state machine.

pub mod conformance;
pub mod definition;
pub mod environment;
pub mod frames;
pub mod home;
pub mod lanes;
pub mod worker;

//! The CPU arena: lanes, screens, prebuild and the qualification state machine.
//!
//! | Module | Holds |
//! |---|---|
//! | [`home`], [`definition`], [`service`] | where state lies, what the arena is, and the identities that follow |
//! | [`lanes`], [`environment`], [`worker`], [`frames`] | one engine in one container on one lane, every frame kept |
//! | [`prebuild`], [`domain`] | sources to sealed publications |
//! | [`conformance`], [`prompts`] | host-made inputs with references, prompts from a secret |
//! | [`attempt`] | one qualification attempt: seal, conformance, speed, audit, reference |
//! | [`cpu`] | the provider that a validator loop drives |

pub mod attempt;
pub mod calibrate;
pub mod conformance;
pub mod cpu;
pub mod definition;
pub mod domain;
pub mod environment;
pub mod frames;
pub mod home;
pub mod lanes;
pub mod prebuild;
pub mod prompts;
pub mod service;
pub mod worker;

//! What runs inside the container: the engine that serves a model through loaded kernels, and the shim around it.
//! Nothing here decides anything.
#![allow(unsafe_code)]

pub mod engine;

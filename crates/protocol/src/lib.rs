//! Frames between the controller (host, trusted) and the shim (inside the container, not trusted).
//!
//! One request is answered by one reply. Every frame is a fixed 84-byte header followed by a body whose length
//! the header declares and whose SHA-256 the header carries; the length is checked against a closed bound for its
//! kind, and against the exact size the request implies where there is one, before a byte of the body is read.
//! See `spec/50-execution.md` §6 (invariants) and §15 ("one framed protocol").
//!
//! Layers, lowest first: [`codec`] (bounded cursor), [`wire`] (header and frame), [`message`] (bodies), [`chain`]
//! (hash chain over raw frames), [`session`] (controller side, clocks), [`serve`] (shim side).
//!
//! Integers are big-endian. Tensor bytes are opaque here: their layout is that of the kernel ABI header.

mod body;
pub mod chain;
pub mod clock;
pub mod codec;
pub mod message;
pub mod notes;
mod reply;
pub mod serve;
pub mod session;
pub mod wire;

pub use chain::{Direction, FrameChain, FrameSink, NullSink};
pub use clock::{Clock, MonotonicClock};
pub use codec::DecodeError;
pub use message::{Reply, Request};
pub use notes::{Fault, FaultArm, FaultKind, GuardHit, Notes};
pub use session::{Exchange, Session, SessionError, Stamps, Wire};
pub use wire::{HEADER_BYTES, Header, Kind, Nonce, SessionId};

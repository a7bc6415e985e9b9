//! A hash chain over the raw frames of one conversation, so that a verdict can be re-parsed from the bytes that
//! produced it.

use std::io;

use sha2::{Digest as _, Sha256};

use crate::wire::SessionId;

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// Controller to shim.
    Request = 0,
    /// Shim to controller.
    Reply = 1,
}

/// Keeps raw frames under their SHA-256.
pub trait FrameSink {
    /// Keeps one frame. `digest` is the SHA-256 of `frame`, its content address.
    fn keep(&mut self, direction: Direction, digest: [u8; 32], frame: &[u8]) -> io::Result<()>;
}

/// Keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullSink;

impl FrameSink for NullSink {
    fn keep(&mut self, _: Direction, _: [u8; 32], _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

impl<T: FrameSink + ?Sized> FrameSink for Box<T> {
    fn keep(&mut self, direction: Direction, digest: [u8; 32], frame: &[u8]) -> io::Result<()> {
        (**self).keep(direction, digest, frame)
    }
}

const SEED: &[u8] = b"cacheon-frame-chain-v1\0";

/// Running digest: `h0 = SHA-256("cacheon-frame-chain-v1" NUL session)`, then for each frame in the order the
/// controller wrote or read it, `h(n+1) = SHA-256(h(n) ‖ direction byte ‖ SHA-256(frame))`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameChain {
    head: [u8; 32],
    frames: u64,
}

impl FrameChain {
    /// The chain of a conversation in which nothing was said yet.
    pub fn new(session: SessionId) -> Self {
        let mut h = Sha256::new();
        h.update(SEED);
        h.update(session.0);
        FrameChain { head: h.finalize().into(), frames: 0 }
    }

    /// Appends a frame by its digest.
    pub fn append(&mut self, direction: Direction, frame_digest: [u8; 32]) {
        let mut h = Sha256::new();
        h.update(self.head);
        h.update([direction as u8]);
        h.update(frame_digest);
        self.head = h.finalize().into();
        self.frames += 1;
    }

    /// Current head.
    pub fn head(&self) -> [u8; 32] {
        self.head
    }

    /// Frames appended so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

//! Every raw frame of a conversation, kept in order: for each frame one direction byte (0 request, 1 reply), the length as
//! eight little-endian bytes, and the frame. The label it is published under is `Artifact::Frames`.

use std::io;

use cacheon_protocol::{Direction, FrameSink};

/// Largest archive of one conversation, bytes.
pub const MAX_ARCHIVE: usize = 512 << 20;

/// Collects frames in memory until the conversation ends.
#[derive(Debug, Default)]
pub struct FrameArchive {
    bytes: Vec<u8>,
}

impl FrameArchive {
    /// The archive's bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl FrameSink for FrameArchive {
    fn keep(&mut self, direction: Direction, _digest: [u8; 32], frame: &[u8]) -> io::Result<()> {
        if self.bytes.len() + frame.len() + 9 > MAX_ARCHIVE {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the conversation exceeds 512 MiB of frames",
            ));
        }
        self.bytes.push(direction as u8);
        self.bytes.extend_from_slice(&(frame.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(frame);
        Ok(())
    }
}

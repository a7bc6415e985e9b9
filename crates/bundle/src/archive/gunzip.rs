//! A bounded gzip stream: concatenated members and zero padding, nothing else.

use super::{MAX_COMPRESSED, MAX_STREAM, refused};
use crate::finding::BundleError;
use flate2::{Crc, Decompress, FlushDecompress, Status};
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

/// Compressed bytes, counted.
struct Input<R> {
    reader: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    total: u64,
}

impl<R: Read> Input<R> {
    /// The bytes at hand; empty only at the end.
    fn fill(&mut self) -> Result<&[u8], BundleError> {
        while self.start == self.end {
            match self.reader.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(read) => {
                    self.start = 0;
                    self.end = read;
                    self.total += read as u64;
                    if self.total > MAX_COMPRESSED {
                        return Err(refused(format!("the archive has more than {MAX_COMPRESSED} bytes")));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    let path = PathBuf::from("archive");
                    return Err(BundleError::Infrastructure { doing: "read", path, source });
                }
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    fn byte(&mut self) -> Result<u8, BundleError> {
        let byte = self.fill()?.first().copied().ok_or_else(|| refused("the gzip stream ends too early"))?;
        self.start += 1;
        Ok(byte)
    }

    fn word(&mut self) -> Result<u32, BundleError> {
        let mut word = [0; 4];
        for byte in &mut word {
            *byte = self.byte()?;
        }
        Ok(u32::from_le_bytes(word))
    }

    fn text(&mut self) -> Result<(), BundleError> {
        while self.byte()? != 0 {}
        Ok(())
    }
}

enum State {
    Start,
    Body,
    End,
}

/// The decompressed stream.
pub(super) struct Gunzip<R> {
    input: Input<R>,
    inflate: Decompress,
    check: Crc,
    state: State,
    members: bool,
    total: u64,
}

impl<R: Read> Gunzip<R> {
    pub(super) fn new(reader: R) -> Self {
        let buffer = vec![0; 64 * 1024].into_boxed_slice();
        Self {
            input: Input { reader, buffer, start: 0, end: 0, total: 0 },
            inflate: Decompress::new(false),
            check: Crc::new(),
            state: State::Start,
            members: false,
            total: 0,
        }
    }

    /// Some decompressed bytes; none only at the end.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, BundleError> {
        loop {
            match self.state {
                State::End => return Ok(0),
                State::Start => {
                    if self.members {
                        self.padding()?;
                    }
                    if self.members && self.input.fill()?.is_empty() {
                        self.state = State::End;
                    } else {
                        self.header()?;
                        self.members = true;
                        self.inflate.reset(false);
                        self.check.reset();
                        self.state = State::Body;
                    }
                }
                State::Body => {
                    let wrote = self.body(out)?;
                    if wrote > 0 {
                        return Ok(wrote);
                    }
                }
            }
        }
    }

    fn padding(&mut self) -> Result<(), BundleError> {
        loop {
            let held = self.input.fill()?;
            let zeros = held.iter().take_while(|byte| **byte == 0).count();
            let all = zeros == held.len();
            self.input.start += zeros;
            if !all || zeros == 0 {
                return Ok(());
            }
        }
    }

    fn header(&mut self) -> Result<(), BundleError> {
        let input = &mut self.input;
        if input.byte()? != 0x1f || input.byte()? != 0x8b {
            return Err(refused("the bytes are no gzip stream"));
        }
        if input.byte()? != 8 {
            return Err(refused("the gzip stream names an unknown compression"));
        }
        let flags = input.byte()?;
        // Time, extra flags, system.
        for _ in 0..6 {
            input.byte()?;
        }
        if flags & 4 != 0 {
            let length = u16::from_le_bytes([input.byte()?, input.byte()?]);
            for _ in 0..length {
                input.byte()?;
            }
        }
        if flags & 8 != 0 {
            input.text()?;
        }
        if flags & 16 != 0 {
            input.text()?;
        }
        if flags & 2 != 0 {
            input.byte()?;
            input.byte()?;
        }
        Ok(())
    }

    fn body(&mut self, out: &mut [u8]) -> Result<usize, BundleError> {
        let held = self.input.fill()?;
        let ended = held.is_empty();
        let (read_before, wrote_before) = (self.inflate.total_in(), self.inflate.total_out());
        let status = self
            .inflate
            .decompress(held, out, FlushDecompress::None)
            .map_err(|_| refused("the gzip stream is corrupt"))?;
        let read = usize::try_from(self.inflate.total_in() - read_before).unwrap_or(usize::MAX);
        let wrote = usize::try_from(self.inflate.total_out() - wrote_before).unwrap_or(usize::MAX);
        self.input.start += read;
        self.check.update(&out[..wrote]);
        self.total += wrote as u64;
        if self.total > MAX_STREAM {
            return Err(refused(format!("the tar stream has more than {MAX_STREAM} bytes")));
        }
        match status {
            Status::StreamEnd => {
                if self.input.word()? != self.check.sum() || self.input.word()? != self.check.amount() {
                    return Err(refused("the gzip stream fails its checksum"));
                }
                self.state = State::Start;
            }
            _ if wrote == 0 && read == 0 => {
                let why = if ended { "ends too early" } else { "is corrupt" };
                return Err(refused(format!("the gzip stream {why}")));
            }
            _ => {}
        }
        Ok(wrote)
    }
}

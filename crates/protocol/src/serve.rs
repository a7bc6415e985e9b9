//! The shim's side of a conversation.

use std::io::{self, Read, Write};

use crate::codec::DecodeError;
use crate::message::{Reply, Request};
use crate::wire::{HEADER_BYTES, Header, Nonce, SessionId, encode_frame};

/// Why a request could not be read or answered. The shim exits on any of these.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The controller closed the socket between frames.
    #[error("the controller is gone")]
    Gone,
    /// The frame or its body is malformed.
    #[error("malformed request: {0}")]
    Decode(#[from] DecodeError),
    /// A reply frame, another session or a sequence number out of order.
    #[error("request carries an unexpected {0}")]
    Unexpected(&'static str),
    /// The socket failed.
    #[error("protocol socket: {0}")]
    Io(#[from] io::Error),
}

/// Reads requests and writes replies on one stream.
#[derive(Debug)]
pub struct Serving<S> {
    stream: S,
    session: Option<SessionId>,
    sequence: u64,
    nonce: Nonce,
}

impl<S: Read + Write> Serving<S> {
    /// A conversation that has not begun; the first request names the session.
    pub fn new(stream: S) -> Self {
        Serving { stream, session: None, sequence: 0, nonce: Nonce([0; 16]) }
    }

    /// The stream.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Reads the next request.
    pub fn next_request(&mut self) -> Result<Request, ServeError> {
        let mut head = [0u8; HEADER_BYTES];
        match self.stream.read(&mut head)? {
            0 => return Err(ServeError::Gone),
            n => self.stream.read_exact(&mut head[n..])?,
        }
        let header = Header::decode(&head)?;
        if !header.kind.is_request() {
            return Err(ServeError::Unexpected("kind"));
        }
        if *self.session.get_or_insert(header.session) != header.session {
            return Err(ServeError::Unexpected("session"));
        }
        if self.sequence.checked_add(1) != Some(header.sequence) {
            return Err(ServeError::Unexpected("sequence"));
        }
        self.sequence = header.sequence;
        self.nonce = header.nonce;
        let mut body = vec![0u8; header.length as usize];
        self.stream.read_exact(&mut body)?;
        header.check_body(&body)?;
        Ok(Request::decode(header.kind, &body)?)
    }

    /// Answers the request that was read last.
    pub fn answer(&mut self, reply: &Reply) -> Result<(), ServeError> {
        let session = self.session.ok_or(ServeError::Unexpected("reply"))?;
        let frame = encode_frame(reply.kind(), session, self.sequence, self.nonce, &reply.encode())?;
        self.stream.write_all(&frame)?;
        self.stream.flush()?;
        Ok(())
    }
}

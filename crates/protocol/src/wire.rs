//! The fixed header and the framing around a body.

use sha2::{Digest as _, Sha256};

use crate::codec::{DecodeError, Reader, Writer, check};

/// First four bytes of every frame.
pub const MAGIC: [u8; 4] = *b"CCF1";
/// Version of the header and of every body layout.
pub const VERSION: u16 = 1;
/// Header size in bytes: magic 4, version 2, kind 2, body length 4, session 16, sequence 8, nonce 16, body SHA-256 32.
pub const HEADER_BYTES: usize = 84;

/// Identifies one container's conversation; drawn by the host, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

/// Identifies one request; drawn by the host, echoed by the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub [u8; 16]);

const MIB: u32 = 1 << 20;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $bound:expr;)*) => {
        /// What a frame's body is. Requests are below 0x80, replies above.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Kind { $($(#[$doc])* $name = $code,)* }

        impl Kind {
            /// Every kind, in code order.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            /// Parses the header's code.
            pub fn from_code(code: u16) -> Result<Kind, DecodeError> {
                match code {
                    $($code => Ok(Kind::$name),)*
                    other => Err(DecodeError::Unknown { what: "frame kind", value: u64::from(other) }),
                }
            }

            /// Largest body of this kind, in bytes.
            pub fn bound(self) -> u32 {
                match self { $(Kind::$name => $bound,)* }
            }
        }
    };
}

kinds! {
    /// First request: launch digest and limits.
    Ready = 0x01, 4096;
    /// Replace the served kernels by a fresh engine process.
    Activate = 0x02, 64 * 1024;
    /// Generate tokens for one prompt batch.
    Generate = 0x03, 4 * MIB;
    /// Call one slot on host-made inputs (conformance).
    SlotCall = 0x04, 128 * MIB;
    /// Teacher-forced run with sampled calls exported (audit).
    Trace = 0x05, MIB;
    /// Teacher-forced log-probabilities (pristine reference).
    Score = 0x06, MIB;
    /// End of the conversation.
    Close = 0x07, 0;
    /// Answer to `Ready`.
    Readied = 0x81, 64 * 1024;
    /// Answer to `Activate`.
    Activated = 0x82, 64 * 1024;
    /// Answer to `Generate`.
    Generated = 0x83, 4 * MIB;
    /// Answer to `SlotCall`.
    SlotReturned = 0x84, 128 * MIB;
    /// Answer to `Trace`.
    Traced = 0x85, 128 * MIB;
    /// Answer to `Score`.
    Scored = 0x86, MIB;
    /// Answer to `Close`.
    Closed = 0x87, 64 * 1024;
    /// Answer to any request that could not be served.
    Fault = 0xff, 2048;
}

impl Kind {
    /// Whether the controller sends it.
    pub fn is_request(self) -> bool {
        (self as u16) < 0x80
    }
}

/// The fixed part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the body is.
    pub kind: Kind,
    /// Body length in bytes, within `kind.bound()`.
    pub length: u32,
    /// Conversation.
    pub session: SessionId,
    /// Request number from 1, rising by one; a reply repeats its request's.
    pub sequence: u64,
    /// Request nonce; a reply repeats its request's.
    pub nonce: Nonce,
    /// SHA-256 of the body.
    pub body_sha256: [u8; 32],
}

impl Header {
    /// The 84 bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut w = Writer::new();
        w.bytes(&MAGIC).u16(VERSION).u16(self.kind as u16).u32(self.length).bytes(&self.session.0);
        w.u64(self.sequence).bytes(&self.nonce.0).bytes(&self.body_sha256);
        let mut out = [0u8; HEADER_BYTES];
        out.copy_from_slice(&w.finish());
        out
    }

    /// Parses and bounds a header: a known kind, a body within that kind's bound, nonzero session, nonce and
    /// sequence.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, DecodeError> {
        let mut r = Reader::new(bytes);
        let magic = r.array("magic")?;
        if magic != MAGIC {
            return Err(DecodeError::Magic(magic));
        }
        let version = r.u16("version")?;
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let kind = Kind::from_code(r.u16("frame kind")?)?;
        let length = r.u32("body length")?;
        check("body length", u64::from(length), 0, u64::from(kind.bound()))?;
        let session = SessionId(r.array("session")?);
        let sequence = r.u64("sequence")?;
        let nonce = Nonce(r.array("nonce")?);
        let body_sha256 = r.array("body digest")?;
        r.finish()?;
        if session.0 == [0; 16] {
            return Err(DecodeError::NotCanonical("session"));
        }
        if nonce.0 == [0; 16] {
            return Err(DecodeError::NotCanonical("nonce"));
        }
        check("sequence", sequence, 1, u64::MAX)?;
        Ok(Header { kind, length, session, sequence, nonce, body_sha256 })
    }

    /// Refuses a body that is not the one the header names.
    pub fn check_body(&self, body: &[u8]) -> Result<(), DecodeError> {
        if body.len() as u64 != u64::from(self.length) {
            return Err(DecodeError::Short {
                what: "body",
                needed: u64::from(self.length),
                left: body.len() as u64,
            });
        }
        if sha256(body) != self.body_sha256 { Err(DecodeError::BodyDigest) } else { Ok(()) }
    }
}

/// SHA-256 of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// A whole frame: header followed by body. Refuses a body beyond the kind's bound.
pub fn encode_frame(
    kind: Kind,
    session: SessionId,
    sequence: u64,
    nonce: Nonce,
    body: &[u8],
) -> Result<Vec<u8>, DecodeError> {
    check("body length", body.len() as u64, 0, u64::from(kind.bound()))?;
    let length = body.len() as u32;
    let header = Header { kind, length, session, sequence, nonce, body_sha256: sha256(body) };
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(body);
    Ok(out)
}

/// Splits and checks a whole frame held in memory (a kept frame read back from an archive, or fuzz input).
pub fn decode_frame(bytes: &[u8]) -> Result<(Header, &[u8]), DecodeError> {
    let (head, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(DecodeError::Short {
        what: "header",
        needed: HEADER_BYTES as u64,
        left: bytes.len() as u64,
    })?;
    let header = Header::decode(head)?;
    if body.len() as u64 > u64::from(header.length) {
        return Err(DecodeError::Trailing(body.len() - header.length as usize));
    }
    header.check_body(body)?;
    Ok((header, body))
}

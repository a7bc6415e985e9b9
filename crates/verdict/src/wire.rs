//! The teacher's binary frames; their hashes are durable (50-execution §6.6).
//!
//! Big-endian: a magic of four bytes, the payload's length, a fixed header, then prompts. A frame is decoded only when
//! its length is exactly what its header says and encoding it again gives the same bytes.

use crate::codec::{
    ReferenceEvidence, ReferencePromptEvidence, ReferencePromptInput, ReferenceRequest,
    ReferenceRoleEvidence, ReferenceRoleInput, ReferenceTokenEvidence,
};
use crate::fields::{Fixed, Hex128};
use cacheon_identity::float17::Float17;
use cacheon_identity::{DecodeError, Digest, sha256};

const REQUEST_MAGIC: &[u8; 4] = b"ORQ1";
const EVIDENCE_MAGIC: &[u8; 4] = b"ORE1";
/// Largest and smallest log-probability.
const LOGPROBS: std::ops::RangeInclusive<f64> = -1e6..=1e-4;

/// Why a frame is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// Another magic.
    #[error("not a frame of this kind: magic {0:02x?}")]
    Magic(Vec<u8>),
    /// The frame ends before its contents, or goes on after them.
    #[error("the frame has {found} bytes, its contents need {expected}")]
    Length {
        /// Bytes of the frame.
        found: usize,
        /// Bytes that its header implies.
        expected: usize,
    },
    /// A count in the header is out of bounds.
    #[error("{what} is {value}")]
    Count {
        /// Which.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// Padding that is not zero.
    #[error("the padding is not zero")]
    Padding,
    /// An identity that is zero or malformed.
    #[error("{0} is zero")]
    Zero(&'static str),
    /// A prompt that is no UTF-8.
    #[error("a prompt is not UTF-8")]
    Utf8,
    /// A log-probability out of range.
    #[error("a log-probability of {0} is outside −10^6..=10^-4")]
    Logprob(f64),
    /// A value that has no binary32.
    #[error("{0} is not a binary32")]
    Binary32(f64),
    /// A most likely token that the teacher does not know.
    #[error("token {token} is not below the vocabulary of {vocab}")]
    Argmax {
        /// The token.
        token: u32,
        /// The vocabulary.
        vocab: u32,
    },
    /// The answer does not repeat its question.
    #[error("the answer's {0} is not the question's")]
    Answer(&'static str),
    /// The record breaks a rule.
    #[error("reference frame: {0}")]
    Record(#[from] DecodeError),
}

struct Reader<'a> {
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    fn open(frame: &'a [u8], magic: &[u8; 4]) -> Result<Self, FrameError> {
        let whole = frame.len();
        let mut reader = Self { rest: frame, whole };
        let found = reader.take(4)?;
        if found != magic {
            return Err(FrameError::Magic(found.to_vec()));
        }
        let length = reader.u32()? as usize;
        if reader.rest.len() == length {
            Ok(reader)
        } else {
            Err(FrameError::Length { found: whole, expected: length.saturating_add(8) })
        }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let expected = (self.whole - self.rest.len()).saturating_add(count);
        let (head, tail) =
            self.rest.split_at_checked(count).ok_or(FrameError::Length { found: self.whole, expected })?;
        self.rest = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_be_bytes)
    }

    fn f32(&mut self) -> Result<Float17, FrameError> {
        let value = f64::from(f32::from_bits(self.u32()?));
        match Float17::new(value) {
            Ok(float) if LOGPROBS.contains(&value) => Ok(float),
            _ => Err(FrameError::Logprob(value)),
        }
    }

    fn digest(&mut self, what: &'static str) -> Result<Digest, FrameError> {
        let digest = Digest::from_bytes(self.array()?);
        if digest.is_zero() { Err(FrameError::Zero(what)) } else { Ok(digest) }
    }

    fn hex128(&mut self, what: &'static str) -> Result<Hex128, FrameError> {
        Hex128::from_bytes(self.array()?).ok_or(FrameError::Zero(what))
    }

    fn padding(&mut self) -> Result<(), FrameError> {
        if self.u16()? == 0 { Ok(()) } else { Err(FrameError::Padding) }
    }

    fn finish(&self) -> Result<(), FrameError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(FrameError::Length { found: self.whole, expected: self.whole - self.rest.len() })
    }
}

fn counted(what: &'static str, value: u32, most: u64) -> Result<usize, FrameError> {
    let value = u64::from(value);
    if (1..=most).contains(&value) { Ok(value as usize) } else { Err(FrameError::Count { what, value }) }
}

fn frame(magic: &[u8; 4], payload: Vec<u8>) -> Result<Vec<u8>, FrameError> {
    let value = payload.len() as u64;
    let length =
        u32::try_from(payload.len()).map_err(|_| FrameError::Count { what: "the payload", value })?;
    let mut out = Vec::with_capacity(payload.len() + 8);
    out.extend_from_slice(magic);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend(payload);
    Ok(out)
}

fn push_hex(out: &mut Vec<u8>, id: &Hex128) {
    let value = u128::from_str_radix(id.as_str(), 16).unwrap_or(0);
    out.extend_from_slice(&value.to_be_bytes());
}

fn push_f32(out: &mut Vec<u8>, value: Float17) -> Result<(), FrameError> {
    let narrow = value.get() as f32;
    let same = f64::from(narrow).to_bits() == value.get().to_bits();
    if !same {
        return Err(FrameError::Binary32(value.get()));
    }
    if !LOGPROBS.contains(&value.get()) {
        return Err(FrameError::Logprob(value.get()));
    }
    out.extend_from_slice(&narrow.to_bits().to_be_bytes());
    Ok(())
}

/// The frame of a request.
///
/// # Errors
/// The request breaks a rule.
pub fn encode_request(request: &ReferenceRequest) -> Result<Vec<u8>, FrameError> {
    let request = request.clone().checked()?;
    let mut out = Vec::new();
    push_hex(&mut out, &request.session_id);
    out.extend_from_slice(request.launch_digest.as_bytes());
    out.extend_from_slice(request.plan_digest.as_bytes());
    push_hex(&mut out, &request.request_id);
    push_hex(&mut out, &request.nonce);
    for value in [request.request_index, request.prompts.len() as u32, request.tokens_per_prompt] {
        out.extend_from_slice(&value.to_be_bytes());
    }
    out.extend_from_slice(&(request.support_width as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    for prompt in &request.prompts {
        out.extend_from_slice(prompt.prompt_digest.as_bytes());
        out.extend_from_slice(&(prompt.prompt.len() as u32).to_be_bytes());
        out.extend_from_slice(prompt.prompt.as_bytes());
        let Fixed(roles) = &prompt.roles;
        for role in roles {
            for id in role.output_ids.iter().chain(role.supports.iter().flatten()) {
                out.extend_from_slice(&id.to_be_bytes());
            }
        }
    }
    frame(REQUEST_MAGIC, out)
}

/// SHA-256 of a whole frame, magic and length included.
#[must_use]
pub fn frame_sha256(frame: &[u8]) -> Digest {
    sha256(frame)
}

fn read_role(reader: &mut Reader<'_>, tokens: usize, width: usize) -> Result<ReferenceRoleInput, FrameError> {
    let mut ids = |count: usize| -> Result<Vec<u32>, FrameError> {
        let bytes = reader.take(count.saturating_mul(4))?;
        Ok(bytes
            .chunks_exact(4)
            .map(|four| u32::from_be_bytes([four[0], four[1], four[2], four[3]]))
            .collect())
    };
    let output_ids = ids(tokens)?;
    let flat = ids(tokens.saturating_mul(width))?;
    let supports = match width {
        0 => vec![Vec::new(); tokens],
        _ => flat.chunks_exact(width).map(<[u32]>::to_vec).collect(),
    };
    Ok(ReferenceRoleInput { output_ids, supports })
}

/// Reads a request frame.
///
/// # Errors
/// Anything but the exact encoding of a valid request.
pub fn decode_request(bytes: &[u8]) -> Result<ReferenceRequest, FrameError> {
    let mut reader = Reader::open(bytes, REQUEST_MAGIC)?;
    let session_id = reader.hex128("the session")?;
    let launch_digest = reader.digest("the launch")?;
    let plan_digest = reader.digest("the plan")?;
    let request_id = reader.hex128("the request id")?;
    let nonce = reader.hex128("the nonce")?;
    let request_index = reader.u32()?;
    let prompts = counted("the number of prompts", reader.u32()?, ReferenceRequest::MAX_PROMPTS as u64)?;
    let tokens = counted("the number of tokens", reader.u32()?, u64::from(ReferenceRequest::MAX_TOKENS))?;
    let support_width = u32::from(reader.u16()?);
    if support_width > ReferenceRequest::MAX_WIDTH {
        return Err(FrameError::Count { what: "the support width", value: u64::from(support_width) });
    }
    reader.padding()?;
    let mut list = Vec::new();
    for _ in 0..prompts {
        let prompt_digest = reader.digest("a prompt")?;
        let length = reader.u32()? as usize;
        let text = std::str::from_utf8(reader.take(length)?).map_err(|_| FrameError::Utf8)?.to_owned();
        let mut role = || read_role(&mut reader, tokens, support_width as usize);
        let roles = Fixed([role()?, role()?, role()?]);
        list.push(ReferencePromptInput { prompt: text, prompt_digest, roles });
    }
    reader.finish()?;
    let request = ReferenceRequest {
        launch_digest,
        nonce,
        plan_digest,
        prompts: list,
        request_id,
        request_index,
        session_id,
        support_width,
        tokens_per_prompt: tokens as u32,
    };
    Ok(request.checked()?)
}

/// The frame of an answer.
///
/// # Errors
/// A value that has no frame form.
pub fn encode_evidence(
    request: &ReferenceRequest,
    evidence: &ReferenceEvidence,
) -> Result<Vec<u8>, FrameError> {
    let mut out = Vec::new();
    push_hex(&mut out, &evidence.session_id);
    out.extend_from_slice(evidence.launch_digest.as_bytes());
    out.extend_from_slice(evidence.plan_digest.as_bytes());
    out.extend_from_slice(evidence.request_sha256.as_bytes());
    push_hex(&mut out, &evidence.request_id);
    push_hex(&mut out, &evidence.nonce);
    let counts = [
        evidence.request_index,
        evidence.prompts.len() as u32,
        request.tokens_per_prompt,
        evidence.vocab_size,
    ];
    for value in counts {
        out.extend_from_slice(&value.to_be_bytes());
    }
    out.extend_from_slice(&(request.support_width as u16).to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    for prompt in &evidence.prompts {
        out.extend_from_slice(prompt.prompt_digest.as_bytes());
        out.extend_from_slice(&prompt.prompt_token_count.to_be_bytes());
        out.extend_from_slice(prompt.prompt_token_sha256.as_bytes());
        let Fixed(roles) = &prompt.roles;
        for token in roles.iter().flat_map(|role| &role.tokens) {
            push_f32(&mut out, token.target_logprob)?;
            out.extend_from_slice(&token.true_argmax_token_id.to_be_bytes());
            for logprob in &token.support_logprobs {
                push_f32(&mut out, *logprob)?;
            }
        }
    }
    frame(EVIDENCE_MAGIC, out)
}

fn same<T: PartialEq>(what: &'static str, found: &T, expected: &T) -> Result<(), FrameError> {
    if found == expected { Ok(()) } else { Err(FrameError::Answer(what)) }
}

fn read_token(
    reader: &mut Reader<'_>,
    width: usize,
    vocab: u32,
) -> Result<ReferenceTokenEvidence, FrameError> {
    let target_logprob = reader.f32()?;
    let token = reader.u32()?;
    if token >= vocab {
        return Err(FrameError::Argmax { token, vocab });
    }
    let support_logprobs = (0..width).map(|_| reader.f32()).collect::<Result<_, _>>()?;
    Ok(ReferenceTokenEvidence { support_logprobs, target_logprob, true_argmax_token_id: token })
}

/// Reads the answer to a request frame.
///
/// # Errors
/// Anything but the exact encoding of a valid answer to exactly this request.
pub fn decode_evidence(bytes: &[u8], request_frame: &[u8]) -> Result<ReferenceEvidence, FrameError> {
    let request = decode_request(request_frame)?;
    let mut reader = Reader::open(bytes, EVIDENCE_MAGIC)?;
    let session_id = reader.hex128("the session")?;
    same("session", &session_id, &request.session_id)?;
    let launch_digest = reader.digest("the launch")?;
    same("launch", &launch_digest, &request.launch_digest)?;
    let plan_digest = reader.digest("the plan")?;
    same("plan", &plan_digest, &request.plan_digest)?;
    let request_sha256 = reader.digest("the request hash")?;
    same("request hash", &request_sha256, &sha256(request_frame))?;
    let request_id = reader.hex128("the request id")?;
    same("request id", &request_id, &request.request_id)?;
    let nonce = reader.hex128("the nonce")?;
    same("nonce", &nonce, &request.nonce)?;
    let request_index = reader.u32()?;
    same("index", &request_index, &request.request_index)?;
    same("number of prompts", &(reader.u32()? as usize), &request.prompts.len())?;
    same("number of tokens", &reader.u32()?, &request.tokens_per_prompt)?;
    let vocab_size = reader.u32()?;
    counted("the vocabulary", vocab_size, u64::from(u32::MAX))?;
    same("support width", &u32::from(reader.u16()?), &request.support_width)?;
    reader.padding()?;
    let (tokens, width) = (request.tokens_per_prompt, request.support_width as usize);
    let mut prompts = Vec::new();
    for asked in &request.prompts {
        let prompt_digest = reader.digest("a prompt")?;
        same("prompt", &prompt_digest, &asked.prompt_digest)?;
        let prompt_token_count = reader.u32()?;
        counted("the number of prompt tokens", prompt_token_count, u64::from(u32::MAX))?;
        let prompt_token_sha256 = reader.digest("a prompt's tokens")?;
        let mut role = || -> Result<ReferenceRoleEvidence, FrameError> {
            let tokens =
                (0..tokens).map(|_| read_token(&mut reader, width, vocab_size)).collect::<Result<_, _>>()?;
            Ok(ReferenceRoleEvidence { tokens })
        };
        let roles = Fixed([role()?, role()?, role()?]);
        prompts.push(ReferencePromptEvidence {
            prompt_digest,
            prompt_token_count,
            prompt_token_sha256,
            roles,
        });
    }
    reader.finish()?;
    Ok(ReferenceEvidence {
        launch_digest,
        nonce,
        plan_digest,
        prompts,
        request_id,
        request_index,
        request_sha256,
        session_id,
        vocab_size,
    })
}

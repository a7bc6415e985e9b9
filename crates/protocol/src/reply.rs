//! Reading, writing and matching replies.

use crate::body::{
    decode_blobs, decode_closed, decode_facts, decode_names, decode_traced, encode_blobs, encode_closed,
    encode_facts, encode_names, encode_traced, guards, logprob, name,
};
use crate::codec::{DecodeError, Reader, Writer};
use crate::message::{
    CALLS_MAX, NEW_TOKENS_MAX, PROMPTS_MAX, Reply, Request, SEQUENCE_MAX, SITES_MAX, SLOTS_MAX, SlotCount,
    SlotResult,
};
use crate::notes::{Fault, Notes};
use crate::wire::Kind;

impl Reply {
    /// The frame kind.
    pub fn kind(&self) -> Kind {
        match self {
            Reply::Readied { .. } => Kind::Readied,
            Reply::Activated { .. } => Kind::Activated,
            Reply::Generated { .. } => Kind::Generated,
            Reply::SlotReturned { .. } => Kind::SlotReturned,
            Reply::Traced { .. } => Kind::Traced,
            Reply::Scored { .. } => Kind::Scored,
            Reply::Closed { .. } => Kind::Closed,
            Reply::Fault(_) => Kind::Fault,
        }
    }

    /// The body's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        match self {
            Reply::Readied { launch, facts } => {
                w.bytes(launch);
                encode_facts(&mut w, facts);
            }
            Reply::Activated { generation, slots, closed, prepare_us, prepare_bytes } => {
                w.u64(*generation);
                encode_names(&mut w, slots);
                encode_closed(&mut w, closed.as_ref());
                w.u64(*prepare_us).u64(*prepare_bytes);
            }
            Reply::Generated { observed, tokens, notes } => {
                notes.encode(&mut w);
                w.count(tokens.len());
                for (observed, tokens) in observed.iter().zip(tokens) {
                    w.u32(*observed).tokens(tokens);
                }
            }
            Reply::SlotReturned { results, notes } => {
                notes.encode(&mut w);
                w.count(results.len());
                for result in results {
                    encode_blobs(&mut w, &result.outputs);
                    w.bytes(&result.hash_at_return).bytes(&result.hash_at_end).u16(result.guards);
                }
            }
            Reply::Traced { calls, counts, notes } => {
                notes.encode(&mut w);
                w.count(calls.len());
                for call in calls {
                    encode_traced(&mut w, call);
                }
                w.count(counts.len());
                for count in counts {
                    w.blob(count.slot.as_bytes()).u32(count.process).u64(count.calls);
                }
            }
            Reply::Scored { logprobs, notes } => {
                notes.encode(&mut w);
                w.count(logprobs.len());
                for logprob in logprobs {
                    w.f32(*logprob);
                }
            }
            Reply::Closed { closed } => encode_closed(&mut w, closed.as_ref()),
            Reply::Fault(fault) => fault.encode(&mut w),
        }
        w.finish()
    }

    /// Parses a body of the given kind. Whether it answers the request is [`Reply::answers`].
    pub fn decode(kind: Kind, body: &[u8]) -> Result<Reply, DecodeError> {
        let mut r = Reader::new(body);
        let reply = match kind {
            Kind::Readied => Reply::Readied { launch: r.array("launch")?, facts: decode_facts(&mut r)? },
            Kind::Activated => {
                let generation = r.u64("generation")?;
                let slots = decode_names(&mut r, "slots", SLOTS_MAX)?;
                let closed = decode_closed(&mut r)?;
                let (prepare_us, prepare_bytes) = (r.u64("prepare time")?, r.u64("prepare bytes")?);
                Reply::Activated { generation, slots, closed, prepare_us, prepare_bytes }
            }
            Kind::Generated => {
                let notes = Notes::decode(&mut r)?;
                let count = r.count("prompts", PROMPTS_MAX, 8)?;
                let mut observed = Vec::with_capacity(count);
                let mut tokens = Vec::with_capacity(count);
                for _ in 0..count {
                    observed.push(r.bounded("observed prompt tokens", 0, 1 << 24)?);
                    tokens.push(r.tokens("generated tokens", NEW_TOKENS_MAX)?);
                }
                Reply::Generated { observed, tokens, notes }
            }
            Kind::SlotReturned => {
                let notes = Notes::decode(&mut r)?;
                let count = r.count("results", CALLS_MAX, 70)?;
                let results = (0..count)
                    .map(|_| {
                        Ok(SlotResult {
                            outputs: decode_blobs(&mut r, "outputs")?,
                            hash_at_return: r.array("hash at return")?,
                            hash_at_end: r.array("hash at end")?,
                            guards: guards(&mut r)?,
                        })
                    })
                    .collect::<Result<Vec<_>, DecodeError>>()?;
                Reply::SlotReturned { results, notes }
            }
            Kind::Traced => {
                let notes = Notes::decode(&mut r)?;
                let count = r.count("traced calls", SITES_MAX, 98)?;
                let calls =
                    (0..count).map(|_| decode_traced(&mut r)).collect::<Result<Vec<_>, DecodeError>>()?;
                let count = r.count("slot counts", SLOTS_MAX * 64, 16)?;
                let counts = (0..count)
                    .map(|_| {
                        let slot = name(&mut r, "slot")?;
                        Ok(SlotCount { slot, process: r.u32("process")?, calls: r.u64("calls")? })
                    })
                    .collect::<Result<Vec<_>, DecodeError>>()?;
                Reply::Traced { calls, counts, notes }
            }
            Kind::Scored => {
                let notes = Notes::decode(&mut r)?;
                let count = r.count("log-probabilities", SEQUENCE_MAX, 4)?;
                let logprobs = (0..count).map(|_| logprob(&mut r)).collect::<Result<_, _>>()?;
                Reply::Scored { logprobs, notes }
            }
            Kind::Closed => Reply::Closed { closed: decode_closed(&mut r)? },
            Kind::Fault => Reply::Fault(Fault::decode(&mut r)?),
            other => return Err(DecodeError::Unknown { what: "reply kind", value: other as u64 }),
        };
        r.finish()?;
        Ok(reply)
    }

    /// Refuses a reply that is well formed but answers something else than was asked: wrong launch, generation or
    /// slots, too few or too many tokens, results or scores, tensors of other sizes, sites in another order.
    pub fn answers(&self, request: &Request) -> Result<(), Mismatch> {
        let fits = match (request, self) {
            (_, Reply::Fault(_)) => true,
            (Request::Ready { launch, .. }, Reply::Readied { launch: echoed, .. }) => launch == echoed,
            (
                Request::Activate { generation, bindings },
                Reply::Activated { generation: echoed, slots, closed, .. },
            ) => {
                generation == echoed
                    && slots.iter().eq(bindings.iter().map(|binding| &binding.slot))
                    && closed.as_ref().map_or(0, |closed| closed.generation).checked_add(1)
                        == Some(*generation)
            }
            (Request::Generate { prompts, max_new_tokens }, Reply::Generated { observed, tokens, .. }) => {
                observed.len() == prompts.len()
                    && tokens.len() == prompts.len()
                    && tokens.iter().all(|tokens| tokens.len() as u64 == u64::from(*max_new_tokens))
            }
            (Request::SlotCall(call), Reply::SlotReturned { results, .. }) => {
                results.len() == call.calls.len()
                    && results.iter().all(|result| {
                        let lengths = result.outputs.iter().map(|output| output.len() as u64);
                        lengths.eq(call.outputs.iter().map(|len| u64::from(*len)))
                    })
            }
            (Request::Trace { sites, .. }, Reply::Traced { calls, .. }) => {
                calls.iter().map(|call| &call.site).eq(sites)
            }
            (Request::Score { tokens, prompt_len }, Reply::Scored { logprobs, .. }) => {
                logprobs.len() as u64 + u64::from(*prompt_len) == tokens.len() as u64
            }
            (Request::Close, Reply::Closed { .. }) => true,
            _ => false,
        };
        if fits { Ok(()) } else { Err(Mismatch { request: request.kind(), reply: self.kind() }) }
    }
}

/// A well-formed reply to something else than was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {reply:?} reply does not answer the {request:?} request")]
pub struct Mismatch {
    /// What was asked.
    pub request: Kind,
    /// What came.
    pub reply: Kind,
}

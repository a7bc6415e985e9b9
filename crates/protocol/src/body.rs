//! Parts that bodies share.

use crate::codec::{DecodeError, Reader, Writer, check};
use crate::message::{
    ARGS_MAX, CALLS_MAX, CallSite, ClosedGeneration, Facts, Limits, NAME_MAX, SEQUENCE_MAX, SLOTS_MAX,
    SlotCall, SlotCounters, TENSOR_MAX, TracedCall, Weights,
};
use crate::notes::{Notes, text};

const MILLIS_MAX: u32 = 600_000;

/// A slot, variant or tensor name: printable ASCII without spaces, not empty.
pub(crate) fn name(r: &mut Reader<'_>, what: &'static str) -> Result<String, DecodeError> {
    let name = maybe_name(r, what)?;
    if name.is_empty() { Err(DecodeError::NotCanonical(what)) } else { Ok(name) }
}

fn maybe_name(r: &mut Reader<'_>, what: &'static str) -> Result<String, DecodeError> {
    let name = text(r.blob(what, NAME_MAX)?, what)?;
    if name.bytes().all(|b| b.is_ascii_graphic()) { Ok(name) } else { Err(DecodeError::NotCanonical(what)) }
}

pub(crate) fn ascending<T, K: Ord>(
    items: &[T],
    key: impl Fn(&T) -> K,
    what: &'static str,
) -> Result<(), DecodeError> {
    if items.windows(2).all(|pair| key(&pair[0]) < key(&pair[1])) {
        Ok(())
    } else {
        Err(DecodeError::NotCanonical(what))
    }
}

/// A log-probability: finite, −1e6..=1e-4 (`spec/50-execution.md` §6.3).
pub(crate) fn logprob(r: &mut Reader<'_>) -> Result<f32, DecodeError> {
    let value = r.f32("log-probability")?;
    if (-1e6..=1e-4).contains(&value) { Ok(value) } else { Err(DecodeError::NotCanonical("log-probability")) }
}

pub(crate) fn guards(r: &mut Reader<'_>) -> Result<u16, DecodeError> {
    let bits = r.u16("guards")?;
    check("guards", u64::from(bits & !0xfe), 0, 0)?;
    Ok(bits)
}

pub(crate) fn decode_limits(r: &mut Reader<'_>) -> Result<Limits, DecodeError> {
    Ok(Limits {
        load_ms: r.bounded("load deadline", 1, MILLIS_MAX)?,
        prepare_ms: r.bounded("prepare deadline", 1, MILLIS_MAX)?,
        prepare_bytes: r.u64("prepare budget")?,
        call_ms: r.bounded("call deadline", 1, MILLIS_MAX)?,
        guard_period: r.bounded("guard period", 1, u32::MAX)?,
        guard_seed: r.u64("guard seed")?,
    })
}

pub(crate) fn decode_sequence(r: &mut Reader<'_>) -> Result<(Vec<u32>, u32), DecodeError> {
    let prompt_len = r.bounded("prompt length", 1, SEQUENCE_MAX)?;
    let tokens = r.tokens("sequence", SEQUENCE_MAX)?;
    check("prompt length", u64::from(prompt_len), 1, tokens.len() as u64)?;
    Ok((tokens, prompt_len))
}

pub(crate) fn encode_blobs(w: &mut Writer, blobs: &[Vec<u8>]) {
    w.count(blobs.len());
    for blob in blobs {
        w.blob(blob);
    }
}

pub(crate) fn decode_blobs(r: &mut Reader<'_>, what: &'static str) -> Result<Vec<Vec<u8>>, DecodeError> {
    let count = r.count(what, ARGS_MAX, 4)?;
    (0..count).map(|_| r.blob(what, TENSOR_MAX)).collect()
}

fn encode_numbers(w: &mut Writer, numbers: &[u32]) {
    w.count(numbers.len());
    for number in numbers {
        w.u32(*number);
    }
}

fn decode_numbers(r: &mut Reader<'_>, what: &'static str) -> Result<Vec<u32>, DecodeError> {
    let count = r.count(what, ARGS_MAX, 4)?;
    (0..count).map(|_| r.u32(what)).collect()
}

pub(crate) fn encode_names(w: &mut Writer, names: &[String]) {
    w.count(names.len());
    for name in names {
        w.blob(name.as_bytes());
    }
}

pub(crate) fn decode_names(
    r: &mut Reader<'_>,
    what: &'static str,
    most: u32,
) -> Result<Vec<String>, DecodeError> {
    let count = r.count(what, most, 4)?;
    let names = (0..count).map(|_| name(r, what)).collect::<Result<Vec<_>, DecodeError>>()?;
    ascending(&names, Clone::clone, what)?;
    Ok(names)
}

pub(crate) fn encode_slot_call(w: &mut Writer, call: &SlotCall) {
    w.blob(call.slot.as_bytes()).blob(call.variant.as_bytes());
    encode_numbers(w, &call.dims);
    w.count(call.scalars.len());
    for scalar in &call.scalars {
        w.f32(*scalar);
    }
    match &call.weights {
        Weights::None => {
            w.u8(0);
        }
        Weights::Inline { dtype, bytes } => {
            w.u8(1).u32(*dtype).blob(bytes);
        }
        Weights::Model(tensor) => {
            w.u8(2).blob(tensor.as_bytes());
        }
    }
    encode_numbers(w, &call.outputs);
    w.count(call.calls.len());
    for inputs in &call.calls {
        encode_blobs(w, inputs);
    }
}

pub(crate) fn decode_slot_call(r: &mut Reader<'_>) -> Result<SlotCall, DecodeError> {
    let (slot, variant) = (name(r, "slot")?, name(r, "variant")?);
    let dims = decode_numbers(r, "dimensions")?;
    let count = r.count("scalars", ARGS_MAX, 4)?;
    let scalars = (0..count).map(|_| r.f32("scalars")).collect::<Result<Vec<_>, DecodeError>>()?;
    let weights = match r.u8("weights")? {
        0 => Weights::None,
        1 => Weights::Inline { dtype: r.u32("weight type")?, bytes: r.blob("weights", TENSOR_MAX)? },
        2 => Weights::Model(name(r, "weight tensor")?),
        other => return Err(DecodeError::Unknown { what: "weights", value: u64::from(other) }),
    };
    let outputs = decode_numbers(r, "outputs")?;
    let total: u64 = outputs.iter().map(|len| u64::from(*len)).sum();
    for len in &outputs {
        check("output bytes", u64::from(*len), 1, u64::from(TENSOR_MAX))?;
    }
    let count = r.count("calls", CALLS_MAX, 4)?;
    check("calls", count as u64, 1, u64::from(CALLS_MAX))?;
    check("output bytes of all calls", total * count as u64, 1, u64::from(TENSOR_MAX))?;
    let calls = (0..count).map(|_| decode_blobs(r, "inputs")).collect::<Result<Vec<_>, DecodeError>>()?;
    let sizes = |inputs: &[Vec<u8>]| inputs.iter().map(Vec::len).collect::<Vec<_>>();
    if calls.windows(2).any(|pair| sizes(&pair[0]) != sizes(&pair[1])) {
        return Err(DecodeError::NotCanonical("inputs of replayed calls"));
    }
    Ok(SlotCall { slot, variant, dims, scalars, weights, outputs, calls })
}

pub(crate) fn encode_traced(w: &mut Writer, call: &TracedCall) {
    w.blob(call.site.slot.as_bytes()).u64(call.site.ordinal).blob(call.variant.as_bytes());
    encode_numbers(w, &call.dims);
    w.blob(call.weights.as_bytes());
    encode_blobs(w, &call.inputs);
    encode_blobs(w, &call.outputs);
    w.bytes(&call.hash_at_return).bytes(&call.hash_at_end).u16(call.guards);
}

pub(crate) fn decode_traced(r: &mut Reader<'_>) -> Result<TracedCall, DecodeError> {
    Ok(TracedCall {
        site: CallSite { slot: name(r, "slot")?, ordinal: r.u64("ordinal")? },
        variant: maybe_name(r, "variant")?,
        dims: decode_numbers(r, "dimensions")?,
        weights: maybe_name(r, "weight tensor")?,
        inputs: decode_blobs(r, "inputs")?,
        outputs: decode_blobs(r, "outputs")?,
        hash_at_return: r.array("hash at return")?,
        hash_at_end: r.array("hash at end")?,
        guards: guards(r)?,
    })
}

pub(crate) fn encode_closed(w: &mut Writer, closed: Option<&ClosedGeneration>) {
    let Some(closed) = closed else {
        w.u8(0);
        return;
    };
    w.u8(1).u64(closed.generation).count(closed.counters.len());
    for row in &closed.counters {
        w.blob(row.slot.as_bytes()).u32(row.process);
        w.u64(row.fired).u64(row.completed).u64(row.fallback).u64(row.load_failed);
    }
    closed.notes.encode(w);
}

pub(crate) fn decode_closed(r: &mut Reader<'_>) -> Result<Option<ClosedGeneration>, DecodeError> {
    match r.u8("closed generation")? {
        0 => return Ok(None),
        1 => {}
        other => return Err(DecodeError::Unknown { what: "closed generation", value: u64::from(other) }),
    }
    let generation = r.u64("generation")?;
    let count = r.count("counters", SLOTS_MAX * 8, 41)?;
    let counters = (0..count)
        .map(|_| {
            Ok(SlotCounters {
                slot: name(r, "slot")?,
                process: r.u32("process")?,
                fired: r.u64("fired")?,
                completed: r.u64("completed")?,
                fallback: r.u64("fallback")?,
                load_failed: r.u64("load failures")?,
            })
        })
        .collect::<Result<Vec<_>, DecodeError>>()?;
    ascending(&counters, |row| (row.slot.clone(), row.process), "counters")?;
    Ok(Some(ClosedGeneration { generation, counters, notes: Notes::decode(r)? }))
}

pub(crate) fn encode_facts(w: &mut Writer, facts: &Facts) {
    w.u32(facts.vocabulary).u32(facts.context).u32(facts.layers).u32(facts.width).u32(facts.heads);
    w.u32(facts.kv_heads).u32(facts.feed_forward).u64(facts.model_bytes).blob(facts.abi.as_bytes());
    encode_names(w, &facts.cpu_features);
    encode_names(w, &facts.checks);
    encode_names(w, &facts.failed_checks);
    w.u64(facts.warm_us);
}

pub(crate) fn decode_facts(r: &mut Reader<'_>) -> Result<Facts, DecodeError> {
    Ok(Facts {
        vocabulary: r.u32("vocabulary")?,
        context: r.u32("context")?,
        layers: r.u32("layers")?,
        width: r.u32("width")?,
        heads: r.u32("heads")?,
        kv_heads: r.u32("key-value heads")?,
        feed_forward: r.u32("feed-forward width")?,
        model_bytes: r.u64("model bytes")?,
        abi: name(r, "ABI")?,
        cpu_features: decode_names(r, "CPU features", 64)?,
        checks: decode_names(r, "checks", 64)?,
        failed_checks: decode_names(r, "failed checks", 64)?,
        warm_us: r.u64("warm time")?,
    })
}

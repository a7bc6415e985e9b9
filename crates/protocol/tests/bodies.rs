//! Round trips, canonical form and hostile bytes of every body.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_protocol::message::{
    Binding, CallSite, ClosedGeneration, Facts, Limits, Publication, SlotCall, SlotCount, SlotCounters,
    SlotResult, TracedCall, Weights,
};
use cacheon_protocol::wire::{decode_frame, encode_frame};
use cacheon_protocol::{
    DecodeError, Fault, FaultArm, FaultKind, GuardHit, Kind, Nonce, Notes, Reply, Request, SessionId,
};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9_.]{0,20}"
}

fn notes() -> impl Strategy<Value = Notes> {
    (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), 0usize..8).prop_map(|(a, b, c, d, hit)| {
        let first_hit = GuardHit::ALL.get(hit).copied();
        let guard_hits = if first_hit.is_some() { d | 1 } else { 0 };
        Notes { denied_network: a, denied_other: b, guard_checks: c, guard_hits, calls: d, first_hit }
    })
}

fn tokens(most: usize) -> impl Strategy<Value = Vec<u32>> {
    vec(0..=i32::MAX as u32, 1..most)
}

fn slot_call() -> impl Strategy<Value = SlotCall> {
    let weights = prop_oneof![
        Just(Weights::None),
        (any::<u32>(), vec(any::<u8>(), 0..40)).prop_map(|(dtype, bytes)| Weights::Inline { dtype, bytes }),
        name().prop_map(Weights::Model),
    ];
    (
        name(),
        name(),
        vec(any::<u32>(), 0..5),
        vec(-1e6f32..1e6, 0..4),
        weights,
        vec(1u32..100, 1..4),
        1usize..5,
    )
        .prop_flat_map(|(slot, variant, dims, scalars, weights, outputs, calls)| {
            let calls = vec(0usize..32, 0..4).prop_flat_map(move |sizes| {
                let inputs = sizes.into_iter().map(|n| vec(any::<u8>(), n)).collect::<Vec<_>>();
                vec(inputs, calls)
            });
            calls.prop_map(move |calls| SlotCall {
                slot: slot.clone(),
                variant: variant.clone(),
                dims: dims.clone(),
                scalars: scalars.clone(),
                weights: weights.clone(),
                outputs: outputs.clone(),
                calls,
            })
        })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (any::<[u8; 32]>(), 1u32..600_000, any::<u64>(), btree_set(any::<u16>(), 0..5)).prop_map(
            |(launch, ms, big, ids)| Request::Ready {
                launch,
                limits: Limits {
                    load_ms: ms,
                    prepare_ms: ms,
                    prepare_bytes: big,
                    call_ms: ms,
                    guard_period: ms,
                    guard_seed: big
                },
                publications: ids.into_iter().map(|id| Publication { id, object_sha256: launch }).collect(),
            }
        ),
        (1u64.., btree_set(name(), 0..6), any::<u16>()).prop_map(|(generation, slots, publication)| {
            let bindings = slots.into_iter().map(|slot| Binding { slot, publication }).collect();
            Request::Activate { generation, bindings }
        }),
        (vec(tokens(20), 1..4), 1u32..4096)
            .prop_map(|(prompts, max_new_tokens)| Request::Generate { prompts, max_new_tokens }),
        slot_call().prop_map(Request::SlotCall),
        (tokens(20), btree_set((name(), any::<u64>()), 0..5)).prop_map(|(tokens, sites)| Request::Trace {
            prompt_len: tokens.len() as u32,
            tokens,
            sites: sites.into_iter().map(|(slot, ordinal)| CallSite { slot, ordinal }).collect(),
        }),
        tokens(20).prop_map(|tokens| Request::Score { tokens, prompt_len: 1 }),
        Just(Request::Close),
    ]
}

fn closed() -> impl Strategy<Value = Option<ClosedGeneration>> {
    proptest::option::of((any::<u64>(), btree_set(name(), 0..5), notes()).prop_map(|(n, slots, notes)| {
        let counters = slots
            .into_iter()
            .map(|slot| SlotCounters {
                slot,
                process: 0,
                fired: n,
                completed: n,
                fallback: 0,
                load_failed: 1,
            })
            .collect();
        ClosedGeneration { generation: n, counters, notes }
    }))
}

fn reply() -> impl Strategy<Value = Reply> {
    let blobs = || vec(vec(any::<u8>(), 0..20), 0..4);
    prop_oneof![
        (any::<[u8; 32]>(), any::<u32>(), btree_set(name(), 0..5)).prop_map(|(launch, n, names)| {
            let names: Vec<String> = names.into_iter().collect();
            Reply::Readied {
                launch,
                facts: Facts {
                    vocabulary: n,
                    context: n,
                    layers: n,
                    width: n,
                    heads: n,
                    kv_heads: n,
                    feed_forward: n,
                    model_bytes: u64::from(n),
                    abi: "cacheon-c-abi-v1".into(),
                    cpu_features: names.clone(),
                    checks: names.clone(),
                    failed_checks: names,
                    warm_us: 1,
                },
            }
        }),
        (any::<u64>(), btree_set(name(), 0..5), closed()).prop_map(|(n, slots, closed)| Reply::Activated {
            generation: n,
            slots: slots.into_iter().collect(),
            closed,
            prepare_us: n,
            prepare_bytes: n
        }),
        (vec((0u32..1 << 24, tokens(9)), 0..4), notes()).prop_map(|(rows, notes)| {
            let (observed, tokens) = rows.into_iter().unzip();
            Reply::Generated { observed, tokens, notes }
        }),
        (vec((blobs(), any::<[u8; 32]>(), 0u16..128), 0..4), notes()).prop_map(|(rows, notes)| {
            let results = rows
                .into_iter()
                .map(|(outputs, hash, bits)| SlotResult {
                    outputs,
                    hash_at_return: hash,
                    hash_at_end: hash,
                    guards: bits << 1,
                })
                .collect();
            Reply::SlotReturned { results, notes }
        }),
        (vec((name(), blobs(), any::<[u8; 32]>()), 0..3), notes()).prop_map(|(rows, notes)| {
            let calls: Vec<TracedCall> = rows
                .into_iter()
                .map(|(slot, blobs, hash)| TracedCall {
                    site: CallSite { slot, ordinal: 7 },
                    variant: String::new(),
                    dims: vec![1, 2],
                    weights: "blk.0.attn_q.weight".into(),
                    inputs: blobs.clone(),
                    outputs: blobs,
                    hash_at_return: hash,
                    hash_at_end: hash,
                    guards: 2,
                })
                .collect();
            let counts =
                calls.iter().map(|c| SlotCount { slot: c.site.slot.clone(), process: 0, calls: 9 }).collect();
            Reply::Traced { calls, counts, notes }
        }),
        (vec(-1e6f32..0.0, 0..20), notes()).prop_map(|(logprobs, notes)| Reply::Scored { logprobs, notes }),
        closed().prop_map(|closed| Reply::Closed { closed }),
        (notes(), 0usize..12, "\\PC{0,600}").prop_map(|(notes, kind, detail)| {
            let mut end = detail.len().min(512);
            while !detail.is_char_boundary(end) {
                end -= 1;
            }
            Reply::Fault(Fault {
                arm: FaultArm::Candidate,
                kind: FaultKind::ALL[kind],
                generation: 3,
                signal: 11,
                slot: "norm.rmsnorm".into(),
                notes,
                detail: detail[..end].into(),
            })
        }),
    ]
}

proptest! {
    #[test]
    fn requests_round_trip(request in request()) {
        let body = request.encode();
        prop_assert_eq!(Request::decode(request.kind(), &body), Ok(request));
    }

    #[test]
    fn replies_round_trip(reply in reply()) {
        let body = reply.encode();
        prop_assert_eq!(Reply::decode(reply.kind(), &body), Ok(reply));
    }

    #[test]
    fn a_truncated_body_is_refused(request in request(), reply in reply(), cut in any::<prop::sample::Index>()) {
        for (kind, body) in [(request.kind(), request.encode()), (reply.kind(), reply.encode())] {
            if body.is_empty() {
                continue;
            }
            let body = &body[..cut.index(body.len())];
            if kind.is_request() {
                prop_assert!(Request::decode(kind, body).is_err());
            } else {
                prop_assert!(Reply::decode(kind, body).is_err());
            }
        }
    }

    /// Whatever decodes re-encodes to the same bytes: one message, one spelling.
    #[test]
    fn what_decodes_is_canonical(
        request in request(), reply in reply(),
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        for (kind, mut body) in [(request.kind(), request.encode()), (reply.kind(), reply.encode())] {
            for (at, byte) in &edits {
                if !body.is_empty() {
                    let at = at.index(body.len());
                    body[at] = *byte;
                }
            }
            if kind.is_request() {
                if let Ok(decoded) = Request::decode(kind, &body) {
                    prop_assert_eq!(decoded.encode(), body);
                }
            } else if let Ok(decoded) = Reply::decode(kind, &body) {
                prop_assert_eq!(decoded.encode(), body);
            }
        }
    }

    #[test]
    fn noise_never_panics(kind in 0usize..Kind::ALL.len(), body in vec(any::<u8>(), 0..300)) {
        let kind = Kind::ALL[kind];
        let _ = Request::decode(kind, &body);
        let _ = Reply::decode(kind, &body);
        let _ = decode_frame(&body);
    }

    #[test]
    fn a_frame_with_one_changed_byte_is_refused_or_differs(
        request in request(), at in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let frame =
            encode_frame(request.kind(), SessionId([1; 16]), 1, Nonce([2; 16]), &request.encode()).unwrap();
        let (header, _) = decode_frame(&frame).unwrap();
        let mut changed = frame.clone();
        let at = at.index(frame.len());
        changed[at] ^= flip;
        // Session, sequence, nonce and the kind may change into other valid ones; the body may not.
        if let Ok((other, _)) = decode_frame(&changed) {
            prop_assert_ne!(other, header);
            prop_assert!(at < 52);
        }
    }

    /// The exact size announced by a request is that of its reply.
    #[test]
    fn exact_reply_sizes_are_exact(prompts in 1usize..5, new in 1u32..9, outputs in vec(1u32..9, 1..3)) {
        let request = Request::Generate { prompts: vec![vec![1]; prompts], max_new_tokens: new };
        let reply = Reply::Generated {
            observed: vec![1; prompts],
            tokens: vec![vec![0; new as usize]; prompts],
            notes: Notes::default(),
        };
        prop_assert_eq!(request.reply_rule().exact, Some(reply.encode().len() as u32));
        prop_assert_eq!(reply.answers(&request), Ok(()));

        let call = SlotCall {
            slot: "s".into(), variant: "v".into(), dims: vec![], scalars: vec![], weights: Weights::None,
            outputs: outputs.clone(), calls: vec![vec![]; prompts],
        };
        let request = Request::SlotCall(call);
        let result = SlotResult {
            outputs: outputs.iter().map(|n| vec![0; *n as usize]).collect(),
            hash_at_return: [0; 32], hash_at_end: [0; 32], guards: 0,
        };
        let reply = Reply::SlotReturned { results: vec![result; prompts], notes: Notes::default() };
        prop_assert_eq!(request.reply_rule().exact, Some(reply.encode().len() as u32));
        prop_assert_eq!(reply.answers(&request), Ok(()));
    }
}

#[test]
fn a_log_probability_is_finite_and_negative() {
    for (value, ok) in [(-0.5, true), (f32::NAN, false), (f32::NEG_INFINITY, false), (0.5, false)] {
        let body = Reply::Scored { logprobs: vec![value], notes: Notes::default() }.encode();
        assert_eq!(Reply::decode(Kind::Scored, &body).is_ok(), ok, "{value}");
    }
}

#[test]
fn a_count_is_not_an_allocation() {
    // 4,096 sites declared, none present.
    let mut body = Request::Trace { tokens: vec![1], prompt_len: 1, sites: vec![] }.encode();
    let end = body.len();
    body[end - 4..].copy_from_slice(&4096u32.to_be_bytes());
    assert!(matches!(Request::decode(Kind::Trace, &body), Err(DecodeError::Short { .. })));
}

#[test]
fn bounds_are_refused_by_name() {
    let score = |tokens: Vec<u32>, prompt_len| {
        Request::decode(Kind::Score, &Request::Score { tokens, prompt_len }.encode())
    };
    assert!(matches!(score(vec![1], 2), Err(DecodeError::Bound { what: "prompt length", .. })));
    assert!(matches!(score(vec![1 << 31], 1), Err(DecodeError::Bound { what: "sequence", .. })));
    assert!(matches!(score(vec![1; 40_000], 1), Err(DecodeError::Bound { what: "sequence", .. })));
    let unsorted = ["b", "a"].map(|slot| Binding { slot: slot.into(), publication: 0 });
    let body = Request::Activate { generation: 1, bindings: unsorted.to_vec() }.encode();
    assert_eq!(Request::decode(Kind::Activate, &body), Err(DecodeError::NotCanonical("bindings")));
    let replay = SlotCall {
        slot: "s".into(),
        variant: "v".into(),
        dims: vec![],
        scalars: vec![],
        weights: Weights::None,
        outputs: vec![4],
        calls: vec![vec![vec![0; 4]], vec![vec![0; 8]]],
    };
    let body = Request::SlotCall(replay).encode();
    assert!(matches!(Request::decode(Kind::SlotCall, &body), Err(DecodeError::NotCanonical(_))));
}

#[test]
fn an_oversized_body_is_not_framed() {
    let body = vec![0u8; Kind::Fault.bound() as usize + 1];
    assert!(matches!(
        encode_frame(Kind::Fault, SessionId([1; 16]), 1, Nonce([1; 16]), &body),
        Err(DecodeError::Bound { .. })
    ));
}

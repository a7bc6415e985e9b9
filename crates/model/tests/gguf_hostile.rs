//! Damaged and lying model files: always a typed error, never a panic, and never a large allocation.

#![allow(clippy::unwrap_used, clippy::panic)]

use cacheon_model::gguf::{Gguf, GgufError, MAX_ARRAY, MAX_METADATA, MAX_STRING_BYTES, MAX_TENSORS};
use cacheon_model::llama::{Model, ModelError};
use cacheon_model::synthetic::{self, Spec};
use proptest::prelude::*;
use std::sync::LazyLock;

static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| synthetic::generate(&Spec::tiny(b"hostile")));

fn parse(bytes: &[u8]) -> Result<(), GgufError> {
    Gguf::parse(bytes).map(|_| ())
}

/// A header with given counts, followed by `body`.
fn file(version: u32, tensors: u64, metadata: u64, body: &[u8]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(version.to_le_bytes());
    out.extend(tensors.to_le_bytes());
    out.extend(metadata.to_le_bytes());
    out.extend(body);
    out
}

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes()[..], value.as_bytes()].concat()
}

fn entry(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [text(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat()
}

fn tensor(name: &str, dims: &[u64], encoding: u32, offset: u64) -> Vec<u8> {
    let mut out = text(name);
    out.extend((dims.len() as u32).to_le_bytes());
    dims.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
    out.extend(encoding.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out
}

#[test]
fn wrong_files_say_what_they_are() {
    assert_eq!(parse(b"PK\x03\x04rest"), Err(GgufError::Magic { found: b"PK\x03\x04".to_vec() }));
    assert_eq!(parse(b""), Err(GgufError::Magic { found: Vec::new() }));
    assert_eq!(parse(&file(1, 0, 0, &[])), Err(GgufError::Version { found: 1 }));
    assert_eq!(parse(&file(3u32.swap_bytes(), 0, 0, &[])), Err(GgufError::Version { found: 0x0300_0000 }));
    let message = parse(&GOOD[..GOOD.len() - 1]).unwrap_err().to_string();
    assert!(message.contains("truncated") && message.contains("fetch it again"), "{message}");
}

#[test]
fn every_truncation_is_refused() {
    let length = GOOD.len();
    for cut in (0..4000).chain((4000..length).step_by(97)).chain(length - 40..length) {
        assert!(parse(&GOOD[..cut]).is_err(), "{cut}");
    }
    assert_eq!(parse(&GOOD), Ok(()));
}

#[test]
fn lying_counts_are_refused_before_anything_is_read() {
    let limit = |what, found, limit| Err(GgufError::Limit { what, found, limit });
    assert_eq!(parse(&file(3, u64::MAX, 0, &[])), limit("tensor count", u64::MAX, MAX_TENSORS));
    assert_eq!(
        parse(&file(3, 0, MAX_METADATA + 1, &[])),
        limit("metadata count", MAX_METADATA + 1, MAX_METADATA)
    );
    let string = entry("k", 8, &u64::MAX.to_le_bytes());
    assert_eq!(parse(&file(3, 0, 1, &string)), limit("string length", u64::MAX, MAX_STRING_BYTES));
    let array = entry("k", 9, &[&4u32.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat());
    assert_eq!(parse(&file(3, 0, 1, &array)), limit("array length", u64::MAX, MAX_ARRAY));
    let array = entry("k", 9, &[&12u32.to_le_bytes()[..], &MAX_ARRAY.to_le_bytes()].concat());
    assert!(matches!(
        parse(&file(3, 0, 1, &array)),
        Err(GgufError::Truncated { what: "metadata array", .. })
    ));
}

#[test]
fn metadata_is_checked() {
    let one = |entries: &[Vec<u8>]| parse(&file(3, 0, entries.len() as u64, &entries.concat()));
    let flag = |value| entry("flag", 7, &[value]);
    assert_eq!(one(&[flag(1)]), Ok(()));
    assert_eq!(one(&[flag(2)]), Err(GgufError::Bool { key: "flag".into(), found: 2 }));
    assert_eq!(one(&[flag(0), flag(1)]), Err(GgufError::Duplicate { what: "key", name: "flag".into() }));
    assert_eq!(one(&[entry("k", 13, &[])]), Err(GgufError::ValueType { key: "k".into(), found: 13 }));
    let nested = entry("k", 9, &[&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat());
    assert_eq!(one(&[nested]), Err(GgufError::ValueType { key: "k".into(), found: 9 }));
    let mut binary = entry("k", 7, &[1]);
    binary[8] = 0xff;
    assert!(matches!(one(&[binary]), Err(GgufError::Utf8 { .. })));
    for alignment in [0u32, 4, 33, 1 << 17] {
        let entry = entry("general.alignment", 4, &alignment.to_le_bytes());
        assert_eq!(one(&[entry]), Err(GgufError::Alignment { found: u64::from(alignment) }));
    }
}

#[test]
fn tensors_are_checked() {
    let with = |tensors: &[Vec<u8>], data: usize| {
        let mut bytes = file(3, tensors.len() as u64, 0, &tensors.concat());
        bytes.resize(bytes.len().next_multiple_of(32) + data, 0);
        parse(&bytes)
    };
    assert_eq!(with(&[tensor("a", &[32, 2], 3, 0), tensor("b", &[8], 0, 64)], 96), Ok(()));
    let dimensions = |result| matches!(result, Err(GgufError::Dimensions { .. }));
    assert!(dimensions(with(&[tensor("a", &[31], 3, 0)], 64)));
    assert!(dimensions(with(&[tensor("a", &[32, 0], 3, 0)], 64)));
    assert!(dimensions(with(&[tensor("a", &[32, u64::MAX / 4, 8], 3, 0)], 64)));
    assert!(matches!(with(&[tensor("a", &[], 0, 0)], 64), Err(GgufError::Limit { .. })));
    assert!(matches!(with(&[tensor("a", &[1; 5], 0, 0)], 64), Err(GgufError::Limit { .. })));
    assert_eq!(
        with(&[tensor("a", &[32], 2, 0)], 64),
        Err(GgufError::Encoding { tensor: "a".into(), found: 2 })
    );
    let misplaced = |result| matches!(result, Err(GgufError::Placement { .. }));
    assert!(misplaced(with(&[tensor("a", &[8], 0, 8)], 64)));
    assert!(misplaced(with(&[tensor("a", &[16], 0, 0), tensor("b", &[8], 0, 32)], 128)));
    assert!(misplaced(with(&[tensor("a", &[8], 0, u64::MAX - 31)], 64)));
    assert!(matches!(
        with(&[tensor("a", &[32], 0, 0)], 127),
        Err(GgufError::Truncated { what: "tensor data", .. })
    ));
    let twice = with(&[tensor("a", &[8], 0, 0), tensor("a", &[8], 0, 32)], 64);
    assert_eq!(twice, Err(GgufError::Duplicate { what: "tensor", name: "a".into() }));
}

/// The good file with the bytes after the first occurrence of `key` and a type word replaced.
fn changed(key: &str, value: &[u8]) -> Vec<u8> {
    let at = GOOD.windows(key.len()).position(|w| w == key.as_bytes()).unwrap() + key.len() + 4;
    let mut bytes = GOOD.clone();
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

#[test]
fn models_of_other_shapes_are_refused() {
    let bind = |bytes: &[u8]| {
        let gguf = Gguf::parse(bytes).unwrap();
        Model::bind(&gguf).map(|_| ())
    };
    assert_eq!(bind(&GOOD), Ok(()));
    let architecture = changed("general.architecture", &[&5u64.to_le_bytes()[..], b"qwen3"].concat());
    assert_eq!(bind(&architecture), Err(ModelError::Architecture { found: "qwen3".into() }));
    for (key, value) in [
        ("llama.embedding_length", 0),
        ("llama.embedding_length", u32::MAX),
        ("llama.attention.head_count_kv", 3),
        ("llama.attention.head_count", 5),
        ("llama.rope.dimension_count", 8),
    ] {
        let refused = bind(&changed(key, &u32::to_le_bytes(value)));
        assert!(matches!(refused, Err(ModelError::Hyperparameter { .. })), "{key} {value}: {refused:?}");
    }
    for eps in [0.0f32, -1.0, f32::NAN, f32::INFINITY] {
        let bytes = changed("llama.attention.layer_norm_rms_epsilon", &eps.to_le_bytes());
        assert!(matches!(bind(&bytes), Err(ModelError::Hyperparameter { .. })), "{eps}");
    }
    assert!(matches!(
        bind(&changed("llama.block_count", &3u32.to_le_bytes())),
        Err(ModelError::NoTensor { .. })
    ));
    assert!(matches!(
        bind(&changed("llama.vocab_size", &511u32.to_le_bytes())),
        Err(ModelError::Shape { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_damage_never_panics(at in 0usize..20_000, value: u8, more in prop::collection::vec((0usize..6000, any::<u8>()), 0..8)) {
        let mut bytes = GOOD.clone();
        for (at, value) in more.into_iter().chain([(at, value)]) {
            bytes[at] = value;
        }
        if let Ok(gguf) = Gguf::parse(&bytes) {
            let _ = Model::bind(&gguf);
            for (name, _) in gguf.tensors() {
                prop_assert!(gguf.tensor(name).is_some());
            }
            if let Some(tokens) = gguf.array("tokenizer.ggml.tokens").and_then(|a| a.strings()) {
                let _ = tokens.count();
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..300), tensors in 0u64..4, metadata in 0u64..4) {
        let _ = Gguf::parse(&file(3, tensors, metadata, &body));
    }
}

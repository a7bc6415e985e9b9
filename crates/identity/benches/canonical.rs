//! Whole-process rates of canonical digests, against the machine's own SHA-256 in the same run.
//!
//! `cargo bench -p cacheon-identity` prints MB/s of payload, records per second and the ratio to hashing alone.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

use cacheon_identity::{Canonical, Decode, Digest, Domain, Json, sha256};
use std::hint::black_box;
use std::time::Instant;

cacheon_identity::record! {
    /// A record of the size of a standing claim.
    struct Claim {
        arena_digest: Digest,
        contribution_digest: Digest,
        crowned_block: u64,
        hotkey: String,
        speedup_ppm: u64,
        target_id: String,
    }
}

cacheon_identity::record! {
    /// The smallest record in use: a stack and its tree.
    struct Arm {
        stack_digest: Digest,
        tree_digest: Digest,
    }
}

cacheon_identity::record! {
    /// A small record of numbers and words.
    struct Member {
        hotkey: String,
        uid: u64,
    }
}

const DOMAIN: Domain = Domain::new("cacheon.bench");

/// The fastest of five runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    let timed = (0..5).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    timed.fold(f64::INFINITY, f64::min)
}

fn large(name: &str, text: String, raw: f64) {
    let bytes = text.len() as f64;
    let json = Json::Str(text);
    let rate = bytes / best(|| _ = black_box(DOMAIN.digest(&json))) / 1e6;
    println!(
        "digest of a large string, {name:<18} {rate:>9.0} MB/s of payload, {:>5.2} of hashing alone",
        rate / raw
    );
    let encoded = json.to_canonical();
    let read = bytes / best(|| drop(black_box(Json::parse(&encoded).unwrap()))) / 1e6;
    println!("  reading it back                            {read:>9.0} MB/s of payload");
}

fn small<T: Canonical>(name: &str, records: &[T]) {
    let size = records[0].to_canonical().len();
    let hash = best(|| {
        for record in records {
            black_box(record.canonical_sha256());
        }
    });
    let envelope = best(|| {
        for record in records {
            black_box(DOMAIN.digest(record));
        }
    });
    // The same number of bytes through SHA-256 alone, prepared beforehand.
    let texts: Vec<Vec<u8>> = records.iter().map(Canonical::to_canonical).collect();
    let alone = best(|| {
        for text in &texts {
            black_box(sha256(text));
        }
    });
    let rate = |seconds: f64| records.len() as f64 / seconds / 1e6;
    println!(
        "{name:<28} {size:>4} bytes: {:>6.2} M/s hashed, {:>6.2} M/s in an envelope, {:>6.2} M/s SHA-256 alone",
        rate(hash),
        rate(envelope),
        rate(alone)
    );
}

fn main() {
    let size = 64 << 20;
    let plain: String =
        "The quick brown fox jumps over the lazy dog 0123456789. ".chars().cycle().take(size).collect();
    let raw = plain.len() as f64 / best(|| _ = black_box(sha256(plain.as_bytes()))) / 1e6;
    println!("SHA-256 alone                                {raw:>9.0} MB/s");
    large("plain ASCII", plain, raw);
    large("source code", "    let x = call(1, \"two\");\n".repeat(size / 28), raw);
    large("Unicode", "Ωmega – 日本語 text ".repeat(size / 28), raw);

    let digest = |n: u32| sha256(&n.to_be_bytes());
    let n = 200_000;
    let members: Vec<_> =
        (0..n).map(|i| Member { hotkey: format!("5Hotkey{i}"), uid: u64::from(i) }).collect();
    small("member", &members);
    let arms: Vec<_> = (0..n).map(|i| Arm { stack_digest: digest(i), tree_digest: digest(i + 1) }).collect();
    small("arm", &arms);
    let claims: Vec<_> = (0..n)
        .map(|i| Claim {
            arena_digest: digest(i),
            contribution_digest: digest(i + 1),
            crowned_block: u64::from(i),
            hotkey: format!("5HotkeyOfSomebody{i}"),
            speedup_ppm: 1_050_000,
            target_id: "norm.rmsnorm".to_owned(),
        })
        .collect();
    small("claim", &claims);
    let trees: Vec<Json> = claims.iter().map(|claim| claim.to_json().unwrap()).collect();
    small("claim as a tree", &trees);

    let texts: Vec<_> = claims.iter().map(Canonical::to_canonical).collect();
    let read = best(|| {
        for text in &texts {
            black_box(Claim::decode_bytes(text).unwrap());
        }
    });
    println!("claim read and checked                   {:>6.2} M/s", texts.len() as f64 / read / 1e6);
}

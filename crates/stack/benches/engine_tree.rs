//! What an engine tree of 400 files and 10 MiB costs beside the machine's own writing and hashing, in the same run.
//!
//! `cargo bench -p cacheon-stack` prints, for the median of several rounds: the plain write-and-hash, materialising
//! (inspection included and apart), publishing with and without its one sync, reopening, and the ratios.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

use cacheon_bundle::tree::{Node, Tree};
use cacheon_bundle::{Bundle, inspect};
use cacheon_identity::{Hasher, sha256};
use cacheon_stack::ids::{ArtifactDigest, Attribution, SelectedPayload, TargetSpec};
use cacheon_stack::tree::{materialize, reopen};
use cacheon_stack::{EvaluationStack, ProposalRef, StackContext, TargetId, catalog};
use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const FILES: usize = 400;
const BYTES: usize = 10 << 20;
const ROUNDS: usize = 9;

/// One C bundle: a source and 399 headers of comments that a compiler would skip.
fn bundle() -> Bundle {
    let each = BYTES / FILES;
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut listed = vec!["\"k/main.c\"".to_owned()];
    let mut main = "#include <cacheon_kernel.h>\nint fast_run(void *s) { return 0; }\n".to_owned();
    for n in 1..FILES {
        let path = format!("k/part{:02}/h{n:03}.h", n % 20);
        let line = format!("/* {n:06} ........................................................ */\n");
        let mut text = line.repeat(each / line.len());
        text.push_str(&format!("#define PART_{n} {n}\n"));
        main.push_str(&format!("#include \"part{:02}/h{n:03}.h\"\n", n % 20));
        listed.push(format!("\"{path}\""));
        files.push((path, text.into_bytes()));
    }
    let manifest = format!(
        "bundle_id = \"b\"\nabi_version = \"cacheon-c-abi-v1\"\n[[ops]]\nslot = \"norm.rmsnorm\"\nsource = \"k/main.c\"\n\
         entry = \"fast\"\nc_sources = [{}]\n",
        listed.join(", ")
    );
    files.push(("k/main.c".to_owned(), main.into_bytes()));
    files.push(("manifest.toml".to_owned(), manifest.into_bytes()));
    let nodes = files.into_iter().map(|(path, bytes)| (path, Node::File(bytes.into())));
    Bundle::from_tree(Tree::from_nodes(nodes).unwrap()).unwrap()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Median seconds of `work`, prepared anew for every round.
fn time<T>(mut prepare: impl FnMut() -> T, mut work: impl FnMut(T)) -> f64 {
    let round = |_| {
        let input = prepare();
        let start = Instant::now();
        work(input);
        start.elapsed().as_secs_f64()
    };
    median((0..ROUNDS).map(round).collect())
}

/// The machine's own speed: hash every byte and write every file, nothing else.
fn plain(root: &Path, files: &[(String, Vec<u8>)]) {
    for (path, bytes) in files {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        black_box(hasher.finish());
        let at = root.join(path);
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent).unwrap();
        }
        fs::write(at, bytes).unwrap();
    }
}

fn main() {
    let catalog = catalog::by_digest(catalog::CPU_1).unwrap();
    let bundle = bundle();
    let digest = |name: &str| sha256(name.as_bytes()).to_string();
    let context = StackContext::new(
        digest("runtime").parse().unwrap(),
        digest("base").parse().unwrap(),
        Some(digest("arena").parse().unwrap()),
        catalog.snapshot().clone(),
    )
    .unwrap();
    let seen = inspect(&bundle, catalog).unwrap();
    let proposal = ProposalRef {
        artifact: ArtifactDigest::new(bundle.content_hash()),
        attribution: Attribution::new(sha256(b"who")),
        payload: SelectedPayload::new(seen.selected_payload_digest),
        target: TargetId::parse(&seen.target_id).unwrap(),
        target_spec: TargetSpec::new(seen.target_spec_digest),
    };
    let sources = BTreeMap::from([(proposal.target.clone(), &bundle)]);
    let empty = EvaluationStack::empty(&context, context.arena.unwrap());
    let stack = empty.with_contribution(proposal.into(), &[]).unwrap();
    let tree = materialize(&stack, catalog, &sources).unwrap();
    let files: Vec<_> = tree.files().iter().map(|(path, file)| (path.clone(), file.bytes.clone())).collect();
    let size: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    println!("tree: {} files, {:.1} MiB", files.len(), size as f64 / f64::from(1 << 20));

    let home = tempfile::tempdir().unwrap();
    let mut fresh = 0;
    let mut place = || {
        fresh += 1;
        home.path().join(format!("t{fresh}"))
    };
    let rate = |seconds: f64| size as f64 / seconds / f64::from(1 << 20);
    let base = time(&mut place, |at| plain(&at, &files));
    println!("plain write and hash       {:8.2} ms  {:7.0} MiB/s", base * 1e3, rate(base));
    let look = time(|| (), |()| drop(black_box(inspect(&bundle, catalog).unwrap())));
    println!("inspect the bundle         {:8.2} ms  {:7.0} MiB/s", look * 1e3, rate(look));
    let make = time(|| (), |()| drop(black_box(materialize(&stack, catalog, &sources).unwrap())));
    println!("materialise and digest     {:8.2} ms  of which inspection {:.2} ms", make * 1e3, look * 1e3);
    let sync = time(
        || {
            let at = place();
            plain(&at, &files);
            at
        },
        |at| rustix::fs::syncfs(fs::File::open(at).unwrap()).unwrap(),
    );
    println!("one final sync alone       {:8.2} ms", sync * 1e3);
    let publish = time(&mut place, |at| drop(tree.publish(&at, &[]).unwrap()));
    println!("publish, sync and readback {:8.2} ms", publish * 1e3);
    let at = place();
    tree.publish(&at, &[]).unwrap();
    let again = time(|| (), |()| drop(reopen(&at, tree.digest()).unwrap()));
    println!("reopen                     {:8.2} ms  {:7.0} MiB/s", again * 1e3, rate(again));
    let ours = (make - look) + (publish - sync);
    println!(
        "materialise and publish without inspection and sync: {:.2} ms, {:.0} % of plain write and hash",
        ours * 1e3,
        base / ours * 100.0
    );
}

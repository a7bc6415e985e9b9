//! Engine trees of kernels in C: what is emitted, and what does not reopen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_bundle::tree::{Node, Tree};
use cacheon_bundle::{Bundle, inspect};
use cacheon_identity::sha256;
use cacheon_stack::catalog::{self, Catalog};
use cacheon_stack::ids::{ArtifactDigest, Attribution, SelectedPayload, TargetSpec};
use cacheon_stack::tree::{MaterializeError, RECORD_PATH, ReopenError, materialize_cpu, namespace, reopen};
use cacheon_stack::{EvaluationStack, ProposalRef, StackContext, TargetId};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const NORM: &str = r#"
#include <cacheon_kernel.h>
#include "inc/scale.h"
int fast_run(void *state, const void *in, void *out, void *workspace) { return SCALE(0); }
"#;

fn bundle(files: &[(&str, &str)]) -> Bundle {
    let nodes = files.iter().map(|(path, text)| ((*path).to_owned(), Node::File(text.as_bytes().into())));
    Bundle::from_tree(Tree::from_nodes(nodes).unwrap()).unwrap()
}

fn norm_bundle() -> Bundle {
    bundle(&[
        (
            "manifest.toml",
            "bundle_id = \"n\"\nabi_version = \"cacheon-c-abi-v1\"\n[[ops]]\nslot = \"norm.rmsnorm\"\n\
             source = \"k/norm.c\"\nentry = \"fast\"\nvariant = \"decode\"\nmetadata = \"metadata/d.json\"\n\
             c_sources = [\"k/norm.c\", \"k/inc/scale.h\"]\n",
        ),
        ("k/norm.c", NORM),
        ("k/inc/scale.h", "#define SCALE(x) (x)\n"),
        ("metadata/d.json", "{\"capabilities\": {\"phase\": \"decode\"}}"),
        ("README.md", "not part of the tree\n"),
    ])
}

fn silu_bundle() -> Bundle {
    bundle(&[
        (
            "manifest.toml",
            "bundle_id = \"s\"\nabi_version = \"cacheon-c-abi-v1\"\n[[ops]]\nslot = \"activation.silu_and_mul\"\n\
             source = \"silu.c\"\nentry = \"silu\"\nc_sources = [\"silu.c\"]\n",
        ),
        ("silu.c", "#include <cacheon_kernel.h>\nint silu_run(void *s) { return 0; }\n"),
    ])
}

fn cpu() -> &'static Catalog {
    catalog::by_digest(catalog::CPU_1).unwrap()
}

fn context() -> StackContext {
    let digest = |name: &str| sha256(name.as_bytes()).to_string();
    StackContext::new(
        digest("runtime").parse().unwrap(),
        digest("base").parse().unwrap(),
        Some(digest("arena").parse().unwrap()),
        cpu().snapshot().clone(),
    )
    .unwrap()
}

fn proposal(bundle: &Bundle, who: &str) -> ProposalRef {
    let seen = inspect(bundle, cpu()).unwrap();
    ProposalRef {
        artifact: ArtifactDigest::new(bundle.content_hash()),
        attribution: Attribution::new(sha256(who.as_bytes())),
        payload: SelectedPayload::new(seen.selected_payload_digest),
        target: TargetId::parse(&seen.target_id).unwrap(),
        target_spec: TargetSpec::new(seen.target_spec_digest),
    }
}

fn stack(proposals: &[ProposalRef]) -> EvaluationStack {
    let context = context();
    let empty = EvaluationStack::empty(&context, context.arena.unwrap());
    proposals.iter().fold(empty, |stack, it| stack.with_contribution(it.clone().into(), &[]).unwrap())
}

#[test]
fn two_contributions_make_one_tree_that_reopens() {
    let (norm, silu) = (norm_bundle(), silu_bundle());
    let (a, b) = (proposal(&norm, "a"), proposal(&silu, "b"));
    let sources = BTreeMap::from([(a.target.clone(), &norm), (b.target.clone(), &silu)]);
    let stack = stack(&[a.clone(), b.clone()]);
    let tree = materialize_cpu(&stack, cpu(), &sources).unwrap();
    assert_eq!(tree.digest(), materialize_cpu(&stack, cpu(), &sources).unwrap().digest());
    let (na, nb) = (namespace(&a.selected_delta()), namespace(&b.selected_delta()));
    let paths: Vec<_> = tree.files().keys().map(String::as_str).collect();
    let metadata = paths.iter().find(|path| path.starts_with("metadata/cacheon_c_")).unwrap();
    let mut expected = vec![
        format!("c/{na}/k/inc/scale.h"),
        format!("c/{na}/k/norm.c"),
        format!("c/{nb}/silu.c"),
        (*metadata).to_owned(),
        "manifest.toml".to_owned(),
        RECORD_PATH.to_owned(),
    ];
    expected.sort();
    assert_eq!(paths, expected);
    assert_eq!(tree.files()[&format!("c/{na}/k/norm.c")].bytes, NORM.as_bytes());

    let home = tempfile::tempdir().unwrap();
    let destination = home.path().join("tree");
    let opened = tree.publish(&destination, &[]).unwrap();
    assert_eq!((opened.digest, &opened.record), (tree.digest(), tree.record()));
    let manifest = opened.manifest.as_ref().unwrap();
    let slots: Vec<_> = manifest.ops.iter().map(|op| (op.slot.as_str(), op.entry.as_str())).collect();
    assert_eq!(slots, [("activation.silu_and_mul", "silu"), ("norm.rmsnorm", "fast")]);
    assert_eq!(manifest.ops[1].c_sources, [format!("c/{na}/k/inc/scale.h"), format!("c/{na}/k/norm.c")]);
    assert_eq!(manifest.ops[1].metadata.as_deref(), Some(*metadata));
    for (path, mode) in [("", 0o755), ("c", 0o755), ("manifest.toml", 0o444)] {
        let meta = fs::symlink_metadata(destination.join(path)).unwrap();
        assert_eq!((meta.permissions().mode() & 0o7777, meta.mtime()), (mode, 0), "{path}");
    }
    assert_eq!(reopen(&destination, tree.digest()).unwrap(), opened);
    assert!(tree.publish(&destination, &[]).is_err(), "never over anything");
    assert!(tree.publish(&home.path().join("other"), &[home.path()]).is_err(), "never inside a source");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing is left over");
}

#[test]
fn an_empty_stack_is_a_tree_of_its_record() {
    let tree = materialize_cpu(&stack(&[]), cpu(), &BTreeMap::new()).unwrap();
    assert_eq!(tree.files().keys().collect::<Vec<_>>(), [RECORD_PATH]);
    let home = tempfile::tempdir().unwrap();
    assert!(tree.publish(&home.path().join("t"), &[]).unwrap().manifest.is_none());
}

#[test]
fn attribution_is_in_the_tree_and_not_in_the_delta() {
    let silu = silu_bundle();
    let (a, b) = (proposal(&silu, "a"), proposal(&silu, "b"));
    assert_eq!(a.selected_delta(), b.selected_delta());
    let tree = |it: &ProposalRef| {
        let sources = BTreeMap::from([(it.target.clone(), &silu)]);
        materialize_cpu(&stack(std::slice::from_ref(it)), cpu(), &sources).unwrap().digest()
    };
    assert_ne!(tree(&a), tree(&b));
}

#[test]
fn the_wrong_source_is_refused() {
    let (norm, silu) = (norm_bundle(), silu_bundle());
    let it = proposal(&silu, "a");
    let try_with = |it: &ProposalRef, source: Option<&Bundle>| {
        let sources = source.map(|source| (it.target.clone(), source)).into_iter().collect();
        materialize_cpu(&stack(std::slice::from_ref(it)), cpu(), &sources).unwrap_err()
    };
    assert!(matches!(try_with(&it, None), MaterializeError::SourceMissing(_)));
    assert!(matches!(try_with(&it, Some(&norm)), MaterializeError::Source { .. }));
    let other_payload = ProposalRef { payload: SelectedPayload::new(sha256(b"x")), ..it.clone() };
    let refused = try_with(&other_payload, Some(&silu));
    assert!(
        matches!(refused, MaterializeError::Reference { member: "selected_payload_digest", .. }),
        "{refused}"
    );
    let other_catalog = catalog::by_digest(catalog::REGISTERED_2026_08_20).unwrap();
    let refused = materialize_cpu(&stack(&[]), other_catalog, &BTreeMap::new()).unwrap_err();
    assert!(matches!(refused, MaterializeError::Catalog { .. }), "{refused}");
}

#[test]
fn a_file_beside_its_directory_is_refused_with_both_names() {
    let odd = bundle(&[
        (
            "manifest.toml",
            "bundle_id = \"s\"\nabi_version = \"cacheon-c-abi-v1\"\n[[ops]]\nslot = \"activation.silu_and_mul\"\n\
             source = \"silu.c\"\nentry = \"silu\"\nc_sources = [\"silu.c\", \"silu/x.h\"]\n",
        ),
        (
            "silu.c",
            "#include <cacheon_kernel.h>\n#include \"silu/x.h\"\nint silu_run(void *s) { return 0; }\n",
        ),
        ("silu/x.h", "#define X 1\n"),
    ]);
    let it = proposal(&odd, "a");
    let sources = BTreeMap::from([(it.target.clone(), &odd)]);
    let refused = materialize_cpu(&stack(std::slice::from_ref(&it)), cpu(), &sources).unwrap_err();
    let MaterializeError::Order { first, second } = refused else { panic!("{refused}") };
    assert!(first.ends_with("silu/x.h") && second.ends_with("silu.c"));
}

#[test]
fn a_tampered_tree_does_not_reopen() {
    type Tamper = fn(&Path);
    let tampers: [(&str, Tamper); 9] = [
        ("mode", |at| {
            fs::set_permissions(at.join("manifest.toml"), fs::Permissions::from_mode(0o644)).unwrap()
        }),
        ("root mode", |at| fs::set_permissions(at, fs::Permissions::from_mode(0o700)).unwrap()),
        ("extra directory", |at| fs::create_dir(at.join("empty")).unwrap()),
        ("extra file", |at| write_sealed(&at.join("c/more.c"), b"x")),
        ("missing", |at| fs::remove_file(at.join("manifest.toml")).unwrap()),
        ("link", |at| std::os::unix::fs::symlink("manifest.toml", at.join("link")).unwrap()),
        ("bytes", |at| {
            let bytes = fs::read(at.join("manifest.toml")).unwrap();
            fs::remove_file(at.join("manifest.toml")).unwrap();
            write_sealed(&at.join("manifest.toml"), &[bytes.as_slice(), b"\n"].concat());
        }),
        ("record", |at| {
            let text = fs::read_to_string(at.join(RECORD_PATH)).unwrap();
            fs::remove_file(at.join(RECORD_PATH)).unwrap();
            let text = text.replace("proposal_artifact", "integrated_source");
            write_sealed(&at.join(RECORD_PATH), text.as_bytes());
        }),
        ("no record", |at| fs::remove_file(at.join(RECORD_PATH)).unwrap()),
    ];
    let silu = silu_bundle();
    let it = proposal(&silu, "a");
    let sources = BTreeMap::from([(it.target.clone(), &silu)]);
    let tree = materialize_cpu(&stack(std::slice::from_ref(&it)), cpu(), &sources).unwrap();
    for (name, tamper) in tampers {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().join("t");
        tree.publish(&at, &[]).unwrap();
        tamper(&at);
        let refused = reopen(&at, tree.digest());
        assert!(refused.is_err(), "{name} reopened");
    }
    let home = tempfile::tempdir().unwrap();
    let at = home.path().join("t");
    tree.publish(&at, &[]).unwrap();
    let other = "11".repeat(32).parse().unwrap();
    assert!(matches!(reopen(&at, other), Err(ReopenError::Digest { .. })));
}

fn write_sealed(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o444)).unwrap();
}

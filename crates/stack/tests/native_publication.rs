//! Publications on disk: what a hostile stage, a tampered publication or a second build can do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_identity::sha256;
use cacheon_stack::disk::DiskError;
use cacheon_stack::native::{
    self, BuildDigest, MANIFEST, NativeFile, NativeInventory, PublishError, Published,
};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn build(name: &str) -> BuildDigest {
    BuildDigest::new(sha256(name.as_bytes()))
}

fn emitted(files: &[(&str, &str)]) -> tempfile::TempDir {
    let stage = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = stage.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    stage
}

const FILES: &[(&str, &str)] = &[("c/kernel.so", "ELF"), ("c/index.json", "{}"), ("prebuild.json", "{}\n")];

#[test]
fn published_files_are_sealed_and_reopen() {
    let (root, stage) = (tempfile::tempdir().unwrap(), emitted(FILES));
    let published = native::publish(root.path(), build("a"), stage.path(), None).unwrap();
    let Published::New(publication) = published else { panic!("{published:?}") };
    assert_eq!(native::reopen(root.path(), build("a")).unwrap(), publication);
    assert_eq!(publication.inventory.directories(), ["c"]);
    for (name, mode) in [("", 0o555), ("c", 0o555), ("c/kernel.so", 0o444), (MANIFEST, 0o444)] {
        let meta = fs::symlink_metadata(publication.path.join(name)).unwrap();
        assert_eq!((meta.permissions().mode() & 0o7777, meta.mtime()), (mode, 0), "{name}");
    }
    assert_eq!(fs::read_to_string(publication.path.join("c/kernel.so")).unwrap(), "ELF");
    assert!(stage.path().join("c/kernel.so").exists(), "the stage is left as it is");
    assert_eq!(left_over(root.path()), 0);
}

/// Staging directories that were not cleaned up.
fn left_over(root: &Path) -> usize {
    let shards = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let names = shards.flat_map(|shard| fs::read_dir(shard).unwrap().map(|entry| entry.unwrap().file_name()));
    names.filter(|name| name.to_string_lossy().starts_with(".stage")).count()
}

#[test]
fn equal_bytes_are_reused_and_others_collide() {
    let root = tempfile::tempdir().unwrap();
    native::publish(root.path(), build("a"), emitted(FILES).path(), None).unwrap();
    let again = native::publish(root.path(), build("a"), emitted(FILES).path(), None).unwrap();
    assert!(matches!(again, Published::Reused(_)), "{again:?}");
    let other = emitted(&[("c/kernel.so", "OTHER"), ("c/index.json", "{}"), ("prebuild.json", "{}\n")]);
    let refused = native::publish(root.path(), build("a"), other.path(), None).unwrap_err();
    assert!(matches!(refused, PublishError::Collision { .. }), "{refused}");
    native::publish(root.path(), build("b"), other.path(), None).unwrap();
    assert_eq!(left_over(root.path()), 0);
    assert!(matches!(native::reopen(root.path(), build("c")), Err(PublishError::Absent(_))));
}

#[test]
fn a_hostile_stage_is_refused_and_leaves_nothing() {
    type Attack = fn(&Path);
    let attacks: [(&str, Attack); 8] = [
        ("link", |stage| symlink("/etc/passwd", stage.join("c/x")).unwrap()),
        ("linked directory", |stage| symlink("/etc", stage.join("etc")).unwrap()),
        ("hard link", |stage| fs::hard_link(stage.join("c/kernel.so"), stage.join("c/again.so")).unwrap()),
        ("fifo", |stage| {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, stage.join("pipe"), rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        }),
        ("sparse", |stage| fs::File::create(stage.join("big")).unwrap().set_len(1 << 20).unwrap()),
        ("name", |stage| fs::write(stage.join("c/;rm"), "x").unwrap()),
        ("empty directory", |stage| fs::create_dir(stage.join("empty")).unwrap()),
        ("manifest", |stage| fs::write(stage.join(MANIFEST), "{}").unwrap()),
    ];
    for (name, attack) in attacks {
        let (root, stage) = (tempfile::tempdir().unwrap(), emitted(FILES));
        attack(stage.path());
        let refused = native::publish(root.path(), build(name), stage.path(), None);
        assert!(refused.is_err(), "{name}: {refused:?}");
        assert_eq!(left_over(root.path()), 0, "{name}");
        assert!(matches!(native::reopen(root.path(), build(name)), Err(PublishError::Absent(_))), "{name}");
    }
    let (root, stage) = (tempfile::tempdir().unwrap(), emitted(FILES));
    let refused = native::publish(root.path(), build("owner"), stage.path(), Some(4242)).unwrap_err();
    assert!(matches!(refused, PublishError::Disk(DiskError::Owner { expected: 4242, .. })), "{refused}");
}

#[test]
fn a_tampered_publication_does_not_reopen() {
    type Tamper = fn(&Path);
    let tampers: [(&str, Tamper); 9] = [
        ("bytes", |at| fs::write(at.join("c/kernel.so"), "EVIL").unwrap()),
        ("same size", |at| fs::write(at.join("c/kernel.so"), "EVL").unwrap()),
        ("extra file", |at| fs::write(at.join("c/more"), "x").unwrap()),
        ("extra directory", |at| fs::create_dir(at.join("d")).unwrap()),
        ("missing", |at| fs::remove_file(at.join("c/index.json")).unwrap()),
        ("manifest", |at| fs::remove_file(at.join(MANIFEST)).unwrap()),
        ("link", |at| {
            fs::rename(at.join("c/kernel.so"), at.join("../kernel.so")).unwrap();
            symlink("../../kernel.so", at.join("c/kernel.so")).unwrap();
        }),
        ("hard link", |at| fs::hard_link(at.join("c/kernel.so"), at.join("../kernel.so")).unwrap()),
        ("newline", |at| {
            let bytes = fs::read(at.join(MANIFEST)).unwrap();
            fs::write(at.join(MANIFEST), [bytes.as_slice(), b"\n"].concat()).unwrap();
        }),
    ];
    for (name, tamper) in tampers {
        let root = tempfile::tempdir().unwrap();
        let published = native::publish(root.path(), build("a"), emitted(FILES).path(), None).unwrap();
        let at = published.into_publication().path;
        let set = |mode: u32, file: u32| {
            for path in ["", "c"] {
                fs::set_permissions(at.join(path), fs::Permissions::from_mode(mode)).unwrap();
            }
            for path in ["c/kernel.so", "c/index.json", MANIFEST] {
                if at.join(path).is_file() {
                    fs::set_permissions(at.join(path), fs::Permissions::from_mode(file)).unwrap();
                }
            }
        };
        set(0o755, 0o644);
        tamper(&at);
        set(0o555, 0o444);
        let refused = native::reopen(root.path(), build("a"));
        assert!(refused.is_err(), "{name} reopened");
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(at.join("c"), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn modes_and_links_at_the_address_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let at = native::publish(root.path(), build("a"), emitted(FILES).path(), None)
        .unwrap()
        .into_publication()
        .path;
    fs::set_permissions(at.join("c/index.json"), fs::Permissions::from_mode(0o644)).unwrap();
    let refused = native::reopen(root.path(), build("a")).unwrap_err();
    assert!(matches!(refused, PublishError::Disk(DiskError::Mode { found: 0o644, .. })), "{refused}");
    fs::set_permissions(at.join("c/index.json"), fs::Permissions::from_mode(0o444)).unwrap();
    native::reopen(root.path(), build("a")).unwrap();
    // A link at the address is not followed, even to a good publication.
    let elsewhere = root.path().join(native::relative_path(&build("b")));
    fs::create_dir_all(elsewhere.parent().unwrap()).unwrap();
    symlink(&at, &elsewhere).unwrap();
    let refused = native::reopen(root.path(), build("b")).unwrap_err();
    assert!(matches!(refused, PublishError::Disk(DiskError::Root(_))), "{refused}");
}

#[test]
fn published_bundles_have_the_deployed_addresses_and_receipts() {
    let Some(file) = cacheon_vectors::load("intake-publication") else { return };
    let mut checked = 0;
    for case in file["cases"].as_array().unwrap() {
        let text = |name: &str| case[name].as_str();
        let (Some(address), Some(receipt)) = (text("address_digest"), text("receipt_digest")) else {
            continue;
        };
        let rows = case["inventory"].as_array().unwrap().iter().map(|row| NativeFile {
            path: row["path"].as_str().unwrap().to_owned(),
            sha256: row["sha256"].as_str().unwrap().parse().unwrap(),
            size: row["size"].as_u64().unwrap(),
        });
        let bundle = text("content_hash").unwrap().parse().unwrap();
        let inventory = NativeInventory::new(address.parse().unwrap(), rows.collect()).unwrap();
        let computed = native::worker_address(&bundle, inventory.directories(), inventory.files());
        assert_eq!(computed.to_string(), address);
        assert_eq!(Some(inventory.digest().to_string().as_str()), text("publication_digest"));
        assert_eq!(native::worker_receipt(&bundle, &inventory).to_string(), receipt);
        checked += 1;
    }
    assert!(checked > 0);
}

//! A publication that dies at each durable step, the order of its steps, and what fsck says afterwards.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cacheon_evidence::fsck::{self, Finding};
use cacheon_evidence::{EvidenceLabel, EvidenceStore, Step, Steps, StoreError};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

fn label() -> EvidenceLabel {
    EvidenceLabel::json("qualification.cohort-attempt", "cacheon.test.v1").expect("a label")
}

fn record(root: &Path, bytes: &[u8]) -> Vec<&'static str> {
    let log = Arc::new(Mutex::new(Vec::<Step>::new()));
    let store = EvidenceStore::new(root).with_steps(Steps::recording(Arc::clone(&log)));
    store.publish(&label(), bytes).expect("published");
    let steps = log.lock().expect("lock");
    steps.iter().map(|step| step.0).collect()
}

#[test]
fn nothing_is_acknowledged_before_it_is_flushed() {
    let home = tempfile::tempdir().expect("a directory");
    let steps = record(&home.path().join("e"), b"bytes");
    let at = |name: &str| {
        steps.iter().position(|step| *step == name).unwrap_or_else(|| panic!("{name}: {steps:?}"))
    };
    let order = [
        "store.root.created",
        "store.directory.created",
        "store.lock.held",
        "store.work.written",
        "store.work.synced",
        "store.staged",
        "store.published",
        "store.shard.synced",
        "store.staging.synced",
        "store.acknowledged",
    ];
    for pair in order.windows(2) {
        assert!(at(pair[0]) < at(pair[1]), "{pair:?} in {steps:?}");
    }
    assert_eq!(steps.last(), Some(&"store.acknowledged"));
    // The second publication of the same bytes flushes again before it acknowledges.
    let again = record(&home.path().join("e"), b"bytes");
    assert_eq!(
        again,
        ["store.lock.held", "store.shard.synced", "store.staging.synced", "store.acknowledged"]
    );
}

#[test]
fn a_kill_at_any_step_loses_nothing_and_leaves_only_known_garbage() {
    let bytes = vec![7u8; 100_000];
    let total = record(&tempfile::tempdir().expect("a directory").path().join("e"), &bytes).len();
    let mut garbage = 0;
    for kill in 0..total {
        let home = tempfile::tempdir().expect("a directory");
        let root = home.path().join("e");
        let dying = EvidenceStore::new(&root).with_steps(Steps::stopping_at(kill as u64));
        let error = dying.publish(&label(), &bytes).expect_err("stopped");
        assert!(matches!(&error, StoreError::Fs(fs) if fs.is_stop()), "{error}");
        drop(dying);

        let store = EvidenceStore::new(&root);
        let report = fsck::check(&store, false).expect("checked");
        assert!(report.is_sound(), "kill {kill}: {report:?}");
        let harmless = |f: &Finding| matches!(f, Finding::Work(_) | Finding::Stage(_));
        assert!(report.findings.iter().all(harmless), "kill {kill}: {report:?}");
        garbage += report.findings.len();

        let reference = store.publish(&label(), &bytes).expect("republished");
        assert_eq!(store.reopen(&reference).expect("reopened"), bytes);
        let report = fsck::check(&store, false).expect("checked");
        assert_eq!((report.sound, report.bytes, report.findings.len()), (1, 100_000, 0), "kill {kill}");
    }
    assert!(garbage >= 3, "the kills inside the publication leave garbage ({garbage})");
}

#[test]
fn fsck_removes_garbage_but_never_damage() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().join("e");
    let store = EvidenceStore::new(&root);
    let kept = store.publish(&label(), b"kept").expect("published");
    let dying = EvidenceStore::new(&root).with_steps(Steps::new(|step| match step.0 {
        "store.work.synced" => std::ops::ControlFlow::Break(()),
        _ => std::ops::ControlFlow::Continue(()),
    }));
    dying.publish(&label(), b"lost").expect_err("stopped");
    let altered = store.publish(&label(), b"altered").expect("published");
    let path = root.join(altered.relative_path());
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("chmod");
    fs::write(&path, b"Altered").expect("altered");
    fs::set_permissions(&path, Permissions::from_mode(0o400)).expect("chmod");
    fs::write(root.join("stray"), b"x").expect("stray");

    let report = fsck::check(&store, true).expect("checked");
    assert_eq!((report.sound, report.removed.len()), (1, 1), "{report:?}");
    assert!(!report.is_sound());
    assert!(report.findings.iter().any(|f| matches!(f, Finding::Damaged { path: at, .. } if *at == path)));
    assert!(report.findings.iter().any(|f| matches!(f, Finding::Foreign(_))));
    assert!(path.exists() && root.join("stray").exists());
    assert_eq!(store.reopen(&kept).expect("kept"), b"kept");
    let listed = fsck::list(&store).expect("listed");
    assert_eq!(listed.len(), 2);
}

#[test]
fn a_running_publication_is_not_garbage() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().join("e");
    let (at_work, go_on) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(std::sync::Barrier::new(2)));
    let (there, done) = (Arc::clone(&at_work), Arc::clone(&go_on));
    let writer = EvidenceStore::new(&root).with_steps(Steps::new(move |step| {
        if step.0 == "store.work.synced" {
            there.wait();
            done.wait();
        }
        std::ops::ControlFlow::Continue(())
    }));
    std::thread::scope(|scope| {
        scope.spawn(|| writer.publish(&label(), b"slow").expect("published"));
        at_work.wait();
        let report = fsck::check(&EvidenceStore::new(&root), true).expect("checked");
        go_on.wait();
        assert!(report.removed.is_empty(), "{report:?}");
        assert!(matches!(report.findings.as_slice(), [Finding::InProgress(_)]), "{report:?}");
    });
}

#[test]
fn two_writers_of_the_same_bytes_agree() {
    let home = tempfile::tempdir().expect("a directory");
    let root = home.path().join("e");
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| EvidenceStore::new(&root).publish(&label(), b"same").expect("published")))
            .collect();
        let references: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("joined")).collect();
        assert!(references.windows(2).all(|pair| pair[0] == pair[1]));
    });
    assert_eq!(fsck::check(&EvidenceStore::new(&root), false).expect("checked").sound, 1);
}

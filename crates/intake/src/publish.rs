//! Immutable copies of submitted bundles: read once into memory under every limit, written under their content hash,
//! re-hashed before every use.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use cacheon_bundle::tree::Node;
use cacheon_bundle::{BundleError, Limits, Tree};
use cacheon_identity::Digest;
use cacheon_records::arena::PublishedBundle;

/// Why a bundle could not be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The bundle's own bytes are to blame.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// No file in it counts.
    #[error("{} holds no file; a bundle has at least manifest.toml and one source", .0.display())]
    Empty(PathBuf),
    /// A link, FIFO, socket or device.
    #[error("{0} is a link or a special file; a bundle holds regular files and directories only")]
    NotRegular(String),
    /// A published copy is no longer what its name says.
    #[error("{} no longer has the content hash in its name (found {found}); move it aside and run again", path.display())]
    Altered {
        /// The copy.
        path: PathBuf,
        /// The hash it has now.
        found: String,
    },
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> PublishError + '_ {
    move |source| PublishError::Io { path: path.to_owned(), source }
}

/// Publishes the bundle at `source` below `root` and returns its immutable copy. Publishing the same bytes again reuses
/// the copy.
///
/// # Errors
/// [`PublishError`]; a bundle over a limit, or with a link or special file in it, is refused before anything is written.
pub fn publish(root: &Path, source: &Path) -> Result<PublishedBundle, PublishError> {
    let tree = Tree::read(source, &Limits::default())?;
    if let Some((path, _)) = tree.nodes().find(|(_, node)| matches!(node, Node::Link(_) | Node::Special)) {
        return Err(PublishError::NotRegular(path.to_owned()));
    }
    let content_hash = tree.content_hash().ok_or_else(|| PublishError::Empty(source.to_owned()))?;
    let path = root.join(content_hash.to_string());
    if !path.exists() {
        write(root, &path, &tree)?;
    }
    reopen(root, content_hash)
}

/// Reopens a published copy by its hash.
///
/// # Errors
/// [`PublishError::Altered`] when the bytes changed.
pub fn reopen(root: &Path, content_hash: Digest) -> Result<PublishedBundle, PublishError> {
    let path = root.join(content_hash.to_string());
    let found = Tree::read(&path, &Limits::default())?.content_hash();
    if found == Some(content_hash) {
        return Ok(PublishedBundle { content_hash, path });
    }
    let found = found.map_or_else(|| "no files".to_owned(), |hash| hash.to_string());
    Err(PublishError::Altered { path, found })
}

/// Staging directory, files, fsync, modes, rename, fsync: a crash leaves a staging directory that the next publication of
/// the same bundle removes, never a partial copy.
fn write(root: &Path, path: &Path, tree: &Tree) -> Result<(), PublishError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let staging = root.join(format!(".staging-{name}"));
    if staging.exists() {
        unseal(&staging)?;
        fs::remove_dir_all(&staging).map_err(io(&staging))?;
    }
    let mut make = DirBuilder::new();
    make.recursive(true).mode(0o700);
    make.create(&staging).map_err(io(&staging))?;
    let mut folders = vec![staging.clone()];
    for (relative, node) in tree.nodes() {
        let at = staging.join(relative);
        match node {
            Node::Directory => {
                make.create(&at).map_err(io(&at))?;
                folders.push(at);
            }
            Node::Link(_) | Node::Special => return Err(PublishError::NotRegular(relative.to_owned())),
            Node::File(bytes) => {
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o444).open(&at).map_err(io(&at))?;
                file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io(&at))?;
            }
        }
    }
    for folder in folders.iter().rev() {
        File::open(folder).and_then(|open| open.sync_all()).map_err(io(folder))?;
        fs::set_permissions(folder, Permissions::from_mode(0o555)).map_err(io(folder))?;
    }
    fs::rename(&staging, path).map_err(io(path))?;
    File::open(root).and_then(|open| open.sync_all()).map_err(io(root))
}

/// Makes an interrupted staging directory removable.
fn unseal(path: &Path) -> Result<(), PublishError> {
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(io(path))?;
    for entry in fs::read_dir(path).map_err(io(path))? {
        let entry = entry.map_err(io(path))?;
        if entry.file_type().map_err(io(path))?.is_dir() {
            unseal(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(folder: &Path) -> PathBuf {
        let source = folder.join("source");
        fs::create_dir_all(source.join("src")).unwrap();
        fs::write(source.join("manifest.toml"), "bundle_id = \"x\"\n").unwrap();
        fs::write(source.join("src/k.c"), "int x;\n").unwrap();
        source
    }

    #[test]
    fn the_copy_is_immutable_reused_and_rehashed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("bundles");
        fs::create_dir(&root).unwrap();
        let source = bundle(folder.path());
        let first = publish(&root, &source).unwrap();
        assert_eq!(publish(&root, &source).unwrap(), first);
        assert_eq!(fs::metadata(&first.path).unwrap().permissions().mode() & 0o777, 0o555);
        let file = first.path.join("src/k.c");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o444);
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        fs::write(&file, "int y;\n").unwrap();
        assert!(matches!(reopen(&root, first.content_hash), Err(PublishError::Altered { .. })));
        fs::set_permissions(&first.path, Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(first.path.join("src"), Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_link_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("bundles");
        fs::create_dir(&root).unwrap();
        let source = bundle(folder.path());
        std::os::unix::fs::symlink("/etc/passwd", source.join("src/link.c")).unwrap();
        assert!(matches!(
            publish(&root, &source),
            Err(PublishError::NotRegular(_) | PublishError::Bundle(_))
        ));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
    }

    #[test]
    fn an_interrupted_staging_directory_does_not_stand_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("bundles");
        fs::create_dir(&root).unwrap();
        let source = bundle(folder.path());
        let hash = Tree::read(&source, &Limits::default()).unwrap().content_hash().unwrap();
        let left = root.join(format!(".staging-{hash}"));
        fs::create_dir_all(left.join("src")).unwrap();
        fs::set_permissions(left.join("src"), Permissions::from_mode(0o555)).unwrap();
        assert_eq!(publish(&root, &source).unwrap().content_hash, hash);
        assert!(!left.exists());
    }
}

//! The `stacks_native` cases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_identity::{Canonical, Decode, DecodeError, DecodeKind, Digest, JsonError, sha256};
use cacheon_stack::native::{
    self, BuildDigest, CompileProfile, InventoryError, NativeFile, NativeInventory, profile_rule as rule,
};
use cacheon_vectors::Case;
use common::{expect_eq, expect_reject, expect_text, input_json, to_json};

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn path(case: &Case<'_>) -> Result<(), String> {
    let accepted =
        native::check_path(case.text("path")?, case.get("file")?.as_bool().ok_or("no file")?).is_ok();
    expect_eq("accept", &Some(accepted), &case.get("accept")?.as_bool())
}

fn publication(case: &Case<'_>) -> Result<(), String> {
    let build: BuildDigest = case.text("build_spec_digest")?.parse().map_err(text)?;
    let files = case.get("files")?.as_object().ok_or("no files")?;
    let content =
        |value: &serde_json::Value| value.as_str().map(|it| it.as_bytes().to_vec()).ok_or("no text");
    let rows: Result<Vec<_>, &str> = files
        .iter()
        .map(|(path, value)| {
            let bytes = content(value)?;
            Ok(NativeFile { path: path.clone(), sha256: sha256(&bytes), size: bytes.len() as u64 })
        })
        .collect();
    let inventory = NativeInventory::new(build, rows?).map_err(text)?;
    let directories = to_json(case.get("directories")?).to_canonical();
    expect_eq("directories", &inventory.directories().to_canonical(), &directories)?;
    expect_text(case, "publication_digest", &inventory.digest())?;
    expect_text(case, "manifest_bytes_hex", &hex(&inventory.manifest()))?;
    expect_text(case, "relative_path", &native::relative_path(&build))?;
    expect_eq("reread", &NativeInventory::parse_manifest(&inventory.manifest()), &Ok(inventory.clone()))?;
    // The same through the disk.
    let root = tempfile::tempdir().map_err(text)?;
    let bytes: Vec<_> = files.iter().map(|(path, value)| (path.as_str(), content(value).unwrap())).collect();
    let bytes = bytes.iter().map(|(path, bytes)| (*path, bytes.as_slice()));
    let published = native::publish_files(root.path(), build, bytes).map_err(text)?.into_publication();
    expect_eq("published", &published.inventory, &inventory)?;
    let written = std::fs::read(published.path.join(native::MANIFEST)).map_err(text)?;
    expect_eq("written manifest", &written, &inventory.manifest())?;
    expect_eq("place", &published.path, &root.path().join(case.text("relative_path")?))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn manifest(case: &Case<'_>) -> Result<(), String> {
    let bytes = unhex(case.text("raw_hex")?);
    let outcome = NativeInventory::parse_manifest(&bytes);
    let accept = outcome.is_ok();
    let slug = |error: &InventoryError| match error {
        InventoryError::Json(JsonError::DuplicateKey { .. }) => "duplicate_key",
        InventoryError::Json(_) => "malformed",
        InventoryError::NonCanonical => "noncanonical",
        InventoryError::Members(error) => match &error.kind {
            DecodeKind::Missing(_) | DecodeKind::Extra(_) => "fields",
            DecodeKind::Digest(_) => "digest",
            _ => "malformed",
        },
        InventoryError::Schema(_) => "schema",
        InventoryError::Path(_) => "path",
        InventoryError::Order(_) => "order",
        InventoryError::Directories(_) => "directories",
        InventoryError::Digest { .. } => "digest",
        InventoryError::Empty | InventoryError::TooLarge(_) | InventoryError::Limit { .. } => "limit",
    };
    match expect_reject(case, outcome, slug)? {
        Some(_) => expect_eq("accept", &Some(accept), &case.get("accept")?.as_bool()),
        None => Ok(()),
    }
}

fn profile(case: &Case<'_>) -> Result<(), String> {
    let slug = |error: &DecodeError| match &error.kind {
        DecodeKind::Missing(_) | DecodeKind::Extra(_) => "fields",
        DecodeKind::Digest(_) => "digest",
        DecodeKind::Invalid { rule: found, .. } => match *found {
            rule::ARCHITECTURE => "architecture",
            rule::FAMILY => "architecture_family",
            rule::CONSTANT => "constant",
            rule::CONSTANT_BOUND => "constant_bound",
            rule::DEGREE => "degree",
            rule::DEGREE_EXCEEDS => "degree_exceeds",
            rule::PROVIDER => "provider",
            rule::SCHEMA => "schema",
            _ => "?",
        },
        _ => "?",
    };
    let Some(it) = expect_reject(case, CompileProfile::decode(&input_json(case, "input")?), slug)? else {
        return Ok(());
    };
    expect_text(case, "digest", &it.digest())?;
    expect_text(case, "file_bytes", &String::from_utf8(it.file()).map_err(text)?)
}

fn input_digest(case: &Case<'_>, name: &str) -> Result<Digest, String> {
    let value = case.get("input")?[name].as_str().ok_or_else(|| format!("no {name}"))?;
    Digest::parse_nonzero(value).map_err(text)
}

fn toolchain(case: &Case<'_>) -> Result<(), String> {
    let (image, platform) = (input_digest(case, "image_digest")?, input_digest(case, "platform_digest")?);
    expect_text(case, "digest", &native::toolchain_digest(&image, &platform))
}

fn patcher(case: &Case<'_>) -> Result<(), String> {
    expect_text(case, "digest", &native::patcher_digest(&input_digest(case, "worker_distribution_digest")?))
}

fn compiler(case: &Case<'_>) -> Result<(), String> {
    let input = case.get("input")?;
    let profile = match input.get("compile_profile_digest") {
        Some(value) => Some(value.as_str().ok_or("no text")?.parse().map_err(text)?),
        None => None,
    };
    let digest = native::compiler_flags_digest(
        &input_digest(case, "dependency_policy_digest")?,
        &input_digest(case, "image_digest")?,
        input["target_architecture"].as_str().ok_or("no target_architecture")?,
        &input_digest(case, "worker_distribution_digest")?,
        profile,
    );
    expect_text(case, "digest", &digest)
}

#[test]
fn vectors_stacks_native() {
    cacheon_vectors::run("stacks_native", &[], |case| match case.op() {
        "native_path" => path(case),
        "native_publication" => publication(case),
        "native_manifest_parse" => manifest(case),
        "compile_profile" => profile(case),
        "native_toolchain" => toolchain(case),
        "native_patcher" => patcher(case),
        "native_compiler" => compiler(case),
        other => Err(cacheon_vectors::unknown_op(other)),
    });
}

//! `contribution_package.json` and `intake-archive.json`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use cacheon_bundle::archive::{package, preflight, unpack};
use cacheon_bundle::{BundleError, content_hash};
use cacheon_vectors::{Case, run};
use common::{base64, named, only, plant, same};
use flate2::{Compression, write::GzEncoder};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};

/// Every member's name and type flag, by an independent reading of a plain tar stream.
fn members(archive: &[u8]) -> Vec<(String, u8)> {
    let mut stream = Vec::new();
    flate2::read::GzDecoder::new(archive).read_to_end(&mut stream).unwrap();
    let text = |field: &[u8]| {
        String::from_utf8(field.iter().take_while(|byte| **byte != 0).copied().collect()).unwrap()
    };
    let (mut at, mut long, mut found) = (0, None, Vec::new());
    while stream[at] != 0 {
        let header = &stream[at..at + 512];
        let size = usize::from_str_radix(&text(&header[124..136]), 8).unwrap();
        let body = &stream[at + 512..at + 512 + size];
        if header[156] == b'x' {
            let record = std::str::from_utf8(body).unwrap();
            long = Some(record.trim_end().split_once("path=").unwrap().1.to_owned());
        } else {
            let prefix = text(&header[345..500]);
            let name = text(&header[..100]);
            let plain = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            found.push((long.take().unwrap_or(plain), header[156]));
        }
        at += 512 + size.div_ceil(512) * 512;
    }
    found
}

fn packaging(case: &Value) -> Result<(), String> {
    only(
        case,
        &[
            "name",
            "entries",
            "root_name",
            "note",
            "members",
            "types",
            "content_hash",
            "reopens",
            "reopen_error",
        ],
    )?;
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join(case["root_name"].as_str().unwrap());
    plant(&root, &case["entries"]);
    let out = scratch.path().join("out.tar.gz");
    let expected: Vec<String> =
        case["members"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    let hash = case["content_hash"].as_str().unwrap();
    same("tree hash", &content_hash(&root).unwrap().to_string().as_str(), &hash)?;
    // Hard links become plain files here, so that archive reopens as well.
    let links = case["types"].as_array().unwrap().contains(&Value::from("link"));
    match package(&root, Some(&out)) {
        Err(BundleError::Refused(_)) if case["reopens"] == false && !links => {
            same("no archive", &out.exists(), &false)
        }
        Err(error) => Err(error.to_string()),
        Ok(_) if case["reopens"] == false && !links => Err("packaged what intake refuses".to_owned()),
        Ok(done) => {
            let bytes = std::fs::read(&out).unwrap();
            same("members", &done.members, &expected)?;
            let found = members(&bytes);
            same("names", &found.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), &expected)?;
            same("types", &found.iter().all(|(_, kind)| *kind == b'0'), &true)?;
            same("hash", &done.content_hash.to_string().as_str(), &hash)?;
            same("size", &done.size, &(bytes.len() as u64))?;
            let (inventory, tree) = unpack(&bytes[..]).map_err(|error| error.to_string())?;
            same("wrapper", &inventory.wrapper.as_deref(), &case["root_name"].as_str())?;
            same("reopened", &tree.content_hash().unwrap().to_string().as_str(), &hash)?;
            package(&root, Some(&out)).map_err(|error| error.to_string())?;
            same("the same bytes again", &(std::fs::read(&out).unwrap() == bytes), &true)
        }
    }
}

#[test]
fn vectors_contribution_package() {
    run("contribution_package", &[], |case: &Case<'_>| named(case, packaging(case.value)));
}

/// The archive a recipe describes, its checksums included.
fn recipe(case: &Value) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    for member in case["recipe"].as_array().unwrap() {
        let size = member["size"].as_u64().unwrap() as usize;
        let mut header = [0u8; 512];
        let name = member["name"].as_str().unwrap().as_bytes();
        header[..name.len()].copy_from_slice(name);
        header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        header[156] = b'0';
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        gzip.write_all(&header).unwrap();
        let fill = member.get("fill").and_then(Value::as_u64).unwrap_or(0) as u8;
        gzip.write_all(&vec![fill; size]).unwrap();
        gzip.write_all(&vec![0; size.next_multiple_of(512) - size]).unwrap();
    }
    let mut zeros = case["trailing_zero_bytes"].as_u64().unwrap() as usize;
    while zeros > 0 {
        let part = zeros.min(1 << 20);
        gzip.write_all(&vec![0; part]).unwrap();
        zeros -= part;
    }
    gzip.finish().unwrap()
}

fn fetched(case: &Value) -> Result<(), String> {
    only(
        case,
        &[
            "name",
            "rule",
            "note",
            "archive_b64",
            "recipe",
            "trailing_zero_bytes",
            "compressed_len",
            "may_refuse",
            "result",
        ],
    )?;
    let bytes = match case.get("archive_b64") {
        Some(text) => base64(text.as_str().unwrap()),
        None => recipe(case),
    };
    let result = &case["result"];
    match (result["ok"].as_bool().unwrap(), unpack(&bytes[..])) {
        (false, Ok(_)) => Err("accepted".to_owned()),
        (_, Err(BundleError::Refused(finding))) => {
            same("length", &(finding.to_string().chars().count() < 2048), &true)?;
            same("preflight", &preflight(&bytes[..]).is_err(), &true)?;
            let may = case.get("may_refuse").is_some_and(|may| may == true);
            if may || result["ok"] == false { Ok(()) } else { Err(finding.to_string()) }
        }
        (_, Err(error)) => Err(error.to_string()),
        (true, Ok((inventory, tree))) => {
            only(result, &["ok", "wrapper", "content_hash", "file_count", "files"])?;
            let wrapper = inventory.wrapper.clone().unwrap_or_default();
            same("wrapper", &wrapper.as_str(), &result["wrapper"].as_str().unwrap())?;
            let hash = tree.content_hash().unwrap();
            same("hash", &hash.to_string().as_str(), &result["content_hash"].as_str().unwrap())?;
            same("inventory", &inventory.content_hash, &Some(hash))?;
            let seen = preflight(&bytes[..]).map_err(|error| error.to_string())?;
            same("preflight", &seen.content_hash.is_none_or(|other| other == hash), &true)?;
            same("preflight", &seen.files, &inventory.files)?;
            let count = result.get("file_count").and_then(Value::as_u64);
            same("count", &(inventory.files.len() as u64), &count.unwrap_or(inventory.files.len() as u64))?;
            let Some(expected) = result.get("files").and_then(Value::as_array) else { return Ok(()) };
            let expected: BTreeSet<(String, u64, String)> = expected
                .iter()
                .map(|row| {
                    let text = |at: usize| row[at].as_str().unwrap().to_owned();
                    (text(0), row[1].as_u64().unwrap(), text(2))
                })
                .collect();
            let got = tree.files().map(|(path, bytes)| {
                let digest = cacheon_identity::digest::sha256(bytes).to_string();
                (path.to_owned(), bytes.len() as u64, digest)
            });
            same("files", &got.collect(), &expected)
        }
    }
}

#[test]
fn vectors_contribution_intake_archive() {
    run("intake-archive", &[], |case: &Case<'_>| named(case, fetched(case.value)));
}

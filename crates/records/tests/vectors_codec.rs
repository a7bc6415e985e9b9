//! Golden cases of the typed codec, and that its table is the one of the specification's data file.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use cacheon_identity::{Canonical, Decode, Json, JsonError};
use cacheon_records::codec::{Encoded, root_keys};
use cacheon_vectors::unknown_op;
use serde_json::Value;

fn read(value: &Value) -> Result<Encoded, String> {
    let json = Json::parse(value.to_string().as_bytes()).map_err(|e: JsonError| e.to_string())?;
    Encoded::decode(&json).map_err(|e| e.to_string())
}

#[test]
fn vectors_typed_codec() {
    // Records, scenarios and the failure ledger are the evidence crate's.
    let deferred = ["record", "scenario", "failure_ledger"];
    cacheon_vectors::run("qualification-continuation", &deferred, |case| {
        let expect = case.get("expect")?;
        let ok = expect["ok"] == true;
        let known = ["ok", "encoded", "decoded_equal", "type", "error_class"];
        if let Some(key) =
            expect.as_object().into_iter().flat_map(|o| o.keys()).find(|k| !known.contains(&k.as_str()))
        {
            return Err(format!("expectation `{key}` is not read"));
        }
        match case.op() {
            "codec" if ok => {
                let encoded = read(&expect["encoded"])?;
                let written: Value = serde_json::from_slice(&encoded.to_canonical()).unwrap();
                let again = Encoded::new(encoded.key(), encoded.value()).map_err(|e| e.to_string())?;
                assert_eq!(expect["decoded_equal"], again == encoded);
                if written == expect["encoded"] { Ok(()) } else { Err(format!("wrote {written}")) }
            }
            // The case hands the encoder an object of a type that is registered only as a nested one.
            "codec" => match Encoded::new(
                "cacheon.eval.device_state.DeviceStateReceipt",
                &Json::object::<String>([]),
            ) {
                Ok(_) => Err("accepted".into()),
                Err(_) => Ok(()),
            },
            "codec_decode" => match (read(case.get("input")?), ok) {
                (Ok(encoded), true) => {
                    let name = encoded.key().rsplit('.').next();
                    if name == expect["type"].as_str() { Ok(()) } else { Err(format!("type {name:?}")) }
                }
                (Err(_), false) => Ok(()),
                (Ok(_), false) => Err("accepted".into()),
                (Err(why), true) => Err(why),
            },
            other => Err(unknown_op(other)),
        }
    });
}

/// A value of a shape in the data file's notation, with defaults that keep the rules of every type.
fn sample(file: &Value, shape: &str, name: &str) -> Value {
    let inner = |prefix: &str| shape.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('>'));
    match shape {
        "integer" => return if name == "rank" { 0.into() } else { 1.into() },
        "boolean" => return true.into(),
        "float17" => return "0.5".into(),
        _ => {}
    }
    if shape == "string" || shape == "path-string" {
        return match name {
            "schema" | "domain" => "x".into(),
            "media_type" => "a/b".into(),
            "validator_seed" | "session_id" | "manager_instance_id" => "1".repeat(32).into(),
            _ if name.ends_with("_digest") || name.ends_with("sha256") => "a".repeat(64).into(),
            _ => "a".into(),
        };
    }
    if let Some(inner) = inner("optional<") {
        return sample(file, inner, name);
    }
    if let Some(inner) = inner("list<") {
        return if name.ends_with("entries") || name.ends_with("records") || name == "container_ids" {
            Value::Array(vec![])
        } else {
            vec![sample(file, inner, name.trim_end_matches('s'))].into()
        };
    }
    if let Some(inner) = inner("tuple<") {
        let parts = inner.split(", ").map(|part| sample(file, part, name.trim_end_matches('s')));
        return parts.collect::<Vec<_>>().into();
    }
    if let Some(words) = inner("enum<") {
        return words.split('|').next().into();
    }
    let fields = file["codec_types"][shape]["fields"].as_object().unwrap();
    let mut value: Value =
        fields.iter().map(|(k, v)| (k.clone(), sample(file, v.as_str().unwrap(), k))).collect();
    let schema = file["codec_schemas"][shape].as_str().map(|text| text.split(' ').next().unwrap());
    if let Some(schema) = schema {
        value["schema"] = schema.into();
    }
    match shape {
        "RuntimePreflightFacts" => value["gpu_architectures"] = vec!["sm90"].into(),
        "AuditReceiptFacts" => value["mode"] = "cosine".into(),
        "ResidentPairRuntimeBinding" => {
            for (index, id) in ["A", "B"].into_iter().enumerate() {
                let lane = &mut value["lanes"][index];
                lane["lane_id"] = id.into();
                for (member, length) in [
                    ("session_id", 32),
                    ("stock_launch_digest", 64),
                    ("allocation_digest", 64),
                    ("executor_namespace_digest", 64),
                ] {
                    lane[member] = (index + 1).to_string().repeat(length).into();
                }
            }
        }
        _ => {}
    }
    if shape == "AuditReceiptFacts" {
        value["violations"] = 0.into();
    }
    value
}

#[test]
fn vectors_codec_table_is_that_of_the_data_file() {
    let path = cacheon_vectors::folder().map(|folder| folder.join("../spec/40-qualification-records.json"));
    let Some(bytes) = path.and_then(|path| std::fs::read(path).ok()) else {
        println!("vectors codec table: SKIPPED, no data file beside the vector folder");
        return;
    };
    let file: Value = serde_json::from_slice(&bytes).unwrap();
    let types = file["codec_types"].as_object().unwrap();
    let roots = file["codec_roots"].as_array().unwrap();
    assert_eq!(root_keys().count(), roots.len());
    for (name, row) in types {
        let value = sample(&file, name, "");
        let encoded = serde_json::json!({"type": row["key"], "value": value});
        if !roots.contains(&name.as_str().into()) {
            assert!(read(&encoded).is_err(), "{name} is nested only");
            continue;
        }
        read(&encoded).unwrap_or_else(|why| panic!("{name}: {why}"));
        // Every member, at every depth, must be there, and nothing else may.
        let mut paths = Vec::new();
        collect(&value, &mut String::new(), &mut paths);
        for path in paths {
            let mut less = encoded.clone();
            let (parent, key) = path.rsplit_once('/').unwrap();
            let parent = less["value"].pointer_mut(parent).unwrap().as_object_mut().unwrap();
            parent.remove(key).unwrap();
            assert!(read(&less).is_err(), "{name} without {path}");
            parent_of(&mut less, &path).insert("unheard_of".into(), 1.into());
            assert!(read(&less).is_err(), "{name} with another member than {path}");
        }
    }
}

fn parent_of<'a>(encoded: &'a mut Value, path: &str) -> &'a mut serde_json::Map<String, Value> {
    let (parent, _) = path.rsplit_once('/').unwrap();
    encoded["value"].pointer_mut(parent).unwrap().as_object_mut().unwrap()
}

fn collect(value: &Value, at: &mut String, paths: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(i, v)| (i.to_string(), v)).collect(),
        _ => return,
    };
    for (key, child) in children {
        let length = at.len();
        at.push('/');
        at.push_str(&key);
        if value.is_object() {
            paths.push(at.clone());
        }
        collect(child, at, paths);
        at.truncate(length);
    }
}

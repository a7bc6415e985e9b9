//! What must hold for every value: one spelling, read back as the same value, whatever order it was written in.
#![allow(clippy::unwrap_used)]

use cacheon_identity::{
    Canonical, Decode, DecodeKind, Digest, Domain, Fields, Int, Json, JsonError, OrEmpty,
};
use cacheon_identity::{decimal::Decimal, float17, hexfloat, sha256};
use num_bigint::BigInt;
use proptest::prelude::*;

const DOMAIN: Domain = Domain::new("cacheon.test");

fn any_int() -> impl Strategy<Value = Int> {
    prop_oneof![
        any::<i64>().prop_map(Int::from),
        any::<i128>().prop_map(Int::from),
        (any::<bool>(), proptest::collection::vec(any::<u32>(), 0..40)).prop_map(|(negative, words)| {
            let value = BigInt::from(num_bigint::BigUint::new(words));
            Int::try_from(if negative { -value } else { value }).unwrap()
        }),
    ]
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        proptest::collection::vec(any::<char>(), 0..12).prop_map(|chars| chars.into_iter().collect()),
        "[\\x00-\\x7f]{0,80}",
        "[a-z]{0,5}\u{ffff}?\u{10000}?\u{e000}?[\"\\\\/\u{2028}]?",
    ]
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::Bool),
        any_int().prop_map(Json::Int),
        any_text().prop_map(Json::Str),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Json::Array),
            proptest::collection::btree_map(any_text(), inner, 0..6).prop_map(Json::Object),
        ]
    })
}

/// Writes the members of every object in an order that `turn` chooses, with white space between tokens.
fn shuffled(json: &Json, turn: usize, out: &mut String) {
    match json {
        Json::Object(members) => {
            let mut rows: Vec<_> = members.iter().collect();
            if !rows.is_empty() {
                let at = turn % rows.len();
                rows.rotate_left(at);
            }
            out.push_str("{ ");
            for (index, (key, value)) in rows.into_iter().enumerate() {
                out.push_str(if index > 0 { " ,\n" } else { "" });
                out.push_str(&Json::from(key.as_str()).to_ascii());
                out.push_str(" :\t");
                shuffled(value, turn.wrapping_mul(31).wrapping_add(7), out);
            }
            out.push_str(" }");
        }
        Json::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                shuffled(item, turn.wrapping_add(index), out);
            }
            out.push_str(" ]");
        }
        leaf => out.push_str(&leaf.to_ascii()),
    }
}

proptest! {
    #[test]
    fn encode_decode_encode(json in any_json()) {
        let bytes = json.to_canonical();
        let read = Json::parse(&bytes).unwrap();
        prop_assert_eq!(&read, &json);
        prop_assert_eq!(read.to_canonical(), bytes.clone());
        prop_assert_eq!(Json::parse_canonical(&bytes), Ok(json.clone()));
        // The independent reader of another library agrees on the text.
        let other: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(other.is_object(), json.as_object().is_some());
    }

    #[test]
    fn both_dialects_are_one_value(json in any_json()) {
        let ascii = json.to_ascii();
        prop_assert!(ascii.bytes().all(|b| (0x20..0x7f).contains(&b)));
        prop_assert_eq!(Json::parse(ascii.as_bytes()), Ok(json));
    }

    #[test]
    fn digests_do_not_depend_on_member_order_or_space(json in any_json(), turn in any::<usize>()) {
        let mut text = String::new();
        shuffled(&json, turn, &mut text);
        let read = Json::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(DOMAIN.digest(&read), DOMAIN.digest(&json));
    }

    #[test]
    fn streaming_equals_hashing_the_bytes(json in any_json()) {
        prop_assert_eq!(json.canonical_sha256(), sha256(&json.to_canonical()));
        let envelope = Json::object([
            ("schema_version", 1.into()), ("payload", json.clone()), ("domain", "cacheon.test".into()),
        ]);
        prop_assert_eq!(DOMAIN.digest(&json), sha256(&envelope.to_canonical()));
    }

    #[test]
    fn only_one_spelling_is_canonical(json in any_json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = json.to_canonical();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        // Another byte is another value, or no canonical text at all.
        prop_assert_ne!(Json::parse_canonical(&bytes), Ok(json));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(json) = Json::parse(&bytes) {
            prop_assert_eq!(Json::parse(&json.to_canonical()), Ok(json));
        }
    }

    #[test]
    fn json_like_text_never_panics(text in "[\\[\\]{}\",:0-9eE+.truefalsn \\\\u-]{0,60}") {
        let ours = Json::parse(text.as_bytes());
        // Whatever we accept the other library accepts too; it reads floats and repeated keys, we do not.
        if ours.is_ok() {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
        if serde_json::from_str::<serde_json::Value>(&text).is_ok() {
            let tolerated = matches!(
                ours,
                Ok(_) | Err(JsonError::Float { .. } | JsonError::DuplicateKey { .. } | JsonError::LoneSurrogate { .. })
            );
            prop_assert!(tolerated, "{:?} for {:?}", ours, text);
        }
    }

    #[test]
    fn floats_survive_both_texts(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let text = float17::format(value);
        prop_assert_eq!(float17::parse(&text).is_ok(), value.is_finite());
        prop_assert_eq!(hexfloat::format(value).is_some(), value.is_finite());
        if value.is_finite() {
            prop_assert_eq!(float17::parse(&text).unwrap().to_bits(), bits);
            prop_assert_eq!(hexfloat::parse(&hexfloat::format(value).unwrap()).unwrap().to_bits(), bits);
            prop_assert_eq!(float17::format(text.parse::<f64>().unwrap()), text);
        }
    }

    #[test]
    fn decimals_order_like_their_exact_values(a in 0u64..u64::MAX, b in 0u64..u64::MAX, scale in 0usize..12) {
        let spell = |unscaled: u64| {
            let digits = format!("{unscaled:0>width$}", width = scale + 1);
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            let fraction = fraction.trim_end_matches('0');
            Decimal::parse(&if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }).unwrap()
        };
        prop_assert_eq!(spell(a).cmp(&spell(b)), a.cmp(&b));
        let scaled = num_bigint::BigUint::from(a) * 1_000_000u32 / num_bigint::BigUint::from(10u32).pow(u32::try_from(scale).unwrap());
        prop_assert_eq!(spell(a).floor_scaled(6), scaled);
    }
}

#[test]
fn depth_is_bounded_and_never_overflows_the_stack() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert!(Json::parse(&nested(200)).is_ok());
    assert!(Json::parse(&nested(512)).is_ok());
    assert!(matches!(Json::parse(&nested(513)), Err(JsonError::Nesting { .. })));
    assert!(matches!(Json::parse(&nested(5000)), Err(JsonError::Nesting { .. })));
    let objects = [b"{\"a\":".repeat(100_000), b"1".to_vec()].concat();
    assert!(matches!(Json::parse(&objects), Err(JsonError::Nesting { .. })));
    assert!(matches!(Json::parse(&vec![b'['; 10_000_000]), Err(JsonError::Nesting { .. })));
    // On a small thread stack too.
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let handle = small.spawn(move || Json::parse(&nested(512)).is_ok()).unwrap();
    assert!(handle.join().unwrap());
}

#[test]
fn hostile_text_is_named() {
    let class = |text: &str| Json::parse(text.as_bytes()).unwrap_err();
    assert!(matches!(class(r#"{"a":1,"a":1}"#), JsonError::DuplicateKey { key, offset: 7 } if key == "a"));
    assert!(matches!(class(r#"{"a":1,"\u0061":1}"#), JsonError::DuplicateKey { .. }));
    assert!(matches!(class("[1.5, ]"), JsonError::Syntax { .. }));
    assert!(matches!(class(r#"["\ud800", 1.5]"#), JsonError::LoneSurrogate { offset: 2 }));
    assert!(matches!(class(r#""\ud800\u0041""#), JsonError::LoneSurrogate { .. }));
    assert!(matches!(class("\u{feff}1"), JsonError::Syntax { offset: 0, .. }));
    assert!(matches!(class(&"9".repeat(5000)), JsonError::IntegerDigits { digits: 5000, .. }));
    assert!(matches!(class("1e5"), JsonError::Float { .. }));
    assert!(matches!(Json::parse(b"\"\xff\""), Err(JsonError::Utf8 { offset: 1 })));
    assert!(matches!(Json::parse(b"\"\xed\xa0\x80\""), Err(JsonError::Utf8 { .. })));
    assert_eq!(Json::parse(b"\"\\ud83d\\ude00\""), Ok(Json::from("\u{1f600}")));
    // A long integer is refused before any arithmetic is done on it.
    let started = std::time::Instant::now();
    assert!(Json::parse(&vec![b'9'; 20_000_000]).is_err());
    assert!(started.elapsed().as_secs() < 20);
}

cacheon_identity::record! {
    /// A record with a key that is no Rust name.
    struct Sample {
        digest: Digest,
        kind as "type": String,
        values: Vec<u8>,
    }
}

#[test]
fn closed_records_refuse_with_the_path() {
    let good = format!(r#"{{"digest":"{}","type":"x","values":[1,255]}}"#, "a".repeat(64));
    let sample = Sample::decode_bytes(good.as_bytes()).unwrap();
    assert_eq!(sample.to_canonical(), good.as_bytes());
    assert_eq!(Sample::MEMBERS, ["digest", "type", "values"]);
    let refused = |from: &str, to: &str| Sample::decode_bytes(good.replace(from, to).as_bytes()).unwrap_err();
    assert_eq!(refused("255", "256").to_string(), "values[1]: 256 is outside 0..=255");
    assert_eq!(refused("255", "true").to_string(), "values[1]: expected an integer, found a boolean");
    assert!(matches!(refused("\"type\":\"x\",", "").kind, DecodeKind::Missing(name) if name == "type"));
    assert!(matches!(refused("\"x\",", "\"x\",\"y\":0,").kind, DecodeKind::Extra(name) if name == "y"));
    assert!(matches!(refused(&"a".repeat(64), &"0".repeat(64)).kind, DecodeKind::Digest(_)));
    assert!(matches!(refused(&"a".repeat(64), &"A".repeat(64)).kind, DecodeKind::Digest(_)));
    assert!(matches!(refused("[1,255]", "null").kind, DecodeKind::Type { .. }));
}

#[test]
fn versions_are_typed() {
    let version = |text: &str| {
        let json = Json::parse(format!(r#"{{"v":{text}}}"#).as_bytes()).unwrap();
        Fields::closed(&json, &["v"]).unwrap().take("v").unwrap().exactly_int(1)
    };
    assert!(version("1").is_ok());
    for other in ["true", "\"1\"", "2", "null", "18446744073709551617"] {
        assert!(matches!(version(other).unwrap_err().kind, DecodeKind::Version { .. }), "{other}");
    }
    let json = Json::parse(br#"{"a":1,"b":2}"#).unwrap();
    let mut fields = Fields::open(&json).unwrap();
    fields.take("a").unwrap();
    assert!(matches!(fields.finish().unwrap_err().kind, DecodeKind::Extra(name) if name == "b"));
}

#[test]
fn absent_null_and_empty_are_three_things() {
    let empty = OrEmpty::<Digest>::decode(&Json::from("")).unwrap();
    assert_eq!(empty, OrEmpty::EMPTY);
    assert_eq!(empty.to_canonical(), b"\"\"");
    assert_eq!(Option::<Digest>::decode(&Json::Null), Ok(None));
    assert!(Option::<Digest>::decode(&Json::from("")).is_err());
    assert!(OrEmpty::<Digest>::decode(&Json::Null).is_err());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "keys out of order")]
fn members_out_of_order_are_a_bug() {
    struct Wrong;
    impl Canonical for Wrong {
        fn write(&self, w: &mut cacheon_identity::CanonicalWriter<'_>) {
            w.object(|o| {
                o.field("b", &1u8).field("a", &2u8);
            });
        }
    }
    let _ = Wrong.to_canonical();
}

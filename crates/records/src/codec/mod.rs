//! The typed codec of retained evidence: `{"type": key, "value": object}` (spec 40 §10.1).
//!
//! The table of types is data: closed members, floats as `%.17g` text, enums by word, tuples as arrays of fixed length,
//! and no tag below the root. Types that have a home in this workspace are checked by their own readers as well. Read a
//! decoded value with [`Encoded::read`].

mod rule;
mod types;

use cacheon_identity::float17::Float17;
use cacheon_identity::{Canonical, CanonicalWriter, Decode, DecodeError, DecodeKind, Digest, Fields, Json};

/// What a member holds.
#[derive(Debug)]
enum Shape {
    Text,
    Integer,
    Flag,
    Float,
    Word(&'static [&'static str]),
    Optional(&'static Shape),
    List(&'static Shape),
    Tuple(&'static [Shape]),
    Record(&'static Type),
}

/// A registered type.
#[derive(Debug)]
struct Type {
    key: &'static str,
    /// What its member `schema` may say; empty when it has no such constant.
    schemas: &'static [&'static str],
    rule: fn(&Json) -> Result<(), DecodeError>,
    /// Members in code-point order.
    fields: &'static [(&'static str, Shape)],
}

/// A checked value under the key of a root type. Its JSON form is the envelope.
#[derive(Debug, Clone)]
pub struct Encoded {
    root: &'static Type,
    value: Json,
}

impl PartialEq for Encoded {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key() && self.value == other.value
    }
}

impl Eq for Encoded {}

impl Encoded {
    /// Puts a record under the key of a root type.
    ///
    /// # Errors
    /// An unregistered key, a nested-only type, or a value that breaks the type's rules.
    pub fn new(key: &str, record: &impl Canonical) -> Result<Self, DecodeError> {
        Self::of(key, record.to_json().map_err(DecodeKind::Json)?)
    }

    fn of(key: &str, value: Json) -> Result<Self, DecodeError> {
        let root = types::ROOTS.iter().find(|root| root.key == key);
        let root: &'static Type =
            root.ok_or_else(|| DecodeError::invalid("not a registered root type", key).within("type"))?;
        check_record(root, &value).map_err(|error| error.within("value"))?;
        Ok(Self { root, value })
    }

    /// The root type's key.
    #[must_use]
    pub fn key(&self) -> &'static str {
        self.root.key
    }

    /// The value without its envelope.
    #[must_use]
    pub const fn value(&self) -> &Json {
        &self.value
    }

    /// The value as a record of its own.
    ///
    /// # Errors
    /// The record's reader refuses.
    pub fn read<T: Decode>(&self) -> Result<T, DecodeError> {
        T::decode(&self.value).map_err(|error| error.within("value"))
    }
}

impl Canonical for Encoded {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            o.field("type", self.root.key).field("value", &self.value);
        });
    }
}

impl Decode for Encoded {
    fn decode(json: &Json) -> Result<Self, DecodeError> {
        let mut fields = Fields::closed(json, &["type", "value"])?;
        let key = fields.take("type")?.as_str()?;
        Self::of(key, fields.take("value")?.json().clone())
    }
}

/// The keys that may stand at the root.
pub fn root_keys() -> impl Iterator<Item = &'static str> {
    types::ROOTS.iter().map(|root| root.key)
}

fn check_record(record: &'static Type, json: &Json) -> Result<(), DecodeError> {
    let members = Fields::open(json).map(|_| json.as_object())?;
    for (name, shape) in record.fields {
        let member = members.and_then(|members| members.get(*name));
        let member = member.ok_or_else(|| DecodeError::from(DecodeKind::Missing((*name).to_owned())))?;
        check(shape, member).and_then(|()| digest_text(name, member)).map_err(|error| error.within(*name))?;
    }
    let known = |key: &&String| record.fields.iter().any(|(name, _)| *name == key.as_str());
    if let Some(extra) = members.into_iter().flat_map(|members| members.keys()).find(|key| !known(key)) {
        return Err(DecodeKind::Extra(extra.clone()).into());
    }
    if let Some(schema) = json.get("schema").and_then(Json::as_str)
        && !record.schemas.is_empty()
        && !record.schemas.contains(&schema)
    {
        let kind = DecodeKind::Version { expected: record.schemas.join(" or "), found: schema.to_owned() };
        return Err(DecodeError::from(kind).within("schema"));
    }
    (record.rule)(json)
}

fn check(shape: &'static Shape, json: &Json) -> Result<(), DecodeError> {
    let wrong = |expected| Err(DecodeKind::Type { expected, found: json.kind() }.into());
    match (shape, json) {
        (Shape::Text, Json::Str(_)) | (Shape::Integer, Json::Int(_)) | (Shape::Flag, Json::Bool(_)) => Ok(()),
        (Shape::Optional(_), Json::Null) => Ok(()),
        (Shape::Float, _) => Float17::decode(json).map(|_| ()),
        (Shape::Word(words), Json::Str(word)) if words.contains(&word.as_str()) => Ok(()),
        (Shape::Word(words), _) => Err(DecodeError::invalid("not one of its words", &words.join(", "))),
        (Shape::Optional(inner), _) => check(inner, json),
        (Shape::List(inner), Json::Array(items)) => each(items, |_| Some(*inner)),
        (Shape::Tuple(shapes), Json::Array(items)) if items.len() == shapes.len() => {
            each(items, |index| shapes.get(index))
        }
        (Shape::Tuple(shapes), Json::Array(items)) => {
            let kind = DecodeKind::Range { value: items.len().to_string(), bounds: shapes.len().to_string() };
            Err(kind.into())
        }
        (Shape::Record(record), _) => check_record(record, json),
        (Shape::Text, _) => wrong("a string"),
        (Shape::Integer, _) => wrong("an integer"),
        (Shape::Flag, _) => wrong("a boolean"),
        (Shape::List(_) | Shape::Tuple(_), _) => wrong("an array"),
    }
}

fn each(items: &[Json], shape: impl Fn(usize) -> Option<&'static Shape>) -> Result<(), DecodeError> {
    for (index, item) in items.iter().enumerate() {
        if let Some(shape) = shape(index) {
            check(shape, item).map_err(|error| error.within(format!("[{index}]")))?;
        }
    }
    Ok(())
}

/// Members named for a digest hold one, whatever their type says: text, optional text or a list of it.
fn digest_text(name: &str, json: &Json) -> Result<(), DecodeError> {
    let one = |json: &Json| match json {
        Json::Str(text) => Digest::parse(text).map(|_| ()).map_err(DecodeError::from),
        _ => Ok(()),
    };
    match json {
        _ if name.ends_with("_digest") || name.ends_with("_sha256") || name == "sha256" => one(json),
        Json::Array(items) if name.ends_with("_digests") => items.iter().try_for_each(one),
        _ => Ok(()),
    }
}

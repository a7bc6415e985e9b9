//! A value as declarations use it: integers, floats and booleans kept apart, whatever text they came from.

use super::{ArtifactError, Class};
use crate::toml::Value;
use cacheon_identity::{Int, Json, hexfloat};
use num_traits::ToPrimitive;
use std::collections::BTreeMap;

/// Members of a declaration, by name.
pub type Members = BTreeMap<String, Plain>;

/// A declared value.
#[derive(Debug, Clone, PartialEq)]
pub enum Plain {
    /// Only from JSON, and for absent members of canonical forms.
    Null,
    /// A boolean; never an integer.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A float.
    Float(f64),
    /// A string.
    Text(String),
    /// An array.
    Array(Vec<Plain>),
    /// A table or object.
    Table(Members),
    /// Something no declaration holds: a date, or an integer beyond 128 bits.
    Other(&'static str),
}

impl Plain {
    /// What the value is called in messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a float",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
            Self::Other(what) => what,
        }
    }

    /// From TOML.
    #[must_use]
    pub fn from_toml(value: &Value) -> Self {
        match value {
            Value::Text(text) => Self::Text(text.clone()),
            Value::Int(value) => value.to_i128().map_or(Self::Other("a huge integer"), Self::Int),
            Value::Float(value) => Self::Float(*value),
            Value::Bool(value) => Self::Bool(*value),
            Value::Moment(_) => Self::Other("a date or time"),
            Value::Array(items) => {
                Self::Array(items.iter().map(|item| Self::from_toml(&item.value)).collect())
            }
            Value::Table(table) => Self::Table(
                table.iter().map(|(key, item)| (key.clone(), Self::from_toml(&item.value))).collect(),
            ),
        }
    }

    /// From canonical JSON, which holds no floats.
    #[must_use]
    pub fn from_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Int(value) => value.to_big().to_i128().map_or(Self::Other("a huge integer"), Self::Int),
            Json::Str(text) => Self::Text(text.clone()),
            Json::Array(items) => Self::Array(items.iter().map(Self::from_json).collect()),
            Json::Object(members) => {
                Self::Table(members.iter().map(|(key, item)| (key.clone(), Self::from_json(item))).collect())
            }
        }
    }

    /// The identity form: floats are `{"hex": …, "type": "float"}`.
    #[must_use]
    pub fn to_json(&self) -> Json {
        match self {
            Self::Null | Self::Other(_) => Json::Null,
            Self::Bool(value) => Json::Bool(*value),
            Self::Int(value) => Json::Int(Int::from(*value)),
            // Only finite floats are ever declared; see `scalar_value` and `fill_value`.
            Self::Float(value) => Json::object([
                ("hex", Json::Str(hexfloat::format(*value).unwrap_or_default())),
                ("type", Json::from("float")),
            ]),
            Self::Text(text) => Json::Str(text.clone()),
            Self::Array(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Self::Table(members) => {
                Json::object(members.iter().map(|(key, item)| (key.clone(), item.to_json())))
            }
        }
    }

    /// The form in a materialised manifest: strings with JSON escapes, `[a, b]`, `{ "k" = v }` without null members,
    /// floats as Python writes them.
    #[must_use]
    pub fn to_toml(&self) -> String {
        match self {
            Self::Null | Self::Other(_) => String::new(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => crate::text::float_repr(*value),
            Self::Text(text) => {
                String::from_utf8_lossy(&Json::from(text.as_str()).to_canonical()).into_owned()
            }
            Self::Array(items) => {
                let items: Vec<_> = items.iter().map(Self::to_toml).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Table(members) => {
                let present = members.iter().filter(|(_, item)| **item != Self::Null);
                let members: Vec<_> = present
                    .map(|(key, item)| format!("{} = {}", Self::Text(key.clone()).to_toml(), item.to_toml()))
                    .collect();
                format!("{{ {} }}", members.join(", "))
            }
        }
    }

    /// A table from pairs.
    pub(super) fn table<const N: usize>(members: [(&str, Self); N]) -> Self {
        Self::Table(members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }
}

impl From<&str> for Plain {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Plain {
    fn from(value: u64) -> Self {
        Self::Int(i128::from(value))
    }
}

/// One table being read: its members, where it stands, and the class of refusals about it.
#[derive(Clone)]
pub(super) struct Row<'a> {
    pub(super) members: &'a Members,
    pub(super) path: String,
    pub(super) class: Class,
}

impl<'a> Row<'a> {
    /// Opens a table that holds nothing besides `known`.
    pub(super) fn open(
        value: &'a Plain,
        path: &str,
        class: Class,
        known: &[&str],
    ) -> Result<Self, ArtifactError> {
        let Plain::Table(members) = value else {
            return Err(ArtifactError::new(class, path, format!("expected a table, found {}", value.kind())));
        };
        let row = Self { members, path: path.to_owned(), class };
        match members.keys().find(|key| !known.contains(&key.as_str())) {
            Some(extra) => row.refuse(extra, "the field is not known here"),
            None => Ok(row),
        }
    }

    pub(super) fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(super) fn refuse<T>(&self, key: &str, problem: impl Into<String>) -> Result<T, ArtifactError> {
        Err(ArtifactError::new(self.class, self.at(key), problem))
    }

    /// A member that is there and not null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Plain> {
        self.members.get(key).filter(|value| **value != Plain::Null)
    }

    pub(super) fn need(&self, key: &str) -> Result<&'a Plain, ArtifactError> {
        match self.get(key) {
            Some(value) => Ok(value),
            None => self.refuse(key, "the field is missing"),
        }
    }

    fn wrong<T>(&self, key: &str, expected: &str, found: &Plain) -> Result<T, ArtifactError> {
        self.refuse(key, format!("expected {expected}, found {}", found.kind()))
    }

    pub(super) fn text(&self, key: &str) -> Result<&'a str, ArtifactError> {
        match self.need(key)? {
            Plain::Text(text) => Ok(text),
            other => self.wrong(key, "a string", other),
        }
    }

    pub(super) fn optional_text(&self, key: &str) -> Result<Option<&'a str>, ArtifactError> {
        if self.get(key).is_some() { self.text(key).map(Some) } else { Ok(None) }
    }

    /// One of a closed list.
    pub(super) fn choice(&self, key: &str, choices: &[&'static str]) -> Result<&'static str, ArtifactError> {
        let text = self.text(key)?;
        match choices.iter().find(|choice| **choice == text) {
            Some(choice) => Ok(choice),
            None => {
                let shown: String = text.chars().take(80).collect();
                self.refuse(key, format!("`{shown}` is none of {}", choices.join(", ")))
            }
        }
    }

    pub(super) fn int(&self, key: &str, low: i128, high: i128) -> Result<i128, ArtifactError> {
        match self.need(key)? {
            Plain::Int(value) if (low..=high).contains(value) => Ok(*value),
            Plain::Int(value) => self.refuse(key, format!("{value} is outside {low}..={high}")),
            other => self.wrong(key, "an integer", other),
        }
    }

    pub(super) fn optional_int(
        &self,
        key: &str,
        low: i128,
        high: i128,
    ) -> Result<Option<i128>, ArtifactError> {
        if self.get(key).is_some() { self.int(key, low, high).map(Some) } else { Ok(None) }
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, ArtifactError> {
        match self.get(key) {
            None => Ok(false),
            Some(Plain::Bool(value)) => Ok(*value),
            Some(other) => self.wrong(key, "a boolean", other),
        }
    }

    pub(super) fn array(&self, key: &str, low: usize, high: usize) -> Result<&'a [Plain], ArtifactError> {
        match self.need(key)? {
            Plain::Array(items) if (low..=high).contains(&items.len()) => Ok(items),
            Plain::Array(items) => {
                self.refuse(key, format!("{} elements, where {low} to {high} are allowed", items.len()))
            }
            other => self.wrong(key, "an array", other),
        }
    }

    /// An array that may be absent.
    pub(super) fn optional_array(&self, key: &str, high: usize) -> Result<&'a [Plain], ArtifactError> {
        if self.get(key).is_some() { self.array(key, 0, high) } else { Ok(&[]) }
    }

    /// Refuses members that stand although the kind of row does not use them; empty arrays count as absent.
    pub(super) fn only(&self, used: &[&str]) -> Result<(), ArtifactError> {
        let empty = |value: &Plain| matches!(value, Plain::Null) || *value == Plain::Array(Vec::new());
        match self.members.iter().find(|(key, value)| !used.contains(&key.as_str()) && !empty(value)) {
            Some((extra, _)) => self.refuse(extra, "the field does not belong to this kind"),
            None => Ok(()),
        }
    }
}

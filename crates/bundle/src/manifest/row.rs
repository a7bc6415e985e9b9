//! Reading single fields of a table, with their places.

use super::{Op, PATH};
use crate::finding::{Place, Ruled, refuse};
use crate::path::{name, parent};
use crate::rule::Rule;
use crate::text::{is_identifier, is_simple_id, strip};
use crate::toml::{Document, Item, Table, Value};
use crate::tree::{Node, Resolved, Tree};

/// A table of the document and what to call it.
pub(super) struct Reader<'a> {
    pub(super) document: &'a Document,
    pub(super) tree: &'a Tree,
    pub(super) table: &'a Table,
    pub(super) label: String,
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Item> {
        self.table.get(key)
    }

    pub(super) fn place(&self, key: &str) -> Place {
        let at = self.get(key).map_or(self.at, |item| item.at);
        let field = if self.label.is_empty() { key.to_owned() } else { format!("{}.{key}", self.label) };
        Place::at(PATH, self.document.position(at)).field(field)
    }

    pub(super) fn refuse<T>(&self, key: &str, problem: impl Into<String>) -> Ruled<T> {
        refuse(Rule::ManifestField, self.place(key), problem)
    }

    /// A scalar as stripped text; other scalars than strings in the deployed reader's spelling.
    pub(super) fn text(&self, key: &str) -> Ruled<Option<String>> {
        let Some(item) = self.get(key) else { return Ok(None) };
        match item.value.scalar_text() {
            Some(text) => Ok(Some(strip(&text).to_owned())),
            None => self.refuse(key, format!("expected a string, found {}", item.value.kind())),
        }
    }

    pub(super) fn required(&self, key: &str) -> Ruled<String> {
        match self.text(key)? {
            Some(text) if !text.is_empty() => Ok(text),
            Some(_) => self.refuse(key, "the value is empty"),
            None => self.refuse(key, "the field is missing"),
        }
    }

    pub(super) fn simple_id(&self, key: &str, text: String) -> Ruled<String> {
        if is_simple_id(&text) {
            return Ok(text);
        }
        let shown: String = text.chars().take(80).collect();
        self.refuse(key, format!("`{shown}` may hold letters, digits, `.`, `_` and `-` only"))
    }

    pub(super) fn identifier(&self, key: &str, text: String) -> Ruled<String> {
        if is_identifier(&text) {
            return Ok(text);
        }
        let shown: String = text.chars().take(80).collect();
        self.refuse(key, format!("`{shown}` is not an identifier"))
    }

    pub(super) fn optional_identifier(&self, key: &str) -> Ruled<Option<String>> {
        self.text(key)?.map(|text| self.identifier(key, text)).transpose()
    }

    pub(super) fn optional_text(&self, key: &str) -> Ruled<Option<String>> {
        match self.text(key)? {
            Some(text) if text.is_empty() => self.refuse(key, "the value is empty"),
            other => Ok(other),
        }
    }

    /// An array of TOML strings, as they are.
    pub(super) fn strings(&self, key: &str) -> Ruled<Vec<String>> {
        let Some(item) = self.get(key) else { return Ok(Vec::new()) };
        let Value::Array(items) = &item.value else {
            return self.refuse(key, format!("expected an array of strings, found {}", item.value.kind()));
        };
        items
            .iter()
            .map(|item| match item.value.text() {
                Some(text) => Ok(text.to_owned()),
                None => self.refuse(key, format!("expected strings only, found {}", item.value.kind())),
            })
            .collect()
    }

    pub(super) fn stripped_strings(&self, key: &str) -> Ruled<Vec<String>> {
        let mut all = self.strings(key)?;
        for text in &mut all {
            *text = strip(text).to_owned();
            if text.is_empty() {
                return self.refuse(key, "an entry is empty");
            }
        }
        Ok(all)
    }

    fn refuse_path<T>(&self, key: &str, path: &str, problem: &str) -> Ruled<T> {
        let shown: String = path.chars().take(160).collect();
        refuse(Rule::Path, self.place(key), format!("`{}` {problem}", shown.escape_debug()))
    }

    /// Checks the path rule of §3 and gives the bytes.
    pub(super) fn path(&self, key: &str, path: &str) -> Ruled<&'a [u8]> {
        if path.is_empty() {
            return self.refuse_path(key, path, "is empty");
        }
        if path.contains('\0') {
            return self.refuse_path(key, path, "holds a NUL character");
        }
        if path.starts_with('/') {
            return self.refuse_path(key, path, "is absolute");
        }
        match self.tree.resolve(path) {
            Resolved::File(_, bytes) => Ok(bytes),
            Resolved::Directory(_) => self.refuse_path(key, path, "is a directory"),
            Resolved::Nothing => self.refuse_path(key, path, "is not a file of the bundle"),
            Resolved::Outside => self.refuse_path(key, path, "leads outside the bundle"),
        }
    }

    /// As [`Self::path`] for a file whose own name may not be a link and must end in one of `suffixes`.
    pub(super) fn native_path(&self, key: &str, path: &str, suffixes: &[&str]) -> Ruled<&'a [u8]> {
        let bytes = self.path(key, path)?;
        let plain: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let plain = plain.join("/");
        if !suffixes.contains(&crate::path::suffix(&plain)) {
            return self.refuse_path(key, path, &format!("must end in {}", suffixes.join(" or ")));
        }
        if let Resolved::Directory(directory) = self.tree.resolve(parent(&plain)) {
            let own = if directory.is_empty() {
                name(&plain).to_owned()
            } else {
                format!("{directory}/{}", name(&plain))
            };
            if matches!(self.tree.node(&own), Some(Node::Link(_))) {
                return self.refuse_path(key, path, "is a link");
            }
        }
        Ok(bytes)
    }

    /// Remembers where the row's fields stand.
    pub(super) fn remember(&self, op: &mut Op) {
        op.positions.insert(String::new(), self.document.position(self.at));
        for (key, item) in self.table {
            op.positions.insert(key.clone(), self.document.position(item.at));
        }
    }
}

//! The streaming writer: typed records write themselves into a buffer or straight into SHA-256 (spec 20 §1.2).

use crate::int::Int;
use crate::{Digest, Hasher, Json, JsonError};
use std::collections::{BTreeMap, BTreeSet};

/// Which spelling to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// UTF-8, only what JSON requires is escaped. The one that is hashed (spec 20 §1.2).
    Utf8,
    /// Every character outside printable ASCII is escaped; rows at rest (spec 20 §1.5).
    Ascii,
}

/// A value that has one canonical JSON spelling.
///
/// Implementations must write exactly one value, with object keys in code-point order (checked in debug builds).
pub trait Canonical {
    /// Writes the value.
    fn write(&self, w: &mut CanonicalWriter<'_>);

    /// The UTF-8 canonical bytes, without a newline.
    fn to_canonical(&self) -> Vec<u8> {
        let mut out = Vec::new();
        CanonicalWriter::write_into(&mut out, Dialect::Utf8, self);
        out
    }

    /// The ASCII spelling of database rows (spec 20 §1.5).
    fn to_ascii(&self) -> String {
        let mut out = Vec::new();
        CanonicalWriter::write_into(&mut out, Dialect::Ascii, self);
        out.into_iter().map(char::from).collect()
    }

    /// SHA-256 of the canonical bytes, without a domain envelope.
    fn canonical_sha256(&self) -> Digest {
        let mut hasher = Hasher::new();
        CanonicalWriter::hash_into(&mut hasher, self);
        hasher.finish()
    }

    /// The value as a tree.
    ///
    /// # Errors
    /// [`JsonError::Nesting`] when the value is deeper than the reader's bound.
    fn to_json(&self) -> Result<Json, JsonError> {
        Json::parse(&self.to_canonical())
    }
}

/// Small enough to be cleared for every digest, large enough to spare the hasher small pieces.
const BUFFER: usize = 512;

enum Sink<'a> {
    Bytes(&'a mut Vec<u8>),
    Hash(&'a mut Hasher),
}

/// Where [`Canonical`] values write themselves. Buffers small pieces; long clean runs go through untouched.
pub struct CanonicalWriter<'a> {
    sink: Sink<'a>,
    dialect: Dialect,
    len: usize,
    buffer: [u8; BUFFER],
}

impl<'a> CanonicalWriter<'a> {
    /// Appends the spelling of `value` to `out`.
    pub fn write_into(out: &'a mut Vec<u8>, dialect: Dialect, value: &(impl Canonical + ?Sized)) {
        let mut writer = Self { sink: Sink::Bytes(out), dialect, len: 0, buffer: [0; BUFFER] };
        value.write(&mut writer);
        writer.flush();
    }

    /// Feeds the UTF-8 canonical bytes of `value` to `hasher`.
    pub fn hash_into(hasher: &'a mut Hasher, value: &(impl Canonical + ?Sized)) {
        let mut writer =
            Self { sink: Sink::Hash(hasher), dialect: Dialect::Utf8, len: 0, buffer: [0; BUFFER] };
        value.write(&mut writer);
        writer.flush();
    }

    fn flush(&mut self) {
        let pending = self.buffer.get(..self.len).unwrap_or(&[]);
        match &mut self.sink {
            Sink::Bytes(out) => out.extend_from_slice(pending),
            Sink::Hash(hasher) => hasher.update(pending),
        }
        self.len = 0;
    }

    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        if let Some(room) = self.buffer.get_mut(self.len..self.len + bytes.len()) {
            room.copy_from_slice(bytes);
            self.len += bytes.len();
            return;
        }
        self.raw_slow(bytes);
    }

    #[cold]
    fn raw_slow(&mut self, bytes: &[u8]) {
        self.flush();
        if bytes.len() >= BUFFER {
            match &mut self.sink {
                Sink::Bytes(out) => out.extend_from_slice(bytes),
                Sink::Hash(hasher) => hasher.update(bytes),
            }
        } else {
            self.raw(bytes);
        }
    }

    /// Writes `null`.
    pub fn null(&mut self) {
        self.raw(b"null");
    }

    /// Writes a boolean.
    pub fn bool(&mut self, value: bool) {
        self.raw(if value { b"true" } else { b"false" });
    }

    /// Writes a string in quotes, escaped for the dialect.
    pub fn str(&mut self, text: &str) {
        self.raw(b"\"");
        match self.dialect {
            Dialect::Utf8 => self.utf8_body(text.as_bytes()),
            Dialect::Ascii => self.ascii_body(text),
        }
        self.raw(b"\"");
    }

    fn utf8_body(&mut self, mut rest: &[u8]) {
        loop {
            let (run, tail) = rest.split_at(clean_prefix(rest));
            self.raw(run);
            let Some((&byte, after)) = tail.split_first() else { return };
            // A run may also end where the scan stopped looking.
            if needs_escape(byte) {
                self.escape(byte);
                rest = after;
            } else {
                rest = tail;
            }
        }
    }

    fn ascii_body(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                ' '..='~' if c != '"' && c != '\\' => self.raw(&[c as u8]),
                '\0'..='\u{1f}' | '"' | '\\' => self.escape(c as u8),
                _ => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        self.unicode_escape(*unit);
                    }
                }
            }
        }
    }

    fn escape(&mut self, byte: u8) {
        match byte {
            b'"' => self.raw(b"\\\""),
            b'\\' => self.raw(b"\\\\"),
            0x08 => self.raw(b"\\b"),
            b'\t' => self.raw(b"\\t"),
            b'\n' => self.raw(b"\\n"),
            0x0c => self.raw(b"\\f"),
            b'\r' => self.raw(b"\\r"),
            other => self.unicode_escape(u16::from(other)),
        }
    }

    fn unicode_escape(&mut self, unit: u16) {
        let mut text = *b"\\u0000";
        for (place, shift) in text.iter_mut().skip(2).zip([12, 8, 4, 0]) {
            *place = hex_digit((unit >> shift) as u8 & 0xf);
        }
        self.raw(&text);
    }

    /// Writes an unsigned integer.
    pub fn u64(&mut self, value: u64) {
        self.decimal(false, value);
    }

    /// Writes a signed integer.
    pub fn i64(&mut self, value: i64) {
        self.decimal(value < 0, value.unsigned_abs());
    }

    fn decimal(&mut self, negative: bool, mut value: u64) {
        let mut text = [0u8; 21];
        let mut start = text.len();
        for place in text.iter_mut().rev() {
            *place = b'0' + (value % 10) as u8;
            value /= 10;
            start -= 1;
            if value == 0 {
                break;
            }
        }
        if negative {
            self.raw(b"-");
        }
        self.raw(text.get(start..).unwrap_or(&[]));
    }

    /// Writes an object; `members` adds the fields in code-point order of their keys.
    pub fn object(&mut self, members: impl FnOnce(&mut ObjectWriter<'_, 'a>)) {
        self.raw(b"{");
        let mut object = ObjectWriter {
            w: self,
            first: true,
            #[cfg(debug_assertions)]
            last: None,
        };
        members(&mut object);
        self.raw(b"}");
    }

    /// Writes an array; `items` adds the elements in order.
    pub fn array(&mut self, items: impl FnOnce(&mut ArrayWriter<'_, 'a>)) {
        self.raw(b"[");
        items(&mut ArrayWriter { w: self, first: true });
        self.raw(b"]");
    }
}

/// Adds members to an object being written.
pub struct ObjectWriter<'w, 'a> {
    w: &'w mut CanonicalWriter<'a>,
    first: bool,
    #[cfg(debug_assertions)]
    last: Option<String>,
}

impl<'a> ObjectWriter<'_, 'a> {
    fn key(&mut self, key: &str) {
        #[cfg(debug_assertions)]
        {
            if let Some(last) = &self.last {
                debug_assert!(last.as_str() < key, "keys out of order: `{last}` before `{key}`");
            }
            self.last = Some(key.to_owned());
        }
        if !self.first {
            self.w.raw(b",");
        }
        self.first = false;
        self.w.str(key);
        self.w.raw(b":");
    }

    /// Adds one member.
    pub fn field(&mut self, key: &str, value: &(impl Canonical + ?Sized)) -> &mut Self {
        self.key(key);
        value.write(self.w);
        self
    }

    /// Adds one member whose value is written by a closure; it must write exactly one value.
    pub fn field_with(&mut self, key: &str, value: impl FnOnce(&mut CanonicalWriter<'a>)) -> &mut Self {
        self.key(key);
        value(self.w);
        self
    }

    /// Adds a member only when there is a value (absent is not null).
    pub fn field_if<T: Canonical>(&mut self, key: &str, value: Option<&T>) -> &mut Self {
        if let Some(value) = value {
            self.field(key, value);
        }
        self
    }
}

/// Adds elements to an array being written.
pub struct ArrayWriter<'w, 'a> {
    w: &'w mut CanonicalWriter<'a>,
    first: bool,
}

impl<'a> ArrayWriter<'_, 'a> {
    /// Adds one element.
    pub fn item(&mut self, value: &(impl Canonical + ?Sized)) -> &mut Self {
        self.item_with(|w| value.write(w))
    }

    /// Adds one element written by a closure; it must write exactly one value.
    pub fn item_with(&mut self, value: impl FnOnce(&mut CanonicalWriter<'a>)) -> &mut Self {
        if !self.first {
            self.w.raw(b",");
        }
        self.first = false;
        value(self.w);
        self
    }
}

pub(crate) const fn hex_digit(nibble: u8) -> u8 {
    if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 }
}

const fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Length of the prefix that JSON strings hold literally, of at most [`STRIDE`] bytes: what was scanned is then still in
/// the nearest cache when it is copied or hashed.
///
/// Whole blocks are tested without branches, so that the compiler can use vector instructions; the last words by
/// arithmetic on eight bytes at once.
pub(crate) fn clean_prefix(bytes: &[u8]) -> usize {
    let bytes = bytes.get(..STRIDE).unwrap_or(bytes);
    let (blocks, _) = bytes.as_chunks::<64>();
    let mut clean = 0;
    for block in blocks {
        let dirty = block.iter().fold(0u8, |dirty, &byte| dirty | u8::from(needs_escape(byte)));
        if dirty != 0 {
            break;
        }
        clean += block.len();
    }
    let (words, _) = bytes.get(clean..).unwrap_or(&[]).as_chunks::<8>();
    for word in words {
        let found = first_escape(u64::from_le_bytes(*word));
        clean += found;
        if found < 8 {
            return clean;
        }
    }
    let rest = bytes.get(clean..).unwrap_or(&[]);
    clean + rest.iter().position(|&byte| needs_escape(byte)).unwrap_or(rest.len())
}

/// How far one scan looks ahead, in bytes.
const STRIDE: usize = 16 << 10;

/// Index of the first byte of a little-endian word that needs an escape, or 8. Each subtraction marks a byte below its
/// bound; a borrow can only disturb bytes after a marked one, so the first mark is exact.
const fn first_escape(word: u64) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x80 * EACH;
    let quote = word ^ (b'"' as u64 * EACH);
    let backslash = word ^ (b'\\' as u64 * EACH);
    let control = word.wrapping_sub(0x20 * EACH) & !word;
    let quote = quote.wrapping_sub(EACH) & !quote;
    let backslash = backslash.wrapping_sub(EACH) & !backslash;
    let marks = (control | quote | backslash) & TOP;
    if marks == 0 { 8 } else { (marks.trailing_zeros() / 8) as usize }
}

impl<T: Canonical + ?Sized> Canonical for &T {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        (**self).write(w);
    }
}

impl<T: Canonical + ?Sized> Canonical for Box<T> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        (**self).write(w);
    }
}

impl Canonical for bool {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.bool(*self);
    }
}

impl Canonical for str {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(self);
    }
}

impl Canonical for String {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.str(self);
    }
}

impl Canonical for Int {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        match self.to_i64() {
            Some(small) => w.i64(small),
            None => w.raw(self.to_string().as_bytes()),
        }
    }
}

macro_rules! canonical_number {
    ($($small:ty => $method:ident),*; $($wide:ty),*) => {
        $(impl Canonical for $small {
            fn write(&self, w: &mut CanonicalWriter<'_>) { w.$method((*self).into()); }
        })*
        $(impl Canonical for $wide {
            fn write(&self, w: &mut CanonicalWriter<'_>) { Int::from(*self).write(w); }
        })*
    };
}
canonical_number!(u8 => u64, u16 => u64, u32 => u64, u64 => u64, i8 => i64, i16 => i64, i32 => i64, i64 => i64;
    usize, u128, i128);

/// `None` is `null`. Members that are absent rather than null use [`ObjectWriter::field_if`].
impl<T: Canonical> Canonical for Option<T> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        match self {
            Some(value) => value.write(w),
            None => w.null(),
        }
    }
}

impl<T: Canonical> Canonical for [T] {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            for item in self {
                a.item(item);
            }
        });
    }
}

impl<T: Canonical, const N: usize> Canonical for [T; N] {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.as_slice().write(w);
    }
}

impl<T: Canonical> Canonical for Vec<T> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        self.as_slice().write(w);
    }
}

/// Written as an array in the set's order.
impl<T: Canonical> Canonical for BTreeSet<T> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.array(|a| {
            for item in self {
                a.item(item);
            }
        });
    }
}

impl<K: AsRef<str>, V: Canonical> Canonical for BTreeMap<K, V> {
    fn write(&self, w: &mut CanonicalWriter<'_>) {
        w.object(|o| {
            for (key, value) in self {
                o.field(key.as_ref(), value);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scanning_finds_the_first_byte_that_needs_an_escape() {
        for special in (0..=0x1f).chain([b'"', b'\\']) {
            for length in [1, 7, 8, 9, 31, 63, 64, 65, 127, 128, 200] {
                for at in 0..length {
                    let mut text = vec![b'a'; length];
                    text[at] = special;
                    assert_eq!(clean_prefix(&text), at, "{special} at {at} of {length}");
                    text[at..].fill(special);
                    assert_eq!(clean_prefix(&text), at, "{special} from {at} of {length}");
                }
            }
        }
        for plain in (0x20..=0xff).filter(|b| !needs_escape(*b)) {
            assert_eq!(clean_prefix(&[plain; 100]), 100, "{plain}");
        }
        assert_eq!(clean_prefix(&vec![b'a'; STRIDE + 5]), STRIDE);
    }

    #[test]
    fn runs_longer_than_a_scan_are_written_whole() {
        for length in [STRIDE - 1, STRIDE, STRIDE + 1, 3 * STRIDE] {
            let text = "é".repeat(length / 2) + "\n" + &"b".repeat(length);
            let expected = format!("\"{}\"", text.replace('\n', "\\n"));
            assert_eq!(text.to_canonical(), expected.as_bytes());
            assert_eq!(text.canonical_sha256(), crate::sha256(expected.as_bytes()));
            assert_eq!(Json::parse(expected.as_bytes()), Ok(Json::Str(text)));
        }
    }
}

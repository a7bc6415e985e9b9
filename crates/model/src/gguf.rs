//! A bounded reader of GGUF files (versions 2 and 3, little-endian).
//!
//! The file is hostile until its hash is known: every count and length is checked against what is left of the file
//! before anything is allocated or skipped, nothing is copied out but names and small tables, and each defect has its
//! own error.

use std::collections::BTreeMap;
use thiserror::Error;

/// Most metadata entries of a file.
pub const MAX_METADATA: u64 = 4096;
/// Most tensors of a file.
pub const MAX_TENSORS: u64 = 65_536;
/// Longest metadata key or tensor name, in bytes.
pub const MAX_NAME_BYTES: u64 = 1024;
/// Longest metadata string, in bytes.
pub const MAX_STRING_BYTES: u64 = 16 << 20;
/// Most elements of a metadata array.
pub const MAX_ARRAY: u64 = 16 << 20;
/// Most dimensions of a tensor.
pub const MAX_DIMS: u32 = 4;

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const MAX_ALIGNMENT: u64 = 1 << 16;

/// Why a file is no usable GGUF model.
#[derive(Debug, Error, PartialEq)]
pub enum GgufError {
    /// The first four bytes are something else.
    #[error(
        "not a GGUF file: it starts with {found:02x?}; name a .gguf model, or leave --model out to fetch one"
    )]
    Magic {
        /// The first bytes, up to four.
        found: Vec<u8>,
    },
    /// A format revision this reader does not know.
    #[error("GGUF version {found} is not supported (2 and 3 are); convert the file with a current converter")]
    Version {
        /// The version field.
        found: u32,
    },
    /// The file ends before something it announces.
    #[error(
        "the GGUF file is truncated: {what} at byte {at} needs {needed} bytes, the file has {length}; fetch it again"
    )]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Where it starts.
        at: u64,
        /// How long it should be.
        needed: u64,
        /// Length of the file.
        length: u64,
    },
    /// A count or length beyond its bound.
    #[error("GGUF {what} is {found}, the limit is {limit}")]
    Limit {
        /// What was counted.
        what: &'static str,
        /// The value in the file.
        found: u64,
        /// The bound.
        limit: u64,
    },
    /// A name that is not UTF-8.
    #[error("GGUF {what} at byte {at} is not UTF-8")]
    Utf8 {
        /// What was being read.
        what: &'static str,
        /// Where it starts.
        at: u64,
    },
    /// A key or a tensor that appears twice.
    #[error("GGUF {what} {name:?} appears twice")]
    Duplicate {
        /// `key` or `tensor`.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A metadata value of an unknown type, or an array of arrays.
    #[error("GGUF key {key:?} has value type {found}, which is not supported")]
    ValueType {
        /// The key.
        key: String,
        /// The type number.
        found: u32,
    },
    /// A boolean that is neither 0 nor 1.
    #[error("GGUF key {key:?} holds a boolean with the value {found}")]
    Bool {
        /// The key.
        key: String,
        /// The byte.
        found: u8,
    },
    /// An alignment that is no power of two between 8 and 65536.
    #[error("GGUF general.alignment is {found}, not a power of two from 8 to 65536")]
    Alignment {
        /// The value in the file.
        found: u64,
    },
    /// A tensor encoding this reader does not know.
    #[error("tensor {tensor:?} has encoding {found}; F32 (0), Q4_1 (3) and Q8_0 (8) are supported")]
    Encoding {
        /// The tensor.
        tensor: String,
        /// The encoding number.
        found: u32,
    },
    /// A tensor whose dimensions cannot be stored.
    #[error("tensor {tensor:?} has impossible dimensions {dims:?}: {why}")]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// Its dimensions, fastest first.
        dims: Vec<u64>,
        /// What is wrong with them.
        why: &'static str,
    },
    /// A tensor that starts at an odd place or shares bytes with another.
    #[error("tensor {tensor:?} is misplaced at data offset {offset}: {why}")]
    Placement {
        /// The tensor.
        tensor: String,
        /// Its offset in the data section.
        offset: u64,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// How a tensor's values are stored. The discriminants are GGUF's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// IEEE-754 binary32.
    F32 = 0,
    /// 32 values in 20 bytes: scale, minimum, nibbles.
    Q4_1 = 3,
    /// 32 values in 34 bytes: scale, signed bytes.
    Q8_0 = 8,
}

impl Encoding {
    fn from_code(code: u32) -> Option<Self> {
        [Self::F32, Self::Q4_1, Self::Q8_0].into_iter().find(|e| e.code() == code)
    }

    /// The number GGUF and the kernel header give it.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Values in one block.
    #[must_use]
    pub const fn block_values(self) -> usize {
        match self {
            Self::F32 => 1,
            Self::Q4_1 | Self::Q8_0 => 32,
        }
    }

    /// Bytes of one block.
    #[must_use]
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Q4_1 => 20,
            Self::Q8_0 => 34,
        }
    }

    /// The capability value: `q4_1`, `q8_0` or `dense`.
    #[must_use]
    pub const fn quant(self) -> &'static str {
        match self {
            Self::F32 => "dense",
            Self::Q4_1 => "q4_1",
            Self::Q8_0 => "q8_0",
        }
    }

    /// Bytes of a row of `values`, or `None` where they do not fill whole blocks or overflow.
    #[must_use]
    pub const fn row_bytes(self, values: usize) -> Option<usize> {
        if !values.is_multiple_of(self.block_values()) {
            return None;
        }
        (values / self.block_values()).checked_mul(self.block_bytes())
    }
}

/// A metadata value. Strings and arrays stay in the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// A binary32 or binary64 number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string, not checked for UTF-8.
    Bytes(&'a [u8]),
    /// An array of one element type.
    Array(Array<'a>),
}

/// A metadata array, walked on demand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Array<'a> {
    /// Element type number.
    kind: u32,
    /// Element count.
    len: u64,
    /// The elements' bytes, exactly.
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.len).unwrap_or(usize::MAX)
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, if they are strings.
    #[must_use]
    pub fn strings(&self) -> Option<impl Iterator<Item = &'a [u8]> + use<'a>> {
        (self.kind == kind::STRING).then(|| {
            let mut rest = self.bytes;
            std::iter::from_fn(move || {
                let (length, tail) = rest.split_first_chunk::<8>()?;
                let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
                let (text, tail) = tail.split_at_checked(length)?;
                rest = tail;
                Some(text)
            })
        })
    }

    /// The elements, if they are 32-bit signed integers.
    #[must_use]
    pub fn i32s(&self) -> Option<impl Iterator<Item = i32> + use<'a>> {
        (self.kind == kind::I32)
            .then(|| self.bytes.as_chunks::<4>().0.iter().map(|chunk| i32::from_le_bytes(*chunk)))
    }
}

mod kind {
    pub(super) const U8: u32 = 0;
    pub(super) const I8: u32 = 1;
    pub(super) const U16: u32 = 2;
    pub(super) const I16: u32 = 3;
    pub(super) const U32: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const BOOL: u32 = 7;
    pub(super) const STRING: u32 = 8;
    pub(super) const ARRAY: u32 = 9;
    pub(super) const U64: u32 = 10;
    pub(super) const I64: u32 = 11;
    pub(super) const F64: u32 = 12;

    pub(super) const fn fixed_bytes(kind: u32) -> Option<u64> {
        match kind {
            U8 | I8 | BOOL => Some(1),
            U16 | I16 => Some(2),
            U32 | I32 | F32 => Some(4),
            U64 | I64 | F64 => Some(8),
            _ => None,
        }
    }
}

/// A tensor: its shape and its bytes in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'a> {
    /// How values are stored.
    pub encoding: Encoding,
    /// Dimensions, fastest first, 1 to 4 of them, none zero.
    pub dims: Vec<usize>,
    /// Exactly the tensor's bytes.
    pub data: &'a [u8],
}

/// A parsed file.
#[derive(Clone, Debug)]
pub struct Gguf<'a> {
    metadata: BTreeMap<&'a str, Value<'a>>,
    tensors: BTreeMap<&'a str, Tensor<'a>>,
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, what: &'static str, needed: u64) -> Result<&'a [u8], GgufError> {
        let found = usize::try_from(needed)
            .ok()
            .and_then(|n| self.at.checked_add(n))
            .and_then(|end| self.bytes.get(self.at..end).map(|slice| (slice, end)));
        let (slice, end) = found.ok_or(GgufError::Truncated {
            what,
            at: self.at as u64,
            needed,
            length: self.bytes.len() as u64,
        })?;
        self.at = end;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let mut out = [0u8; N];
        out.copy_from_slice(self.take(what, N as u64)?);
        Ok(out)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn bounded(&mut self, what: &'static str, limit: u64) -> Result<u64, GgufError> {
        let found = self.u64(what)?;
        if found > limit { Err(GgufError::Limit { what, found, limit }) } else { Ok(found) }
    }

    fn name(&mut self, what: &'static str) -> Result<&'a str, GgufError> {
        let length = self.bounded(what, MAX_NAME_BYTES)?;
        let at = self.at as u64;
        std::str::from_utf8(self.take(what, length)?).map_err(|_| GgufError::Utf8 { what, at })
    }

    fn value(&mut self, key: &str, kind: u32) -> Result<Value<'a>, GgufError> {
        const WHAT: &str = "metadata value";
        Ok(match kind {
            kind::U8 => Value::Unsigned(u64::from(self.array::<1>(WHAT)?[0])),
            kind::I8 => Value::Signed(i64::from(i8::from_le_bytes(self.array(WHAT)?))),
            kind::U16 => Value::Unsigned(u64::from(u16::from_le_bytes(self.array(WHAT)?))),
            kind::I16 => Value::Signed(i64::from(i16::from_le_bytes(self.array(WHAT)?))),
            kind::U32 => Value::Unsigned(u64::from(self.u32(WHAT)?)),
            kind::I32 => Value::Signed(i64::from(i32::from_le_bytes(self.array(WHAT)?))),
            kind::F32 => Value::Float(f64::from(f32::from_le_bytes(self.array(WHAT)?))),
            kind::U64 => Value::Unsigned(self.u64(WHAT)?),
            kind::I64 => Value::Signed(i64::from_le_bytes(self.array(WHAT)?)),
            kind::F64 => Value::Float(f64::from_le_bytes(self.array(WHAT)?)),
            kind::BOOL => match self.array::<1>(WHAT)?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                found => return Err(GgufError::Bool { key: key.to_owned(), found }),
            },
            kind::STRING => {
                let length = self.bounded("string length", MAX_STRING_BYTES)?;
                Value::Bytes(self.take("metadata string", length)?)
            }
            kind::ARRAY => {
                let element = self.u32("array element type")?;
                let len = self.bounded("array length", MAX_ARRAY)?;
                let start = self.at;
                if let Some(size) = kind::fixed_bytes(element) {
                    // Cannot overflow: both factors are bounded.
                    self.take("metadata array", len * size)?;
                } else if element == kind::STRING {
                    for _ in 0..len {
                        let length = self.bounded("string length", MAX_STRING_BYTES)?;
                        self.take("array string", length)?;
                    }
                } else {
                    return Err(GgufError::ValueType { key: key.to_owned(), found: element });
                }
                Value::Array(Array { kind: element, len, bytes: &self.bytes[start..self.at] })
            }
            found => return Err(GgufError::ValueType { key: key.to_owned(), found }),
        })
    }
}

struct Header {
    encoding: Encoding,
    dims: Vec<usize>,
    offset: u64,
    bytes: u64,
}

fn tensor_header(cursor: &mut Cursor<'_>, name: &str) -> Result<Header, GgufError> {
    let count = cursor.u32("dimension count")?;
    if count == 0 || count > MAX_DIMS {
        return Err(GgufError::Limit {
            what: "dimension count",
            found: u64::from(count),
            limit: u64::from(MAX_DIMS),
        });
    }
    let mut raw = Vec::with_capacity(count as usize);
    for _ in 0..count {
        raw.push(cursor.u64("dimension")?);
    }
    let code = cursor.u32("tensor encoding")?;
    let offset = cursor.u64("tensor offset")?;
    let encoding = Encoding::from_code(code)
        .ok_or_else(|| GgufError::Encoding { tensor: name.to_owned(), found: code })?;
    let impossible = |why| GgufError::Dimensions { tensor: name.to_owned(), dims: raw.clone(), why };
    let mut dims = Vec::with_capacity(raw.len());
    for dim in &raw {
        match usize::try_from(*dim) {
            Ok(0) | Err(_) => return Err(impossible("a dimension is zero or too large")),
            Ok(dim) => dims.push(dim),
        }
    }
    let row = encoding.row_bytes(dims[0]).ok_or_else(|| impossible("a row does not fill whole blocks"))?;
    let bytes = dims[1..]
        .iter()
        .try_fold(row, |total, dim| total.checked_mul(*dim))
        .ok_or_else(|| impossible("the size overflows"))?;
    Ok(Header { encoding, dims, offset, bytes: bytes as u64 })
}

impl<'a> Gguf<'a> {
    /// Reads the whole directory of a file and checks that every tensor lies inside it, aligned and alone.
    ///
    /// # Errors
    /// The first defect found, as a [`GgufError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, GgufError> {
        let mut cursor = Cursor { bytes, at: 0 };
        if bytes.get(..4) != Some(MAGIC) {
            return Err(GgufError::Magic { found: bytes[..bytes.len().min(4)].to_vec() });
        }
        cursor.at = 4;
        let version = cursor.u32("version")?;
        if version != 2 && version != 3 {
            return Err(GgufError::Version { found: version });
        }
        let tensor_count = cursor.bounded("tensor count", MAX_TENSORS)?;
        let metadata_count = cursor.bounded("metadata count", MAX_METADATA)?;

        let mut metadata = BTreeMap::new();
        for _ in 0..metadata_count {
            let key = cursor.name("metadata key")?;
            let kind = cursor.u32("metadata type")?;
            let value = cursor.value(key, kind)?;
            if metadata.insert(key, value).is_some() {
                return Err(GgufError::Duplicate { what: "key", name: key.to_owned() });
            }
        }
        let alignment = match metadata.get("general.alignment") {
            None => DEFAULT_ALIGNMENT,
            Some(Value::Unsigned(found))
                if found.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(found) =>
            {
                *found
            }
            Some(Value::Unsigned(found)) => return Err(GgufError::Alignment { found: *found }),
            Some(_) => return Err(GgufError::Alignment { found: 0 }),
        };

        let mut headers = BTreeMap::new();
        for _ in 0..tensor_count {
            let name = cursor.name("tensor name")?;
            let header = tensor_header(&mut cursor, name)?;
            if headers.insert(name, header).is_some() {
                return Err(GgufError::Duplicate { what: "tensor", name: name.to_owned() });
            }
        }

        let data_start = (cursor.at as u64).next_multiple_of(alignment);
        let length = bytes.len() as u64;
        let mut order: Vec<(&str, u64, u64)> =
            headers.iter().map(|(name, header)| (*name, header.offset, header.bytes)).collect();
        order.sort_by_key(|(_, offset, _)| *offset);
        let mut free_from = 0u64;
        for (name, offset, size) in order {
            let misplaced = |why| GgufError::Placement { tensor: name.to_owned(), offset, why };
            if offset % alignment != 0 {
                return Err(misplaced("not aligned"));
            }
            if offset < free_from {
                return Err(misplaced("shares bytes with another tensor"));
            }
            free_from = offset.checked_add(size).ok_or_else(|| misplaced("the offset overflows"))?;
            if data_start.checked_add(free_from).is_none_or(|end| end > length) {
                return Err(GgufError::Truncated {
                    what: "tensor data",
                    at: data_start.saturating_add(offset),
                    needed: size,
                    length,
                });
            }
        }

        let mut tensors = BTreeMap::new();
        for (name, header) in headers {
            // In range: checked above against the file's length.
            let start = (data_start + header.offset) as usize;
            let data = &bytes[start..start + header.bytes as usize];
            tensors.insert(name, Tensor { encoding: header.encoding, dims: header.dims, data });
        }
        Ok(Self { metadata, tensors })
    }

    /// A metadata value.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<Value<'a>> {
        self.metadata.get(key).copied()
    }

    /// A metadata value that is a non-negative integer.
    #[must_use]
    pub fn unsigned(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            Value::Unsigned(value) => Some(value),
            Value::Signed(value) => u64::try_from(value).ok(),
            _ => None,
        }
    }

    /// A metadata value that is a number.
    #[must_use]
    pub fn float(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            Value::Float(value) => Some(value),
            _ => None,
        }
    }

    /// A metadata value that is a UTF-8 string.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&'a str> {
        match self.value(key)? {
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// A metadata value that is an array.
    #[must_use]
    pub fn array(&self, key: &str) -> Option<Array<'a>> {
        match self.value(key)? {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// A tensor.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor<'a>> {
        self.tensors.get(name)
    }

    /// All tensors, by name.
    pub fn tensors(&self) -> impl Iterator<Item = (&'a str, &Tensor<'a>)> {
        self.tensors.iter().map(|(name, tensor)| (*name, tensor))
    }
}

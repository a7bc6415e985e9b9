//! One 512-byte header of a tar stream.

use super::{BLOCK, refused};
use crate::finding::BundleError;

/// What a header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// PAX records for the next member.
    Pax,
    /// PAX records for all members that follow.
    Global,
    /// The next member's name.
    LongName,
    /// The next link's target.
    LongLink,
}

/// A header's fields, numbers decoded.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) name: Vec<u8>,
    pub(super) size: u64,
}

/// A field's bytes up to the first NUL.
pub(super) fn until_nul(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    &field[..end]
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = until_nul(field).trim_ascii();
    text.iter().try_fold(0u64, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn number(field: &[u8]) -> Option<u64> {
    match field.split_first() {
        Some((0x80, rest)) => rest.iter().try_fold(0u64, |value, byte| {
            value.checked_mul(256).and_then(|value| value.checked_add(u64::from(*byte)))
        }),
        Some((first, _)) if *first < 0x80 => octal(field),
        _ => None,
    }
}

/// The sum of a header's bytes, its own field counting as spaces: unsigned and, as some writers have it, signed.
fn sums(block: &[u8; BLOCK]) -> (i64, i64) {
    let mut totals = (0, 0);
    for (at, byte) in block.iter().enumerate() {
        let byte = if (148..156).contains(&at) { b' ' } else { *byte };
        totals.0 += i64::from(byte);
        totals.1 += i64::from(byte.cast_signed());
    }
    totals
}

impl Header {
    /// Reads a block that is not all zeros.
    pub(super) fn parse(block: &[u8; BLOCK]) -> Result<Self, BundleError> {
        let corrupt = |what: &str| refused(format!("a tar header's {what} is wrong"));
        let stated = number(&block[148..156]).and_then(|sum| i64::try_from(sum).ok());
        let (unsigned, signed) = sums(block);
        if !stated.is_some_and(|sum| sum == unsigned || sum == signed) {
            return Err(corrupt("checksum"));
        }
        let size = number(&block[124..136]).ok_or_else(|| corrupt("size"))?;
        let base = until_nul(&block[..100]);
        let kind = match block[156] {
            0 if base.ends_with(b"/") => Kind::Directory,
            0 | b'0' | b'7' => Kind::File,
            b'5' => Kind::Directory,
            b'x' => Kind::Pax,
            b'g' => Kind::Global,
            b'L' => Kind::LongName,
            b'K' => Kind::LongLink,
            other => {
                let name = String::from_utf8_lossy(base).into_owned();
                let what = match other {
                    b'1' => "a hard link".to_owned(),
                    b'2' => "a symbolic link".to_owned(),
                    b'3' | b'4' => "a device".to_owned(),
                    b'6' => "a FIFO".to_owned(),
                    b'S' => "a sparse file".to_owned(),
                    _ => format!("of unknown type {:?}", char::from(other)),
                };
                return Err(super::refused_member(&name, format!("the member is {what}")));
            }
        };
        let prefix = until_nul(&block[345..500]);
        let name = match prefix {
            [] => base.to_vec(),
            _ => [prefix, b"/", base].concat(),
        };
        Ok(Self { kind, name, size })
    }
}

/// The header of a regular file or, for `pax`, of the records before it. Everything but name and size is constant.
pub(super) fn write(prefix: &str, name: &str, size: u64, pax: bool) -> [u8; BLOCK] {
    fn put(block: &mut [u8; BLOCK], at: usize, bytes: &[u8]) {
        block[at..at + bytes.len()].copy_from_slice(bytes);
    }
    let mut block = [0; BLOCK];
    put(&mut block, 0, name.as_bytes());
    put(&mut block, 100, b"0000644\0");
    put(&mut block, 108, b"0000000\0");
    put(&mut block, 116, b"0000000\0");
    put(&mut block, 124, format!("{size:011o}\0").as_bytes());
    put(&mut block, 136, b"00000000000\0");
    block[156] = if pax { b'x' } else { b'0' };
    put(&mut block, 257, b"ustar\x0000");
    put(&mut block, 345, prefix.as_bytes());
    let (sum, _) = sums(&block);
    put(&mut block, 148, format!("{sum:06o}\0 ").as_bytes());
    block
}

/// How a path fits the two name fields: prefix and name, or `None` when it needs an extension header.
pub(super) fn split(path: &str) -> Option<(&str, &str)> {
    if !path.is_ascii() {
        return None;
    }
    if path.len() <= 100 {
        return Some(("", path));
    }
    let (at, _) =
        path.match_indices('/').find(|(at, _)| (1..=100).contains(&(path.len() - at - 1)) && *at <= 155)?;
    Some((&path[..at], &path[at + 1..]))
}

//! Records of PAX extension headers.

use super::refused;
use crate::finding::BundleError;

/// What extension headers say about the next member.
#[derive(Debug, Clone, Default)]
pub(super) struct Overrides {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
}

impl Overrides {
    /// Values set here, and the others' where unset.
    pub(super) fn or(self, other: &Self) -> Self {
        Self { path: self.path.or_else(|| other.path.clone()), size: self.size.or(other.size) }
    }
}

/// Reads every record; unknown keywords are ignored, sparse files refused.
pub(super) fn records(mut body: &[u8]) -> Result<Overrides, BundleError> {
    let mut found = Overrides::default();
    while !body.is_empty() {
        let (record, rest) = split(body).ok_or_else(|| refused("a PAX record is malformed"))?;
        let equals = record.iter().position(|byte| *byte == b'=');
        let Some(equals) = equals.filter(|at| *at > 0) else {
            return Err(refused("a PAX record has no keyword"));
        };
        let (keyword, value) = (&record[..equals], &record[equals + 1..]);
        match keyword {
            b"path" => found.path = Some(value.to_vec()),
            b"size" => {
                let size = std::str::from_utf8(value).ok().filter(|text| digits(text));
                let size = size.and_then(|text| text.parse().ok());
                found.size = Some(size.ok_or_else(|| refused("a PAX size is no number"))?);
            }
            _ if keyword.starts_with(b"GNU.sparse.") => return Err(refused("a member is a sparse file")),
            _ => {}
        }
        body = rest;
    }
    Ok(found)
}

fn digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `<length> <keyword>=<value>\n`, the length counting the whole record.
fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = body.iter().take(21).position(|byte| *byte == b' ')?;
    let length = std::str::from_utf8(&body[..space]).ok().filter(|text| digits(text))?;
    let length: usize = length.parse().ok()?;
    if length < space + 2 || length > body.len() || body[length - 1] != b'\n' {
        return None;
    }
    Some((&body[space + 1..length - 1], &body[length..]))
}

/// One record, its length included in itself.
pub(super) fn record(keyword: &str, value: &str) -> Vec<u8> {
    let payload = keyword.len() + value.len() + 3;
    let mut length = payload;
    while payload + length.to_string().len() != length {
        length = payload + length.to_string().len();
    }
    format!("{length} {keyword}={value}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_state_their_own_length() {
        for width in 0..1200 {
            let value = "v".repeat(width);
            let written = record("path", &value);
            assert_eq!(records(&written).unwrap().path.unwrap(), value.as_bytes());
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        for body in ["6 a=b", "7 a=b\n", "5 a=b\n", "6 =ab\n", "06a=b\n", "+6 a=b\n", "6 a=b\nx", "6 aab\n"] {
            assert!(records(body.as_bytes()).is_err(), "{body:?}");
        }
        assert!(records(b"6 a=b\n").is_ok());
        assert!(records(b"10 size=-1\n").is_err());
    }
}

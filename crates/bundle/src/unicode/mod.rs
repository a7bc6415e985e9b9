//! Character classes that the pinned dialects fix and Rust's own library does not.

#[rustfmt::skip]
mod tables;

use tables::{
    NEW_IN_15_0, NEW_IN_15_1, PRINTABLE, UNPRINTABLE_ASSIGNED, XID_CONTINUE_ONLY, XID_START, ZEROS,
};

/// The character database of a dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Unicode 14.0, of Python 3.11.
    V14,
    /// Unicode 15.0, of Python 3.12.
    V15,
    /// Unicode 15.1, of Python 3.13.
    V15_1,
}

fn within(ranges: &[(u32, u32)], code: u32) -> bool {
    let index = ranges.partition_point(|(_, last)| *last < code);
    ranges.get(index).is_some_and(|(first, _)| *first <= code)
}

fn known(base: bool, code: u32, version: Version) -> bool {
    match version {
        Version::V14 => base && !within(&NEW_IN_15_0, code),
        Version::V15 => base,
        Version::V15_1 => base || within(&NEW_IN_15_1, code),
    }
}

/// The ideographs of Unicode 15.1, its only new identifier starts.
const IDEOGRAPHS_15_1: std::ops::RangeInclusive<u32> = 0x2ebf0..=0x2ee5d;

/// Whether the character may start an identifier.
#[must_use]
pub fn is_xid_start(symbol: char, version: Version) -> bool {
    if symbol.is_ascii() {
        return symbol == '_' || symbol.is_ascii_alphabetic();
    }
    let code = u32::from(symbol);
    match version {
        Version::V15_1 if IDEOGRAPHS_15_1.contains(&code) => true,
        Version::V15_1 => within(&XID_START, code),
        older => known(within(&XID_START, code), code, older),
    }
}

/// Whether the character may continue an identifier.
#[must_use]
pub fn is_xid_continue(symbol: char, version: Version) -> bool {
    if symbol.is_ascii() {
        return symbol == '_' || symbol.is_ascii_alphanumeric();
    }
    let code = u32::from(symbol);
    let joins = matches!(code, 0x200c | 0x200d | 0x30fb | 0xff65);
    is_xid_start(symbol, version)
        || version != Version::V15_1 && known(within(&XID_CONTINUE_ONLY, code), code, version)
        || version == Version::V15_1 && (joins || within(&XID_CONTINUE_ONLY, code))
}

/// Whether a code point (surrogates included) is written as it is; everything else is escaped.
#[must_use]
pub fn is_printable(code: u32, version: Version) -> bool {
    if code < 0x7f {
        return code >= 0x20;
    }
    known(within(&PRINTABLE, code), code, version)
}

/// Whether a character that some newer database names was already assigned.
#[must_use]
pub fn is_assigned(symbol: char, version: Version) -> bool {
    let code = u32::from(symbol);
    let newer = !within(&PRINTABLE, code) && !within(&UNPRINTABLE_ASSIGNED, code);
    match version {
        Version::V14 => !newer && !within(&NEW_IN_15_0, code),
        Version::V15 => !newer,
        Version::V15_1 => !newer || within(&NEW_IN_15_1, code),
    }
}

/// The value of a Unicode decimal digit (any script), or `None`.
#[must_use]
pub fn decimal_digit(symbol: char) -> Option<u32> {
    let code = u32::from(symbol);
    let index = ZEROS.partition_point(|zero| *zero <= code).checked_sub(1)?;
    let value = code - ZEROS[index];
    (value < 10).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_the_version() {
        assert!(is_xid_start('é', Version::V14) && is_xid_continue('\u{301}', Version::V14));
        assert!(!is_xid_start('\u{301}', Version::V15) && is_xid_continue('·', Version::V15));
        let kawi = '\u{11f04}';
        assert!(!is_xid_start(kawi, Version::V14) && is_xid_start(kawi, Version::V15));
        let ideograph = '\u{2ebf0}';
        assert!(!is_xid_start(ideograph, Version::V15) && is_xid_start(ideograph, Version::V15_1));
        assert!(is_printable(0x2ffc, Version::V15_1) && !is_printable(0x2ffc, Version::V15));
        assert!(!is_printable(0xd800, Version::V15) && !is_printable(0xa0, Version::V15));
        assert_eq!(decimal_digit('\u{1e4f9}'), Some(9));
        assert_eq!(decimal_digit('²'), None);
    }
}

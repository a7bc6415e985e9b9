//! Character classes as the deployed text rules see them: white space, decimal digits and simple case folding, with
//! tables of Unicode 14.0 (40-qualification §5.3).

/// Unicode `White_Space` plus U+001C..U+001F; U+180E is not white space.
#[must_use]
pub fn is_space(c: char) -> bool {
    matches!(c, '\u{1c}'..='\u{1f}') || c.is_whitespace()
}

/// The zero of every run of ten decimal digits (category Nd), Unicode 14.0.
const ZEROS: [u32; 66] = [
    0x30, 0x660, 0x6f0, 0x7c0, 0x966, 0x9e6, 0xa66, 0xae6, 0xb66, 0xbe6, 0xc66, 0xce6, 0xd66, 0xde6, 0xe50,
    0xed0, 0xf20, 0x1040, 0x1090, 0x17e0, 0x1810, 0x1946, 0x19d0, 0x1a80, 0x1a90, 0x1b50, 0x1bb0, 0x1c40,
    0x1c50, 0xa620, 0xa8d0, 0xa900, 0xa9d0, 0xa9f0, 0xaa50, 0xabf0, 0xff10, 0x104a0, 0x10d30, 0x11066,
    0x110f0, 0x11136, 0x111d0, 0x112f0, 0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950,
    0x11c50, 0x11d50, 0x11da0, 0x16a60, 0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6,
    0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0,
];

/// A decimal digit of any script as its ASCII digit.
#[must_use]
pub fn digit_value(c: char) -> Option<char> {
    let code = u32::from(c);
    let at = ZEROS.partition_point(|zero| *zero <= code).checked_sub(1)?;
    char::from_digit(code - ZEROS.get(at)?, 10)
}

/// Whether `c` matches the lower-case ASCII letter (or other ASCII character) `letter` without regard to case: by its
/// simple lower-case form, and `ſ` as `s`, `ı` as `i`.
#[must_use]
pub fn folds_to(c: char, letter: char) -> bool {
    match (c, letter) {
        // Simple mappings only: the full lower case of U+0130 is two characters.
        ('ſ', 's') | ('ı' | 'İ', 'i') => true,
        _ => c.to_ascii_lowercase() == letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_every_script() {
        assert_eq!(digit_value('7'), Some('7'));
        assert_eq!(digit_value('٤'), Some('4'));
        assert_eq!(digit_value('９'), Some('9'));
        assert_eq!(digit_value('\u{1d7ff}'), Some('9'));
        assert_eq!(digit_value('\u{1d800}'), None);
        assert_eq!(digit_value('²'), None);
        assert_eq!(digit_value('/'), None);
        assert_eq!(digit_value(':'), None);
        // Digits that later Unicode versions added are none here.
        assert_eq!(digit_value('\u{11f50}'), None);
    }

    #[test]
    fn spaces_and_folds() {
        assert!(is_space('\u{1c}') && is_space('\u{a0}') && is_space('\u{2003}'));
        assert!(!is_space('\u{180e}') && !is_space('\u{200b}'));
        assert!(folds_to('ſ', 's') && folds_to('S', 's') && folds_to('İ', 'i') && !folds_to('x', 's'));
    }
}

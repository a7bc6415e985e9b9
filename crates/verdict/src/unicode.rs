//! White space as the deployed text rules see it (40-qualification §5.3).

/// Unicode `White_Space` plus U+001C..U+001F; U+180E is not white space.
#[must_use]
pub fn is_space(c: char) -> bool {
    matches!(c, '\u{1c}'..='\u{1f}') || c.is_whitespace()
}

//! Notes: texts of a bounded length whose important part comes first.

/// The longest note that the API server takes, in bytes
/// (<https://github.com/kubernetes/kubernetes/blob/v1.33.0/pkg/apis/core/validation/events.go>, `noteLengthLimit`).
pub const MAX_NOTE: usize = 1024;
const MORE: &str = "...";

/// Cut to at most `max` bytes, on a character boundary, with dots in place of what is left out. Control characters become
/// spaces: labels and annotations are written by others, and notes are shown on terminals.
pub(super) fn cut(text: &str, max: usize) -> String {
    let clean = |t: &str| t.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
    // A control character may be longer than the space that it becomes, never shorter.
    if text.len() <= max {
        return clean(text);
    }
    let limit = max.saturating_sub(MORE.len());
    let end = (0..=limit).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    format!("{}{MORE}", clean(text.get(..end).unwrap_or_default()))
}

/// A note from its parts, the most important first, each with its own bound, so that a long one takes no room from the others.
pub(super) fn note<'a>(parts: impl IntoIterator<Item = (&'a str, usize)>) -> String {
    let mut note = String::new();
    for (part, max) in parts {
        if part.is_empty() {
            continue;
        }
        if !note.is_empty() {
            note.push(' ');
        }
        note.push_str(&cut(part, max));
    }
    cut(&note, MAX_NOTE)
}

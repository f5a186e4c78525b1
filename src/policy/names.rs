//! The syntax of the names of Kubernetes that stand in the configuration.
//!
//! Each check gives the reason why a text is no such name, so that the API server never refuses what was accepted here.

/// Why `text` is not a label value, which is also the syntax of a taint's value; `None` if it is one. It may be empty.
pub(super) fn flaw_in_value(text: &str) -> Option<String> {
    let length = text.chars().count();
    if length > 63 {
        return Some(format!("is {length} characters long; at most 63 are allowed"));
    }
    if let Some(c) = text.chars().find(|c| !is_word(*c)) {
        return Some(format!("contains {c:?}; only letters, digits, '-', '_' and '.' are allowed"));
    }
    (!text.is_empty() && !framed(text)).then(|| "must begin and end with a letter or digit".to_owned())
}

/// Why `text` is not a key of a label, annotation or taint: `name` or `prefix/name`.
pub(super) fn flaw_in_key(text: &str) -> Option<String> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if let Some(flaw) = prefix.and_then(flaw_in_domain) {
        return Some(format!("has a prefix (before '/') that {flaw}"));
    }
    if name.is_empty() {
        return Some("has no name; write name or prefix/name".to_owned());
    }
    flaw_in_value(name)
}

/// Why `text` is not a DNS subdomain (RFC 1123).
pub(super) fn flaw_in_domain(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty; write a DNS name such as example.com".to_owned());
    }
    if text.chars().count() > 253 {
        return Some("is longer than 253 characters".to_owned());
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if let Some(c) = text.chars().find(|c| !allowed(*c)) {
        return Some(format!("contains {c:?}; only lower-case letters, digits, '-' and '.' are allowed"));
    }
    (!text.split('.').all(framed))
        .then(|| "has a part between dots that does not begin and end with a letter or digit".to_owned())
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn framed(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::empty("", true)]
    #[case::plain("gpu-lost", true)]
    #[case::mixed("A.b_c-9", true)]
    #[case::longest(&"a".repeat(63), true)]
    #[case::too_long(&"a".repeat(64), false)]
    #[case::dash_first("-a", false)]
    #[case::dot_last("a.", false)]
    #[case::space("a b", false)]
    #[case::not_ascii("é", false)]
    fn a_label_value_is_what_kubernetes_accepts(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(flaw_in_value(text).is_none(), valid, "{:?}", flaw_in_value(text));
    }

    #[rstest]
    #[case::name("app", true)]
    #[case::prefixed("nvidia.com/gpu.present", true)]
    #[case::upper_case_name("example.com/MyName", true)]
    #[case::upper_case_prefix("Example.com/name", false)]
    #[case::empty("", false)]
    #[case::no_prefix("/name", false)]
    #[case::no_name("example.com/", false)]
    #[case::two_slashes("a/b/c", false)]
    #[case::long_prefix(&format!("{}/a", "a".repeat(254)), false)]
    #[case::empty_part("a..b/c", false)]
    fn a_key_is_what_kubernetes_accepts(#[case] text: &str, #[case] valid: bool) {
        assert_eq!(flaw_in_key(text).is_none(), valid, "{:?}", flaw_in_key(text));
    }
}

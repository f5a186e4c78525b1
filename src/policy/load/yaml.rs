//! From text to [`RawConfig`]: the shape of the file, before its meaning.

use serde_saphyr::{DuplicateKeyPolicy, Error, MessageFormatter, UserMessageFormatter};

use super::report::{Place, Problem};
use crate::policy::raw::RawConfig;

/// The largest file that is read, in bytes. Far more than any real configuration has, and quick to parse.
pub(super) const MAX_BYTES: usize = 1 << 20;

const EMPTY: &str = "the file holds no configuration; the smallest one is `release: {require: [resolved]}`";

/// Parse the file. There is one problem only, since nothing is known behind it.
pub(super) fn parse(text: &str) -> Result<RawConfig, Problem> {
    if text.len() > MAX_BYTES {
        let message = format!("the file is {} bytes long; a configuration has at most {MAX_BYTES} (1 MiB)", text.len());
        return Err(problem(Place::START, message));
    }
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Option<RawConfig>>(text, options) {
        Ok(Some(raw)) => Ok(raw),
        Ok(None) => Err(problem(Place::START, EMPTY.to_owned())),
        Err(error) => {
            let place = error.location().and_then(Place::at).unwrap_or(Place::START);
            Err(problem(place, message(&error)))
        }
    }
}

fn problem(Place { line, column }: Place, message: String) -> Problem {
    Problem { line, column, message }
}

/// The parser's message in the words of someone who writes a file, on one line.
fn message(error: &Error) -> String {
    match error.without_snippet() {
        Error::MultipleDocuments { .. } => {
            "a second YAML document begins here; keep one configuration in the file and remove the `---`".to_owned()
        }
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("unknown key `{field}`; the keys known here are {}", expected.join(", "))
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_ref().map_or_else(String::new, |k| format!(" `{k}`"));
            format!("the key{key} stands twice in this mapping; remove one")
        }
        Error::InvalidBooleanStrict { .. } => "expected true or false".to_owned(),
        Error::NullIntoString { .. } => "there is no value here; write one, or remove the line".to_owned(),
        Error::Unexpected { expected: "mapping start", .. } => {
            "expected a mapping here (lines of `key: value`, or {key: value})".to_owned()
        }
        Error::Unexpected { expected: "sequence start", .. } => {
            "expected a list here (lines of `- item`, or [item, item])".to_owned()
        }
        Error::Unexpected { expected: "string scalar" | "scalar", .. } => {
            "expected a single value here, not a list or a mapping".to_owned()
        }
        other => {
            let text = UserMessageFormatter.format_message(other);
            format!("not valid YAML: {}", text.split_whitespace().collect::<Vec<_>>().join(" "))
        }
    }
}

//! Alertmanager's matchers: `severity=~"critical|page"`.
//!
//! One matcher in the syntax of Alertmanager 0.27 and later, so that what is written in its routes and silences can be
//! written here as well. Where its classic and its UTF-8 parser disagree, the text is refused instead of guessed at.

use std::fmt;

use regex::{Regex, RegexBuilder};

use super::Labels;

mod parse;
#[cfg(test)]
mod tests;

/// The largest compiled regular expression, in bytes. Room for thousands of names in an alternation, but not for a
/// nested repetition that would take gigabytes.
const REGEX_SIZE_LIMIT: usize = 1 << 20;

/// A condition on one label of an alert.
#[derive(Debug, Clone)]
pub struct Matcher {
    name: String,
    op: Op,
    value: String,
    /// Compiled and anchored; only for [`Op::Regex`] and [`Op::NotRegex`].
    regex: Option<Regex>,
}

/// How a matcher compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `=`: the label has exactly this value.
    Equal,
    /// `!=`: it has another value, or none.
    NotEqual,
    /// `=~`: the regular expression matches the whole value.
    Regex,
    /// `!~`: it does not.
    NotRegex,
}

impl Op {
    /// The operator as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Regex => "=~",
            Self::NotRegex => "!~",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is not one matcher: where, why, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of the matcher: {message}")]
pub struct MatcherError {
    offset: usize,
    column: usize,
    message: String,
}

impl MatcherError {
    /// Where in the text it went wrong, in bytes from its start; at most the length of the text.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The same as a column: characters, counted from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.column
    }

    /// What is wrong and what to do, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl Matcher {
    /// Parse one matcher, such as `severity=~"critical|page"`.
    ///
    /// # Errors
    ///
    /// If the text holds no matcher or more than one, if its syntax is not Alertmanager's, or if its regular expression
    /// is invalid or too large.
    pub fn parse(text: &str) -> Result<Self, MatcherError> {
        let parsed = parse::matcher(text)?;
        let regex = match parsed.op {
            Op::Equal | Op::NotEqual => None,
            Op::Regex | Op::NotRegex => {
                Some(anchored(&parsed.value).map_err(|message| error_at(text, parsed.value_offset, message))?)
            }
        };
        Ok(Self { name: parsed.name, op: parsed.op, value: parsed.value, regex })
    }

    /// Whether the label meets the condition. An absent label counts as an empty one.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        let actual = labels.get(&self.name).unwrap_or_default();
        let found = self.regex.as_ref().map_or_else(|| actual == self.value, |regex| regex.is_match(actual));
        match self.op {
            Op::Equal | Op::Regex => found,
            Op::NotEqual | Op::NotRegex => !found,
        }
    }

    /// The name of the label.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the value is compared.
    #[must_use]
    pub fn op(&self) -> Op {
        self.op
    }

    /// The value or regular expression, unescaped and without the anchors.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

/// A compiled regular expression has no equality; its source is the value.
impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.op, &self.value) == (&other.name, other.op, &other.value)
    }
}

impl Eq for Matcher {}

/// The canonical form, which parses to the same matcher.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Alertmanager's classic parser does not know quoted names, so they are quoted only where they must be.
        if self.name.contains(parse::is_reserved) {
            write!(f, "{}", Quoted(&self.name))?;
        } else {
            f.write_str(&self.name)?;
        }
        write!(f, "{}{}", self.op, Quoted(&self.value))
    }
}

/// A string in double quotes with the three escapes that both of Alertmanager's parsers know.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

fn error_at(text: &str, offset: usize, message: impl Into<String>) -> MatcherError {
    let column = text.get(..offset).map_or(1, |before| before.chars().count() + 1);
    MatcherError { offset, column, message: message.into() }
}

/// Compile as Alertmanager does: the expression must match the whole value.
fn anchored(expression: &str) -> Result<Regex, String> {
    let compile = |source: &str| RegexBuilder::new(source).size_limit(REGEX_SIZE_LIMIT).build();
    // First alone: `a)|(b` is no expression, but would become one, and an unanchored one, between the anchors.
    compile(expression).and_then(|_| compile(&format!("^(?:{expression})$"))).map_err(|e| match e {
        regex::Error::CompiledTooBig(_) => "the regular expression is too large once compiled (over 1 MiB); \
             make its repetitions smaller or split the matcher over two policies"
            .to_owned(),
        e => {
            // The crate draws its own picture over several lines; the reason is on the last one.
            let text = e.to_string();
            let reason = text.lines().rev().find_map(|l| l.strip_prefix("error: ")).unwrap_or("it does not compile");
            format!("not a valid regular expression: {reason}; correct it, or use = to compare with a fixed text")
        }
    })
}

//! Kubernetes label selectors: `nvidia.com/gpu.present=true,tier in (train, infer),!spare`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::names::{flaw_in_key, flaw_in_value};

#[cfg(test)]
mod tests;

/// A condition on the labels of a Kubernetes object, in the syntax of `kubectl --selector`. It never is empty.
#[derive(Debug, Clone)]
pub struct Selector {
    text: String,
    requirements: Vec<Requirement>,
}

/// A text that is not a selector: where, why, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("column {column} of the selector: {message}")]
pub struct SelectorError {
    column: usize,
    message: String,
}

impl SelectorError {
    /// Where in the text it went wrong: characters, counted from 1.
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

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(BTreeSet<String>),
    /// Also met when the key is absent, as in Kubernetes.
    NotIn(BTreeSet<String>),
}

impl Selector {
    /// Parse a selector: requirements joined by commas, all of which must be met.
    ///
    /// # Errors
    ///
    /// If the text is empty, since that would match everything, or is not a selector that Kubernetes would accept. The
    /// numeric operators `<` and `>` are not supported.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut parser = Parser { text, offset: 0 };
        parser.skip_whitespace();
        if parser.peek().is_none() {
            let message =
                "an empty selector would match every node; write the label to select by, such as nvidia.com/gpu.present=true";
            return Err(parser.error(message));
        }
        let mut requirements = vec![parser.requirement()?];
        while parser.eat(",") {
            requirements.push(parser.requirement()?);
        }
        match parser.peek() {
            None => Ok(Self { text: text.to_owned(), requirements }),
            Some('<' | '>') => Err(parser.error("the operators < and > are not supported; list the values with in (...)")),
            Some(c) => Err(parser.error(format!("expected a comma or the end, found {c:?}; join requirements with commas"))),
        }
    }

    /// The keys that it looks at.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|r| r.key.as_str())
    }

    /// Labels that meet it; `None` if it contradicts itself.
    #[must_use]
    pub fn example(&self) -> Option<BTreeMap<String, String>> {
        let wanted = |r: &Requirement| match &r.test {
            Test::Exists => Some((r.key.clone(), String::new())),
            Test::In(set) => set.first().map(|value| (r.key.clone(), value.clone())),
            Test::Absent | Test::NotIn(_) => None,
        };
        Some(self.requirements.iter().filter_map(wanted).collect()).filter(|labels| self.matches(labels))
    }

    /// Whether an object with these labels meets every requirement.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|r| {
            let value = labels.get(&r.key);
            match &r.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(set) => value.is_some_and(|v| set.contains(v)),
                Test::NotIn(set) => value.is_none_or(|v| !set.contains(v)),
            }
        })
    }
}

/// By meaning: `a = b` is `a==b`.
impl PartialEq for Selector {
    fn eq(&self, other: &Self) -> bool {
        self.requirements == other.requirements
    }
}

impl Eq for Selector {}

/// As it was given.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Parser<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_whitespace(&mut self) {
        self.offset = self.text.len() - self.rest().trim_start_matches(is_whitespace).len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.skip_whitespace();
        let found = self.rest().starts_with(token);
        if found {
            self.offset += token.len();
        }
        found
    }

    /// Everything up to a character with a meaning of its own; perhaps empty.
    fn word(&mut self) -> &'a str {
        self.skip_whitespace();
        let rest = self.rest();
        let word = rest.find(|c| is_whitespace(c) || "=!,()<>".contains(c)).map_or(rest, |end| &rest[..end]);
        self.offset += word.len();
        word
    }

    fn error(&self, message: impl Into<String>) -> SelectorError {
        self.error_at(self.offset, message)
    }

    fn error_at(&self, offset: usize, message: impl Into<String>) -> SelectorError {
        let column = self.text.get(..offset).map_or(1, |before| before.chars().count() + 1);
        SelectorError { column, message: message.into() }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let absent = self.eat("!");
        let key = self.key()?;
        let test = if absent {
            Test::Absent
        } else if self.eat("!=") {
            Test::NotIn([self.value()?].into())
        } else if self.eat("==") || self.eat("=") {
            Test::In([self.value()?].into())
        } else {
            let start = self.offset;
            match self.word() {
                "" => Test::Exists,
                "in" => Test::In(self.values()?),
                "notin" => Test::NotIn(self.values()?),
                word => {
                    let message = format!("{word:?} is not an operator; use =, !=, in (...) or notin (...)");
                    return Err(self.error_at(start, message));
                }
            }
        };
        Ok(Requirement { key, test })
    }

    fn key(&mut self) -> Result<String, SelectorError> {
        self.skip_whitespace();
        let start = self.offset;
        let key = self.word();
        if key.is_empty() {
            return Err(self.error("expected a label key here; write one, or remove the comma before it"));
        }
        match flaw_in_key(key) {
            None => Ok(key.to_owned()),
            Some(flaw) => Err(self.error_at(start, format!("the label key {key:?} {flaw}"))),
        }
    }

    fn value(&mut self) -> Result<String, SelectorError> {
        self.skip_whitespace();
        let start = self.offset;
        let value = self.word();
        match flaw_in_value(value) {
            None => Ok(value.to_owned()),
            Some(flaw) => Err(self.error_at(start, format!("the label value {value:?} {flaw}"))),
        }
    }

    /// `(x, y)`; as in Kubernetes, nothing between two commas is the empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if !self.eat("(") {
            return Err(self.error("expected the values in parentheses after in or notin, such as (a, b)"));
        }
        self.skip_whitespace();
        if self.peek() == Some(')') {
            return Err(self.error("there is no value between the parentheses; write at least one"));
        }
        let mut values = BTreeSet::from([self.value()?]);
        while self.eat(",") {
            values.insert(self.value()?);
        }
        if self.eat(")") {
            Ok(values)
        } else {
            Err(self.error("expected a comma or ) after this value; separate values with commas and close the parenthesis"))
        }
    }
}

/// What Kubernetes' own lexer skips.
fn is_whitespace(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

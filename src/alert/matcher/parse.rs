//! The syntax of one matcher.

use super::{MatcherError, Op, error_at};

/// What was read; the regular expression is not yet compiled.
pub(super) struct Parsed {
    pub(super) name: String,
    pub(super) op: Op,
    pub(super) value: String,
    /// Where the value begins, in bytes.
    pub(super) value_offset: usize,
}

/// Characters that must stand in double quotes: `isReserved` of Alertmanager's `matcher/parse`.
pub(super) fn is_reserved(c: char) -> bool {
    c.is_whitespace() || "{}!=~,\\\"'`".contains(c)
}

/// Escapes that mean a control or other character to Alertmanager's UTF-8 parser, and themselves to its classic one.
const DISPUTED_ESCAPES: &str = "abfrtvxuU01234567";

pub(super) fn matcher(text: &str) -> Result<Parsed, MatcherError> {
    let mut scanner = Scanner { text, offset: 0 };
    let braced = scanner.eat("{");
    scanner.skip_whitespace();
    let start = scanner.offset;
    let name = match scanner.peek() {
        None | Some('}' | ',') => {
            return Err(scanner.error("no matcher here; write a label, an operator and a value, such as severity=\"page\""));
        }
        Some('"') => scanner.quoted(Part::Name)?,
        Some(c) if is_reserved(c) => {
            return Err(scanner.error(format!("a label name cannot begin with {c:?}; put the name in double quotes")));
        }
        Some(_) => scanner.unquoted(),
    };
    if name.is_empty() {
        return Err(error_at(text, start, "the label name is empty; write the name of a label, such as severity"));
    }
    let op = scanner.operator()?;
    scanner.skip_whitespace();
    let value_offset = scanner.offset;
    let value = match scanner.peek() {
        Some('"') => scanner.quoted(Part::Value)?,
        None | Some(',' | '}') => {
            return Err(scanner.error("no value after the operator; write \"\" for an empty or absent label"));
        }
        Some(c) if is_reserved(c) => {
            return Err(scanner.error(format!("a value cannot begin with {c:?}; put the whole value in double quotes")));
        }
        Some(_) => scanner.unquoted(),
    };
    scanner.end(braced)?;
    Ok(Parsed { name, op, value, value_offset })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Name,
    Value,
}

struct Scanner<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.offset += c.len_utf8();
        Some(c)
    }

    fn error(&self, message: impl Into<String>) -> MatcherError {
        error_at(self.text, self.offset, message)
    }

    fn skip_whitespace(&mut self) {
        self.offset = self.text.len() - self.rest().trim_start().len();
    }

    /// Whether `token` came next, after whitespace; if so, it is consumed.
    fn eat(&mut self, token: &str) -> bool {
        self.skip_whitespace();
        let found = self.rest().starts_with(token);
        if found {
            self.offset += token.len();
        }
        found
    }

    fn unquoted(&mut self) -> String {
        let rest = self.rest();
        let word = rest.find(is_reserved).map_or(rest, |end| &rest[..end]);
        self.offset += word.len();
        word.to_owned()
    }

    /// A string in double quotes. Line feeds may stand in it as they are, as in Alertmanager's classic parser.
    fn quoted(&mut self, part: Part) -> Result<String, MatcherError> {
        let start = self.offset;
        self.next();
        let mut value = String::new();
        loop {
            let at = self.offset;
            match self.next() {
                None => {
                    return Err(error_at(self.text, start, "this double quote is never closed; add one at the end"));
                }
                Some('"') => return Ok(value),
                Some('\\') => match self.next() {
                    Some('n') => value.push('\n'),
                    Some(c @ ('"' | '\\')) => value.push(c),
                    // A regular expression such as "10\.0\..*" is common in Alertmanager's files: its default mode
                    // falls back to the classic parser, which keeps the backslash.
                    Some(c) if part == Part::Value && !DISPUTED_ESCAPES.contains(c) => value.extend(['\\', c]),
                    Some(c) => {
                        let message = format!(
                            "the parsers of Alertmanager do not agree on \\{c}; write \\\\{c} for a backslash and {c:?}, \
                             or the character itself"
                        );
                        return Err(error_at(self.text, at, message));
                    }
                    None => {
                        return Err(error_at(self.text, at, "the text ends after a backslash; write \\\\ and close the quote"));
                    }
                },
                Some(c) => value.push(c),
            }
        }
    }

    fn operator(&mut self) -> Result<Op, MatcherError> {
        for op in [Op::Regex, Op::NotRegex, Op::NotEqual, Op::Equal] {
            if self.eat(op.as_str()) {
                return Ok(op);
            }
        }
        Err(self.error("expected one of =, !=, =~ or !~ after the label name; put names with other characters in double quotes"))
    }

    /// Nothing but one comma and, if one was opened, a closing brace may follow.
    fn end(&mut self, braced: bool) -> Result<(), MatcherError> {
        let comma = self.eat(",");
        if braced && !self.eat("}") {
            return Err(self.error(if comma {
                "more text after the matcher; write each matcher as an item of its own"
            } else {
                "expected } to close the brace at the start, after exactly one matcher"
            }));
        }
        self.skip_whitespace();
        match self.peek() {
            None => Ok(()),
            Some('}') if !braced => Err(self.error("this brace was never opened; remove it")),
            Some(_) if comma => Err(self.error("more text after the matcher; write each matcher as an item of its own")),
            Some(_) => Err(self.error("the value ends before this; put the whole value in double quotes")),
        }
    }
}

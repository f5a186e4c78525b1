//! Where in the file something is wrong, and how that is shown.

use std::{error::Error, fmt, ops::Range};

use serde_saphyr::{Location, Spanned};

/// How many problems are reported at most: a file that is wrong everywhere is better shown by its beginning.
pub(super) const MAX_PROBLEMS: usize = 50;

/// The widest part of a source line that is shown, in characters.
const SNIPPET_WIDTH: usize = 100;

/// One thing that is wrong with a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong and what to do; one line.
    pub message: String,
}

/// What is wrong with a configuration file: at least one problem and at most 50, in the order of the file.
///
/// It prints each as `FILE:LINE:COLUMN: message` with the source line and a caret below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    problems: Vec<Problem>,
    /// One per problem.
    snippets: Vec<String>,
}

impl ConfigError {
    pub(super) fn new(source: &Source<'_>, mut problems: Vec<Problem>) -> Self {
        for problem in &mut problems {
            // Texts of the file are quoted in messages; a line feed among them would break the report.
            problem.message = problem.message.replace(char::is_control, " ");
        }
        problems.sort();
        // The same flaw of an anchored value is found again at each of its aliases.
        problems.dedup();
        let snippets = problems.iter().map(|p| source.snippet(p)).collect();
        Self { file: source.file.to_owned(), problems, snippets }
    }

    /// What is wrong, in the order of the file; never empty.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The name of the file, as it was given.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (problem, snippet)) in self.problems.iter().zip(&self.snippets).enumerate() {
            let gap = if i == 0 { "" } else { "\n" };
            write!(f, "{gap}{}:{}:{}: {}\n{snippet}", self.file, problem.line, problem.column, problem.message)?;
        }
        Ok(())
    }
}

impl Error for ConfigError {}

/// A place in the file; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Place {
    /// For what has no place of its own, such as something that is missing.
    pub(super) const START: Self = Self { line: 1, column: 1 };

    /// Where a value is written: for an alias, where its anchor is.
    pub(super) fn of<T>(value: &Spanned<T>) -> Self {
        Self::at(value.defined).or_else(|| Self::at(value.referenced)).unwrap_or(Self::START)
    }

    /// `None` if the parser did not know.
    pub(super) fn at(location: Location) -> Option<Self> {
        let place = Self { line: usize::try_from(location.line()).ok()?, column: usize::try_from(location.column()).ok()? };
        (place.line > 0 && place.column > 0).then_some(place)
    }
}

/// A configuration file and the name that is shown for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text }
    }

    /// The lines without their ends. YAML ends lines with CR LF, LF, and CR alone.
    fn lines(&self) -> impl Iterator<Item = &'a str> {
        let mut rest = Some(self.text);
        std::iter::from_fn(move || {
            let text = rest?;
            // One character at a time is found by far the quickest, and a line may be as long as the file.
            let feed = text.find('\n');
            let end = text.get(..feed.unwrap_or(text.len()))?.find('\r').or(feed);
            rest = end.and_then(|end| text.get(end..)).map(after_break);
            text.get(..end.unwrap_or(text.len()))
        })
    }

    fn line(&self, number: usize) -> &'a str {
        self.lines().nth(number - 1).unwrap_or_default()
    }

    /// The place of a character inside a value, where that can be seen: if the value stands on one line as it is, perhaps
    /// quoted. Else the place of the value.
    pub(super) fn inside(&self, place: Place, value: &str, column: usize) -> Place {
        let line = self.line(place.line);
        let Some((start, first)) = line.char_indices().nth(place.column - 1) else { return place };
        let quote = usize::from(matches!(first, '"' | '\''));
        let verbatim = line.get(start + quote..).is_some_and(|text| text.starts_with(value));
        if verbatim { Place { column: place.column + quote + column - 1, ..place } } else { place }
    }

    /// Whether a line may hold a secret: it has the key `http`, or follows it in the same top-level section, or has a URL with
    /// user info. Told from the text alone, since a file that cannot be parsed must not show its secrets either, and rather too often than too seldom.
    fn hides(&self, number: usize) -> bool {
        let flow = self.text.trim_start().starts_with('{');
        let mut hides = false;
        for line in self.lines().take(number) {
            // Not any text at the margin: a secret can go on there, in a file that is wrong for it.
            let top = line.split_once(':').is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'));
            hides = (hides && (flow || !top)) || has_http_key(line);
        }
        hides || self.line(number).split("://").skip(1).any(|rest| rest.contains('@'))
    }

    fn snippet(&self, problem: &Problem) -> String {
        if self.hides(problem.line) {
            let (number, margin) = (problem.line, " ".repeat(problem.line.to_string().len()));
            return format!(" {margin} |\n {number} | (not shown, since it may hold a secret)\n {margin} | ^");
        }
        let chars: Vec<char> = self.line(problem.line).chars().collect();
        // A place behind the end is shown just behind it.
        let caret = (problem.column - 1).min(chars.len());
        let shown = window(chars.len(), caret);
        let (cut_left, cut_right) = (shown.start > 0, shown.end < chars.len());
        let mut line = String::from(if cut_left { "…" } else { "" });
        let mut padding = usize::from(cut_left);
        for (i, c) in shown.clone().zip(chars.get(shown).unwrap_or_default()) {
            line.push(if c.is_control() { ' ' } else { *c });
            padding += if i < caret { width(*c) } else { 0 };
        }
        line.push_str(if cut_right { "…" } else { "" });
        let (number, margin) = (problem.line, " ".repeat(problem.line.to_string().len()));
        let line = line.trim_end();
        let space = if line.is_empty() { "" } else { " " };
        format!(" {margin} |\n {number} |{space}{line}\n {margin} | {}^", " ".repeat(padding))
    }
}

/// Whether a line has the key `http`, quoted or not. The scheme of a URL is none.
fn has_http_key(line: &str) -> bool {
    line.match_indices("http").any(|(at, key)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + key.len()..).unwrap_or_default().trim_start_matches(['"', '\'', ' ']);
        after.starts_with(':') && !after.starts_with("://") && before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    })
}

fn after_break(text: &str) -> &str {
    text.strip_prefix("\r\n").or_else(|| text.get(1..)).unwrap_or_default()
}

/// Which characters of a line are shown, so that the caret is among them.
fn window(length: usize, caret: usize) -> Range<usize> {
    let start = if length <= SNIPPET_WIDTH { 0 } else { caret.saturating_sub(SNIPPET_WIDTH / 2).min(length - SNIPPET_WIDTH) };
    start..length.min(start + SNIPPET_WIDTH)
}

/// How many cells a terminal uses for a character; near enough to put a caret under it.
fn width(c: char) -> usize {
    match u32::from(c) {
        // Combining marks, zero-width characters and variation selectors.
        0x0300..=0x036F | 0x200B..=0x200F | 0xFE00..=0xFE0F => 0,
        // East Asian scripts, full-width forms and pictographs.
        0x1100..=0x115F
        | 0x2E80..=0xA4CF
        | 0xAC00..=0xD7A3
        | 0xF900..=0xFAFF
        | 0xFE30..=0xFE6F
        | 0xFF00..=0xFF60
        | 0xFFE0..=0xFFE6
        | 0x1F300..=0x1F64F
        | 0x1F680..=0x1F6FF
        | 0x1F900..=0x1F9FF
        | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

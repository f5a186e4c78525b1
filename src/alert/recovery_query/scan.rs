//! A look at PromQL before it is parsed: what would be too much for the parser, and what it does not know.
//!
//! Brackets are counted rather than matched, and words not understood: a text that is no PromQL is the parser's to refuse.

/// Durations in seconds beyond this (317 years) make the parser panic, as of promql-parser 0.11.1: `up[1e30]`, `up offset Inf`.
const LONGEST: f64 = 1e10;

/// What was seen.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// The same for the parser: raw strings that hold a backslash are written in double quotes, since it wrongly takes their
    /// backslashes for escapes.
    pub(super) text: String,
    /// How deep the tree can be at most: brackets within brackets, and a level for each operator, since `1 + 1 + 1` is
    /// `(1 + 1) + 1`.
    pub(super) depth: usize,
    /// Whether it has a duration that is none.
    pub(super) too_long: bool,
    /// Whether a name with a colon stands there; one in a label value or in `[1h:1m]` is none.
    pub(super) recorded: bool,
}

pub(super) fn scan(text: &str) -> Scan {
    let mut scanner = Scanner { rest: text, seen: Scan::default(), open: Vec::new(), deepest: 0, operators: 0, offset: false };
    while let Some(c) = scanner.rest.chars().next() {
        scanner.token(c);
    }
    scanner.seen.depth = scanner.deepest + scanner.operators;
    scanner.seen
}

struct Scanner<'a> {
    rest: &'a str,
    seen: Scan,
    /// The brackets that are open.
    open: Vec<char>,
    deepest: usize,
    operators: usize,
    /// A duration follows.
    offset: bool,
}

impl<'a> Scanner<'a> {
    /// Take as much, as it is.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.seen.text.push_str(taken);
        self.rest = rest;
        taken
    }

    fn token(&mut self, first: char) {
        let mut stays = false;
        match first {
            '#' => {
                self.take(self.rest.find(['\n', '\r']).unwrap_or(self.rest.len()));
                stays = true;
            }
            '"' | '\'' => self.quoted(first),
            '`' => self.raw(),
            '(' | '{' | '[' => {
                self.open.push(first);
                self.deepest = self.deepest.max(self.open.len());
                self.take(1);
            }
            ')' | '}' | ']' => {
                self.open.pop();
                self.take(1);
            }
            c if c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.') => {
                self.word();
                return;
            }
            '+' | '-' | '*' | '/' | '%' | '^' | '=' | '!' | '<' | '>' => {
                let operator = self.rest.find(|c| c != first && c != '=').unwrap_or(self.rest.len());
                // Two signs are two operators, `==` is one.
                self.take(if matches!(first, '=' | '!' | '<' | '>') { operator.min(2) } else { 1 });
                self.operators += usize::from(self.open.last() != Some(&'{'));
                stays = matches!(first, '+' | '-');
            }
            c => {
                self.take(c.len_utf8());
                stays = c.is_whitespace();
            }
        }
        self.offset &= stays;
    }

    fn quoted(&mut self, quote: char) {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, c)| {
            let ends = *c == quote && !escaped;
            escaped = *c == '\\' && !escaped;
            ends
        });
        self.take(end.map_or(self.rest.len(), |(at, _)| at + 1));
    }

    fn raw(&mut self) {
        let inner = self.rest.get(1..).and_then(|rest| rest.split_once('`')).map(|(inner, _)| inner);
        match inner {
            Some(inner) if inner.contains('\\') => {
                self.seen.text.push('"');
                for c in inner.chars() {
                    match c {
                        '\\' | '"' => self.seen.text.extend(['\\', c]),
                        '\n' => self.seen.text.push_str("\\n"),
                        c => self.seen.text.push(c),
                    }
                }
                self.seen.text.push('"');
                self.rest = self.rest.get(inner.len() + 2..).unwrap_or_default();
            }
            Some(inner) => drop(self.take(inner.len() + 2)),
            None => drop(self.take(self.rest.len())),
        }
    }

    /// A name, a number or a duration.
    fn word(&mut self) {
        let number = self.rest.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let decimal = number && !self.rest.starts_with("0x") && !self.rest.starts_with("0X");
        let mut before = ' ';
        let end = self.rest.find(|c: char| {
            let goes_on = c.is_ascii_alphanumeric()
                || matches!(c, '_' | ':' | '.')
                || (decimal && matches!(c, '+' | '-') && matches!(before, 'e' | 'E'));
            before = c;
            !goes_on
        });
        let word = self.take(end.unwrap_or(self.rest.len()));
        let in_brackets = self.open.last() == Some(&'[');
        self.seen.recorded |= !in_brackets && word.contains(':');
        if in_brackets || self.offset {
            for part in word.split(':') {
                self.seen.too_long |= part.parse::<f64>().is_ok_and(|seconds| !seconds.is_finite() || seconds > LONGEST);
            }
        }
        self.offset = word.eq_ignore_ascii_case("offset");
        let operator = ["and", "or", "unless", "atan2"].iter().any(|keyword| word.eq_ignore_ascii_case(keyword));
        self.operators += usize::from(operator && self.open.last() != Some(&'{'));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::series("up", 0)]
    #[case::one_operator("up == 1", 1)]
    #[case::without_blanks("up>=1", 1)]
    #[case::not_equal("up != 1", 1)]
    #[case::a_chain("a + b + c", 2)]
    #[case::signs("--+a", 3)]
    #[case::a_power_of_a_sign("a^-1", 2)]
    #[case::brackets("sum(rate((a)[5m:1m]))", 3)]
    #[case::brackets_side_by_side("(a) and (b)", 2)]
    #[case::matchers(r#"a{b!="c",d=~"e",f!~"g"}"#, 1)]
    #[case::a_list_of_matchers(r#"{a="b" or c="d"}"#, 1)]
    #[case::words("a and b OR c unless d atan2 e", 4)]
    #[case::words_within_words("band + for_or{and=\"1\"}", 2)]
    #[case::text("a{b=\"((--\\\"((\"}", 1)]
    #[case::single_quotes("a{b='((--\"(('}", 1)]
    #[case::raw("a{b=`((--\\`}", 1)]
    #[case::comment("a # ((((----\n+ b", 1)]
    #[case::exponents("a > 1e-3 * .5E+2", 2)]
    #[case::hexadecimal("a > 0x1e-3", 2)]
    #[case::metric_with_a_colon("node:gpus:count{node=\"a-b-c\"} >= 8", 2)]
    fn what_the_parser_builds_a_level_of_is_counted(#[case] text: &str, #[case] depth: usize) {
        let seen = scan(text);
        assert_eq!((seen.depth, seen.too_long), (depth, false));
    }

    #[rstest]
    #[case::backslash(r#"a{b=~`\d+"x`}"#, r#"a{b=~"\\d+\"x"}"#)]
    #[case::without_one(r#"a{b=~`.+"x`}"#, r#"a{b=~`.+"x`}"#)]
    #[case::within_another("a{b=\"`\\\\d`\"} #`\\d`", "a{b=\"`\\\\d`\"} #`\\d`")]
    #[case::unfinished("a{b=~`\\d", "a{b=~`\\d")]
    #[case::all_else("a é\u{7f} \"é", "a é\u{7f} \"é")]
    fn raw_strings_with_a_backslash_are_written_otherwise(#[case] text: &str, #[case] want: &str) {
        assert_eq!(scan(text).text, want);
    }

    #[rstest]
    #[case("up[1e30]")]
    #[case("up[5m:1e30]")]
    #[case("up[1e30:5m]")]
    #[case("up[ 99999999999999999999 ]")]
    #[case("up offset 1e30")]
    #[case("up OFFSET - 1e+30")]
    #[case("up offset # x\n inf")]
    #[case("up offset NaN")]
    #[case("up offset .1e400")]
    fn a_duration_that_is_none_is_seen(#[case] text: &str) {
        assert!(scan(text).too_long, "{text}");
    }

    #[rstest]
    #[case("up[5m]")]
    #[case("up[300]")]
    #[case("up[1h:30s] offset 5m > 1e30")]
    #[case("up offset -1d == Inf")]
    #[case("up{a=\"[1e30]\"}")]
    fn other_numbers_may_be_of_any_size(#[case] text: &str) {
        assert!(!scan(text).too_long, "{text}");
    }
}

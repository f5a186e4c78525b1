//! The PromQL of the rules, read into a tree: no more of the language than they use, and a panic at anything else. It judges
//! nothing. Unknown are `@`, `without` and `ignoring`.

use std::sync::LazyLock;

use regex::Regex;

/// A piece of an expression. Ranges, offsets, `bool` and parentheses are read and left out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Number(f64),
    Text(String),
    /// The name is empty where only matchers say it.
    Series {
        name: String,
        matchers: Vec<Matcher>,
    },
    Call {
        function: String,
        args: Vec<Expr>,
    },
    Aggregate {
        operator: String,
        by: Vec<String>,
        args: Vec<Expr>,
    },
    Binary {
        operator: String,
        on: Option<Vec<String>>,
        /// The side that keeps its labels, and what it takes from the other: `group_left` is 0, `group_right` 1.
        group: Option<(usize, Vec<String>)>,
        sides: Vec<Expr>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    pub(crate) operator: String,
    pub(crate) value: String,
}

impl Expr {
    /// This and all below it.
    pub(crate) fn all(&self) -> Vec<&Self> {
        self.walk(|_| true)
    }

    /// As [`Expr::all`] without what is only asked to be absent.
    pub(crate) fn read(&self) -> Vec<&Self> {
        self.walk(|e| !e.is_call("absent"))
    }

    fn walk(&self, enter: impl Fn(&Self) -> bool) -> Vec<&Self> {
        let (mut found, mut next) = (vec![self], 0);
        while let Some(&piece) = found.get(next) {
            if enter(piece) {
                found.extend(piece.parts());
            }
            next += 1;
        }
        found
    }

    pub(crate) fn parts(&self) -> &[Self] {
        match self {
            Self::Call { args, .. } | Self::Aggregate { args, .. } => args,
            Self::Binary { sides, .. } => sides,
            Self::Number(_) | Self::Text(_) | Self::Series { .. } => &[],
        }
    }

    pub(crate) fn is_call(&self, name: &str) -> bool {
        matches!(self, Self::Call { function, .. } if function == name)
    }

    /// The metrics that a series may be; none for anything else.
    pub(crate) fn metrics(&self) -> Vec<String> {
        let Self::Series { name, matchers } = self else { return Vec::new() };
        if !name.is_empty() {
            return vec![name.clone()];
        }
        let named = matchers.iter().find(|m| m.label == "__name__" && ["=", "=~"].contains(&m.operator.as_str()));
        alternatives(&named.unwrap_or_else(|| panic!("{matchers:?} may be any metric: name it")).value)
    }

    /// The value that a label of a series must have.
    pub(crate) fn equals(&self, label: &str) -> Option<&str> {
        let Self::Series { matchers, .. } = self else { return None };
        matchers.iter().find(|m| m.label == label && m.operator == "=").map(|m| m.value.as_str())
    }
}

/// The texts that a regular expression of plain alternatives matches, `a|b(c|)d`.
fn alternatives(pattern: &str) -> Vec<String> {
    let mut depth = 0;
    let top = pattern.split(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == '|' && depth == 0
    });
    let expand = |text: &str| match text.split_once('(') {
        None => {
            assert!(text.chars().all(|c| c.is_alphanumeric() || "_:".contains(c)), "{pattern}: write plain alternatives");
            vec![text.to_owned()]
        }
        Some((before, rest)) => {
            let (inside, after) = rest.split_once(')').unwrap();
            inside.split('|').flat_map(|i| alternatives(&format!("{before}{i}{after}"))).collect()
        }
    };
    top.flat_map(expand).collect()
}

/// Read an expression.
pub(crate) fn parse(text: &str) -> Expr {
    let mut reader = Reader { text, tokens: tokens(text), at: 0 };
    let expr = reader.binary(0);
    assert!(reader.peek().is_none(), "{}", reader.wrong("an operator"));
    expr
}

fn tokens(text: &str) -> Vec<&str> {
    // Spaces and comments, strings, ranges, numbers and durations, names, operators.
    const TOKEN: &str =
        r#"\s+|#[^\n]*|"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[0-9][0-9a-z.]*|[A-Za-z_:][A-Za-z0-9_:]*|[=!]~|[=!<>]=|[-+*/%^<>=(){},]"#;
    static TOKENS: LazyLock<Regex> = LazyLock::new(|| Regex::new(TOKEN).unwrap());
    let found: Vec<_> = TOKENS.find_iter(text).collect();
    assert_eq!(found.iter().map(regex::Match::len).sum::<usize>(), text.len(), "a character that is not known here: {text}");
    found.iter().map(regex::Match::as_str).filter(|t| !t.starts_with(|c: char| c.is_whitespace() || c == '#')).collect()
}

fn precedence(operator: &str) -> Option<u8> {
    Some(match operator {
        "or" => 1,
        "and" | "unless" => 2,
        "==" | "!=" | "<" | ">" | "<=" | ">=" => 3,
        "+" | "-" => 4,
        "*" | "/" | "%" => 5,
        "^" => 6,
        _ => return None,
    })
}

/// Whether `or` stands beside `and` or `unless` within the same parentheses: these bind tighter than it, which is easily overlooked.
pub(crate) fn mixes_or_with_and(text: &str) -> bool {
    let mut open = vec![(false, false)];
    for token in tokens(text) {
        match token {
            "(" => open.push((false, false)),
            ")" => drop(open.pop()),
            "," => *open.last_mut().unwrap() = (false, false),
            "or" => open.last_mut().unwrap().0 = true,
            "and" | "unless" => open.last_mut().unwrap().1 = true,
            _ => {}
        }
        if open.last() == Some(&(true, true)) {
            return true;
        }
    }
    false
}

/// Whether such an operator compares.
pub(crate) fn compares(operator: &str) -> bool {
    precedence(operator) == Some(3)
}

const AGGREGATES: [&str; 9] = ["sum", "min", "max", "avg", "count", "group", "topk", "bottomk", "count_values"];

struct Reader<'a> {
    text: &'a str,
    tokens: Vec<&'a str>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> &'a str {
        let token = self.peek().unwrap_or_else(|| panic!("{}", self.wrong("more")));
        self.at += 1;
        token
    }

    fn skip(&mut self, token: &str) -> bool {
        let there = self.peek() == Some(token);
        self.at += usize::from(there);
        there
    }

    fn expect(&mut self, token: &str) {
        assert!(self.skip(token), "{}", self.wrong(token));
    }

    fn wrong(&self, wanted: &str) -> String {
        let rest = self.tokens[self.at.min(self.tokens.len())..].join(" ");
        format!("tests/rule_pack/promql.rs expects {wanted} at {rest:?}: write it more plainly or teach it: {}", self.text)
    }

    fn binary(&mut self, least: u8) -> Expr {
        let mut left = self.primary();
        while let Some(level) = self.peek().and_then(precedence).filter(|level| *level > least) {
            let operator = self.next().to_owned();
            self.skip("bool");
            let on = self.skip("on").then(|| self.names());
            let side = ["group_left", "group_right"].iter().position(|word| self.skip(word));
            let group = side.map(|side| (side, if self.peek() == Some("(") { self.names() } else { Vec::new() }));
            let right = self.binary(level);
            left = Expr::Binary { operator, on, group, sides: vec![left, right] };
        }
        left
    }

    fn primary(&mut self) -> Expr {
        let token = self.next();
        let expr = match token.chars().next() {
            Some('(') => {
                let inner = self.binary(0);
                self.expect(")");
                inner
            }
            Some('-' | '+') => self.primary(),
            Some('"') => Expr::Text(token.trim_matches('"').to_owned()),
            Some('0'..='9') => Expr::Number(token.parse().unwrap_or_else(|_| panic!("{}", self.wrong("a number")))),
            Some('{') => Expr::Series { name: String::new(), matchers: self.matchers() },
            Some('a'..='z' | 'A'..='Z' | '_' | ':') => self.named(token),
            _ => panic!("{}", self.wrong("a value")),
        };
        while self.peek().is_some_and(|t| t.starts_with('[')) || self.skip("offset") {
            self.next();
        }
        expr
    }

    fn named(&mut self, name: &str) -> Expr {
        if AGGREGATES.contains(&name) {
            let before = self.skip("by").then(|| self.names());
            let args = self.args();
            let by = before.or_else(|| self.skip("by").then(|| self.names())).unwrap_or_default();
            return Expr::Aggregate { operator: name.to_owned(), by, args };
        }
        if self.peek() == Some("(") {
            return Expr::Call { function: name.to_owned(), args: self.args() };
        }
        let matchers = if self.skip("{") { self.matchers() } else { Vec::new() };
        Expr::Series { name: name.to_owned(), matchers }
    }

    fn args(&mut self) -> Vec<Expr> {
        self.expect("(");
        let mut args = Vec::new();
        while !self.skip(")") {
            args.push(self.binary(0));
            self.skip(",");
        }
        args
    }

    fn names(&mut self) -> Vec<String> {
        self.expect("(");
        let mut names = Vec::new();
        while !self.skip(")") {
            names.push(self.next().to_owned());
            self.skip(",");
        }
        names
    }

    fn matchers(&mut self) -> Vec<Matcher> {
        let mut matchers = Vec::new();
        while !self.skip("}") {
            let [label, operator, value] = [self.next(), self.next(), self.next()];
            matchers.push(Matcher {
                label: label.to_owned(),
                operator: operator.to_owned(),
                value: value.trim_matches('"').to_owned(),
            });
            self.skip(",");
        }
        matchers
    }
}

#[test]
fn an_expression_is_read_as_prometheus_reads_it() {
    let shape = |text: &str| match parse(text) {
        Expr::Binary { operator, sides, .. } => match &sides[0] {
            Expr::Binary { operator: inner, .. } => format!("({inner}) {operator}"),
            _ => operator,
        },
        other => panic!("{other:?}"),
    };
    assert_eq!(shape("a and b or c"), "(and) or");
    assert_eq!(shape("a or b and c"), "or");
    assert_eq!(shape("a unless b and c > 1"), "(unless) and");
    assert_eq!(shape("a / 2 > on () group_left () max(b)"), "(/) >");
    assert_eq!(parse("sum by (x) (a[5m] offset 1h)"), parse("sum(a) by (x)"));
    assert!(mixes_or_with_and("a or b unless on (x) c") && mixes_or_with_and("f(a and (b) or c)"));
    assert!(!mixes_or_with_and("(a or b) and (c or d)"));
    assert_eq!(parse("{__name__=~\"A_(B|C_|)D|e\"} # why").metrics(), ["A_BD", "A_C_D", "A_D", "e"]);
}

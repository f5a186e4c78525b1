//! The rules, read once, and what follows from an expression and the records that it stands on.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
    sync::LazyLock,
};

use regex::Regex;
use serde::Deserialize;

use crate::promql::{self, Expr};

/// How the generated files are written anew.
pub(crate) const BLESS: &str = "GPU_QUARANTINE_BLESS=1 cargo test --test rule_pack";
/// In a set of labels: whatever the scraped series has.
const ANY: &str = "*";

/// One file of `alert-rules/`.
pub(crate) struct RuleFile {
    /// Without `.yaml`.
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) groups: Vec<Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) interval: String,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
    pub(crate) r#for: Option<String>,
    pub(crate) keep_firing_for: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

/// A rule with its name and what its expression says.
pub(crate) struct Named {
    /// Of the file, without `.yaml`.
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) rule: Rule,
    pub(crate) expr: Expr,
    /// The annotation `recovery_query`.
    pub(crate) recovery_query: Option<Expr>,
}

impl Named {
    fn new(file: &str, name: &str, rule: &Rule) -> Self {
        let recovery_query = rule.annotations.get("recovery_query").map(|q| promql::parse(&without_templates(q)));
        let (file, name, rule) = (file.to_owned(), name.to_owned(), rule.clone());
        Self { file, name, expr: promql::parse(&rule.expr), rule, recovery_query }
    }

    pub(crate) fn label(&self, name: &str) -> &str {
        self.rule.labels.get(name).map_or("", String::as_str)
    }

    /// What it says of itself, for a message.
    pub(crate) fn place(&self) -> String {
        format!("alert-rules/{}.yaml: {}", self.file, self.name)
    }

    /// The expressions of the rule.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        [&self.expr].into_iter().chain(&self.recovery_query)
    }
}

pub(crate) struct Pack {
    /// In the order of their names.
    pub(crate) files: Vec<RuleFile>,
    pub(crate) alerts: Vec<Named>,
    pub(crate) records: Vec<Named>,
}

impl Pack {
    /// Alerts and records.
    pub(crate) fn rules(&self) -> impl Iterator<Item = &Named> {
        self.alerts.iter().chain(&self.records)
    }

    pub(crate) fn alert(&self, name: &str) -> &Named {
        self.alerts.iter().find(|a| a.name == name).unwrap_or_else(|| panic!("no rule file has the alert {name}"))
    }

    fn recorded<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Named> {
        self.records.iter().filter(move |r| r.name == name)
    }

    /// The labels of what an expression returns, so far as they can be told without data: those that it may have at most. A
    /// series that nothing here records has any.
    pub(crate) fn labels(&self, expr: &Expr) -> BTreeSet<String> {
        let below = |exprs: &[Expr]| exprs.iter().flat_map(|e| self.labels(e)).collect::<BTreeSet<_>>();
        match expr {
            Expr::Number(_) | Expr::Text(_) => BTreeSet::new(),
            Expr::Series { name, .. } => {
                let of = |r: &Named| self.labels(&r.expr).into_iter().chain(r.rule.labels.keys().cloned()).collect::<Vec<_>>();
                let mut records = self.recorded(name).peekable();
                if records.peek().is_some() { records.flat_map(of).collect() } else { [ANY.to_owned()].into() }
            }
            Expr::Call { function, args } => match (function.as_str(), args.as_slice()) {
                ("absent", [Expr::Series { matchers, .. }]) => {
                    matchers.iter().filter(|m| m.operator == "=").map(|m| m.label.clone()).collect()
                }
                ("label_replace" | "label_join", [of, Expr::Text(label), ..]) => {
                    self.labels(of).into_iter().chain([label.clone()]).collect()
                }
                _ => below(args),
            },
            Expr::Aggregate { by, args, .. } => {
                let value = args.iter().filter_map(|a| if let Expr::Text(label) = a { Some(label) } else { None });
                by.iter().chain(value).cloned().collect()
            }
            Expr::Binary { operator, on, group, sides } => match (operator.as_str(), on, group) {
                ("and" | "unless", _, _) => self.labels(&sides[0]),
                (_, _, Some((side, more))) => self.labels(&sides[*side]).into_iter().chain(more.iter().cloned()).collect(),
                (_, Some(on), None) => on.iter().cloned().collect(),
                // Both sides of arithmetic have the same; a number has none.
                _ => below(sides),
            },
        }
    }

    /// The pieces of an expression and of all records that it stands on.
    pub(crate) fn reads<'a>(&'a self, expr: &'a Expr) -> Vec<&'a Expr> {
        let (mut found, mut seen, mut next) = (expr.read(), BTreeSet::new(), 0);
        while let Some(&piece) = found.get(next) {
            if let Expr::Series { name, .. } = piece
                && seen.insert(name)
            {
                found.extend(self.recorded(name).flat_map(|r| r.expr.read()));
            }
            next += 1;
        }
        found
    }
}

/// A query as Prometheus renders it, so far as its shape goes: a text for each value, nothing for the rest.
fn without_templates(query: &str) -> String {
    static TEMPLATE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{\{(.*?)\}\}").unwrap());
    let shown = |found: &regex::Captures<'_>| match found[1].trim() {
        "$value" => "1",
        text if text.starts_with("printf ") => "\"x\"",
        _ => "",
    };
    TEMPLATE.replace_all(query, shown).into_owned()
}

/// The rules of `alert-rules/`.
pub(crate) fn pack() -> &'static Pack {
    static PACK: LazyLock<Pack> = LazyLock::new(load);
    &PACK
}

fn load() -> Pack {
    let mut pack = Pack { files: Vec::new(), alerts: Vec::new(), records: Vec::new() };
    for path in files_in("alert-rules", "yaml") {
        let text = read(&path);
        let Groups { groups } = serde_saphyr::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
        let name = Path::new(&path).file_stem().unwrap().to_str().unwrap().to_owned();
        for rule in groups.iter().flat_map(|g| &g.rules) {
            match (&rule.alert, &rule.record) {
                (Some(alert), None) => pack.alerts.push(Named::new(&name, alert, rule)),
                (None, Some(record)) => pack.records.push(Named::new(&name, record, rule)),
                _ => panic!("{path}: a rule is either an alert or a record: {}", rule.expr),
            }
        }
        pack.files.push(RuleFile { name, text, groups });
    }
    pack
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the repository.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The files of a directory of the repository, not of those in it, that end so; in the order of their names.
pub(crate) fn files_in(directory: &str, extension: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(directory)).unwrap_or_else(|e| panic!("{directory}: {e}"));
    let files = entries.map(|e| e.unwrap().path()).filter(|p| p.is_file() && p.extension().is_some_and(|e| e == extension));
    let mut paths: Vec<_> = files.map(|p| format!("{directory}/{}", p.file_name().unwrap().to_str().unwrap())).collect();
    paths.sort();
    paths
}

/// Compare a generated file with what it should be; with `GPU_QUARANTINE_BLESS=1`, write it.
pub(crate) fn check_generated(path: &str, wanted: &str) {
    if env::var_os("GPU_QUARANTINE_BLESS").is_some() {
        fs::write(root().join(path), wanted).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    let there = fs::read_to_string(root().join(path)).unwrap_or_default();
    let line = there.lines().zip(wanted.lines()).take_while(|(a, b)| a == b).count() + 1;
    assert!(there == wanted, "{path} is not what alert-rules/ says, from line {line} on: run `{BLESS}`");
}

/// Fail with all problems at once.
pub(crate) fn no_problem(problems: impl IntoIterator<Item = String>) {
    let problems: Vec<_> = problems.into_iter().collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

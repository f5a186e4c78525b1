//! The paths that a source text names, and which of them lead out of the pure part of the program. Not a parser of Rust: it knows
//! comments, strings, `use` trees and paths, and rather reports too much than too little.

use std::collections::BTreeMap;

/// Roots that may be named, besides `std`, `crate` and `super`, which are looked at further.
/// `clippy` stands in attributes only. What `humantime` has of clocks needs `std::time::SystemTime`.
const CRATES: [&str; 8] = ["serde", "serde_json", "jiff", "humantime", "regex", "core", "alloc", "clippy"];
/// Modules of this crate that are pure types.
const MODULES: [&str; 4] = ["alert", "policy", "locate", "quarantine"];
/// What `std` has of the world outside. A prefix of each may not be imported whole by a `*` either.
const WORLD: [&str; 12] = [
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::io",
    "std::os",
    "std::time::SystemTime",
    "std::time::Instant",
    "std::hash::RandomState",
    "std::collections::hash_map::RandomState",
    "std::random",
];
/// Plain addresses are values; asking the network is what is forbidden.
const ADDRESSES: [&str; 3] = ["std::net::IpAddr", "std::net::Ipv4Addr", "std::net::Ipv6Addr"];
const MACROS: [&str; 7] = ["print", "println", "eprint", "eprintln", "dbg", "env", "option_env"];
const PRIMITIVES: [&str; 17] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64", "str", "char", "bool"];

/// All that the text names and must not, as full paths. It stands `depth` modules below the root of the crate's module
/// `quarantine` included: 0 for `quarantine/mod.rs`, 1 for its children.
pub(crate) fn forbidden(text: &str, depth: usize) -> Vec<String> {
    let tokens = without_tests(&tokens(text));
    let mut found = Vec::new();
    let (mut names, mut modules): (BTreeMap<String, Vec<String>>, BTreeMap<String, Vec<String>>) = Default::default();
    let mut paths: Vec<Vec<String>> = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        match tokens[i].as_str() {
            "use" if tokens.get(i + 1).is_some_and(|t| t != "<") => {
                i = tree(&tokens, i + 1, &[], &mut paths, &mut names);
            }
            "extern" if tokens.get(i + 1).is_some_and(|t| t == "crate") => found.push("extern crate".to_owned()),
            "mod" => {
                if let Some(name) = tokens.get(i + 1) {
                    modules.insert(name.clone(), vec!["self".to_owned(), name.clone()]);
                }
            }
            _ => {}
        }
        i += 1;
    }
    // A function may have the name of its module.
    names.extend(modules);
    let mut i = 0;
    while i < tokens.len() {
        let leads = |i: usize| tokens.get(i + 1).is_some_and(|t| t == "::") && tokens.get(i + 2).is_some_and(|t| is_word(t));
        let first = is_word(&tokens[i]) && (i == 0 || tokens[i - 1] != "::" || i == 1 || !ends_a_path(&tokens[i - 2]));
        let bang = tokens.get(i + 1).is_some_and(|t| t == "!");
        if bang && MACROS.contains(&tokens[i].as_str()) {
            found.push(format!("{}!", tokens[i]));
        }
        if tokens[i] == "use" {
            // These were read as trees.
            while i < tokens.len() && tokens[i] != ";" {
                i += 1;
            }
        } else if first && leads(i) {
            let mut path = vec![tokens[i].clone()];
            while leads(i) {
                i += 2;
                path.push(tokens[i].clone());
            }
            paths.push(path);
        }
        i += 1;
    }
    for path in paths {
        let full = from_crate(expand(path, &names), depth);
        if !is_pure(&full) {
            found.push(full.join("::"));
        }
    }
    found
}

/// Read one `use` tree from `at`; gives the place behind it.
fn tree(
    tokens: &[String],
    mut at: usize,
    prefix: &[String],
    paths: &mut Vec<Vec<String>>,
    names: &mut BTreeMap<String, Vec<String>>,
) -> usize {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|t| t != "}") {
                    at = tree(tokens, at, &path, paths, names);
                    at += usize::from(tokens.get(at).is_some_and(|t| t == ","));
                }
                return at + 1;
            }
            "," | ";" | "}" => break,
            "as" => {
                at += 1;
                if let Some(alias) = tokens.get(at) {
                    names.insert(alias.clone(), path.clone());
                }
            }
            "self" if !path.is_empty() => {}
            "::" => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    if let Some(last) = path.last() {
        names.insert(last.clone(), path.clone());
    }
    if path.len() > prefix.len() || !prefix.is_empty() {
        paths.push(path);
    }
    at
}

/// Replace an imported name at the head by what it stands for.
fn expand(mut path: Vec<String>, names: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut turns = 0;
    while let Some(known) = path.first().and_then(|head| names.get(head))
        && turns < 8
        && known.first() != path.first()
    {
        path.splice(..1, known.iter().cloned());
        turns += 1;
    }
    path
}

/// `super` as far as it leads out of `quarantine`.
fn from_crate(path: Vec<String>, depth: usize) -> Vec<String> {
    let up = path.iter().take_while(|p| *p == "super").count();
    if up > depth {
        return ["crate".to_owned()].into_iter().chain(path.into_iter().skip(up)).collect();
    }
    path
}

fn is_pure(path: &[String]) -> bool {
    let text = path.join("::");
    if path.len() > 1 && path.last().is_some_and(|last| last == "now") {
        return false;
    }
    match path.first().map_or("", String::as_str) {
        "self" | "super" | "Self" | "" => true,
        "crate" => path.get(1).is_some_and(|module| MODULES.contains(&module.as_str())),
        "std" => {
            if ADDRESSES.iter().any(|a| text == *a || text.starts_with(&format!("{a}::"))) {
                return true;
            }
            let whole = path.last().is_some_and(|last| last == "*");
            let stem = text.trim_end_matches('*');
            path.len() > 1
                && !WORLD.iter().any(|w| text == *w || text.starts_with(&format!("{w}::")) || (whole && w.starts_with(stem)))
        }
        root if CRATES.contains(&root) || PRIMITIVES.contains(&root) => true,
        // A type, a variant or a constant: its import is looked at by itself.
        root => path.len() > 1 && root.starts_with(|c: char| c.is_ascii_uppercase()),
    }
}

fn is_word(token: &str) -> bool {
    token == "*" || token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Whether `::` behind it continues something: a word that is no keyword, or closed generics.
fn ends_a_path(token: &str) -> bool {
    (is_word(token) && !["return", "in", "as", "else", "match", "if", "mut", "use", "ref", "dyn", "impl", "*"].contains(&token))
        || token == ">"
}

/// Without items under `#[cfg(test)]`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let mark: Vec<&str> = "# [ cfg ( test ) ]".split(' ').collect();
    let mut kept = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        if tokens[i..].iter().map(String::as_str).take(mark.len()).ne(mark.iter().copied()) {
            kept.push(tokens[i].clone());
            i += 1;
            continue;
        }
        let mut open = 0_usize;
        i += mark.len();
        while i < tokens.len() {
            match tokens[i].as_str() {
                "{" => open += 1,
                "}" => open = open.saturating_sub(1),
                _ => {}
            }
            i += 1;
            if open == 0 && [";", "}"].contains(&tokens[i - 1].as_str()) {
                break;
            }
        }
    }
    kept
}

/// Words, `::` and single signs; no comments, strings, characters or lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let rest = &chars[i..];
        if let Some(length) = skipped(rest) {
            i += length;
        } else if rest[0].is_alphanumeric() || rest[0] == '_' {
            let length = rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
            tokens.push(rest[..length].iter().collect());
            i += length;
        } else if rest.starts_with(&[':', ':']) {
            tokens.push("::".to_owned());
            i += 2;
        } else {
            if !rest[0].is_whitespace() {
                tokens.push(rest[0].to_string());
            }
            i += 1;
        }
    }
    tokens
}

/// The length of the comment, string, character or lifetime that `rest` begins with.
fn skipped(rest: &[char]) -> Option<usize> {
    let until = |from: usize, end: &[char]| {
        let at = (from..rest.len()).find(|i| rest[*i..].starts_with(end));
        at.map_or(rest.len(), |at| at + end.len())
    };
    // `r"`, `br##"` and the like, before they are taken for words.
    let letters = rest.iter().take_while(|c| matches!(c, 'b' | 'r' | 'c')).count();
    let raw = rest[..letters].last() == Some(&'r');
    let hashes = if raw { rest[letters..].iter().take_while(|c| **c == '#').count() } else { 0 };
    match rest {
        ['/', '/', ..] => Some(until(2, &['\n'])),
        ['/', '*', ..] => {
            let (mut open, mut i) = (1, 2);
            while open > 0 && i < rest.len() {
                match &rest[i..] {
                    ['/', '*', ..] => (open, i) = (open + 1, i + 2),
                    ['*', '/', ..] => (open, i) = (open - 1, i + 2),
                    _ => i += 1,
                }
            }
            Some(i)
        }
        _ if letters <= 2 && rest.get(letters + hashes) == Some(&'"') => {
            let start = letters + hashes + 1;
            if raw {
                let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
                return Some(until(start, &end));
            }
            Some(start + quoted(&rest[start..], '"'))
        }
        ['\'', '\\', ..] => Some(1 + quoted(&rest[1..], '\'')),
        ['\'', _, '\'', ..] => Some(3),
        ['\'', ..] => Some(1 + rest[1..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count()),
        _ => None,
    }
}

/// The length up to and with the closing sign.
fn quoted(rest: &[char], end: char) -> usize {
    let mut i = 0;
    while i < rest.len() {
        match rest[i] {
            '\\' => i += 2,
            c if c == end => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

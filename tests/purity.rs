//! `src/quarantine` decides purely: no I/O, no clock, no randomness, no HTTP and no Kubernetes client. A test of the source,
//! because one `use` is enough to lose it and nothing else would show.

#![expect(clippy::unwrap_used, reason = "helpers of tests are not seen as tests")]

use std::path::{Path, PathBuf};

#[path = "support/paths.rs"]
mod paths;

use paths::forbidden;

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            // Modules of tests may import what tests need.
            if path.file_name().is_none_or(|n| n != "tests") {
                found.extend(sources(&path));
            }
        } else if path.extension().is_some_and(|e| e == "rs") && path.file_name().is_none_or(|n| n != "tests.rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn the_heart_imports_no_input_output_no_clock_and_no_randomness() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/quarantine");
    let files = sources(&root);
    assert!(files.len() >= 10, "{files:?}");
    let mut problems = Vec::new();
    for file in &files {
        // How many `super` lead out of `quarantine`.
        let inside = file.strip_prefix(&root).unwrap();
        let depth = inside.components().count() - usize::from(inside.file_name().is_some_and(|n| n == "mod.rs"));
        let text = std::fs::read_to_string(file).unwrap();
        problems.extend(forbidden(&text, depth).into_iter().map(|p| format!("{}: {p}", file.display())));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn each_impure_thing_is_found_however_it_is_written() {
    let planted = [
        ("use tokio::time::sleep;", "tokio::time::sleep"),
        ("use kube::Api;", "kube::Api"),
        ("use axum::{Router, routing::get};", "axum::Router"),
        ("pub use futures::stream;", "futures::stream"),
        ("use hyper as web;", "hyper"),
        ("use ::rand::random;", "rand::random"),
        ("extern crate tokio;", "extern crate"),
        ("fn f() { tokio::spawn(async {}); }", "tokio::spawn"),
        ("fn f() { ::tracing::info!(\"x\"); }", "tracing::info"),
        ("use std::fs;", "std::fs"),
        ("use std::{collections::BTreeMap, env};", "std::env"),
        ("use std::{collections::BTreeMap, net::{IpAddr, TcpStream}};", "std::net::TcpStream"),
        ("use std::process::Command;", "std::process::Command"),
        ("use std::thread;", "std::thread"),
        ("use std::io::{self, Read};", "std::io"),
        ("use std::*;", "std::*"),
        ("use std::time::{Duration, Instant};", "std::time::Instant"),
        ("use std::time::SystemTime as Clock;", "std::time::SystemTime"),
        ("use std::time::*;", "std::time::*"),
        ("use std::time; fn f() { time::Instant::now(); }", "std::time::Instant::now"),
        ("use std as s; fn f() { s::env::var(\"X\"); }", "std::env::var"),
        ("fn f() { let _ = std::env::var(\"HOME\"); }", "std::env::var"),
        ("fn f() { std :: fs\n:: read(\"x\"); }", "std::fs::read"),
        ("use std::collections::hash_map::RandomState;", "std::collections::hash_map::RandomState"),
        ("use std::hash::RandomState;", "std::hash::RandomState"),
        ("use jiff::Timestamp; fn f() { Timestamp::now(); }", "jiff::Timestamp::now"),
        ("fn f() -> jiff::Zoned { jiff::Zoned::now() }", "jiff::Zoned::now"),
        ("fn f() { let clock = jiff::Timestamp::now; clock(); }", "jiff::Timestamp::now"),
        ("use crate::engine::Clock;", "crate::engine::Clock"),
        ("use crate::{alert::Alert, cluster::Cluster};", "crate::cluster::Cluster"),
        ("use crate::*;", "crate::*"),
        ("use super::super::server::router;", "crate::server::router"),
        ("fn f() { super::super::metrics::Metrics::new(); }", "crate::metrics::Metrics::new"),
        ("fn f() { println!(\"x\"); }", "println!"),
        ("fn f() { dbg!(1); }", "dbg!"),
        ("const X: &str = env!(\"X\");", "env!"),
        ("#[derive(thiserror::Error)] struct E;", "thiserror::Error"),
        ("fn f<'a>(x: &'a str) -> char { std::fs::read(x); 'a' }", "std::fs::read"),
        ("/* /* nested */ */ use tokio::sync; // use serde;", "tokio::sync"),
        ("const S: &str = r#\"\"# ; use tokio::sync;", "tokio::sync"),
        ("const C: char = '\"'; use tokio::sync; const D: char = '\"';", "tokio::sync"),
        ("#[cfg(test)] mod tests { use tokio::sync; } use kube::Api;", "kube::Api"),
        ("#[cfg(test)] use x::y; use kube::Api;", "kube::Api"),
    ];
    for (text, expected) in planted {
        let found = forbidden(text, 1);
        assert!(found.iter().any(|f| f == expected), "{text}\nfinds {found:?}");
    }
}

#[test]
fn what_is_pure_is_let_through() {
    let text = r##"
        //! use tokio::spawn;
        use std::{collections::{BTreeMap, BTreeSet}, fmt::{self, Write as _}, time::Duration};
        use jiff::{SignedDuration, Timestamp};
        use serde::{Deserialize, Serialize};
        use serde_json::{Map, Value, json, value};
        use super::{record::Record, *};
        pub use self::inner::Thing;
        use crate::{alert::Alert, locate::{Gpu, NodeFacts}, policy};
        /* std::fs::read and /* tokio::spawn */ again */
        #[derive(Debug, Serialize)] #[serde(rename_all = "lowercase", skip_serializing_if = "std::ops::Not::not")]
        struct A<'a> { text: &'a str, net: std::net::IpAddr }
        fn f(policy: &policy::Policy) -> fmt::Result {
            let now = Timestamp::MAX; let s = "std::fs::read"; let r = r#"tokio::"spawn" "#; let b = b"kube::Api"; let c = '\'';
            let n = usize::MAX; let v: Vec<u8> = Vec::<u8>::new(); value::to_value(1); core::mem::take(&mut 1); inner::g();
            super::scope::word(); super::super::alert::Status::Firing; Self::new(); <A as Clone>::clone(&now); now.now();
            json!({ "a": format!("tokio::spawn {s}") }); str::len(r); f64::from(1); 'outer: loop { break 'outer; }
        }
        mod inner;
        #[cfg(test)]
        mod tests { use tokio::spawn; fn g() { std::fs::read("}"); } }
    "##;
    assert_eq!(forbidden(text, 1), Vec::<String>::new());
}

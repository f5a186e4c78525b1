//! `nodes` on the embedded cluster: what can be read is shown, and what would be written is refused. `tests/kubernetes/commands.rs` has
//! the commands on a real API server.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests, but clippy knows only the functions marked so")]

use serde_json::Value;

#[path = "support/command.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod command;

use command::run;

fn on_prod_a<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let sources = ["--config.file", "fixtures/replay/config.yaml", "--cluster", "fixtures/clusters/prod-a.yaml"];
    ["nodes"].into_iter().chain(args.iter().copied()).chain(sources).collect()
}

#[test]
fn a_cluster_file_is_listed_and_its_nodes_are_shown() {
    let listed = run(&on_prod_a(&["list"])).well();
    assert!(listed.contains("16 nodes: 16 free.") && listed.contains("--all lists the free nodes as well"), "{listed}");
    let all = run(&on_prod_a(&["list", "--all"])).well();
    assert_eq!(all.lines().filter(|l| l.starts_with("gpu-node-")).count(), 16, "{all}");
    let held = run(&on_prod_a(&["list", "--state", "held,ignored", "--output", "json"])).well();
    assert_eq!(serde_json::from_str::<Value>(&held).unwrap(), serde_json::json!({"nodes": []}));
    let shown = run(&on_prod_a(&["show", "gpu-node-07"])).well();
    assert!(shown.starts_with("Node gpu-node-07 is free: we keep nothing away from it.\n"), "{shown}");
    let json: Value = serde_json::from_str(&run(&on_prod_a(&["show", "gpu-node-07", "--output", "json"])).well()).unwrap();
    assert_eq!((&json["name"], &json["state"]), (&"gpu-node-07".into(), &"free".into()));
    let none = run(&on_prod_a(&["show", "gpu-node-07", "--evidence"])).failed(1);
    assert!(none.starts_with("node gpu-node-07 has no evidence on record"), "{none}");
}

#[test]
fn the_guard_of_a_cluster_file_is_shown_limit_by_limit() {
    let sources = ["guard", "--config.file", "fixtures/replay/config.yaml", "--cluster", "fixtures/clusters/prod-a.yaml"];
    let shown = run(&sources).well();
    let rows: Vec<Vec<&str>> =
        shown.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    assert!(rows.contains(&vec!["guard.max_isolated", "all", "0 of 16", "at most 3", "yes"]), "{shown}");
    assert!(rows.contains(&vec!["guard.pools.min_healthy", "pool gpu8.h100", "15 of 16", "at least 8", "yes"]), "{shown}");
    assert!(shown.ends_with("Nobody waits.\n"), "{shown}");
    let json: Value = serde_json::from_str(&run(&[&sources[..], &["--output", "json"]].concat()).well()).unwrap();
    assert_eq!((&json["waiting"], &json["queue"]), (&0.into(), &serde_json::json!([])));
}

#[test]
fn a_cluster_file_is_not_written() {
    for args in [
        &["hold", "gpu-node-07", "--reason", "x"] as &[&str],
        &["unhold", "gpu-node-07"],
        &["ignore", "gpu-node-07", "--reason", "x"],
        &["unignore", "gpu-node-07"],
        &["release", "gpu-node-07", "--yes"],
    ] {
        let mut args = on_prod_a(args);
        if !args[1].starts_with("un") {
            args.extend(["--as", "alice"]);
        }
        let refused = run(&args).failed(2);
        assert!(refused.contains("prod-a.yaml is a file, which is only read"), "{refused}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused() {
    assert!(run(&on_prod_a(&["show", "no-such-node"])).failed(2).contains("there is no node no-such-node"));
    assert!(run(&on_prod_a(&["show", "Gpu_Node"])).failed(2).contains("is not a node name"));
    assert!(run(&on_prod_a(&["list", "--state", "broken"])).failed(2).contains("possible values: free, pending"));
    assert!(
        run(&on_prod_a(&["release", "gpu-node-07", "--verdict", "fine"])).failed(2).contains("repaired, replaced, false-alarm")
    );
    assert!(run(&on_prod_a(&["hold", "gpu-node-07", "--reason", "x", "--as", " "])).failed(2).contains("give --as NAME"));
}

use std::time::Instant;

use rstest::rstest;

use super::*;
use crate::policy::{Action, Guard, Limits, Percent, Rate, Share};

mod alertmanagers;
mod eviction;
mod prometheus;
mod refusals;

const LEAST: &str = "release: {require: [resolved]}\n";
const EXAMPLE: &str = include_str!("../../../docs/config.example.yaml");
const MINIMAL: &str = include_str!("../../../fixtures/minimal.yaml");

fn loaded(text: &str) -> Config {
    load("config.yaml", text).unwrap_or_else(|e| panic!("{e}"))
}

fn refused(text: &str) -> ConfigError {
    load("config.yaml", text).expect_err(text)
}

#[test]
fn the_smallest_file_gets_every_default() {
    let config = loaded(LEAST);
    assert_eq!((config.instance.as_str(), config.domain.as_str()), ("default", "gpu-quarantine.dev"));
    assert_eq!(config.scope.nodes.to_string(), "nvidia.com/gpu.present=true");
    assert!(config.scope.alerts.is_empty() && config.scope.never.is_empty());
    assert_eq!(config.isolation.taint_key, "gpu-quarantine.dev/isolated");
    assert!(!config.isolation.cordon && config.isolation.former_keys.is_empty());
    assert_eq!(config.release, Release { after: Duration::from_mins(10), require: [Requirement::Resolved].into() });
    assert_eq!(config.locate.node_labels, ["node", "kubernetes_node", "nodename", "k8s_node_name"]);
    assert_eq!(config.locate.hostname_labels, ["node", "Hostname", "hostname", "exported_hostname"]);
    assert_eq!(config.locate.instance_labels, ["instance"]);
    assert_eq!(config.locate.uuid_labels, ["UUID", "uuid", "gpu_uuid"]);
    assert_eq!(config.locate.pci_labels, ["pci_bus_id"]);
    assert_eq!(config.locate.index_labels, ["gpu", "device"]);
    assert!(config.locate.exporter_pod_labels);
    let pods: Vec<String> = config.locate.exporter_pods.iter().map(ToString::to_string).collect();
    assert_eq!(pods, ["app.kubernetes.io/name=dcgm-exporter", "app=nvidia-dcgm-exporter"]);
    assert_eq!(config.events, Events { enabled: true, namespace: "default".to_owned() });
    let (share, rate) = (Share { count: 3, percent: Percent::whole(10) }, Rate { count: 5, within: Duration::from_mins(10) });
    let limits = Limits { fleet: share, pool: share, min_healthy: Percent::whole(50), new: rate };
    let pool_label = "node.kubernetes.io/instance-type".to_owned();
    assert_eq!(config.guard, Guard { pool_label, limits, max_evicted_gangs: rate });
    let policies: Vec<String> = config.policies.iter().map(|p| format!("{} {} {}", p.name, p.matchers[0], p.action)).collect();
    assert_eq!(
        policies,
        [
            r#"heartbeat alertname=~"Watchdog|GpuQuarantineWatchdog" heartbeat"#,
            r#"evict remediation="evict" evict"#,
            r#"isolate remediation="isolate" isolate"#,
            r#"freeze remediation="freeze" freeze"#,
            r#"observe remediation="observe" observe"#,
        ]
    );
}

#[test]
fn the_minimal_file_loads_and_its_policies_replace_the_default_ones() {
    let config = loaded(MINIMAL);
    let names: Vec<&str> = config.policies.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["gpu-lost", "by-label", "watch"]);
    assert_eq!(config.policies[0].matchers.len(), 2);
    assert_eq!(config.policies[2].action, Action::Observe);
    assert_eq!(Config { policies: loaded(LEAST).policies, ..config }, loaded(LEAST), "the rest are defaults");
}

#[rstest]
#[case::no_policies("policies: []", 0)]
#[case::null_policies("policies:", 5)]
fn an_empty_list_of_policies_is_not_the_default_one(#[case] text: &str, #[case] count: usize) {
    assert_eq!(loaded(&format!("{LEAST}{text}\n")).policies.len(), count);
}

#[test]
fn a_section_with_nothing_in_it_means_its_defaults() {
    let text = "instance:\ndomain: ~\nscope:\nisolation: {taint: , cordon: , former_keys: }\nlocate: null\n\
                guard:\n  max_isolated:\npolicies:\nrelease: {require: [resolved], after: }\n";
    assert_eq!(loaded(text), loaded(LEAST));
}

#[test]
fn every_option_is_read() {
    let config = loaded(
        r"
instance: prod-a
domain: gpu.example.com
scope: {nodes: 'gpu=true', alerts: ['cluster=a'], never: ['spare', 'tier in (lab, dev)']}
isolation: {cordon: true, former_keys: [old.example.com/bad, older]}
release: {after: 1h 30m, require: [manual, resolved]}
locate: {node_labels: [], index_labels: [minor], exporter_pod_labels: false, exporter_pods: [app=x]}
guard: {max_isolated: {count: 0, percent: 2.5}}
events: {enabled: false, namespace: kube-system}
policies:
  - {name: a, match: [a=b], action: freeze, release: {after: 0s}}
  - {name: b, match: [b=c], action: isolate, release: {require: [manual]}}
",
    );
    assert_eq!((config.instance.as_str(), config.domain.as_str()), ("prod-a", "gpu.example.com"));
    assert_eq!(config.isolation.taint_key, "gpu.example.com/isolated", "it follows the domain");
    assert_eq!(config.isolation.former_keys, ["old.example.com/bad".to_owned(), "older".to_owned()].into());
    assert!(config.isolation.cordon && !config.locate.exporter_pod_labels);
    assert_eq!((config.scope.alerts.len(), config.scope.never.len()), (1, 2));
    assert!(config.locate.node_labels.is_empty());
    assert_eq!(config.locate.index_labels, ["minor"]);
    assert_eq!(config.events, Events { enabled: false, namespace: "kube-system".to_owned() });
    assert_eq!(config.guard.limits.fleet, Share { count: 0, percent: "2.5".parse().unwrap() });
    let both: BTreeSet<_> = [Requirement::Resolved, Requirement::Manual].into();
    assert_eq!(config.release, Release { after: Duration::from_mins(90), require: both.clone() });
    assert_eq!(config.release_for("a"), &Release { after: Duration::ZERO, require: both });
    let manual = [Requirement::Manual].into();
    assert_eq!(config.release_for("b"), &Release { after: Duration::from_mins(90), require: manual });
}

#[test]
fn the_example_shows_the_defaults() {
    assert_eq!(loaded(EXAMPLE), loaded(LEAST));
    let with_release = loaded(&EXAMPLE.replace("    # release:", "    release:"));
    assert!(with_release.policies[1].release.is_some(), "its commented option must be valid too");
    let with_eviction =
        loaded(&EXAMPLE.replace("    # eviction:", "    eviction:").replace("  # group_label:", "  group_label:"));
    let with_guard = loaded(&EXAMPLE.replace("    # guard:", "    guard:"));
    assert!(with_guard.policies[1].guard.is_some());
    assert!(with_eviction.policies[1].eviction.is_some() && with_eviction.eviction.group_label.is_some());
}

#[rstest]
#[case::top("{}", 14)]
#[case::scope("scope: {}", 3)]
#[case::isolation("isolation: {}", 3)]
#[case::taint("isolation: {taint: {}}", 2)]
#[case::release("release: {}", 3)]
#[case::flapping("release: {flapping: {}}", 3)]
#[case::ledger("ledger: {}", 2)]
#[case::eviction("eviction: {}", 15)]
#[case::evidence("eviction: {evidence: {}}", 2)]
#[case::locate("locate: {}", 8)]
#[case::guard("guard: {}", 4)]
#[case::pools("guard: {pools: {}}", 3)]
#[case::rate("guard: {max_new_isolations: {}}", 2)]
#[case::people("people: {}", 1)]
#[case::events("events: {}", 2)]
#[case::max_isolated("guard: {max_isolated: {}}", 2)]
#[case::sources("sources: {}", 2)]
#[case::prometheus("sources: {prometheus: {}}", 6)]
#[case::alertmanagers("sources: {alertmanagers: {}}", 7)]
#[case::dns("sources: {alertmanagers: {dns: {}}}", 3)]
#[case::http("sources: {alertmanagers: {http: {}}}", 4)]
#[case::basic_auth("sources: {alertmanagers: {http: {basic_auth: {}}}}", 3)]
#[case::authorization("sources: {alertmanagers: {http: {authorization: {}}}}", 3)]
#[case::tls("sources: {alertmanagers: {http: {tls_config: {}}}}", 5)]
#[case::header("sources: {alertmanagers: {http: {http_headers: {a: {}}}}}", 3)]
#[case::policy("policies: [{}]", 8)]
#[case::policy_guard("policies: [{guard: {}}]", 4)]
#[case::policy_release("policies: [{release: {}}]", 3)]
#[case::policy_eviction("policies: [{eviction: {}}]", 5)]
fn the_example_names_every_option(#[case] section: &str, #[case] count: usize) {
    // The parser itself says which keys it knows.
    let error = refused(&section.replace("{}", "{no_such_key: 1}"));
    let message = &error.problems()[0].message;
    let (_, known) = message.split_once("the keys known here are ").expect(message);
    let known: Vec<&str> = known.split(", ").collect();
    assert_eq!(known.len(), count, "{known:?}");
    for key in known {
        let shown = EXAMPLE
            .lines()
            .any(|l| l.trim_start_matches(['#', '-', ' ']).trim_start_matches("Or `").starts_with(&format!("{key}:")));
        assert!(shown, "{key} is not in docs/config.example.yaml");
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    assert_eq!(loaded(&format!("\u{FEFF}{LEAST}")), loaded(LEAST));
}

#[test]
fn many_problems_are_cut_and_do_not_take_long() {
    let start = Instant::now();
    let text = format!("{LEAST}policies: [{}]\n", "{name: a, action: b},".repeat(40_000));
    let error = refused(&text);
    assert_eq!(error.problems().len(), report::MAX_PROBLEMS);
    assert!(error.to_string().len() < 50_000, "long lines are cut");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn a_policy_may_have_limits_of_its_own_or_none_at_all() {
    let text = "\
release: {require: [resolved]}
guard: {max_isolated: {count: 7}, pools: {label: example.com/pool, min_healthy: 80}, max_evicted_gangs: {count: 1, within: 1h}}
policies:
  - {name: own, match: [a=b], action: isolate, weight: 10, guard: {max_isolated: {percent: 20}, max_new_isolations: {count: 50}}}
  - {name: free, match: [a=c], action: evict, weight: -1, guard: {exempt: true}}
  - {name: other, match: [a=d], action: isolate}
";
    let config = load("config.yaml", text).unwrap();
    assert_eq!(config.guard.pool_label, "example.com/pool");
    assert!(config.node_label_keys().contains("example.com/pool"), "else it would not be seen");
    assert_eq!(config.guard.max_evicted_gangs, Rate { count: 1, within: Duration::from_hours(1) });
    let (own, is_own) = config.limits_for("own").unwrap();
    assert!(is_own);
    assert_eq!(own.fleet, Share { count: 7, percent: Percent::whole(20) }, "what it leaves out is as for all");
    assert_eq!((own.new.count, own.min_healthy), (50, Percent::whole(80)));
    assert_eq!(config.limits_for("free"), None);
    for policy in ["other", "gone"] {
        assert_eq!(config.limits_for(policy), Some((&config.guard.limits, false)), "{policy}");
    }
    assert_eq!(["own", "free", "other", "gone"].map(|p| config.weight_of(p)), [10, -1, 0, 0]);
}

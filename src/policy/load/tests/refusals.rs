//! What is refused, where, and how that is shown.

use rstest::rstest;

use super::{LEAST, refused};

/// Each case: lines added to the least valid file (so the first of them is line 2), the place and the message.
#[rstest]
#[case::instance_with_a_space("instance: prod a", 2, 11, "instance \"prod a\" contains ' '")]
#[case::instance_that_is_empty("instance: ''", 2, 12, "instance is empty; write a name of 1 to 63")]
#[case::instance_that_is_too_long(&format!("instance: {}", "a".repeat(64)), 2, 11, "64 characters long; at most 63")]
#[case::domain_in_upper_case("domain: GPU.dev", 2, 9, "domain \"GPU.dev\" contains 'G'")]
#[case::domain_that_is_empty("domain: ''", 2, 10, "domain \"\" is empty")]
#[case::empty_selector("scope:\n  nodes: ''", 3, 11, "an empty selector would match every node")]
#[case::bad_selector_value("scope:\n  nodes: gpu=yes!", 3, 17, "expected a comma or the end")]
#[case::bad_matcher("scope:\n  alerts: ['a=\"x\"', 'a=x y']", 3, 26, "put the whole value in double quotes")]
#[case::bad_never("scope: {never: [a in ()]}", 2, 23, "no value between the parentheses")]
#[case::taint_key_of_gpu_pods("isolation: {taint: {key: nvidia.com/gpu}}", 2, 26, "ExtendedResourceToleration")]
#[case::taint_key_of_kubernetes(
    "isolation: {taint: {key: node.kubernetes.io/not-ready}}",
    2,
    26,
    "belongs to Kubernetes, which adds and removes it"
)]
#[case::taint_key_that_is_none("isolation: {taint: {key: a/b/c}}", 2, 26, "taint key \"a/b/c\" contains '/'")]
#[case::former_key_of_kubernetes("isolation: {former_keys: [a, node.kubernetes.io/x]}", 2, 30, "belongs to Kubernetes")]
#[case::effect_that_deletes_pods(
    "isolation: {taint: {effect: NoExecute}}",
    2,
    29,
    "it deletes pods past their disruption budgets (PDBs) and kills the DCGM exporter"
)]
#[case::effect_that_does_not_isolate("isolation: {taint: {effect: PreferNoSchedule}}", 2, 29, "it does not isolate")]
#[case::effect_that_is_none("isolation: {taint: {effect: noschedule}}", 2, 29, "the only one allowed is NoSchedule")]
#[case::cordon_that_is_a_word("isolation: {cordon: sometimes}", 2, 21, "expected true or false")]
#[case::label_with_a_space("locate: {uuid_labels: [UUID, ' x']}", 2, 31, "is not the name of a label")]
#[case::label_that_is_empty("locate: {node_labels: ['']}", 2, 25, "is not the name of a label")]
#[case::events_in_a_namespace_of_ours("events: {namespace: monitoring}", 2, 21, "in default and kube-system only")]
#[case::count_below_zero("guard: {max_isolated: {count: -1}}", 2, 31, "count \"-1\" is not a whole number of nodes")]
#[case::count_with_a_fraction("guard: {max_isolated: {count: 1.5}}", 2, 31, "is not a whole number of nodes")]
#[case::percent_above_100("guard: {max_isolated: {percent: 100.1}}", 2, 33, "is not a number from 0 to 100")]
#[case::percent_with_a_sign("guard: {max_isolated: {percent: 10%}}", 2, 33, "write it without a % sign")]
#[case::percent_that_is_no_number("guard: {max_isolated: {percent: nan}}", 2, 33, "is not a number from 0 to 100")]
#[case::policy_without_a_name("policies:\n  - {match: [a=b], action: observe}", 3, 5, "this policy has no name")]
#[case::policy_without_a_match("policies:\n  - {name: a, action: observe}", 3, 5, "this policy has no match")]
#[case::policy_with_an_empty_match("policies:\n  - {name: a, match: [], action: observe}", 3, 22, "every alert would match")]
#[case::policy_without_an_action("policies:\n  - {name: a, match: [a=b]}", 3, 5, "this policy has no action")]
#[case::policy_name_that_is_no_taint_value(
    "policies:\n  - {name: a/b, match: [a=b], action: observe}",
    3,
    12,
    "the policy name \"a/b\" contains '/'"
)]
#[case::policy_name_that_is_empty("policies:\n  - {name: '', match: [a=b], action: observe}", 3, 13, "the policy name is empty")]
#[case::action_that_is_none(
    "policies:\n  - {name: a, match: [a=b], action: drain}",
    3,
    37,
    "use observe, freeze, isolate, evict or heartbeat"
)]
#[case::policy_name_twice(
    "policies:\n  - {name: a, match: [a=b], action: observe}\n  - {name: a, match: [a=c], action: observe}",
    4,
    12,
    "the policy name \"a\" is already used on line 3"
)]
#[case::policy_that_is_never_reached(
    "policies:\n  - {name: a, match: [a=b, c=d], action: observe}\n  - {name: b, match: ['c = d', '{a=b}'], action: isolate}",
    4,
    22,
    "the policy \"b\" can never be reached: the policy \"a\" on line 3 has the same matchers"
)]
#[case::policy_with_an_empty_require(
    "policies:\n  - {name: a, match: [a=b], action: isolate, release: {require: []}}",
    3,
    65,
    "require is empty"
)]
#[case::policy_with_evidence_from_nobody(
    "policies:\n  - {name: a, match: [a=b], action: isolate, release: {require: [manual, evidence]}}",
    3,
    74,
    "evidence needs a Prometheus that can be asked for it"
)]
#[case::policy_with_a_long_hold_down(
    "policies:\n  - {name: a, match: [a=b], action: isolate, release: {after: 31d}}",
    3,
    63,
    "longer than 30 days"
)]
#[case::when_cordoned_that_is_none(
    "policies:\n  - {name: a, match: [a=b], action: isolate, when_cordoned: maybe}",
    3,
    61,
    "use isolate (the default) or observe"
)]
#[case::when_cordoned_of_a_policy_that_does_not_isolate(
    "policies:\n  - {name: a, match: [a=b], action: freeze, when_cordoned: observe}",
    3,
    60,
    "when_cordoned is for policies that isolate, and this one has action freeze"
)]
#[case::unknown_key(
    "guard: {max: 3}",
    2,
    9,
    "unknown key `max`; the keys known here are max_isolated, pools, max_new_isolations, max_evicted_gangs"
)]
#[case::pool_label("guard: {pools: {label: 'a b'}}", 2, 25, "label \"a b\"")]
#[case::floor_above_100("guard: {pools: {min_healthy: 101}}", 2, 30, "min_healthy \"101\" is not a number from 0 to 100")]
#[case::window_of_a_day("guard: {max_new_isolations: {within: 1d}}", 2, 38, "within \"1d\" is out of range; write 1s to 1h")]
#[case::gangs_below_zero("guard: {max_evicted_gangs: {count: -1}}", 2, 36, "is not a whole number")]
#[case::weight_that_is_a_word(
    "policies: [{name: a, match: [a=b], action: isolate, weight: heavy}]",
    2,
    61,
    "weight \"heavy\" is not a whole number from -1000 to 1000"
)]
#[case::weight_of_a_policy_that_observes(
    "policies: [{name: a, match: [a=b], action: observe, weight: 1}]",
    2,
    61,
    "weight is for policies that isolate"
)]
#[case::guard_of_a_policy_that_observes(
    "policies: [{name: a, match: [a=b], action: observe, guard: {}}]",
    2,
    60,
    "guard is for policies that isolate"
)]
#[case::exempt_with_a_limit(
    "policies: [{name: a, match: [a=b], action: evict, guard: {exempt: true, max_isolated: {}}}]",
    2,
    58,
    "exempt: true leaves no limit"
)]
#[case::key_twice("scope: {}\nscope: {}", 3, 1, "the key `scope` stands twice")]
#[case::list_where_a_text_belongs("instance: [a]", 2, 11, "expected a single value here")]
#[case::text_where_a_list_belongs("scope: {alerts: a=b}", 2, 17, "expected a list here")]
#[case::text_where_a_mapping_belongs("scope: all", 2, 8, "expected a mapping here")]
#[case::null_in_a_list("scope: {alerts: [~]}", 2, 18, "there is no value here")]
#[case::second_document("---\ninstance: a", 3, 1, "a second YAML document begins here")]
#[case::broken_yaml("instance: 'a", 2, 11, "not valid YAML: ")]
fn a_wrong_value_is_refused_at_its_place(#[case] added: &str, #[case] line: usize, #[case] column: usize, #[case] message: &str) {
    let error = refused(&format!("{LEAST}{added}\n"));
    let [problem] = error.problems() else { panic!("one problem expected:\n{error}") };
    assert_eq!((problem.line, problem.column), (line, column), "{error}");
    assert!(problem.message.contains(message), "{error}");
    let source = added.lines().nth(line - 2).unwrap();
    let snippet = format!("   |\n {line} | {source}\n   | {}^", " ".repeat(column - 1));
    assert_eq!(error.to_string(), format!("config.yaml:{line}:{column}: {}\n{snippet}", problem.message));
}

#[rstest]
#[case::empty("", 1, 1, "the file holds no configuration")]
#[case::only_comments("# nothing\n", 1, 1, "the file holds no configuration")]
#[case::null("~\n", 1, 1, "the file holds no configuration")]
#[case::list("- a\n", 1, 1, "expected a mapping here")]
#[case::text("hello\n", 1, 1, "expected a mapping here")]
#[case::no_release("instance: a\n", 1, 1, "release.require is missing and has no default")]
#[case::release_with_nothing("release:\n", 1, 1, "release.require is missing and has no default")]
#[case::no_require("instance: a\nrelease:\n  after: 5m\n", 3, 3, "`manual` (a person releases the node)")]
#[case::null_require("release:\n  require:\n", 2, 3, "release.require is missing and has no default")]
#[case::empty_require("release:\n  require: []\n", 2, 12, "require is empty, so nodes would return on time alone")]
#[case::unknown_require("release:\n  require: [resolved, proof]\n", 2, 23, "this version knows `resolved`")]
#[case::evidence_from_nobody(
    "release:\n  require: [resolved, evidence]\n",
    2,
    23,
    "add `sources: {prometheus: {query_url: ...}}`"
)]
#[case::after_without_a_unit("release:\n  after: 10\n  require: [manual]\n", 2, 10, "write a number with a unit")]
#[case::after_too_long("release:\n  after: 31d\n  require: [manual]\n", 2, 10, "longer than 30 days")]
#[case::file_too_large(&format!("{LEAST}#{}", "x".repeat(1 << 20)), 1, 1, "a configuration has at most 1048576 (1 MiB)")]
fn a_file_without_what_it_needs_is_refused(
    #[case] text: &str,
    #[case] line: usize,
    #[case] column: usize,
    #[case] message: &str,
) {
    let error = refused(text);
    let [problem] = error.problems() else { panic!("one problem expected:\n{error}") };
    assert_eq!((problem.line, problem.column), (line, column), "{error}");
    assert!(problem.message.contains(message), "{error}");
}

#[test]
fn all_problems_are_shown_in_the_order_of_the_file() {
    let text = "policies:\n  - {name: a b, match: [x], action: drain}\ninstance: -x\nrelease: {after: soon}\n";
    let error = refused(text);
    let places: Vec<(usize, usize)> = error.problems().iter().map(|p| (p.line, p.column)).collect();
    assert_eq!(places, [(2, 12), (2, 26), (2, 37), (3, 11), (4, 10), (4, 18)], "{error}");
    let shown = error.to_string();
    let tail = r#"
config.yaml:2:37: "drain" is not an action; use observe, freeze, isolate, evict or heartbeat
   |
 2 |   - {name: a b, match: [x], action: drain}
   |                                     ^
config.yaml:3:11: instance "-x" must begin and end with a letter or digit
   |
 3 | instance: -x
   |           ^
config.yaml:4:10: release.require is missing and has no default: write what a release needs, of `resolved` (Alertmanager reported the alerts as resolved), `evidence` (Prometheus shows that the fault is gone) and `manual` (a person releases the node)
   |
 4 | release: {after: soon}
   |          ^
config.yaml:4:18: after "soon" is not a duration (expected number at 0); write a number with a unit, such as 10m or 1h 30m
   |
 4 | release: {after: soon}
   |                  ^"#;
    assert!(shown.ends_with(tail), "{shown}");
}

#[rstest]
#[case::tab("instance:\t\"a b\"", " 2 | instance: \"a b\"\n   |            ^")]
#[case::accents("# x\ndomain: \"ééé\"", " 3 | domain: \"ééé\"\n   |          ^")]
#[case::wide(
    "scope: {alerts: ['日本=\"日\"', 日本]}",
    " 2 | scope: {alerts: ['日本=\"日\"', 日本]}\n   |                                   ^"
)]
#[case::combining("scope: {alerts: ['e\u{301}=\"x', 'a=b']}", "'a=b']}\n   |                     ^")]
fn tabs_and_wide_characters_do_not_move_the_caret(#[case] added: &str, #[case] snippet: &str) {
    let shown = refused(&format!("{LEAST}{added}\n")).to_string();
    assert!(shown.contains(snippet), "{shown}");
}

#[test]
fn a_long_line_is_cut_around_the_caret() {
    let list = "a=b, ".repeat(100);
    let shown = refused(&format!("{LEAST}scope: {{alerts: [{list}=, {list}]}}\n")).to_string();
    let lines: Vec<&str> = shown.lines().collect();
    let (source, caret) = (lines[2], lines[3]);
    assert!(source.starts_with(" 2 | …") && source.ends_with('…'), "{shown}");
    assert!(source.chars().count() < 110, "{shown}");
    let at = caret.chars().position(|c| c == '^').unwrap();
    assert_eq!(source.chars().skip(at).take(2).collect::<String>(), "=,", "{shown}");
}

#[rstest]
#[case::crlf("\r\n")]
#[case::cr("\r")]
fn other_ends_of_lines_are_counted_as_yaml_counts_them(#[case] end: &str) {
    let shown = refused(&["# x", "", "release: {require: [resolved]}", "instance: a b", ""].join(end)).to_string();
    assert!(shown.starts_with("config.yaml:4:11: ") && shown.ends_with(" 4 | instance: a b\n   |           ^"), "{shown}");
}

#[test]
fn the_flaw_of_an_anchored_value_is_shown_where_it_is_written() {
    let error = refused(&format!("{LEAST}scope: {{alerts: [&a 'x=', *a]}}\n"));
    let [problem] = error.problems() else { panic!("one problem expected:\n{error}") };
    assert_eq!((problem.line, problem.column), (2, 24), "{error}");
}

#[test]
fn a_text_of_the_file_cannot_break_the_report() {
    let error = refused("\"a\\nb\": 1\n");
    assert_eq!(error.to_string().lines().count(), 4, "{error}");
}

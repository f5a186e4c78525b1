//! What is taken for a query, and that no text can harm us.

use std::{fs, path::Path};

use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// A quarter of what a thread of ours has.
const STACK: usize = 512 << 10;

fn parse(text: &str) -> Result<RecoveryQuery, String> {
    RecoveryQuery::parse(text)
}

/// promtool has checked these against what it renders itself.
fn rendered() -> Vec<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("alert-rules/tests");
    let mut queries = Vec::new();
    for file in fs::read_dir(tests).unwrap().map(|file| file.unwrap().path()).filter(|file| file.is_file()) {
        let text = fs::read_to_string(file).unwrap();
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("recovery_query: "));
        queries.extend(lines.map(|query| serde_saphyr::from_str::<String>(query).unwrap()));
    }
    queries
}

#[test]
fn every_query_of_the_rule_pack_is_taken_as_prometheus_renders_it() {
    let queries = rendered();
    assert!(queries.len() > 30, "{queries:?}");
    for query in queries {
        assert_eq!(parse(&query).map(|q| q.as_str().to_owned()), Ok(query));
    }
}

#[rstest]
#[case::a_series("up")]
#[case::around_it(" \n up == 1\n")]
#[case::no_name("{__name__=\"up\",node=\"a\"}")]
#[case::a_name_in_quotes("{\"up.total\",\"node.name\"=\"a\"} == 0")]
#[case::escapes(r#"up{a="\"\\\n\t\x41é\u00e9"}"#)]
#[case::single_quotes("up{a='\"'}")]
#[case::raw_with_backslashes(r"up{a=~`gpu-\d+\.x`}")]
#[case::go_would_take_this_brace("up{a=~\"x{y}\"}")]
#[case::aggregations("sum by (node) (rate(errors_total[5m])) < 1 and on (node) up == 1")]
#[case::group_left("a * on (b) group_left (c) d")]
#[case::subquery("max_over_time((sum(up) > bool 0)[10m:30s]) == 1")]
#[case::offset_and_time("up offset -5m unless up @ 1700000000 > up @ start()")]
#[case::seconds_instead_of_a_duration("rate(up[300])")]
#[case::of_prometheus_2_and_3("mad_over_time(up[5m]) + sort_by_label(up, \"a\") + limitk(1, up) + histogram_avg(up)")]
#[case::comments("up # and (((\n== 1 # \"")]
#[case::numbers("up > 0x1F + 1e-3 and up < +Inf and up != NaN")]
#[case::utf8("up{a=\"é日本\"}")]
fn what_prometheus_takes_is_taken(#[case] text: &str) {
    assert_eq!(parse(text).map(|q| q.as_str().to_owned()), Ok(text.trim().to_owned()));
}

#[rstest]
#[case::nothing("", "is not PromQL")]
#[case::only_a_comment("# up", "is not PromQL")]
#[case::no_series("vector(1)", "selects no series, so it proves nothing")]
#[case::only_the_time("vector(time()) > 0", "selects no series")]
#[case::a_number("1", "does not return an instant vector")]
#[case::a_scalar("scalar(up)", "does not return an instant vector")]
#[case::a_text("\"up\"", "does not return an instant vector")]
#[case::a_range("up[5m]", "does not return an instant vector")]
#[case::cut_short("sum(up", "is not PromQL: unclosed left parenthesis")]
#[case::closed_too_early("up) or (up", "is not PromQL: unexpected right parenthesis")]
#[case::two_expressions("up up", "is not PromQL")]
#[case::a_number_with_underscores("up > 1_000", "is not PromQL: bad number")]
#[case::an_unknown_function("nonsense(up)", "is not PromQL: unknown function with name 'nonsense'")]
#[case::too_deep(&format!("{}up{}", "(".repeat(65), ")".repeat(65)), "has too many brackets and operators")]
#[case::too_many_signs(&format!("{}up", "-".repeat(65)), "has too many brackets and operators")]
#[case::no_duration("up[1e30]", "has a duration that is too long")]
#[case::a_template("up{node={{ $labels.node }}}", "is not PromQL")]
fn what_proves_nothing_is_refused(#[case] text: &str, #[case] why: &str) {
    let error = parse(text).expect_err(text);
    assert!(error.starts_with("its recovery_query ") && error.contains(why), "{error}");
}

#[test]
fn a_long_query_is_refused_and_not_shown() {
    let least = format!("up{{a=\"{}\"}}", "x".repeat(MAX_BYTES - 8));
    assert_eq!((least.len(), parse(&least).is_ok()), (MAX_BYTES, true));
    let error = parse(&format!("{least} ==0")).unwrap_err();
    assert_eq!(error, "its recovery_query is 1028 bytes long, more than 1024");
    let error = parse(&format!("up{{a={}}}", "é".repeat(500))).unwrap_err();
    assert!(error.len() < 300, "{error}");
}

/// On a small stack; the answer does not matter.
fn on_a_small_stack(texts: Vec<String>) {
    let parse_all = move || texts.iter().for_each(|text| drop(parse(text)));
    std::thread::Builder::new().stack_size(STACK).spawn(parse_all).unwrap().join().unwrap();
}

#[test]
fn no_text_of_the_greatest_length_needs_a_deep_stack() {
    // What goes before, what is repeated, what is in the middle, what is repeated after it.
    let deep = [
        ("", "(", "up", ")"),
        ("", "-", "up", ""),
        ("", "+", "up", ""),
        ("", "- (", "up", ")"),
        ("", "abs(", "up", ")"),
        ("", "sum(", "up", ")"),
        ("", "sum by (a) (", "up", ")"),
        ("", "a+", "up", ""),
        ("", "a^", "up", ""),
        ("", "a or ", "up", ""),
        ("", "a==", "up", ""),
        ("", "1+", "up", ""),
        ("", "(a+", "up", ")"),
        ("", "", "up", "[5m:]"),
        ("", "max_over_time(", "up", "[5m:])"),
        ("", "", "up", " offset 5m"),
        ("", "", "up", " @ 0"),
        ("sum by (a", ",a", ") (up)", ""),
        ("label_join(up, \"a\", \"b\"", ", \"c\"", ")", ""),
        ("up{a=\"b\"", ",a=\"b\"", "}", ""),
        ("up{a=~\"", "(", "x", ")"),
        ("up{a=~\"", "(x|", "x", ")*"),
        ("up{a=~\"", "\\\\w{100}", "\"}", ""),
        ("up{a=~\"", "(((((x{9}){9}){9}){9}){9})", "\"}", ""),
        ("", "#\n", "up", ""),
        ("", "((", "", ""),
        ("", "{", "", ""),
        ("", "[", "", ""),
        ("up{a=\"", "\\\\", "\"}", ""),
    ];
    let mut texts = Vec::new();
    for (before, repeated, middle, after) in deep {
        let end = if before.contains("=~") && !middle.contains('}') { "\"}" } else { "" };
        let room = MAX_BYTES - before.len() - middle.len() - end.len();
        for count in [1, 10, 20, 40, 60, 63, 64, 65, room / (repeated.len() + after.len()).max(1)] {
            let text = format!("{before}{}{middle}{}{end}", repeated.repeat(count), after.repeat(count));
            if text.len() <= MAX_BYTES {
                texts.push(text);
            }
        }
    }
    assert!(texts.len() > 150, "{}", texts.len());
    on_a_small_stack(texts);
}

fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "up",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "-",
        "+",
        "*",
        "^",
        "==",
        "!=",
        "=~",
        "=",
        "!",
        "<",
        ">=",
        " and ",
        " or ",
        " unless ",
        " atan2 ",
        " bool ",
        " on ",
        " by ",
        " without ",
        " ignoring ",
        " group_left ",
        " offset ",
        " @ ",
        "sum",
        "topk",
        "rate",
        "label_replace",
        "absent",
        "quantile",
        "count_values",
        "start()",
        "end()",
        "5m",
        "1e30",
        "1e400",
        "Inf",
        "NaN",
        "0x",
        "0",
        "0x7fffffffffffffff",
        "9999999999y",
        "1",
        ".",
        ",",
        ":",
        "\"a\"",
        "\"",
        "'",
        "`",
        "\\",
        "\\x4",
        "\\u",
        "é",
        "#",
        "\n",
        "\0",
        "a{b=~\"(\"}",
        "fill(1)",
        "fill_left",
        "__name__",
        "[5m]",
        "[5m:]",
        "(up)",
        "1",
        "\"\\400\"",
        "\"\\ud800\"",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_pieces_of_promql_make_it_panic(text in pieces()) {
        drop(parse(&text));
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        drop(parse(&text));
    }

    #[test]
    fn what_was_taken_is_taken_again(text in pieces()) {
        if let Ok(query) = parse(&text) {
            prop_assert_eq!(parse(query.as_str()), Ok(query));
        }
    }
}

#[test]
fn what_a_rule_records_is_known_by_its_colon() {
    for (text, want) in [
        ("gpu:row_remap_pending:max{node=\"a\"} == 0", true),
        ("up{instance=~\"gpu-1(:[0-9]+)?\"} == 1", false),
        (r#"up{a="\":", b=':'} == 1"#, false),
        ("max_over_time(up[1h:1m]) == 1", false),
        ("up{a=\"\\\\\"} and a:b", true),
    ] {
        assert_eq!(parse(text).unwrap().reads_recorded(), want, "{text}");
    }
}

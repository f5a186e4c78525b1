use rstest::rstest;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

fn matches(matcher: &str, pairs: &[(&str, &str)]) -> bool {
    Matcher::parse(matcher).unwrap_or_else(|e| panic!("{matcher}: {e}")).matches(&labels(pairs))
}

#[rstest]
#[case::quoted(r#"severity="page""#, "severity", Op::Equal, "page")]
#[case::unquoted("severity=page", "severity", Op::Equal, "page")]
#[case::not_equal(r#"severity!="page""#, "severity", Op::NotEqual, "page")]
#[case::regex(r#"severity=~"critical|page""#, "severity", Op::Regex, "critical|page")]
#[case::unquoted_regex("severity=~critical|page", "severity", Op::Regex, "critical|page")]
#[case::not_regex(r#"severity!~"info.*""#, "severity", Op::NotRegex, "info.*")]
#[case::spaces(" \tseverity  =~ \"a b\" \n", "severity", Op::Regex, "a b")]
#[case::trailing_comma(r#"severity="page" , "#, "severity", Op::Equal, "page")]
#[case::braces(r#"{severity="page"}"#, "severity", Op::Equal, "page")]
#[case::braces_and_comma(r#" { severity="page" , } "#, "severity", Op::Equal, "page")]
#[case::empty_value(r#"severity="""#, "severity", Op::Equal, "")]
#[case::reserved_in_quotes(r#"a="{},=~!'`""#, "a", Op::Equal, "{},=~!'`")]
#[case::quoted_name(r#""my label"="x""#, "my label", Op::Equal, "x")]
#[case::quoted_name_with_escapes(r#""a\"b\\c"="x""#, "a\"b\\c", Op::Equal, "x")]
#[case::unquoted_utf8("größe=🙂", "größe", Op::Equal, "🙂")]
#[case::dots_in_the_name("service.name=x", "service.name", Op::Equal, "x")]
#[case::classic_name_with_colon("job:rate=x", "job:rate", Op::Equal, "x")]
#[case::escapes(r#"a="\"q\" \\ \n""#, "a", Op::Equal, "\"q\" \\ \n")]
#[case::backslash_that_is_no_escape(r#"a=~"10\.0\.\d+""#, "a", Op::Regex, r"10\.0\.\d+")]
#[case::doubled_backslash(r#"a=~"10\\.0""#, "a", Op::Regex, r"10\.0")]
#[case::raw_line_feed("a=\"x\ny\"", "a", Op::Equal, "x\ny")]
fn a_matcher_is_read_as_alertmanager_reads_it(#[case] text: &str, #[case] name: &str, #[case] op: Op, #[case] value: &str) {
    let matcher = Matcher::parse(text).unwrap();
    assert_eq!((matcher.name(), matcher.op(), matcher.value()), (name, op, value));
    let canonical = matcher.to_string();
    assert_eq!(Matcher::parse(&canonical).unwrap(), matcher, "{canonical} must mean the same");
}

#[rstest]
#[case::plain("severity = page", r#"severity="page""#)]
#[case::regex("{severity=~a|b,}", r#"severity=~"a|b""#)]
#[case::quotes_where_needed(r#""my label"!=x"#, r#""my label"!="x""#)]
#[case::no_quotes_where_not(r#""mylabel"!~x"#, r#"mylabel!~"x""#)]
#[case::escapes("a=\"\\\\ \\\" \n\"", r#"a="\\ \" \n""#)]
fn the_canonical_form_is_shown(#[case] text: &str, #[case] shown: &str) {
    assert_eq!(Matcher::parse(text).unwrap().to_string(), shown);
}

#[rstest]
#[case::empty("", 1, "no matcher here")]
#[case::only_spaces("  ", 3, "no matcher here")]
#[case::empty_braces("{}", 2, "no matcher here")]
#[case::only_a_comma(",", 1, "no matcher here")]
#[case::no_operator("severity", 9, "expected one of =, !=, =~ or !~")]
#[case::lone_bang("severity!page", 9, "expected one of")]
#[case::space_in_an_unquoted_name("my label=x", 4, "expected one of")]
#[case::no_name("=x", 1, "put the name in double quotes")]
#[case::empty_name(r#"""="x""#, 1, "the label name is empty")]
#[case::no_value("severity=", 10, "no value after the operator")]
#[case::no_value_before_a_comma("severity=,", 10, "no value after the operator")]
#[case::double_equals("severity==page", 10, "put the whole value in double quotes")]
#[case::single_quotes("severity='page'", 10, "put the whole value in double quotes")]
#[case::reserved_in_an_unquoted_value("a=~x{2}", 5, "put the whole value in double quotes")]
#[case::two_words("a=b c", 5, "put the whole value in double quotes")]
#[case::unclosed_quote(r#"größe="x"#, 7, "never closed")]
#[case::ends_in_a_backslash(r#"a="x\"#, 5, "ends after a backslash")]
#[case::disputed_escape(r#"a="x\ty""#, 5, "do not agree on \\t")]
#[case::disputed_escape_in_a_regex(r#"a=~"\bx""#, 5, "write \\\\b")]
#[case::unknown_escape_in_a_name(r#""a\.b"="x""#, 3, "do not agree on \\.")]
#[case::two_matchers(r#"a="x",b="y""#, 7, "each matcher as an item of its own")]
#[case::two_matchers_in_braces(r#"{a="x",b="y"}"#, 8, "each matcher as an item of its own")]
#[case::unclosed_brace(r#"{a="x""#, 7, "expected }")]
#[case::unopened_brace(r#"a="x"}"#, 6, "never opened")]
#[case::text_after_the_brace(r#"{a="x"} y"#, 9, "put the whole value in double quotes")]
#[case::invalid_regex(r#"a=~"x(""#, 4, "not a valid regular expression: unclosed group")]
#[case::regex_that_would_escape_the_anchors(r#"a=~"x)|(y""#, 4, "not a valid regular expression: unopened group")]
#[case::regex_that_is_too_large(r#"a=~"(\\w{999}){999}""#, 4, "too large")]
fn what_is_no_matcher_is_refused_with_its_column(#[case] text: &str, #[case] column: usize, #[case] message: &str) {
    let error = Matcher::parse(text).unwrap_err();
    assert_eq!(error.column(), column, "{error}");
    assert!(error.message().contains(message), "{error}");
    assert!(text.is_char_boundary(error.offset()) && !error.message().contains('\n'), "{error}");
}

#[test]
fn a_regex_matches_the_whole_value_only() {
    let regex = r#"severity=~"critical|page""#;
    assert!(matches(regex, &[("severity", "critical")]));
    assert!(matches(regex, &[("severity", "page")]));
    assert!(!matches(regex, &[("severity", "pages")]));
    assert!(!matches(regex, &[("severity", "not critical")]));
    assert!(!matches(regex, &[("severity", "page\n")]));
    assert!(!matches(regex, &[("severity", "Page")]));
    assert!(matches(r#"severity=~"(?i)page""#, &[("severity", "Page")]));
}

#[rstest]
#[case::equal_to_empty(r#"a="""#, true)]
#[case::not_equal_to_empty(r#"a!="""#, false)]
#[case::equal_to_a_value(r#"a="x""#, false)]
#[case::not_equal_to_a_value(r#"a!="x""#, true)]
#[case::regex_that_matches_nothing(r#"a=~".*""#, true)]
#[case::regex_that_needs_something(r#"a=~".+""#, false)]
#[case::not_regex(r#"a!~".+""#, true)]
fn an_absent_label_counts_as_an_empty_one(#[case] matcher: &str, #[case] expected: bool) {
    assert_eq!(matches(matcher, &[("b", "x")]), expected);
    assert_eq!(matches(matcher, &[("a", "")]), expected);
}

#[test]
fn matchers_are_equal_by_name_operator_and_value() {
    let parse = |text| Matcher::parse(text).unwrap();
    assert_eq!(parse("a=~x"), parse(r#"{ "a" =~ "x" }"#));
    assert_ne!(parse("a=~x"), parse("a=x"));
    assert_ne!(parse("a=x"), parse("b=x"));
    assert_ne!(parse("a=x"), parse("a=y"));
}

proptest::proptest! {
    #[test]
    fn hostile_text_never_panics(text in r#"([{}!=~,\\"'` \n()\[\]|*+?é🙂a-c0-9]|\PC){0,40}"#) {
        match Matcher::parse(&text) {
            Ok(matcher) => assert_eq!(Matcher::parse(&matcher.to_string()), Ok(matcher)),
            Err(error) => assert!(error.column() >= 1 && error.column() <= text.chars().count() + 1),
        }
    }

    #[test]
    fn any_name_and_value_survive_being_shown(name in r"[\s\S]{1,8}", value in r"[\s\S]{0,12}") {
        let matcher = Matcher { name, op: Op::NotEqual, value, regex: None };
        assert_eq!(Matcher::parse(&matcher.to_string()), Ok(matcher));
    }
}

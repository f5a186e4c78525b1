use rstest::rstest;

use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[rstest]
#[case::equal("gpu=true", true)]
#[case::double_equal("gpu==true", true)]
#[case::equal_with_spaces(" gpu = true ", true)]
#[case::other_value("gpu=false", false)]
#[case::absent_key_equal("spot=true", false)]
#[case::not_equal("gpu!=true", false)]
#[case::not_equal_to_another_value("gpu != false", true)]
#[case::not_equal_of_an_absent_key("spot!=true", true)]
#[case::in_set("tier in (train,infer)", true)]
#[case::in_set_without_spaces("tier in(infer)", false)]
#[case::in_set_of_an_absent_key("spot in (a)", false)]
#[case::notin_set("tier notin (infer, spare)", true)]
#[case::notin_set_with_the_value("tier notin (train)", false)]
#[case::notin_set_of_an_absent_key("spot notin (a)", true)]
#[case::exists("gpu", true)]
#[case::exists_not("spot", false)]
#[case::absent("!spot", true)]
#[case::absent_with_a_space("! gpu", false)]
#[case::prefixed_key("nvidia.com/gpu.present=true", true)]
#[case::empty_value("empty=", true)]
#[case::empty_value_in_set("empty in (a,)", true)]
#[case::all_of_several("gpu=true,tier in (a, train),!spot", true)]
#[case::one_of_several_fails("gpu=true,tier in (a, train),spot", false)]
#[case::key_named_like_an_operator("in,notin notin (x)", true)]
fn a_selector_matches_as_in_kubernetes(#[case] text: &str, #[case] expected: bool) {
    let node = labels(&[
        ("gpu", "true"),
        ("tier", "train"),
        ("nvidia.com/gpu.present", "true"),
        ("empty", ""),
        ("in", "y"),
        ("notin", "y"),
    ]);
    let selector = Selector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(selector.matches(&node), expected);
    assert_eq!(selector.to_string(), text, "it is shown as it was given");
}

#[rstest]
#[case::empty("", 1, "would match every node; write the label")]
#[case::only_spaces("  ", 3, "would match every node")]
#[case::only_a_comma(",", 1, "expected a label key")]
#[case::trailing_comma("a=b,", 5, "expected a label key")]
#[case::two_commas("a,,b", 3, "expected a label key")]
#[case::no_key("=b", 1, "expected a label key")]
#[case::bang_alone("!", 2, "expected a label key")]
#[case::bad_key("-a=b", 1, "must begin and end with a letter or digit")]
#[case::bad_prefix("Example.com/a=b", 1, "lower-case letters")]
#[case::long_key(&format!("{}=b", "a".repeat(64)), 1, "at most 63")]
#[case::bad_value("a = b$c", 5, "contains '$'")]
#[case::quoted_value("a=\"b\"", 3, "contains '\"'")]
#[case::long_value(&format!("a={}", "b".repeat(64)), 3, "at most 63")]
#[case::unknown_operator("a like b", 3, "\"like\" is not an operator")]
#[case::two_values("a=b c", 5, "expected a comma or the end")]
#[case::greater("a>1", 2, "< and > are not supported")]
#[case::no_parenthesis("a in b", 6, "in parentheses")]
#[case::no_values("a in ()", 7, "no value between")]
#[case::open_parenthesis("a in (b", 8, "close the parenthesis")]
#[case::bad_value_in_a_set("a in (b, é)", 10, "contains 'é'")]
#[case::absent_with_a_value("!a=b", 3, "expected a comma or the end")]
#[case::several_bangs("!!a", 2, "expected a label key")]
#[case::column_counts_characters("é=b", 1, "contains 'é'")]
fn what_is_no_selector_is_refused_with_its_column(#[case] text: &str, #[case] column: usize, #[case] message: &str) {
    let error = Selector::parse(text).unwrap_err();
    assert_eq!(error.column(), column, "{error}");
    assert!(error.message().contains(message), "{error}");
}

#[test]
fn selectors_are_equal_by_meaning() {
    let parse = |text| Selector::parse(text).unwrap();
    assert_eq!(parse("a==b,!c"), parse(" a = b , ! c "));
    assert_eq!(parse("a in (x,y)"), parse("a in (y, x, x)"));
    assert_ne!(parse("a=b"), parse("a!=b"));
}

proptest::proptest! {
    #[test]
    fn hostile_text_never_panics(text in r"([!=,()<> a-c./]|in|notin|\PC){0,40}") {
        match Selector::parse(&text) {
            Ok(selector) => assert_eq!(Selector::parse(&selector.to_string()), Ok(selector)),
            Err(error) => assert!(error.column() >= 1 && error.column() <= text.chars().count() + 1),
        }
    }
}

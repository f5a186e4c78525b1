//! `sources.prometheus`.

use rstest::rstest;

use super::{super::*, LEAST, loaded, refused};
use crate::policy::Prometheus;

fn prometheus(text: &str) -> Prometheus {
    loaded(&format!("{LEAST}{text}\n")).prometheus.expect(text)
}

#[test]
fn the_address_alone_gets_every_default() {
    let found = prometheus("sources: {prometheus: {query_url: 'http://prometheus.monitoring:9090/'}}");
    assert_eq!(found.query_url.as_str(), "http://prometheus.monitoring:9090");
    assert_eq!(found.rules_url, found.query_url);
    assert_eq!((found.selector.len(), &found.http), (0, &crate::policy::HttpOptions::default()));
    assert_eq!([found.poll_interval, found.timeout], [30, 10].map(Duration::from_secs));
}

#[test]
fn every_option_of_prometheus_is_read() {
    let found = prometheus(
        "sources: {prometheus: {query_url: 'https://thanos/q', rules_url: 'http://ruler:10902', selector: ['cluster=\"prod-a\"', \
         'env=~\"a|b\"'], poll_interval: 5s, timeout: 1m, http: {http_headers: {X-Scope-OrgID: {values: [gpu]}}}}}",
    );
    assert_eq!([found.query_url.as_str(), found.rules_url.as_str()], ["https://thanos/q", "http://ruler:10902"]);
    let selector: Vec<String> = found.selector.iter().map(ToString::to_string).collect();
    assert_eq!(selector, [r#"cluster="prod-a""#, r#"env=~"a|b""#]);
    assert_eq!([found.poll_interval, found.timeout], [5, 60].map(Duration::from_secs));
    assert_eq!(found.http.headers.len(), 1);
}

#[test]
fn evidence_may_be_required_where_it_can_be_had() {
    let config = loaded(
        "release: {require: [evidence, resolved]}\nsources: {prometheus: {query_url: 'http://p:9090'}}\n\
         policies: [{name: a, match: [a=b], action: isolate, release: {require: [evidence]}}]\n",
    );
    assert_eq!(config.release.require, [Requirement::Resolved, Requirement::Evidence].into());
    assert_eq!(config.release_for("a").require, [Requirement::Evidence].into());
}

#[rstest]
#[case::no_address("{prometheus: {}}", 23, "prometheus says not where it is; add `query_url: ...`")]
#[case::no_url("{prometheus: {query_url: prometheus}}", 35, "\"prometheus\" is not")]
#[case::user_info("{prometheus: {query_url: 'http://gpu:hunter2@p'}}", 36, "remove it and use http.basic_auth")]
#[case::query("{prometheus: {query_url: 'http://p/?a'}}", 36, "has a query or a fragment")]
#[case::rules("{prometheus: {query_url: 'http://p', rules_url: 'ftp://p'}}", 59, "is not an http or https URL")]
#[case::matcher("{prometheus: {query_url: 'http://p', selector: ['a=b', 'a b']}}", 67, "expected one of =, !=, =~ or !~")]
#[case::metric("{prometheus: {query_url: 'http://p', selector: [__name__=up]}}", 58, "a selector cannot name metrics")]
#[case::often("{prometheus: {query_url: 'http://p', poll_interval: 4s}}", 62, "is out of range; write 5s to 10m")]
#[case::seldom("{prometheus: {query_url: 'http://p', poll_interval: 11m}}", 62, "is out of range; write 5s to 10m")]
#[case::never("{prometheus: {query_url: 'http://p', timeout: 0s}}", 56, "is out of range; write 100ms to 5m")]
#[case::unknown("{prometheus: {url: 'http://p'}}", 24, "unknown key `url`")]
fn a_wrong_prometheus_is_refused_at_its_place(#[case] text: &str, #[case] column: usize, #[case] message: &str) {
    let error = refused(&format!("{LEAST}sources: {text}\n"));
    let [problem] = error.problems() else { panic!("one problem expected:\n{error}") };
    assert_eq!((problem.line, problem.column), (2, column), "{error}");
    assert!(problem.message.contains(message), "{error}");
}

#[test]
fn a_secret_of_prometheus_is_not_shown_either() {
    let text = format!(
        "{LEAST}sources:\n  prometheus:\n    query_url: http://p\n    http:\n      basic_auth: {{username: a, passwd: hunter2}}\n"
    );
    let shown = refused(&text).to_string();
    assert!(shown.contains("not shown, since it may hold a secret") && !shown.contains("hunter2"), "{shown}");
    let found =
        prometheus("sources: {prometheus: {query_url: 'http://p', http: {basic_auth: {username: a, password: hunter2}}}}");
    assert!(found.http.holds_secrets() && !format!("{found:?}").contains("hunter2"));
}

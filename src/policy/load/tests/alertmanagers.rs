//! `sources.alertmanagers`.

use std::path::PathBuf;

use http::uri::Scheme;
use rstest::rstest;

use super::{EXAMPLE, LEAST, loaded, refused};
use crate::policy::{Alertmanagers, Authorization, DnsPeers, HttpOptions, Identity, Peers, Secret, SecretFrom, TlsOptions};

const HERE: &str = "sources: {alertmanagers: {receiver: gpu, urls: ['http://am:9093']";

fn alertmanagers(text: &str) -> Alertmanagers {
    loaded(&format!("{LEAST}{text}\n")).alertmanagers.expect(text)
}

fn http(text: &str) -> HttpOptions {
    alertmanagers(&format!("{HERE}, http: {text}}}}}")).http
}

/// The example with its commented block as configuration.
fn uncommented() -> String {
    let (before, rest) = EXAMPLE.split_once("#\n# sources:\n").unwrap();
    let (block, after) = rest.split_once("\n\n").unwrap();
    let block: Vec<&str> = block.lines().map(|line| line.strip_prefix("# ").expect(line)).collect();
    format!("{before}sources:\n{}\n\n{after}", block.join("\n"))
}

#[test]
fn none_are_asked_by_default() {
    for text in ["", "sources:\n", "sources: {}\n", "sources: {alertmanagers: }\n"] {
        assert_eq!(loaded(&format!("{LEAST}{text}")).alertmanagers, None, "{text}");
    }
}

#[test]
fn the_commented_example_is_valid_and_shows_the_defaults_where_there_are_any() {
    let shown = loaded(&uncommented()).alertmanagers.unwrap();
    assert!(matches!(&shown.peers, Peers::Urls(urls) if urls.len() == 2), "{shown:?}");
    assert!(shown.http.authorization.is_some() && shown.http.tls.identity.is_some() && shown.http.headers.len() == 1);
    let least = alertmanagers(&format!("{HERE}}}}}"));
    assert_eq!(
        (least.poll_interval, least.timeout, least.settle, least.http.tls.insecure_skip_verify),
        (shown.poll_interval, shown.timeout, shown.settle, shown.http.tls.insecure_skip_verify)
    );
    assert_eq!(least.http, HttpOptions::default());
}

#[test]
fn the_alternatives_of_the_commented_example_are_valid_too() {
    let mut text = String::new();
    let mut left_out = false;
    for line in uncommented().lines() {
        let indent = line.len() - line.trim_start().len();
        left_out = line.starts_with("    urls:") || line.starts_with("      basic_auth:") || (left_out && indent > 6);
        let alternative = ["    # dns:", "    #   ", "      # authorization:", "      #   "].iter().any(|a| line.starts_with(a));
        let line = if alternative { line.replacen("# ", "", 1) } else { line.to_owned() };
        if !left_out {
            text.push_str(&line);
            text.push('\n');
        }
    }
    let config = loaded(&text).alertmanagers.unwrap();
    let dns =
        DnsPeers { host: "alertmanager-operated".to_owned(), port: 9093, scheme: Scheme::HTTP, path: "/alertmanager".to_owned() };
    assert_eq!(config.peers, Peers::Dns(dns));
    assert!(matches!(&config.http.authorization, Some(Authorization::Token { kind, .. }) if kind == "Bearer"), "{config:?}");
}

#[rstest]
#[case::plain("http://am:9093", "http://am:9093")]
#[case::slash("http://am:9093/", "http://am:9093")]
#[case::prefix("HTTPS://am.example.com/am/", "https://am.example.com/am")]
#[case::ipv6("http://[::1]:9093", "http://[::1]:9093")]
fn a_url_is_kept_without_the_slash_at_its_end(#[case] text: &str, #[case] want: &str) {
    let found = alertmanagers(&format!("sources: {{alertmanagers: {{receiver: gpu, urls: ['{text}']}}}}"));
    let Peers::Urls(urls) = found.peers else { panic!("{found:?}") };
    assert_eq!(urls[0].as_str(), want);
}

#[test]
fn a_name_stands_for_every_address_behind_it() {
    let text = "sources: {alertmanagers: {receiver: gpu, dns: {name: 'am.monitoring:9093', scheme: https, path: /am/}}}";
    let found = alertmanagers(text);
    assert!(found.peers.use_tls());
    let Peers::Dns(dns) = found.peers else { panic!("{found:?}") };
    assert_eq!((dns.host.as_str(), dns.port, &dns.scheme, dns.path.as_str()), ("am.monitoring", 9093, &Scheme::HTTPS, "/am"));
}

#[test]
fn the_options_of_http_are_read() {
    assert_eq!(
        http("{basic_auth: {username: a, password: b}}").authorization,
        Some(Authorization::Basic { username: "a".to_owned(), password: Some(SecretFrom::Text(Secret::from("b".to_owned()))) })
    );
    assert_eq!(
        http("{authorization: {credentials_file: /t}}").authorization,
        Some(Authorization::Token { kind: "Bearer".to_owned(), credentials: SecretFrom::File("/t".into()) })
    );
    let tls = http("{tls_config: {ca_file: /ca, cert_file: /c, key_file: /k, server_name: am, insecure_skip_verify: true}}").tls;
    let identity = Identity { cert_file: "/c".into(), key_file: "/k".into() };
    assert_eq!(
        tls,
        TlsOptions {
            ca_file: Some(PathBuf::from("/ca")),
            identity: Some(identity),
            server_name: Some("am".to_owned()),
            insecure_skip_verify: true
        }
    );
    let headers = http("{http_headers: {X-Scope-OrgID: {values: [a, b], secrets: [c], files: [/d]}}}").headers;
    assert_eq!((headers[0].name.as_str(), headers[0].values.len(), headers[0].secrets.len()), ("x-scope-orgid", 2, 2));
}

#[rstest]
#[case::no_receiver("{urls: ['http://a']}", "alertmanagers has no receiver")]
#[case::empty_receiver("{urls: ['http://a'], receiver: ' '}", "receiver \" \" is not a name")]
#[case::no_peer("{receiver: a}", "says of no peer where it is")]
#[case::both("{receiver: a, urls: ['http://a'], dns: {name: 'a:1'}}", "urls and dns exclude each other")]
#[case::no_urls("{receiver: a, urls: []}", "urls is empty")]
#[case::url_twice("{receiver: a, urls: ['http://a', 'http://a/']}", "the URL http://a is listed twice")]
#[case::no_scheme("{receiver: a, urls: ['am:9093']}", "is not an http or https URL")]
#[case::other_scheme("{receiver: a, urls: ['ftp://am']}", "is not an http or https URL")]
#[case::a_word("{receiver: a, urls: ['am']}", "is not an http or https URL")]
#[case::broken_url("{receiver: a, urls: ['http://a b']}", "is not a URL")]
#[case::query("{receiver: a, urls: ['http://a/?x=1']}", "has a query or a fragment")]
#[case::user_info("{receiver: a, urls: ['http://u:hunter2@am']}", "the URL holds user info; remove it and use http.basic_auth")]
#[case::no_name("{receiver: a, dns: {scheme: http}}", "dns has no name")]
#[case::no_port("{receiver: a, dns: {name: am}}", "is not a host name and a port")]
#[case::bad_port("{receiver: a, dns: {name: 'am:0'}}", "is not a host name and a port")]
#[case::bad_scheme("{receiver: a, dns: {name: 'am:1', scheme: tcp}}", "the scheme \"tcp\" is not known")]
#[case::bad_path("{receiver: a, dns: {name: 'am:1', path: am}}", "the path \"am\" is not the beginning of a path")]
#[case::no_unit("{receiver: a, urls: ['http://a'], poll_interval: 60}", "poll_interval \"60\" is not a duration")]
#[case::too_often("{receiver: a, urls: ['http://a'], poll_interval: 0s}", "poll_interval \"0s\" is out of range; write 1s to 1h")]
#[case::no_time("{receiver: a, urls: ['http://a'], timeout: 1ms}", "timeout \"1ms\" is out of range")]
#[case::too_settled("{receiver: a, urls: ['http://a'], settle: 2d}", "settle \"2d\" is out of range; write 0s to 1day")]
#[case::unknown("{receiver: a, url: 'http://a'}", "unknown key `url`")]
fn a_wrong_peer_is_refused(#[case] text: &str, #[case] message: &str) {
    refuses(&format!("sources: {{alertmanagers: {text}}}"), message);
}

#[rstest]
#[case::both(
    "{basic_auth: {username: a}, authorization: {credentials_file: /t}}",
    "basic_auth and authorization exclude each other"
)]
#[case::no_username("{basic_auth: {password: hunter2}}", "basic_auth has no username")]
#[case::empty_username("{basic_auth: {username: '', password: hunter2}}", "username is empty")]
#[case::colon("{basic_auth: {username: 'a:hunter2'}}", "username holds a colon")]
#[case::two_passwords("{basic_auth: {username: a, password: hunter2, password_file: /p}}", "password and password_file exclude")]
#[case::no_credentials("{authorization: {type: Bearer}}", "authorization has no credentials")]
#[case::basic("{authorization: {type: basic, credentials: hunter2}}", "the type Basic is refused here; use basic_auth")]
#[case::two_words("{authorization: {type: a b, credentials: hunter2}}", "the type \"a b\" is not one word")]
#[case::two_credentials(
    "{authorization: {credentials: hunter2, credentials_file: /t}}",
    "credentials and credentials_file exclude"
)]
#[case::odd_credentials("{authorization: {credentials: \"hunter2\\n\"}}", "credentials hold characters that no header can")]
#[case::empty_file("{tls_config: {ca_file: ''}}", "the name of the file is empty")]
#[case::cert_alone("{tls_config: {cert_file: /c}}", "cert_file needs key_file")]
#[case::key_alone("{tls_config: {key_file: /k}}", "key_file needs cert_file")]
#[case::bad_name("{tls_config: {server_name: 'a b'}}", "server_name \"a b\" is neither")]
#[case::bad_header("{http_headers: {'a b': {values: [x]}}}", "\"a b\" is not the name of a header")]
#[case::reserved("{http_headers: {Authorization: {secrets: [hunter2]}}}", "the header Authorization cannot be set here")]
#[case::empty_header("{http_headers: {X-A: {values: []}}}", "the header x-a has no value")]
#[case::odd_secret("{http_headers: {X-A: {secrets: [\"hunter2\\n\"]}}}", "this secret holds characters that no header can")]
#[case::odd_value("{http_headers: {X-A: {values: [\"hunter2\\n\"]}}}", "this value holds characters that no header can")]
#[case::unknown("{basic_auth: {username: a, passwd: hunter2}}", "unknown key `passwd`")]
#[case::list("{basic_auth: {username: a, password: [hunter2]}}", "expected a single value here")]
fn a_wrong_option_of_http_is_refused_and_its_line_not_shown(#[case] text: &str, #[case] message: &str) {
    refuses(&format!("{HERE}, http: {text}}}}}"), message);
    let block = format!("sources:\n  alertmanagers:\n    receiver: a\n    urls: ['http://a']\n    http:\n      {text}");
    refuses(&block, message);
}

fn refuses(text: &str, message: &str) {
    let error = refused(&format!("{LEAST}{text}\n"));
    let shown = error.to_string();
    let [problem] = error.problems() else { panic!("one problem expected:\n{shown}") };
    assert!(problem.message.contains(message), "{shown}");
    assert_eq!(shown.lines().count(), 4, "{shown}");
    if text.contains("http:\n") || text.contains("http: {") {
        assert!(shown.contains("not shown, since it may hold a secret"), "{shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_line_after_the_section_is_shown_again() {
    let text = format!("{LEAST}{HERE}, http: {{basic_auth: {{username: a, password: hunter2}}}}}}}}\ninstance: a b\n");
    let shown = refused(&text).to_string();
    assert!(shown.contains(" | instance: a b"), "{shown}");
}

#[test]
fn a_secret_is_not_shown_at_the_margin_or_in_a_file_in_braces_either() {
    let margin = format!("{LEAST}sources:\n alertmanagers:\n  http:\n   basic_auth:\n    password: \"x\nhunter2\" x\n");
    let shown = refused(&margin).to_string();
    assert!(shown.contains("not shown") && !shown.contains("hunter2"), "{shown}");
    let text = "{release: {require: [resolved]},\nsources: {alertmanagers: {receiver: a, urls: ['http://a'],\n\"http\": {\nbasic_auth:\n\
                {username: a,\npasswd: hunter2}}}}}\n";
    let shown = refused(text).to_string();
    assert!(shown.contains("not shown") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn no_secret_is_in_the_debug_output() {
    let config = alertmanagers(&format!(
        "{HERE}, http: {{basic_auth: {{username: a, password: hunter2}}, http_headers: {{X-A: {{secrets: [hunter3]}}}}}}}}}}"
    ));
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter") && shown.contains("<secret>"), "{shown}");
}

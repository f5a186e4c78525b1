//! Whatever is done to a configuration file, loading it gives a whole configuration or problems with a place.

use gpu_quarantine::policy::{Config, Peers, Release, Requirement, load};

#[path = "support/mutate.rs"]
mod mutate;

use mutate::Mutator;

/// How many damaged files are loaded, times `GPU_QUARANTINE_SOAK`.
const MUTATIONS: u64 = 20_000;

const EXAMPLE: &str = include_str!("../docs/config.example.yaml");
const MINIMAL: &str = include_str!("../fixtures/minimal.yaml");
const SOURCES: &str = r#"
release: {require: [resolved, evidence]}
sources:
  alertmanagers:
    urls: ['http://am-0:9093', 'https://am-1/am']
    receiver: gpu-quarantine
    poll_interval: 30s
    timeout: 5s
    http:
      basic_auth: {username: gpu, password_file: /etc/password}
      tls_config: {ca_file: /etc/ca.crt, cert_file: /etc/tls.crt, key_file: /etc/tls.key, server_name: am}
      http_headers: {X-Scope-OrgID: {values: [a], secrets: [b]}}
  prometheus:
    query_url: http://prometheus:9090
    rules_url: https://ruler/prometheus
    selector: ['cluster="prod-a"', 'env=~"a|b"']
    poll_interval: 30s
    timeout: 5s
    http:
      authorization: {credentials_file: /etc/token}
"#;

/// What the rest of the program relies on.
fn assert_sound(config: &Config) {
    assert!(!config.release.require.is_empty(), "a release must need something");
    assert!(!config.instance.is_empty() && !config.domain.is_empty() && config.isolation.taint_key != "nvidia.com/gpu");
    let limits = config.guard.limits;
    assert!(limits.fleet.of(100) >= limits.fleet.percent.of(100) && limits.min_healthy.of(100) <= 100);
    assert!(!limits.new.within.is_zero() && !config.guard.max_evicted_gangs.within.is_zero());
    if let Some(alertmanagers) = &config.alertmanagers {
        assert!(!alertmanagers.receiver.trim().is_empty() && !alertmanagers.poll_interval.is_zero());
        assert!(!alertmanagers.timeout.is_zero());
        match &alertmanagers.peers {
            Peers::Urls(urls) => assert!(!urls.is_empty() && urls.iter().all(|u| !u.as_str().contains('@'))),
            Peers::Dns(dns) => assert!(!dns.host.is_empty() && dns.port > 0),
        }
    }
    let requires_evidence = |r: &Release| r.require.contains(&Requirement::Evidence);
    match &config.prometheus {
        None => {
            let own = config.policies.iter().filter_map(|p| p.release.as_ref());
            assert!(!own.chain([&config.release]).any(requires_evidence), "nobody could be asked");
        }
        Some(prometheus) => {
            assert!(!prometheus.poll_interval.is_zero() && !prometheus.timeout.is_zero());
            assert!(!prometheus.query_url.as_str().contains('@') && !prometheus.rules_url.as_str().contains('@'));
            assert!(prometheus.selector.iter().all(|m| m.name() != "__name__"), "it would select nothing");
        }
    }
    for (i, policy) in config.policies.iter().enumerate() {
        assert!((1..=63).contains(&policy.name.len()), "{:?} is no taint value", policy.name);
        assert!(!policy.matchers.is_empty(), "a policy must not match everything");
        assert!(policy.release.as_ref().is_none_or(|r| !r.require.is_empty()));
        assert!(config.policies[..i].iter().all(|earlier| earlier.name != policy.name), "names must be unique");
    }
}

#[test]
fn a_damaged_file_is_loaded_whole_or_refused_with_a_place() {
    let mut counts = [0_u64; 2];
    let soak = std::env::var("GPU_QUARANTINE_SOAK").map_or(1, |v| v.parse().expect("GPU_QUARANTINE_SOAK is a whole number"));
    for seed in 0..MUTATIONS * soak {
        // The example is mostly comments and slow to read; the small files find more.
        let original = match seed % 4 {
            0 => EXAMPLE,
            1 => SOURCES,
            _ => MINIMAL,
        };
        let damaged = Mutator::new(seed).mutate(original.as_bytes());
        let text = String::from_utf8_lossy(&damaged);
        match load("config.yaml", &text) {
            Ok(config) => {
                assert_sound(&config);
                counts[0] += 1;
            }
            Err(error) => {
                let shown = error.to_string();
                assert!(!error.problems().is_empty(), "seed {seed}: refused without a reason");
                for problem in error.problems() {
                    let place = format!("config.yaml:{}:{}: {}\n", problem.line, problem.column, problem.message);
                    assert!(problem.line >= 1 && problem.column >= 1, "seed {seed}: {problem:?}");
                    assert!(problem.line <= text.split(['\n', '\r']).count(), "seed {seed}: {problem:?}");
                    assert!(shown.contains(&place), "seed {seed}: {shown}");
                }
                assert_eq!(shown.lines().count(), 4 * error.problems().len(), "seed {seed}: {shown}");
                counts[1] += 1;
            }
        }
    }
    // If nearly all were refused, or none, the damage would test only one side.
    assert!(counts.iter().all(|n| *n > MUTATIONS / 50), "loaded and refused: {counts:?}");
}

#[test]
fn the_same_seed_does_the_same_damage() {
    let damage = |seed| Mutator::new(seed).mutate(MINIMAL.as_bytes());
    assert_eq!(damage(7), damage(7));
    assert_ne!(damage(7), damage(8));
}

//! The configuration file as it is written: keys and texts, nothing checked but their shape.
//!
//! Leaves carry their place in the file, so that whatever is wrong with them can be shown there. Numbers and words are
//! kept as text: read by [`super::load()`], several wrong ones are all reported at once, in our own words.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::alertmanagers::Secret;

/// A value that may be left out; `null` (nothing after the colon) counts as left out.
pub(super) type Opt<T> = Option<Spanned<T>>;
/// A list of texts.
pub(super) type Texts = Vec<Spanned<String>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) instance: Opt<String>,
    pub(super) domain: Opt<String>,
    pub(super) scope: Option<RawScope>,
    pub(super) isolation: Option<RawIsolation>,
    pub(super) release: Opt<RawRelease>,
    pub(super) eviction: Option<RawEviction>,
    pub(super) health_label: Option<bool>,
    pub(super) ledger: Option<RawLedger>,
    pub(super) locate: Option<RawLocate>,
    pub(super) guard: Option<RawGuard>,
    pub(super) people: Option<RawPeople>,
    pub(super) events: Option<RawEvents>,
    pub(super) sources: Option<RawSources>,
    pub(super) policies: Option<Vec<Spanned<RawPolicy>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScope {
    pub(super) nodes: Opt<String>,
    pub(super) alerts: Option<Texts>,
    pub(super) never: Option<Texts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawIsolation {
    pub(super) taint: Option<RawTaint>,
    pub(super) cordon: Option<bool>,
    pub(super) former_keys: Option<Texts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTaint {
    pub(super) key: Opt<String>,
    pub(super) effect: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRelease {
    pub(super) after: Opt<String>,
    pub(super) require: Opt<Texts>,
    pub(super) flapping: Opt<RawFlapping>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEviction {
    pub(super) pods: Opt<String>,
    pub(super) namespaces: Option<Texts>,
    pub(super) never_namespaces: Option<Texts>,
    pub(super) owners: Option<Texts>,
    pub(super) protect: Option<Texts>,
    pub(super) group_label: Opt<String>,
    pub(super) order: Option<Texts>,
    pub(super) max_restarts_per_hour: Opt<String>,
    pub(super) no_progress: Option<Texts>,
    pub(super) evidence: Option<RawKept>,
    pub(super) settle: Opt<String>,
    pub(super) deadline: Opt<String>,
    pub(super) on_deadline: Opt<String>,
    pub(super) unknown_gpu: Opt<String>,
    pub(super) checkpoint: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawKept {
    pub(super) keep: Opt<String>,
    pub(super) keep_for: Opt<String>,
}

/// The rules of a policy; [`RawEviction`] has the same keys, since unknown ones cannot be refused in what is flattened.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEvictionRules {
    pub(super) settle: Opt<String>,
    pub(super) deadline: Opt<String>,
    pub(super) on_deadline: Opt<String>,
    pub(super) unknown_gpu: Opt<String>,
    pub(super) checkpoint: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFlapping {
    pub(super) within: Opt<String>,
    pub(super) longer_after: Opt<String>,
    pub(super) person_after: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLedger {
    pub(super) namespace: Opt<String>,
    pub(super) name: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLocate {
    pub(super) node_labels: Option<Texts>,
    pub(super) hostname_labels: Option<Texts>,
    pub(super) instance_labels: Option<Texts>,
    pub(super) exporter_pod_labels: Option<bool>,
    pub(super) uuid_labels: Option<Texts>,
    pub(super) pci_labels: Option<Texts>,
    pub(super) index_labels: Option<Texts>,
    pub(super) exporter_pods: Option<Texts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGuard {
    pub(super) max_isolated: Option<RawShare>,
    pub(super) pools: Option<RawPools>,
    pub(super) max_new_isolations: Option<RawRate>,
    pub(super) max_evicted_gangs: Option<RawRate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPools {
    pub(super) label: Opt<String>,
    pub(super) max_isolated: Option<RawShare>,
    pub(super) min_healthy: Opt<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawShare {
    pub(super) count: Opt<String>,
    pub(super) percent: Opt<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRate {
    pub(super) count: Opt<String>,
    pub(super) within: Opt<String>,
}

/// What a policy may have of [`RawGuard`].
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPolicyGuard {
    pub(super) exempt: Option<bool>,
    pub(super) max_isolated: Option<RawShare>,
    pub(super) pools: Option<RawPolicyPools>,
    pub(super) max_new_isolations: Option<RawRate>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPolicyPools {
    pub(super) max_isolated: Option<RawShare>,
    pub(super) min_healthy: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPeople {
    pub(super) field_managers: Option<Texts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEvents {
    pub(super) enabled: Option<bool>,
    pub(super) namespace: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSources {
    pub(super) alertmanagers: Opt<RawAlertmanagers>,
    pub(super) prometheus: Opt<RawPrometheus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrometheus {
    pub(super) query_url: Opt<String>,
    pub(super) rules_url: Opt<String>,
    pub(super) selector: Option<Texts>,
    pub(super) poll_interval: Opt<String>,
    pub(super) timeout: Opt<String>,
    pub(super) http: Option<RawHttp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAlertmanagers {
    pub(super) urls: Opt<Texts>,
    pub(super) dns: Opt<RawDns>,
    pub(super) receiver: Opt<String>,
    pub(super) poll_interval: Opt<String>,
    pub(super) timeout: Opt<String>,
    pub(super) settle: Opt<String>,
    pub(super) http: Option<RawHttp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDns {
    pub(super) name: Opt<String>,
    pub(super) scheme: Opt<String>,
    pub(super) path: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHttp {
    pub(super) basic_auth: Opt<RawBasicAuth>,
    pub(super) authorization: Opt<RawAuthorization>,
    pub(super) tls_config: Opt<RawTls>,
    pub(super) http_headers: Option<BTreeMap<String, Spanned<RawHeader>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBasicAuth {
    pub(super) username: Opt<String>,
    pub(super) password: Opt<Secret>,
    pub(super) password_file: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAuthorization {
    #[serde(rename = "type")]
    pub(super) kind: Opt<String>,
    pub(super) credentials: Opt<Secret>,
    pub(super) credentials_file: Opt<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTls {
    pub(super) ca_file: Opt<String>,
    pub(super) cert_file: Opt<String>,
    pub(super) key_file: Opt<String>,
    pub(super) server_name: Opt<String>,
    pub(super) insecure_skip_verify: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHeader {
    pub(super) values: Option<Texts>,
    pub(super) secrets: Option<Vec<Spanned<Secret>>>,
    pub(super) files: Option<Texts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPolicy {
    pub(super) name: Opt<String>,
    #[serde(rename = "match")]
    pub(super) matchers: Opt<Texts>,
    pub(super) action: Opt<String>,
    pub(super) release: Opt<RawRelease>,
    pub(super) eviction: Opt<RawEvictionRules>,
    pub(super) guard: Opt<RawPolicyGuard>,
    pub(super) weight: Opt<String>,
    pub(super) when_cordoned: Opt<String>,
}

//! The configuration file as it is written: keys and texts, nothing checked but their shape.
//!
//! Leaves carry their place in the file, so that whatever is wrong with them can be shown there. Numbers and words are
//! kept as text: read by [`super::load()`], several wrong ones are all reported at once, in our own words.

use serde::Deserialize;
use serde_saphyr::Spanned;

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
    pub(super) locate: Option<RawLocate>,
    pub(super) guard: Option<RawGuard>,
    pub(super) people: Option<RawPeople>,
    pub(super) events: Option<RawEvents>,
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
    pub(super) max_isolated: Option<RawMaxIsolated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMaxIsolated {
    pub(super) count: Opt<String>,
    pub(super) percent: Opt<String>,
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
pub(super) struct RawPolicy {
    pub(super) name: Opt<String>,
    #[serde(rename = "match")]
    pub(super) matchers: Opt<Texts>,
    pub(super) action: Opt<String>,
    pub(super) release: Opt<RawRelease>,
}

//! The PromQL that is asked.

use std::fmt::Write as _;

use crate::{
    alert::{Matcher, RecoveryQuery},
    policy::{Locate, Prometheus},
};

/// What every exporter shows of every GPU, under all its names: behind `gpu:present:max` in alert-rules/normalise.yaml.
const SHOWN_BY_EVERY_GPU: [&str; 15] = [
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "dcgm_gpu_temp",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_USED_BYTES",
    "dcgm_fb_used",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "dcgm_gpu_utilization",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "dcgm_power_usage",
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_SM_CLOCK_HERTZ",
    "dcgm_sm_clock",
];
/// Older samples show nothing. Prometheus by itself looks back 5 minutes.
const FRESH: &str = "2m";
/// What a GPU that is lost by now showed at last is a few minutes old.
const LAST_SEEN: &str = "15m";

/// One series for each set of names that a GPU of the node has, with a sample at each step at which it was shown by fresh samples.
///
/// A range drops what is older than [`FRESH`]; an instant selector drops a series that a failed scrape has ended. Neither does both.
/// They are aggregated at once, since several metrics are selected, whose series differ in nothing but the name.
pub(super) fn presence(settings: &Prometheus, locate: &Locate, hosts: &[String]) -> Result<String, String> {
    let metrics = SHOWN_BY_EVERY_GPU.join("|");
    let identity: Vec<String> = distinct([&locate.uuid_labels, &locate.pci_labels, &locate.index_labels]).map(label).collect();
    let identity = identity.join(",");
    let of_the_node = selectors(&metrics, settings, locate, hosts)?
        .into_iter()
        .map(|series| format!("group by ({identity}) (last_over_time({series}[{FRESH}])) and group by ({identity}) ({series})"));
    Ok(of_the_node.collect::<Vec<_>>().join(" or "))
}

/// The last value of every series of DCGM's about the node.
pub(super) fn last_values(settings: &Prometheus, locate: &Locate, hosts: &[String]) -> Result<String, String> {
    let all = selectors("(?:DCGM|dcgm)_.+", settings, locate, hosts)?;
    Ok(all.into_iter().map(|series| format!("last_over_time({series}[{LAST_SEEN}])")).collect::<Vec<_>>().join(" or "))
}

/// A selector of those metrics for each label that may name the node.
fn selectors(metrics: &str, settings: &Prometheus, locate: &Locate, hosts: &[String]) -> Result<Vec<String>, String> {
    // An empty alternative would match every series without the label.
    let hosts: Vec<String> = hosts.iter().filter(|host| !host.is_empty()).map(|host| regex::escape(host)).collect();
    if hosts.is_empty() {
        return Err("there is no name by which the node's GPUs could be asked for".to_owned());
    }
    let names = quoted(&format!("(?i)(?:{})", hosts.join("|")));
    let mut rest = String::new();
    for matcher in &settings.selector {
        rest.push(',');
        rest.push_str(&condition(matcher));
    }
    let of_the_node = distinct([&locate.node_labels, &locate.hostname_labels])
        .map(|name| format!("{{__name__=~\"{metrics}\",{}=~{names}{rest}}}", label(name)));
    let selectors: Vec<String> = of_the_node.collect();
    if selectors.is_empty() {
        return Err("no label is known that names a node; see locate.node_labels and locate.hostname_labels".to_owned());
    }
    Ok(selectors)
}

/// One series, with a sample at each step at which the query returned a number. `group` alone would count NaN as well. The line feed
/// ends a comment, if the query has one.
pub(super) fn recovery(query: &RecoveryQuery) -> String {
    format!("group(({}\n) >= -Inf)", query.as_str())
}

fn distinct<const N: usize>(lists: [&[String]; N]) -> impl Iterator<Item = &str> {
    let mut seen = Vec::new();
    for name in lists.into_iter().flatten() {
        if !seen.contains(&name.as_str()) {
            seen.push(name.as_str());
        }
    }
    seen.into_iter()
}

fn condition(matcher: &Matcher) -> String {
    format!("{}{}{}", label(matcher.name()), matcher.op(), quoted(matcher.value()))
}

/// The name of a label. Only Prometheus 3 knows other names than words, and wants them in quotes.
fn label(name: &str) -> String {
    let word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with(|c: char| c.is_ascii_digit());
    if word { name.to_owned() } else { quoted(name) }
}

/// A string of PromQL, which has the escapes of Go.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // Writing into a String does not fail.
            c if c.is_ascii_control() => write!(quoted, "\\x{:02x}", u32::from(c)).unwrap_or_default(),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

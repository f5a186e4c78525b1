//! What is promised, held against what was told to the service and what stands on the nodes. Nothing here asks the service itself.
//!
//! - P1: after a 200 every firing alert of the body fires on its node's record, and the taint stands if it is `recorded`; each result
//!   has one of the outcomes that a correct service can give here; an answer is a 200 or a 503.
//! - P4, as far as push and pull go without evidence: a node is isolated or pending at `t` if one of its alerts was listed by a peer
//!   within our reach, and by none of those only as muted, at every instant of the last [`WITHIN`] seconds, while service and API
//!   server worked, and no resolve of it was told in that time. Our taint goes only if nothing told the service in the whole
//!   hold-down that an alert on record fires (a muted one counts), nobody holds the node, or if a person takes it away.
//! - A node becomes isolated only if the last word of one of its alerts was that it fires and is not muted.
//! - A pull ends only what was on record, is not listed, and was not heard of by webhook since it began, and nothing if it is
//!   incomplete; it begins nothing that a webhook told to be over since then.
//! - P9: at every instant our taint and the record say the same, and what belongs to others stands as it stood.
//! - P5 is held at the end, in `world.rs`.

use serde_json::Value;

use crate::{
    harness::{RECORD, TAINT},
    sequence::{ALERTS, NODES, generation_of, node_of},
    source::Listed,
    wording::{alertname, node_name, uuid},
};

/// The hold-down of the configuration.
pub(crate) const HOLD_DOWN: i64 = 600;
/// A pull each minute and some jitter, how long one takes, and a second here and there.
pub(crate) const WITHIN: i64 = 110;
/// The annotation by which a person holds a node.
pub(crate) const HOLD: &str = "gpu-quarantine.dev/hold";
/// The annotation by which a person wants nothing done to a node.
pub(crate) const IGNORE: &str = "gpu-quarantine.dev/ignore";

/// What the service was told of one alert.
#[derive(Debug, Clone, Default)]
struct Word {
    /// The last word may have been that it fires, unmuted.
    may_begin: bool,
    /// When the service last took in for certain that it fires.
    fires: Option<i64>,
    /// When a webhook that reached the service last named it.
    heard: Option<i64>,
    /// When a webhook told that it is over.
    over: Option<i64>,
    /// Since when it has been listed and everything worked.
    listed: Option<i64>,
}

/// A node as the checks see it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) version: Value,
    pub(crate) tainted: bool,
    pub(crate) record: Value,
    held: bool,
    ignored: bool,
    others: Value,
}

impl Seen {
    pub(crate) fn of(raw: &Value) -> Self {
        let taints = raw["spec"]["taints"].as_array().cloned().unwrap_or_default();
        let text = raw["metadata"]["annotations"][RECORD].as_str();
        let mut others = raw.clone();
        for (place, key) in [("/metadata", "resourceVersion"), ("/metadata", "managedFields"), ("/spec", "taints")] {
            others.pointer_mut(place).and_then(Value::as_object_mut).and_then(|m| m.remove(key));
        }
        for key in [RECORD, HOLD, IGNORE] {
            others.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut).and_then(|m| m.remove(key));
        }
        others["foreign taints"] = taints.iter().filter(|t| t["key"] != TAINT).cloned().collect();
        Self {
            version: raw["metadata"]["resourceVersion"].clone(),
            tainted: taints.iter().any(|t| t["key"] == TAINT),
            record: text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))),
            held: raw["metadata"]["annotations"].get(HOLD).is_some(),
            ignored: raw["metadata"]["annotations"].get(IGNORE).is_some(),
            others,
        }
    }

    /// The members of all claims, and whether they fire.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&Value, bool)> {
        let claims = self.record["claims"].as_array().into_iter().flatten();
        let members = claims.flat_map(|c| c["members"].as_array().into_iter().flatten());
        members.map(|m| (m, m.get("endsAt").is_none() && m.get("ended").is_none()))
    }

    /// Whether a person released the claim of this alert.
    pub(crate) fn is_released(&self, alert: usize) -> bool {
        let gpu = generation_of(alert).map(uuid);
        let mut claims = self.record["claims"].as_array().into_iter().flatten();
        claims.any(|c| c["state"] == "released" && c["alert"] == alertname(alert) && c["gpu"].as_str() == gpu.as_deref())
    }

    pub(crate) fn member(&self, fingerprint: &str) -> Option<bool> {
        self.members().find(|(m, _)| m["fp"] == fingerprint).map(|(_, fires)| fires)
    }
}

/// Everything that was told, and the nodes as they were seen last.
pub(crate) struct Promises {
    words: Vec<Word>,
    pub(crate) fingerprints: Vec<String>,
    nodes: Vec<Seen>,
    /// A person released this node: what that means is not the subject here.
    pub(crate) by_hand: [bool; NODES],
}

type Kept = Result<(), String>;

impl Promises {
    pub(crate) fn new(nodes: &[Value], fingerprints: Vec<String>) -> Self {
        Self {
            words: vec![Word::default(); ALERTS],
            fingerprints,
            nodes: nodes.iter().map(Seen::of).collect(),
            by_hand: [false; NODES],
        }
    }

    /// A webhook reaches the service; what comes of it is not known yet.
    pub(crate) fn posted(&mut self, now: i64, alerts: &[(usize, bool)]) {
        for (alert, fires) in alerts {
            let word = &mut self.words[*alert];
            word.heard = Some(now);
            word.may_begin |= fires;
            if !fires {
                word.over = Some(now);
            }
        }
    }

    /// It was answered with a 200. `certain` unless earlier work may still be in flight.
    pub(crate) fn accepted(
        &mut self,
        now: i64,
        alerts: &[(usize, bool)],
        answer: &Value,
        nodes: &[Value],
        certain: bool,
    ) -> Kept {
        let results = answer["results"].as_array().ok_or("an answer without results")?;
        if results.len() != alerts.len() {
            return Err(format!("P1: {} results for {} alerts", results.len(), alerts.len()));
        }
        for ((alert, fires), result) in alerts.iter().zip(results) {
            let fingerprint = &self.fingerprints[*alert];
            let node = Seen::of(&nodes[node_of(*alert)]);
            let outcome = result["outcome"].as_str().unwrap_or_default();
            if node.ignored && outcome == "ignored" {
                continue;
            }
            let possible: &[&str] =
                if *fires { &["recorded", "unchanged", "pending"] } else { &["resolved", "unchanged", "held"] };
            if result["fingerprint"] != *fingerprint || !possible.contains(&outcome) {
                return Err(format!("P1: alert {alert} (fires: {fires}) got {result}"));
            }
            if *fires && certain {
                if node.member(fingerprint) != Some(true) {
                    return Err(format!("P1: alert {alert} is {result}, but on record is {}", node.record));
                }
                if outcome == "recorded" && !node.tainted {
                    return Err(format!("P1: alert {alert} is {result}, but the node is not isolated"));
                }
            }
            let word = &mut self.words[*alert];
            if *fires {
                // What a person released is left alone.
                if !node.is_released(*alert) {
                    word.fires = Some(now);
                }
            } else if node.member(fingerprint) != Some(true) {
                word.may_begin = false;
            }
        }
        Ok(())
    }

    /// What a pull changed is what it proves. Resolves that were put off for a few seconds may be written with it.
    pub(crate) fn proves_no_more(&self, now: i64, begun: i64, listed: &[Listed], complete: bool, nodes: &[Value]) -> Kept {
        for (alert, word) in self.words.iter().enumerate() {
            let fingerprint = &self.fingerprints[alert];
            let (was, is) = (&self.nodes[node_of(alert)], Seen::of(&nodes[node_of(alert)]));
            let (before, after) = (was.member(fingerprint) == Some(true), is.member(fingerprint) == Some(true));
            let newer = word.heard.is_some_and(|at| at >= begun);
            let proven = complete && !newer && !listed.iter().any(|l| l.alert == alert);
            if before && !after && !proven && word.over.is_none_or(|at| now - at > 10) {
                return Err(format!("P4: a pull (complete: {complete}) ended alert {alert}, of which it proves nothing"));
            }
            if !before && after && newer {
                return Err(format!("P5: a pull begun at {begun} began alert {alert}, which was heard of since"));
            }
        }
        Ok(())
    }

    /// A pull was handed over. `taken` if every node was written.
    pub(crate) fn pulled(&mut self, now: i64, begun: i64, listed: &[Listed], complete: bool, taken: bool) {
        for (alert, word) in self.words.iter_mut().enumerate() {
            // Those the service heard of since are newer than the pull.
            if word.heard.is_some_and(|at| at >= begun) {
                continue;
            }
            let node = &self.nodes[node_of(alert)];
            match listed.iter().find(|l| l.alert == alert) {
                Some(l) if l.muted.is_none() => {
                    word.may_begin = true;
                    if taken && !node.ignored && !node.is_released(alert) {
                        word.fires = Some(now);
                    }
                }
                Some(_) if taken && !node.ignored => {
                    word.may_begin = false;
                    // As it was before the pull: what is on record goes on.
                    if node.member(&self.fingerprints[alert]).is_some() {
                        word.fires = Some(now);
                    }
                }
                None if taken && complete && !node.ignored => word.may_begin = false,
                _ => {}
            }
        }
    }

    /// A new process remembers nothing of when it heard what.
    pub(crate) fn restarted(&mut self) {
        self.words.iter_mut().for_each(|w| w.heard = None);
    }

    /// A person takes the taint away.
    pub(crate) fn taken_away(&mut self, node: usize, raw: &Value) {
        self.by_hand[node] |= self.nodes[node].tainted;
        self.nodes[node] = Seen::of(raw);
    }

    /// Whether a pull that began then knows more of this alert than was posted.
    pub(crate) fn is_news(&self, alert: usize, begun: i64) -> bool {
        self.words[alert].heard.is_none_or(|at| at < begun)
    }

    pub(crate) fn is_ignored(&self, node: usize) -> bool {
        self.nodes[node].ignored
    }

    /// Somebody else changes a node.
    pub(crate) fn changed(&mut self, node: usize, raw: &Value) {
        self.nodes[node].others = Seen::of(raw).others;
    }

    /// After each thing that happens.
    pub(crate) fn look(&mut self, now: i64, nodes: &[Value]) -> Kept {
        for (number, raw) in nodes.iter().enumerate() {
            let was = &self.nodes[number];
            if was.version == raw["metadata"]["resourceVersion"] {
                continue;
            }
            let is = Seen::of(raw);
            let name = node_name(number);
            if is.others != was.others {
                return Err(format!("P9: what is not ours changed on {name}: {} became {}", was.others, is.others));
            }
            if was.ignored && is.ignored && (was.tainted, &was.record) != (is.tainted, &is.record) {
                return Err(format!("P7: {name} was written, and a person wants nothing done to it"));
            }
            let added = &is.record["added"];
            // Until the service sees what a person took away.
            let taken = self.by_hand[number] && !is.tainted;
            if is.tainted == added.is_null() && !taken {
                return Err(format!("P9: taint {}, and the record of {name} is {}", is.tainted, is.record));
            }
            let alerts = || (0..ALERTS).filter(|a| node_of(*a) == number);
            if is.tainted && !was.tainted && !alerts().any(|a| self.words[a].may_begin) {
                return Err(format!("{name} was isolated, and all that was told last of its alerts is silence or an end"));
            }
            if was.tainted && !is.tainted {
                // What a person released once is left alone until it was seen to end.
                let counts = |a: &usize| !was.is_released(*a);
                if let Some(a) = alerts().filter(counts).find(|a| self.words[*a].fires.is_some_and(|at| now - at < HOLD_DOWN)) {
                    let at = self.words[a].fires;
                    return Err(format!("P4: {name} was released at {now}, and alert {a} was told to fire at {at:?}"));
                }
                if was.held && is.held {
                    return Err(format!("P4: {name} was released, and a person holds it"));
                }
            }
            self.nodes[number] = is;
        }
        Ok(())
    }

    /// Once per second: what is listed now, if everything between the sources and the nodes works.
    pub(crate) fn never_free(&mut self, now: i64, works: bool, listed: &[Listed]) -> Kept {
        for (alert, word) in self.words.iter_mut().enumerate() {
            let ignored = self.nodes[node_of(alert)].ignored;
            let fires = works && !ignored && listed.iter().any(|l| l.alert == alert && l.muted.is_none());
            if !fires || self.by_hand[node_of(alert)] {
                word.listed = None;
                continue;
            }
            let since = *word.listed.get_or_insert(now);
            let node = &self.nodes[node_of(alert)];
            let pending = node.member(&self.fingerprints[alert]) == Some(true);
            let told_over = word.over.is_some_and(|at| now - at <= WITHIN);
            if now - since >= WITHIN && !node.tainted && !pending && !told_over {
                let name = node_name(node_of(alert));
                return Err(format!("P4: at {now} {name} is free, and alert {alert} has been listed since {since}"));
            }
        }
        Ok(())
    }
}

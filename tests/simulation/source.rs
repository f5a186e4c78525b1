//! What a pull finds, as the source that asks every peer would tell it.

use gpu_quarantine::alert::{Pull, Pulled};

use crate::{
    alertmanager::{Peer, Stored},
    process::moment,
    sequence::{Why, node_of},
    wording::Wording,
};

/// A peer that started less long ago may not have heard of everything yet: Prometheus tells it within 75 s, and again within a lease.
const SETTLES: i64 = 300;

/// Why something is not sent, until when, and which peers know of it.
#[derive(Debug, Clone)]
pub(crate) struct Mute {
    pub(crate) alert: usize,
    pub(crate) whole_node: bool,
    pub(crate) why: Why,
    pub(crate) until: i64,
    pub(crate) known_to: [bool; 2],
}

impl Mute {
    pub(crate) fn mutes(&self, alert: usize, peer: usize, now: i64) -> bool {
        let meant = self.alert == alert || (self.whole_node && node_of(self.alert) == node_of(alert));
        meant && now < self.until && self.known_to[peer]
    }

    fn clause(&self) -> String {
        match self.why {
            Why::Silenced => format!("silenced by alice until {}", moment(self.until)),
            Why::Inhibited => "inhibited by GpuDriverUpgrade".to_owned(),
            Why::ByTime => "muted by the time interval night".to_owned(),
        }
    }
}

/// An alert that a peer within reach lists: since when, and why nobody sends it, if so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) alert: usize,
    pub(crate) stored: Stored,
    pub(crate) muted: Option<String>,
}

/// The union of the peers within reach. An alert that any of them would send is not muted.
pub(crate) fn union(now: i64, peers: &[Peer], reached: impl Fn(usize) -> bool, mutes: &[Mute]) -> Vec<Listed> {
    let mut found: Vec<Listed> = Vec::new();
    for (number, peer) in peers.iter().enumerate().filter(|(number, _)| reached(*number)) {
        for (alert, stored) in peer.lists(now) {
            let why = mutes.iter().find(|m| m.mutes(alert, number, now)).map(Mute::clause);
            match found.iter_mut().find(|l| l.alert == alert) {
                None => found.push(Listed { alert, stored, muted: why }),
                Some(known) => {
                    known.stored.starts = known.stored.starts.min(stored.starts);
                    known.muted = known.muted.take().and(why);
                }
            }
        }
    }
    found.sort_by_key(|l| l.alert);
    found
}

/// Ask all peers.
pub(crate) fn pull(
    now: i64,
    peers: &[Peer],
    reached: impl Fn(usize) -> bool,
    mutes: &[Mute],
    wording: Wording,
) -> (Pull, Vec<Listed>) {
    let listed = union(now, peers, &reached, mutes);
    let incomplete = peers.iter().enumerate().find_map(|(number, peer)| match peer {
        peer if !peer.up || !reached(number) => Some(format!("am-{number} does not answer")),
        peer if now - peer.started < SETTLES => Some(format!("am-{number} has just been started")),
        _ => None,
    });
    let silenced = listed.iter().filter(|l| l.muted.is_some());
    let ends = silenced.filter_map(|l| mutes.iter().filter(|m| m.mutes(l.alert, 0, now)).map(|m| m.until).min());
    let changes_at = ends.min().map(moment);
    let mut alerts: Vec<Pulled> =
        listed.iter().map(|l| Pulled { alert: wording.listed(l.alert, l.stored), muted: l.muted.clone() }).collect();
    alerts.sort_by_key(|p| p.alert.fingerprint);
    (Pull { begun: moment(now), alerts, incomplete, changes_at }, listed)
}

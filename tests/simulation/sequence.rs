//! What happens in one run: a list of events, which shrinks well and is read from and written as JSON.

use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, Serialize};

/// Nodes in every run.
pub(crate) const NODES: usize = 2;
/// Alerts per node: two members of one claim on a GPU, and one claim on the node as a whole.
pub(crate) const KINDS: usize = 3;
/// All alerts.
pub(crate) const ALERTS: usize = NODES * KINDS;

/// The node that an alert is about.
pub(crate) fn node_of(alert: usize) -> usize {
    alert / KINDS
}

/// Why an alert is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    Silenced,
    Inhibited,
    ByTime,
}

/// How a request to the API server fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Api {
    Conflict,
    TimeoutBefore,
    TimeoutAfter,
    Unavailable,
}

/// Something that happens. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A fault begins.
    Fault(usize),
    /// It is repaired.
    Repair(usize),
    /// The exporter's series is lost for a while: the fault goes on and looks repaired.
    Gap { alert: usize, secs: i64 },
    /// Prometheus is down.
    PrometheusDown { secs: i64 },
    /// Prometheus does not reach this peer.
    Unreported { peer: usize, secs: i64 },
    /// This peer is killed and restarts: its alerts are lost, its notification log perhaps as well.
    PeerDown { peer: usize, secs: i64, keeps_log: bool },
    /// We do not reach this peer's API.
    Unpulled { peer: usize, secs: i64 },
    /// The peers do not reach each other.
    Apart { secs: i64 },
    /// Alerts of a node, or all its alerts, are not sent.
    Mute { alert: usize, whole_node: bool, why: Why, secs: i64 },
    /// Webhooks do not reach us.
    WebhooksLost { secs: i64 },
    /// Webhooks reach us and their answers are lost.
    AnswersLost { secs: i64 },
    /// The service is killed and started again.
    Kill { secs: i64 },
    /// The service is killed at one of its next writes, before or after it takes effect.
    KillAtWrite { skip: usize, applied: bool, secs: i64 },
    /// Writes hang.
    Hang { secs: i64 },
    /// The next writes fail.
    Writes(Vec<Api>),
    /// The next reads of single nodes fail.
    Reads(Vec<Api>),
    /// The watch cache stands still.
    Behind { secs: i64 },
    /// A person holds the node.
    Hold { node: usize, secs: i64 },
    /// The guard's limit is changed, by a reload.
    Room(usize),
    /// A person takes our taint away with kubectl.
    TakeTaint { node: usize },
}

/// What tells the service anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rest {
    PushAndPull,
    Push,
    Pull,
    Nothing,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sequence {
    /// One or two Alertmanagers.
    pub(crate) peers: usize,
    /// Alertmanager's defaults instead of the timing of the shipped route.
    pub(crate) slow_route: bool,
    /// `max_alerts`, set by mistake.
    pub(crate) max_alerts: Option<usize>,
    /// The guard's limit.
    pub(crate) room: usize,
    /// How long a pull takes.
    pub(crate) pull_takes: i64,
    /// What still tells the service after everything is mended, until the one complete pull at the very end.
    pub(crate) rest: Rest,
    /// How long to wait before each event, and the event.
    pub(crate) events: Vec<(i64, Event)>,
}

fn event() -> impl Strategy<Value = Event> {
    // Stories about one alert are more telling than many beside each other.
    let alert = || prop_oneof![2 => Just(0_usize), 1 => 0..KINDS, 2 => 0..ALERTS];
    let peer = || 0..2_usize;
    let short = || prop_oneof![3 => 1..90_i64, 2 => 90..400_i64, 1 => 400..1300_i64];
    let api = || {
        let one = prop::sample::select(vec![Api::Conflict, Api::TimeoutBefore, Api::TimeoutAfter, Api::Unavailable]);
        vec(one, 1..4)
    };
    let why = prop::sample::select(vec![Why::Silenced, Why::Silenced, Why::Inhibited, Why::ByTime]);
    prop_oneof![
        8 => alert().prop_map(Event::Fault),
        6 => alert().prop_map(Event::Repair),
        2 => (alert(), short()).prop_map(|(alert, secs)| Event::Gap { alert, secs }),
        1 => short().prop_map(|secs| Event::PrometheusDown { secs }),
        1 => (peer(), short()).prop_map(|(peer, secs)| Event::Unreported { peer, secs }),
        2 => (peer(), short(), any::<bool>()).prop_map(|(peer, secs, keeps_log)| Event::PeerDown { peer, secs, keeps_log }),
        1 => (peer(), short()).prop_map(|(peer, secs)| Event::Unpulled { peer, secs }),
        1 => short().prop_map(|secs| Event::Apart { secs }),
        4 => (alert(), any::<bool>(), why, short())
            .prop_map(|(alert, whole_node, why, secs)| Event::Mute { alert, whole_node, why, secs }),
        2 => short().prop_map(|secs| Event::WebhooksLost { secs }),
        1 => short().prop_map(|secs| Event::AnswersLost { secs }),
        1 => short().prop_map(|secs| Event::Kill { secs }),
        2 => (0..3_usize, any::<bool>(), short()).prop_map(|(skip, applied, secs)| Event::KillAtWrite { skip, applied, secs }),
        1 => (1..40_i64).prop_map(|secs| Event::Hang { secs }),
        2 => api().prop_map(Event::Writes),
        1 => api().prop_map(Event::Reads),
        1 => (1..150_i64).prop_map(|secs| Event::Behind { secs }),
        1 => (0..NODES, 100..1800_i64).prop_map(|(node, secs)| Event::Hold { node, secs }),
        2 => (0..=NODES).prop_map(Event::Room),
        1 => (0..NODES).prop_map(|node| Event::TakeTaint { node }),
    ]
}

/// Any run.
pub(crate) fn sequences() -> impl Strategy<Value = Sequence> {
    let pull_takes = prop_oneof![2 => 0..3_i64, 1 => 3..=30_i64];
    let rest = prop::sample::select(vec![Rest::PushAndPull, Rest::Push, Rest::Pull, Rest::Nothing]);
    let wait = prop_oneof![1 => Just(0_i64), 4 => 0..45_i64, 3 => 0..300_i64, 1 => 0..900_i64];
    let max_alerts = prop_oneof![6 => Just(None), 1 => (1..3_usize).prop_map(Some)];
    let room = prop_oneof![3 => Just(NODES), 1 => 0..NODES];
    (1..3_usize, prop::bool::weighted(0.2), max_alerts, room, pull_takes, rest, vec((wait, event()), 1..20)).prop_map(
        |(peers, slow_route, max_alerts, room, pull_takes, rest, events)| Sequence {
            peers,
            slow_route,
            max_alerts,
            room,
            pull_takes,
            rest,
            events,
        },
    )
}

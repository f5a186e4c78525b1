//! What happens in one run: a list of events, which shrinks well and is read from and written as JSON.

use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, Serialize};

/// Nodes in every run.
pub(crate) const NODES: usize = 2;
/// Alerts per node: two members of one claim on a GPU, and one claim on the node as a whole.
pub(crate) const KINDS: usize = 3;
/// What can break.
pub(crate) const FAULTS: usize = NODES * KINDS;
/// How many GPUs can be in the same place, one after the other. Their alerts are others, since they have other UUIDs.
pub(crate) const GENERATIONS: usize = 4;
/// All alerts.
pub(crate) const ALERTS: usize = FAULTS * GENERATIONS;

/// The node that an alert is about.
pub(crate) fn node_of(alert: usize) -> usize {
    alert % FAULTS / KINDS
}

/// What kind of alert it is: two of a GPU, the last of the node.
pub(crate) fn kind_of(alert: usize) -> usize {
    alert % KINDS
}

/// Which of the GPUs that were there one after the other it is about; `None` for the node as a whole.
pub(crate) fn generation_of(alert: usize) -> Option<usize> {
    (kind_of(alert) != KINDS - 1).then_some(alert / FAULTS)
}

/// What must be shown before a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Require {
    Resolved,
    Evidence,
    EvidenceAndPerson,
}

/// The label `recovery`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Recovery {
    Auto,
    Reboot,
    Replace,
    Manual,
    Missing,
}

/// The annotation `recovery_query`, as the rule has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Query {
    /// It reads whether the fault is there.
    True,
    /// It reads what the alert reads: nothing once the exporter has forgotten.
    Shallow,
    Missing,
}

/// What a forged post has as `recovery_query`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Forged {
    /// `vector(1)`.
    Constant,
    /// `up`.
    Always,
    Missing,
}

/// What becomes of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rule {
    Original,
    /// Its `recovery_query` returns something whatever happens.
    Edited,
    Deleted,
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
    /// A fault is there, and its alert does not show it.
    Hidden(usize),
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
    /// A person wants nothing done to the node.
    Ignore { node: usize, secs: i64 },
    /// The exporter is down or not scraped. One that restarts may not show again what it showed before.
    ExporterDown { node: usize, secs: i64, forgets: bool },
    /// The exporter does not show this GPU of the node.
    Unseen { node: usize, gpu: usize, secs: i64 },
    /// The exporter gives the GPU of the alerts another UUID.
    Misnamed { node: usize, secs: i64 },
    /// Kubernetes tells that the node has one GPU.
    OneGpu { node: usize, secs: i64 },
    /// The query API answers with errors: to all questions, or to recovery queries alone.
    Errors { all: bool, secs: i64 },
    /// Prometheus answers so late.
    Late { by: i64, secs: i64 },
    /// The recording rule that true recovery queries read fails.
    RuleFails { secs: i64 },
    /// A rule is edited, deleted, or as it was.
    Rule { gpu: bool, is: Rule },
    /// The node boots again. Its exporter is down for so long.
    Reboot { node: usize, cures: bool, secs: i64 },
    /// The GPU of the alerts is replaced, which needs a boot.
    NewGpu { node: usize, secs: i64 },
    /// The machine is replaced below the node, with its GPUs.
    NewMachine { node: usize, secs: i64 },
    /// Somebody who is not Alertmanager posts an alert.
    Forge { alert: usize, query: Forged, over: bool },
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
    /// What the policies of the GPU's and of the node's alerts require.
    #[serde(default = "resolved")]
    pub(crate) require: [Require; 2],
    /// The label `recovery` of each kind of alert, and its `recovery_query`.
    #[serde(default = "auto")]
    pub(crate) recovery: [(Recovery, Query); KINDS],
    /// Everything that is broken is repaired as well after the last event.
    #[serde(default)]
    pub(crate) repaired: bool,
    /// How long to wait before each event, and the event.
    pub(crate) events: Vec<(i64, Event)>,
}

fn resolved() -> [Require; 2] {
    [Require::Resolved; 2]
}

fn auto() -> [(Recovery, Query); KINDS] {
    [(Recovery::Auto, Query::True); KINDS]
}

fn evidence_event() -> impl Strategy<Value = Event> {
    let node = || prop_oneof![3 => Just(0_usize), 1 => 0..NODES];
    let short = || prop_oneof![3 => 1..90_i64, 2 => 90..400_i64, 1 => 400..1300_i64];
    let boot = || 60..300_i64;
    let forged = prop::sample::select(vec![Forged::Constant, Forged::Always, Forged::Always, Forged::Missing]);
    let rule = prop::sample::select(vec![Rule::Original, Rule::Edited, Rule::Edited, Rule::Deleted]);
    let fault = || prop_oneof![2 => Just(0_usize), 1 => 0..FAULTS];
    prop_oneof![
        3 => fault().prop_map(Event::Hidden),
        3 => fault().prop_map(Event::Repair),
        5 => (node(), short(), any::<bool>()).prop_map(|(node, secs, forgets)| Event::ExporterDown { node, secs, forgets }),
        2 => (node(), 0..2_usize, short()).prop_map(|(node, gpu, secs)| Event::Unseen { node, gpu, secs }),
        1 => (node(), short()).prop_map(|(node, secs)| Event::Misnamed { node, secs }),
        1 => (node(), short()).prop_map(|(node, secs)| Event::OneGpu { node, secs }),
        2 => short().prop_map(|secs| Event::PrometheusDown { secs }),
        2 => (any::<bool>(), short()).prop_map(|(all, secs)| Event::Errors { all, secs }),
        1 => (prop_oneof![1..150_i64, 150..1200_i64], short()).prop_map(|(by, secs)| Event::Late { by, secs }),
        1 => short().prop_map(|secs| Event::RuleFails { secs }),
        2 => (any::<bool>(), rule).prop_map(|(gpu, is)| Event::Rule { gpu, is }),
        3 => (node(), any::<bool>(), boot()).prop_map(|(node, cures, secs)| Event::Reboot { node, cures, secs }),
        1 => (node(), boot()).prop_map(|(node, secs)| Event::NewGpu { node, secs }),
        1 => (node(), boot()).prop_map(|(node, secs)| Event::NewMachine { node, secs }),
        2 => (0..KINDS, forged, any::<bool>()).prop_map(|(alert, query, over)| Event::Forge { alert, query, over }),
        1 => (node(), 30..1200_i64).prop_map(|(node, secs)| Event::Ignore { node, secs }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    // Stories about one alert are more telling than many beside each other.
    let alert = || prop_oneof![2 => Just(0_usize), 1 => 0..KINDS, 2 => 0..FAULTS];
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
    let max_alerts = prop_oneof![6 => Just(None), 1 => (1..3_usize).prop_map(Some)];
    let room = prop_oneof![3 => Just(NODES), 1 => 0..NODES];
    let around = (1..3_usize, prop::bool::weighted(0.2), max_alerts, room, pull_takes, rest);
    (around, prop_oneof![1 => by_word().boxed(), 3 => by_evidence().boxed()]).prop_map(
        |((peers, slow_route, max_alerts, room, pull_takes, rest), (require, recovery, repaired, events))| Sequence {
            peers,
            slow_route,
            max_alerts,
            room,
            pull_takes,
            rest,
            require,
            recovery,
            repaired,
            events,
        },
    )
}

fn wait() -> impl Strategy<Value = i64> {
    prop_oneof![1 => Just(0_i64), 4 => 0..45_i64, 3 => 0..300_i64, 1 => 0..900_i64]
}

type Story = ([Require; 2], [(Recovery, Query); KINDS], bool, Vec<(i64, Event)>);

/// Releases need no more than the word of Alertmanager.
fn by_word() -> impl Strategy<Value = Story> {
    vec((wait(), event()), 1..20).prop_map(|events| (resolved(), auto(), false, events))
}

fn by_evidence() -> impl Strategy<Value = Story> {
    use Recovery::{Auto, Manual, Missing, Reboot, Replace};
    let require =
        || prop_oneof![9 => Just(Require::Evidence), 2 => Just(Require::Resolved), 1 => Just(Require::EvidenceAndPerson)];
    let recovery = || prop::sample::select(vec![Auto, Auto, Auto, Auto, Reboot, Reboot, Reboot, Replace, Manual, Missing]);
    let query = || prop_oneof![6 => Just(Query::True), 2 => Just(Query::Shallow), 1 => Just(Query::Missing)];
    // What is asked of the two alerts of one claim adds up: mostly they ask for the same.
    let recovery = (recovery(), recovery(), recovery(), prop::bool::weighted(0.7));
    let recovery = recovery.prop_map(|(a, b, c, same)| [a, if same { a } else { b }, c]);
    let how = (recovery, [query(), query(), query()]).prop_map(|(r, q)| [(r[0], q[0]), (r[1], q[1]), (r[2], q[2])]);
    let event = || prop_oneof![3 => event().boxed(), 4 => evidence_event().boxed()];
    // Nothing is shown before anything broke.
    let first = prop_oneof![2 => Just(0_usize), 1 => 0..FAULTS].prop_map(Event::Fault);
    let random = (first, 0..200_i64, vec((wait(), event()), 1..22)).prop_map(|(first, pause, mut events)| {
        events[0].0 = events[0].0.max(pause);
        events.insert(0, (0, first));
        events
    });
    let events = prop_oneof![3 => random.boxed(), 1 => flapping(event().boxed()).boxed()];
    ([require(), require()], how, any::<bool>(), events)
}

/// A fault is gone and comes back unseen, while a person or nobody holds the node and perhaps nobody can be asked.
fn flapping(event: impl Strategy<Value = Event>) -> impl Strategy<Value = Vec<(i64, Event)>> {
    let long = || 100..1300_i64;
    let asked = prop_oneof![
        long().prop_map(|secs| Event::PrometheusDown { secs }),
        long().prop_map(|secs| Event::Errors { all: true, secs }),
        long().prop_map(|secs| Event::Errors { all: false, secs }),
        long().prop_map(|secs| Event::ExporterDown { node: 0, secs, forgets: true }),
        (0..2_usize, long()).prop_map(|(gpu, secs)| Event::Unseen { node: 0, gpu, secs }),
        long().prop_map(|secs| Event::Misnamed { node: 0, secs }),
        long().prop_map(|by| Event::Late { by, secs: 60 }),
        Just(Event::Hidden(0)),
    ];
    let held = prop_oneof![1 => Just(None), 2 => (600..1800_i64).prop_map(Some)];
    (held, asked, vec((wait(), event), 0..4), [30..90_i64, 60..900_i64, 0..60_i64, 30..400_i64], any::<bool>()).prop_map(
        |(held, asked, mut tail, [breaks, asks, back, gone], goes)| {
            let mut events = vec![(0, Event::Fault(0)), (breaks, Event::Repair(0))];
            events.extend(held.map(|secs| (20, Event::Hold { node: 0, secs })));
            events.extend([(asks, asked), (back, Event::Hidden(0))]);
            events.extend(goes.then_some((gone, Event::Repair(0))));
            events.append(&mut tail);
            events
        },
    )
}

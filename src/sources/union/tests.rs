use rstest::rstest;

use super::*;
use crate::alert::{InvalidAlert, Labels, Listed, Listing, PeerStatus, Status};

const SETTLE: Duration = Duration::from_secs(300);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn alert(node: &str, minute: i8) -> Alert {
    let labels: Labels = [("alertname", "GpuLost"), ("node", node)].into_iter().collect();
    Alert {
        name: "GpuLost".to_owned(),
        annotations: Labels::default(),
        status: Status::Firing,
        starts_at: at(&format!("2026-03-01T12:{minute:02}:00Z")),
        ends_at: None,
        fingerprint: Fingerprint::of(&labels),
        labels,
    }
}

fn active(node: &str) -> Listed {
    Listed { alert: alert(node, 0), suppression: None }
}

fn ids(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| (*t).to_owned()).collect()
}

fn silenced(node: &str, by: &[&str]) -> Listed {
    Listed { suppression: Some(Suppression { silenced_by: ids(by), ..Suppression::default() }), ..active(node) }
}

fn silence(id: &str, by: &str, ends: &str) -> Silence {
    let comment = format!("for {id}");
    Silence { id: id.to_owned(), state: "active".to_owned(), created_by: by.to_owned(), comment, ends_at: at(ends) }
}

/// A peer that has run for an hour.
fn answer(alerts: &[Listed]) -> Answer {
    Answer {
        listing: Listing { has_group: !alerts.is_empty(), alerts: alerts.to_vec(), invalid: Vec::new() },
        silences: Vec::new(),
        status: PeerStatus { started: None, cluster: "ready".to_owned(), version: "0.33.1".to_owned() },
        age: Some(SignedDuration::from_hours(1)),
        has_receiver: true,
    }
}

fn aged(seconds: i64, alerts: &[Listed]) -> Answer {
    Answer { age: Some(SignedDuration::from_secs(seconds)), ..answer(alerts) }
}

fn pulled(answers: Vec<Result<Answer, &str>>) -> (Pull, PeerStates) {
    let asked: Vec<Asked> = answers
        .into_iter()
        .enumerate()
        .map(|(i, answer)| Asked { peer: format!("http://am-{i}"), answer: answer.map_err(str::to_owned) })
        .collect();
    unite(at("2026-03-01T13:00:00Z"), SETTLE, "gpu", &asked)
}

fn nodes(pull: &Pull) -> Vec<&str> {
    let mut nodes: Vec<&str> = pull.alerts.iter().filter_map(|p| p.alert.labels.get("node")).collect();
    nodes.sort_unstable();
    nodes
}

fn muted(answers: Vec<Answer>) -> Option<String> {
    let (pull, _) = pulled(answers.into_iter().map(Ok).collect());
    assert_eq!((pull.alerts.len(), &pull.incomplete), (1, &None));
    pull.alerts[0].muted.clone()
}

#[rstest]
#[case::one_peer(vec![Ok(answer(&[active("a")]))], &["a"], None, [1, 0, 0])]
#[case::nothing_fires(vec![Ok(answer(&[])), Ok(answer(&[]))], &[], None, [2, 0, 0])]
#[case::both_agree(vec![Ok(answer(&[active("a")])), Ok(answer(&[active("a")]))], &["a"], None, [2, 0, 0])]
#[case::they_disagree(vec![Ok(answer(&[active("a")])), Ok(answer(&[active("b")]))], &["a", "b"], None, [2, 0, 0])]
#[case::nobody_asked(vec![], &[], Some("no Alertmanager was asked"), [0, 0, 0])]
#[case::one_down(vec![Ok(answer(&[active("a")])), Err("am-1 is down")], &["a"], Some("am-1 is down"), [1, 1, 0])]
#[case::both_down(vec![Err("am-0 is down"), Err("am-1 is down")], &[], Some("am-0 is down; and am-1 is down"), [0, 2, 0])]
#[case::one_restarted(
    vec![Ok(answer(&[active("a")])), Ok(aged(20, &[]))],
    &["a"],
    Some("http://am-1 started 20 s ago, and may not have heard of every alert again"),
    [1, 0, 1]
)]
#[case::almost_settled(vec![Ok(aged(299, &[]))], &[], Some("http://am-0 started 299 s ago"), [0, 0, 1])]
#[case::settled(vec![Ok(aged(300, &[]))], &[], None, [1, 0, 0])]
#[case::started_in_the_future(vec![Ok(aged(-30, &[]))], &[], Some("http://am-0 started 0 s ago"), [0, 0, 1])]
#[case::no_uptime(vec![Ok(Answer { age: None, ..answer(&[]) })], &[], Some("does not say since when it runs"), [0, 0, 1])]
#[case::four_down(vec![Err("a"), Err("b"), Err("c"), Err("d")], &[], Some("a; and b; and c; and 1 more"), [0, 4, 0])]
#[case::misspelt_receiver(
    vec![Ok(Answer { has_receiver: false, ..answer(&[]) })],
    &[],
    Some("http://am-0 has no receiver \"gpu\"; check sources.alertmanagers.receiver"),
    [1, 0, 0]
)]
fn the_union_fires_and_absence_is_proven_only_by_every_peer(
    #[case] answers: Vec<Result<Answer, &str>>,
    #[case] fire: &[&str],
    #[case] incomplete: Option<&str>,
    #[case] states: [usize; 3],
) {
    let (pull, found) = pulled(answers);
    assert_eq!(nodes(&pull), fire);
    match incomplete {
        None => assert_eq!(pull.incomplete, None),
        Some(why) => assert!(pull.incomplete.as_deref().is_some_and(|i| i.contains(why)), "{:?}", pull.incomplete),
    }
    assert_eq!([found.answered, found.failed, found.settling], states);
    assert!(pull.alerts.is_sorted_by_key(|p| p.alert.fingerprint));
}

#[test]
fn a_peer_that_settles_in_its_cluster_proves_nothing_however_long_it_runs() {
    let mut peer = answer(&[]);
    peer.status.cluster = "settling".to_owned();
    let (pull, states) = pulled(vec![Ok(peer)]);
    assert_eq!(pull.incomplete.as_deref(), Some("http://am-0 has not settled in its cluster yet"));
    assert_eq!(states.settling, 1);
    let mut alone = answer(&[]);
    alone.status.cluster = "disabled".to_owned();
    assert_eq!(pulled(vec![Ok(alone)]).0.incomplete, None);
}

#[test]
fn an_alert_that_cannot_be_read_makes_the_pull_incomplete_and_loses_no_other() {
    let mut peer = answer(&[active("a")]);
    let reason = format!("label \"gpu\" is 0\n{}", "x".repeat(500));
    peer.listing.invalid = vec![InvalidAlert { name: Some("Bad".to_owned()), fingerprint: None, reason }];
    let (pull, _) = pulled(vec![Ok(peer)]);
    assert_eq!(nodes(&pull), ["a"]);
    let why = pull.incomplete.unwrap();
    assert!(why.starts_with("http://am-0 listed 1 alerts that cannot be read, the first Bad: label \"gpu\" is 0 xxx"), "{why}");
    assert!(why.len() < 300);
}

#[test]
fn the_latest_start_counts_so_that_the_late_resolve_of_an_episode_before_does_not() {
    for [first, second] in [[0, 7], [7, 0]] {
        let listed = |minute| Listed { alert: alert("a", minute), suppression: None };
        let (pull, _) = pulled(vec![Ok(answer(&[listed(first)])), Ok(answer(&[listed(second)]))]);
        assert_eq!(pull.alerts.len(), 1);
        assert_eq!(pull.alerts[0].alert.starts_at, at("2026-03-01T12:07:00Z"));
    }
}

#[test]
fn a_silence_that_only_one_peer_knows_yet_is_a_veto() {
    for order in [[0, 1], [1, 0]] {
        let mut knows = answer(&[silenced("a", &["s1"])]);
        knows.silences = vec![silence("s1", "alice", "2026-03-01T14:00:00Z")];
        let answers = [knows, answer(&[active("a")])];
        let text = muted(order.map(|i| answers[i].clone()).to_vec());
        assert_eq!(text.as_deref(), Some("silenced by alice until 2026-03-01T14:00:00Z: \"for s1\""));
    }
}

#[test]
fn of_several_silences_the_last_to_end_is_named_and_the_first_to_end_is_when_to_look_again() {
    let mut peer = answer(&[silenced("a", &["s1", "s2"]), silenced("b", &["s3"]), active("c")]);
    peer.silences = vec![
        silence("s0", "nobody", "2026-03-01T13:00:01Z"),
        silence("s1", "alice", "2026-03-01T14:00:00Z"),
        silence("s2", "bob", "2026-03-01T16:00:00Z"),
        silence("s3", "carol", "2026-03-01T15:00:00Z"),
    ];
    let (pull, _) = pulled(vec![Ok(peer)]);
    assert_eq!(pull.changes_at, Some(at("2026-03-01T14:00:00Z")), "s0 silences none of them");
    let mut texts: Vec<Option<&str>> = pull.alerts.iter().map(|p| p.muted.as_deref()).collect();
    texts.sort_unstable();
    let want = [
        None,
        Some("silenced by bob until 2026-03-01T16:00:00Z: \"for s2\", and 1 more"),
        Some("silenced by carol until 2026-03-01T15:00:00Z: \"for s3\""),
    ];
    assert_eq!(texts, want);
}

#[test]
fn a_silence_that_is_not_known_still_silences() {
    assert_eq!(muted(vec![answer(&[silenced("a", &["s1"])])]).as_deref(), Some("silenced by the silence s1"));
}

#[test]
fn a_comment_is_cut_and_stays_on_one_line() {
    let mut peer = answer(&[silenced("a", &["s1"])]);
    let comment = format!("two\nlines\u{7} {}", "é".repeat(200));
    peer.silences = vec![Silence { comment, ..silence("s1", "al\tice", "2026-03-01T14:00:00Z") }];
    let text = muted(vec![peer]).unwrap();
    assert!(text.starts_with("silenced by al ice until 2026-03-01T14:00:00Z: \"two lines  é"), "{text}");
    assert!(text.ends_with("é...\"") && !text.contains(char::is_control), "{text}");
    assert_eq!(text.matches('é').count(), 80 - "two lines  ".len());
}

#[test]
fn an_inhibited_alert_names_what_inhibits_it_if_that_is_listed() {
    let inhibited = |by: &[&str]| Listed {
        suppression: Some(Suppression { inhibited_by: ids(by), ..Suppression::default() }),
        ..active("a")
    };
    let source = active("b");
    let known = source.alert.fingerprint.to_string();
    let (pull, _) = pulled(vec![Ok(answer(&[inhibited(&[known.as_str()]), source]))]);
    let texts: Vec<&str> = pull.alerts.iter().filter_map(|p| p.muted.as_deref()).collect();
    assert_eq!(texts, ["inhibited by GpuLost"]);
    assert_eq!(
        muted(vec![answer(&[inhibited(&["00000000000000ff", "x"])])]).unwrap(),
        "inhibited by 00000000000000ff, and 1 more"
    );
}

#[test]
fn a_time_interval_and_an_unknown_reason_are_said_too() {
    let of = |muted_by: &[&str]| {
        let suppression = Suppression { muted_by: ids(muted_by), ..Suppression::default() };
        muted(vec![answer(&[Listed { suppression: Some(suppression), ..active("a") }])]).unwrap()
    };
    assert_eq!(of(&["night"]), "muted by the time interval night");
    assert_eq!(of(&["a", "b", "c"]), "muted by the time interval a, and 2 more");
    assert_eq!(of(&[]), "suppressed by Alertmanager, which does not say why");
}

use proptest::prelude::*;
use rstest::rstest;

use super::*;

const A: &str = "GPU-aaaaaaaa-0000-0000-0000-000000000000";
const B: &str = "GPU-bbbbbbbb-0000-0000-0000-000000000000";
const C: &str = "GPU-cccccccc-0000-0000-0000-000000000000";
/// In seconds.
const STEP: i64 = 30;

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(1_772_366_400 + second).unwrap()
}

/// A question about a node with two GPUs, over that many steps, about a fault of the first that cleared at 0.
fn question_over(steps: i64) -> Question {
    let asked = Asked {
        alert: "GpuLost".to_owned(),
        gpu: Some(Gpu::parse(A).unwrap()),
        queries: vec![RecoveryQuery::parse("gpu:healthy:max == 1").unwrap()],
        since: time(0),
        machine_changed: false,
    };
    Question {
        node: NodeName::parse("gpu-node-07").unwrap(),
        uid: "uid-7".to_owned(),
        at: time(steps * STEP + 7),
        gpus: Some(2),
        range: Range { from: time(STEP), to: time(steps * STEP), step: Duration::from_secs(30) },
        claims: vec![asked],
    }
}

/// The steps at which the picture has that character; the first character is the first step.
fn at(picture: &str, characters: &str) -> Series {
    (1..).zip(picture.chars()).filter(|(_, c)| characters.contains(*c)).map(|(n, _)| time(n * STEP)).collect()
}

fn present(name: &str, at: Series) -> PresentGpu {
    PresentGpu { names: vec![Gpu::parse(name).unwrap()], at }
}

/// `g` is good, `f` faulty, `-` is no data, `1` only one GPU.
fn pictured(picture: &str) -> NodeAnswers {
    NodeAnswers {
        present: Ok(vec![present(A, at(picture, "gf1")), present(B, at(picture, "gf"))]),
        claims: vec![vec![Ok(at(picture, "g1"))]],
    }
}

fn shown(question: &Question, answers: &NodeAnswers) -> ClaimShown {
    judge(question, answers).claims.remove(0)
}

fn shown_of(picture: &str) -> ClaimShown {
    shown(&question_over(i64::try_from(picture.len()).unwrap()), &pictured(picture))
}

#[rstest]
#[case::one_good_step_is_an_instant("g", 0)]
#[case::good_steps_add_up("gggg", 3)]
#[case::a_fault_begins_anew("ggggfgg", 1)]
#[case::a_fault_now_shows_nothing("ggggf", 0)]
#[case::no_data_only_pauses("ggg---ggg", 4)]
#[case::a_hole_of_one_step_costs_two("gg-gg", 2)]
#[case::nothing_at_all("----", 0)]
#[case::a_missing_gpu_pauses("ggg11ggg", 4)]
#[case::a_fault_before_the_hole_still_counts("ggf--gg", 1)]
fn good_time_is_counted(#[case] picture: &str, #[case] steps: u64) {
    assert_eq!(shown_of(picture).lasted, Duration::from_secs(30 * steps), "{picture}");
}

#[rstest]
#[case::gone("gg", "Gone")]
#[case::still_there("gf", r#"Fault("its recovery_query returns nothing")"#)]
#[case::exporter_gone("g-", r#"Nothing("the exporter has shown no GPU since 2026-03-01T12:00:30Z")"#)]
#[case::never_seen("--", r#"Nothing("the exporter is not scraped, or shows no GPU")"#)]
#[case::one_of_two("g1", r#"Nothing("1 of 2 GPUs have fresh series")"#)]
fn what_is_found_at_the_end_is_said_in_words(#[case] picture: &str, #[case] want: &str) {
    assert_eq!(format!("{:?}", shown_of(picture).now), want);
}

#[test]
fn without_an_answer_nothing_is_shown_and_the_reason_is_kept() {
    let answers = NodeAnswers { present: Err("Prometheus does not answer".to_owned()), claims: Vec::new() };
    let shown = shown(&question_over(10), &answers);
    assert_eq!((shown.lasted, shown.now), (Duration::ZERO, Finding::Nothing("Prometheus does not answer".to_owned())));
}

#[test]
fn a_query_without_an_answer_pauses_unless_another_says_that_the_fault_is_there() {
    let mut question = question_over(3);
    question.claims[0].queries.push(RecoveryQuery::parse("up == 1").unwrap());
    let failed = || Err("Prometheus says: bad".to_owned());
    for (answered, want) in [
        (vec![Ok(at("ggg", "g")), failed()], Finding::Nothing("Prometheus says: bad".to_owned())),
        (vec![failed(), Ok(at("fff", "g"))], Finding::Fault("its recovery_query returns nothing".to_owned())),
        (vec![Ok(at("ggg", "g"))], Finding::Nothing("not every recovery_query was answered".to_owned())),
        (vec![Ok(at("ggg", "g")), Ok(at("ggg", "g"))], Finding::Gone),
    ] {
        let answers = NodeAnswers { claims: vec![answered], ..pictured("ggg") };
        assert_eq!(shown(&question, &answers).now, want);
    }
}

/// The old GPU is not seen, another is in its place.
#[rstest]
#[case::rebooted(true, Some(2), Finding::Gone, true)]
#[case::machine_as_it_was(false, Some(2), Finding::Nothing(format!("{A} has no fresh series: if it was replaced, a person must release the node")), false)]
#[case::number_unknown(true, None, Finding::Nothing(format!("{A} has no fresh series: if it was replaced, a person must release the node")), false)]
#[case::one_is_missing(true, Some(3), Finding::Nothing("2 of 3 GPUs have fresh series".to_owned()), false)]
fn a_gpu_is_replaced_if_the_machine_changed_and_none_is_missing(
    #[case] machine_changed: bool,
    #[case] gpus: Option<u32>,
    #[case] now: Finding,
    #[case] replaced: bool,
) {
    let mut question = question_over(3);
    question.gpus = gpus;
    question.claims[0].machine_changed = machine_changed;
    let answers = NodeAnswers {
        present: Ok(vec![present(B, at("ggg", "g")), present(C, at("ggg", "g"))]),
        claims: vec![vec![Ok(Series::default())]],
    };
    let shown = shown(&question, &answers);
    assert_eq!((shown.now, shown.replaced), (now, replaced));
}

#[test]
fn what_was_before_the_claim_cleared_proves_nothing() {
    let mut question = question_over(6);
    question.claims[0].since = time(3 * STEP);
    assert_eq!(shown(&question, &pictured("gggggg")).lasted, Duration::from_secs(60));
}

#[test]
fn a_cause_is_told_only_where_no_gpu_is_seen() {
    for (picture, told) in [("gg--", true), ("ggg1", false)] {
        let mut shown = judge(&question_over(4), &pictured(picture));
        shown.explain("its pod cannot run here");
        let text = format!("{:?}", shown.claims[0].now);
        assert_eq!(text.contains("its pod cannot run here"), told, "{text}");
    }
}

proptest! {
    /// What was seen with more data is never less, and a step that is good in neither is none.
    #[test]
    fn losing_data_never_proves_more(picture in "[gf1-]{1,60}", lost in prop::collection::vec(any::<bool>(), 60)) {
        let less: String = picture.chars().zip(&lost).map(|(c, lost)| if *lost && c == 'g' { '-' } else { c }).collect();
        prop_assert!(shown_of(&less).lasted <= shown_of(&picture).lasted, "{less} {picture}");
    }

    /// Good time fits between the last fault and now.
    #[test]
    fn good_time_is_never_longer_than_there_was_time_for(picture in "[gf1-]{1,60}") {
        let since_the_fault = picture.rsplit('f').next().unwrap_or_default();
        let most = u64::try_from(since_the_fault.chars().filter(|c| *c == 'g').count().saturating_sub(1)).unwrap();
        prop_assert!(shown_of(&picture).lasted <= Duration::from_secs(30 * most), "{picture}");
    }

    #[test]
    fn a_range_has_aligned_steps_after_the_clearing_and_not_too_many(since in 0_i64..10_000_000, long in 0_i64..4_000_000, after in 0_u64..3_000_000) {
        let (since, now) = (time(since), time(since + long));
        let range = Range::of(since, now, Duration::from_secs(after));
        let steps: Vec<Timestamp> = range.steps().collect();
        let step = i64::try_from(range.step.as_secs()).unwrap();
        prop_assert!(step >= 1);
        prop_assert!(steps.len() <= usize::try_from(MOST_STEPS).unwrap() + 1, "{}", steps.len());
        prop_assert!(steps.iter().all(|at| *at > since && *at <= now && at.as_second() % step == 0));
        // Nothing but the newest step is left out.
        prop_assert!(steps.last().is_none_or(|last| now.as_second() - last.as_second() < step));
        if long > 2 * step && i64::try_from(after).unwrap() > long {
            prop_assert!(steps.first().unwrap().as_second() - since.as_second() <= step);
        }
    }
}

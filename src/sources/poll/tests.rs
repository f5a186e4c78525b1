use std::sync::{Arc, Mutex};

use tokio::time::{advance, sleep};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A loop on paused time, and when it pulled, in seconds since it began.
struct Running {
    wake: Arc<Notify>,
    pulls: Arc<Mutex<Vec<f64>>>,
    consumed: Arc<Mutex<usize>>,
}

/// `changes_at` is what each pull says, in seconds since the beginning; `takes` is how long one takes.
fn start(takes: Duration, changes_at: Option<u64>) -> Running {
    let running = Running { wake: Arc::default(), pulls: Arc::default(), consumed: Arc::default() };
    let (wake, pulls, consumed) = (Arc::clone(&running.wake), Arc::clone(&running.pulls), Arc::clone(&running.consumed));
    let (begin, base) = (Instant::now(), "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap());
    let now = move || base + begin.elapsed();
    let pull = move |now: Timestamp| {
        let pulls = Arc::clone(&pulls);
        async move {
            pulls.lock().unwrap().push(begin.elapsed().as_secs_f64());
            sleep(takes).await;
            let changes_at = changes_at.map(|s| base + Duration::from_secs(s));
            Pull { begun: now, alerts: Vec::new(), incomplete: None, changes_at }
        }
    };
    let consume = move |_| -> BoxFuture<'static, ()> {
        *consumed.lock().unwrap() += 1;
        Box::pin(async {})
    };
    tokio::spawn(async move { poll(MINUTE, now, &wake, pull, consume).await });
    running
}

impl Running {
    fn pulls(&self) -> Vec<f64> {
        self.pulls.lock().unwrap().clone()
    }
}

/// Let time pass in small steps, so that every timer in between fires at its own time.
async fn pass(seconds: u64) {
    for _ in 0..seconds * 10 {
        advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_pulls_at_once_and_then_every_interval_give_or_take_a_tenth() {
    let running = start(Duration::ZERO, None);
    pass(600).await;
    let pulls = running.pulls();
    assert!(pulls[0] < 0.2, "{pulls:?}");
    assert!((9..=12).contains(&pulls.len()), "{pulls:?}");
    for pair in pulls.windows(2) {
        assert!((53.8..66.4).contains(&(pair[1] - pair[0])), "{pulls:?}");
    }
    assert_eq!(*running.consumed.lock().unwrap(), pulls.len());
}

#[tokio::test(start_paused = true)]
async fn it_pulls_when_it_is_woken_but_not_more_than_once_a_second() {
    let running = start(Duration::ZERO, None);
    pass(10).await;
    for _ in 0..50 {
        running.wake.notify_one();
        advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    pass(5).await;
    let pulls = running.pulls();
    assert!((5..=8).contains(&pulls.len()), "{pulls:?}");
    assert!(pulls.windows(2).all(|p| p[1] - p[0] >= 1.0), "{pulls:?}");
    assert!(pulls[1] < 10.5, "{pulls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wake_during_a_pull_leads_to_another_one_after_it() {
    let running = start(Duration::from_secs(5), None);
    pass(2).await;
    running.wake.notify_one();
    pass(2).await;
    assert_eq!(running.pulls().len(), 1, "one at a time");
    pass(10).await;
    let pulls = running.pulls();
    assert_eq!(pulls.len(), 2, "{pulls:?}");
    assert!((5.9..6.5).contains(&pulls[1]), "{pulls:?}");
}

#[tokio::test(start_paused = true)]
async fn it_pulls_a_second_after_a_silence_ends_and_not_again_for_it() {
    let running = start(Duration::ZERO, Some(20));
    pass(50).await;
    let pulls = running.pulls();
    assert_eq!(pulls.len(), 2, "{pulls:?}");
    assert!((20.9..21.5).contains(&pulls[1]), "{pulls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silence_that_ends_during_a_pull_leads_to_another_one_after_it() {
    let running = start(Duration::from_secs(5), Some(3));
    pass(20).await;
    let pulls = running.pulls();
    assert_eq!(pulls.len(), 2, "{pulls:?}");
    assert!((5.9..6.5).contains(&pulls[1]), "{pulls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pull_that_takes_longer_than_the_interval_is_followed_by_the_next_after_a_second() {
    let running = start(Duration::from_secs(100), None);
    pass(150).await;
    let pulls = running.pulls();
    assert_eq!(pulls.len(), 2, "{pulls:?}");
    assert!((100.9..101.6).contains(&pulls[1]), "{pulls:?}");
}

#[test]
fn the_jitter_is_a_tenth_at_most() {
    assert_eq!(jittered(MINUTE, 0), Duration::from_secs(54));
    assert_eq!(jittered(MINUTE, 1000), MINUTE);
    assert_eq!(jittered(MINUTE, 2000), Duration::from_secs(66));
    for random in [1, 7, u64::MAX] {
        assert!((54..=66).contains(&jittered(MINUTE, random).as_secs()));
    }
}

//! What answers show.

use std::time::Duration;

use jiff::Timestamp;

use super::{Asked, ClaimShown, Finding, NodeAnswers, PresentGpu, Question, Series, Shown};
use crate::locate::Gpu;

/// What the answers to a question show of each of its claims.
#[must_use]
pub fn judge(question: &Question, answers: &NodeAnswers) -> Shown {
    let claims = question.claims.iter().enumerate().map(|(i, asked)| {
        let answered = answers.claims.get(i).map_or(&[][..], Vec::as_slice);
        claim(question, asked, answers, answered)
    });
    let last = question.range.steps().last();
    let seen = |present: &Vec<PresentGpu>| present.iter().any(|gpu| last.is_some_and(|at| gpu.at.has(at)));
    Shown {
        uid: question.uid.clone(),
        at: question.at,
        claims: claims.collect(),
        no_exporter: answers.present.as_ref().is_ok_and(|present| !seen(present)),
    }
}

fn claim(question: &Question, asked: &Asked, answers: &NodeAnswers, answered: &[Result<Series, String>]) -> ClaimShown {
    let mut shown = ClaimShown {
        alert: asked.alert.clone(),
        gpu: asked.gpu.clone(),
        since: asked.since,
        queries: asked.queries.len(),
        lasted: Duration::ZERO,
        now: Finding::Nothing("nothing was asked yet".to_owned()),
        replaced: false,
    };
    let mut was_good = false;
    for at in question.range.steps().filter(|at| *at > asked.since) {
        let (finding, replaced) = match there(question, asked, answers, at) {
            Ok(replaced) if replaced => (Finding::Gone, true),
            Ok(_) => (said(asked, answered, at), false),
            Err(why) => (Finding::Nothing(why), false),
        };
        match &finding {
            Finding::Gone if was_good => shown.lasted += question.range.step,
            // The first good step proves an instant, not a time.
            Finding::Gone | Finding::Nothing(_) => {}
            Finding::Fault(_) => shown.lasted = Duration::ZERO,
        }
        was_good = finding == Finding::Gone;
        (shown.now, shown.replaced) = (finding, replaced);
    }
    shown
}

/// Whether every GPU that should be there is, and the claim's among them; or it was replaced by another.
fn there(question: &Question, asked: &Asked, answers: &NodeAnswers, at: Timestamp) -> Result<bool, String> {
    let present = answers.present.as_ref().map_err(Clone::clone)?;
    let there: Vec<&PresentGpu> = present.iter().filter(|gpu| gpu.at.has(at)).collect();
    if there.is_empty() {
        return Err(match present.iter().filter_map(|gpu| gpu.at.last()).max() {
            Some(last) => format!("the exporter has shown no GPU since {last}"),
            None => "the exporter is not scraped, or shows no GPU".to_owned(),
        });
    }
    let expected = question.gpus.and_then(|n| usize::try_from(n).ok());
    if let Some(expected) = expected.filter(|n| there.len() < *n) {
        return Err(format!("{} of {expected} GPUs have fresh series", there.len()));
    }
    let Some(gpu) = asked.gpu.as_ref().filter(|gpu| !there.iter().any(|g| g.names.contains(gpu))) else { return Ok(false) };
    // A UUID stays with the hardware, so another one is another GPU. Without a change of the machine it is only not seen.
    let named = there.iter().all(|g| g.names.iter().any(|name| matches!(name, Gpu::Uuid(_))));
    if matches!(gpu, Gpu::Uuid(_)) && named && expected.is_some() && asked.machine_changed {
        return Ok(true);
    }
    // An alert that was told only after the GPU was replaced stays like this, whatever is waited for.
    Err(format!("{gpu} has no fresh series: if it was replaced, a person must release the node"))
}

/// What the claim's own queries say.
fn said(asked: &Asked, answered: &[Result<Series, String>], at: Timestamp) -> Finding {
    if answered.len() < asked.queries.len() {
        return Finding::Nothing("not every recovery_query was answered".to_owned());
    }
    // One that says that the fault is there outweighs one that says nothing.
    if answered.iter().any(|answer| answer.as_ref().is_ok_and(|series| !series.has(at))) {
        return Finding::Fault("its recovery_query returns nothing".to_owned());
    }
    match answered.iter().find_map(|answer| answer.as_ref().err()) {
        Some(why) => Finding::Nothing(why.clone()),
        None => Finding::Gone,
    }
}

//! The rounds in which evidence is asked for, as `serve` makes them.

use gpu_quarantine::{
    locate::NodeName,
    quarantine::evidence::{Shown, judge},
    sources::ActiveAlert,
};

use super::{Kept, World};
use crate::sequence::node_of;

/// `sources.prometheus.poll_interval`.
const ROUND: i64 = 30;

/// The answers of a round, on their way.
pub(super) struct Round {
    arrives: i64,
    rendered: Option<Vec<ActiveAlert>>,
    /// The alerts that it rendered.
    fires: Vec<usize>,
    shown: Vec<(NodeName, Shown)>,
}

impl World<'_> {
    pub(super) fn prove(&mut self) -> Kept {
        let Some(process) = &self.process else { return Ok(()) };
        if self.round.is_none() && self.now >= self.next_round {
            self.next_round = self.now + ROUND;
            let (questions, looks_for_rendered) = (process.questions(), process.looks_for_rendered());
            if !questions.is_empty() || looks_for_rendered {
                self.round = Some(self.ask(questions, looks_for_rendered));
            }
        }
        let Some(round) = self.round.take_if(|round| self.now >= round.arrives) else { return Ok(()) };
        self.say(|| format!("shown: {:?}", round.shown.iter().map(|(n, s)| (n.as_str(), &s.claims)).collect::<Vec<_>>()));
        let Some(process) = &mut self.process else { return Ok(()) };
        let certain = self.cluster.is_calm() && self.now - self.hung > 60 && round.rendered.is_some();
        process.prove(round.rendered, round.shown);
        let certain = certain && !self.cluster.is_dead();
        for alert in round.fires.into_iter().filter(|_| certain) {
            if self.proofs.rendered(alert, self.now) && !self.promises.is_ignored(node_of(alert)) {
                self.queries_told(std::iter::once(alert))?;
            }
        }
        self.after_work()
    }

    fn ask(&self, questions: Vec<gpu_quarantine::quarantine::evidence::Question>, looks_for_rendered: bool) -> Round {
        let now = self.now;
        let o = &self.outages;
        let answers = now >= o.prometheus && now >= o.errors;
        let shown = questions.into_iter().map(|question| {
            let answered = self.machines.answer(&question, now, answers, now >= o.query_errors);
            let shown = judge(&question, &answered);
            (question.node, shown)
        });
        let shown = shown.collect();
        let fires: Vec<usize> = self.prometheus.fires().filter(|_| answers).collect();
        let rendered = looks_for_rendered.then(|| fires.iter().filter_map(|alert| self.wording.rendered(*alert)).collect());
        let late = if now < o.late { o.late_by } else { 0 };
        Round { arrives: now + self.sequence.pull_takes.min(5) + late, rendered, fires, shown }
    }
}

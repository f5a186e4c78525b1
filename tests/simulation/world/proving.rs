//! The rounds in which evidence is asked for, as `serve` makes them.

use gpu_quarantine::{
    locate::NodeName,
    quarantine::evidence::{Shown, judge},
    sources::ActiveAlert,
};

use super::{Kept, World};

/// `sources.prometheus.poll_interval`.
const ROUND: i64 = 30;

/// The answers of a round, on their way.
pub(super) struct Round {
    arrives: i64,
    rendered: Option<Vec<ActiveAlert>>,
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
        if let Some(process) = &mut self.process {
            process.prove(round.rendered, round.shown);
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
        let rendered = looks_for_rendered.then(|| {
            let fires = self.prometheus.fires().filter(|_| answers);
            fires.filter_map(|alert| self.wording.rendered(alert)).collect()
        });
        let late = if now < o.late { o.late_by } else { 0 };
        Round { arrives: now + self.sequence.pull_takes.min(5) + late, rendered, shown }
    }
}

//! What a person can do about a node as it stands, with the command that does it.

use super::taint_text;
use crate::{
    locate::NodeFacts,
    policy::Config,
    quarantine::{Claim, ClaimState, NodeState, NodeView, Record, Standing, Word, standing},
};

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) what: String,
    /// How, if a command does it.
    pub(super) command: Option<String>,
}

/// Advice on one node, the likeliest first.
pub(super) fn advice(node: &NodeFacts, view: &NodeView, record: Option<&Record>, config: &Config, flags: &str) -> Vec<Advice> {
    let to = Adviser { view, config, flags };
    if let Standing::Untouchable(why) = standing(node, config) {
        return vec![Advice { what: format!("Nothing here: {why}."), command: None }];
    }
    match view.state {
        NodeState::Ignored => vec![to.unsay(Word::Ignore, "When you are done, let us look after it again:")],
        NodeState::Held => vec![
            to.unsay(Word::Hold, "Take the hold back; the node then waits for whatever else it needs:"),
            to.release("Give it back now; that ends the hold as well:"),
        ],
        NodeState::Isolated => {
            let mut advice = vec![to.repair(), to.by_itself()];
            advice.extend(to.muted());
            advice.push(to.hold("Keep it isolated even after its alerts end, while you work on it:"));
            advice.push(to.wrong(
                "There is no fault and the alert is wrong: give it back. It is left alone until the alert was seen to end:",
            ));
            advice
        }
        NodeState::Pending => vec![
            to.text("Ask first whether so many faults are real: a bad rule or a broken exporter hits many nodes at once.")
                .with(format!("gpu-quarantine nodes list{flags}")),
            to.text(
                "If they are, release a node that is well, or raise the limit that refuses it and reload. This one comes in its turn.",
            )
            .with(format!("gpu-quarantine guard{flags}")),
            to.text("Keep new pods away until then:").with(format!("kubectl cordon {}", view.name)),
            to.wrong("The alert is wrong: give its claims up, so that it no longer waits:"),
        ],
        NodeState::Suspect if record.is_none() => to.unusable(node),
        NodeState::Clearing | NodeState::Suspect => vec![
            to.waits(),
            to.hold("Keep it isolated, while you work on it:"),
            to.release("You looked at the GPU and it is well: give the node back now:"),
        ],
        NodeState::Free => to.free(node),
    }
}

struct Adviser<'a> {
    view: &'a NodeView,
    config: &'a Config,
    flags: &'a str,
}

impl Advice {
    fn with(mut self, command: String) -> Self {
        self.command = Some(command);
        self
    }
}

impl Adviser<'_> {
    #[expect(clippy::unused_self, reason = "reads as the others do")]
    fn text(&self, what: impl Into<String>) -> Advice {
        Advice { what: what.into(), command: None }
    }

    fn command(&self, verb: &str, rest: &str) -> String {
        format!("gpu-quarantine nodes {verb} {}{}{rest}", self.view.name, self.flags)
    }

    fn release(&self, what: &str) -> Advice {
        self.text(what).with(self.command("release", " --verdict repaired --reason '...'"))
    }

    fn wrong(&self, what: &str) -> Advice {
        self.text(what).with(self.command("release", " --verdict false-alarm --reason '...'"))
    }

    fn hold(&self, what: &str) -> Advice {
        self.text(what).with(self.command("hold", " --reason '...'"))
    }

    fn unsay(&self, word: Word, what: &str) -> Advice {
        self.text(what).with(self.command(&format!("un{word}"), ""))
    }

    fn firing(&self) -> impl Iterator<Item = &Claim> {
        self.view.claims.iter().filter(|c| c.state == ClaimState::Firing)
    }

    fn repair(&self) -> Advice {
        let runbook = self.firing().find_map(|c| c.runbook.as_deref());
        let how = runbook.map_or_else(|| "look into the alert".to_owned(), |runbook| format!("its runbook is {runbook}"));
        let pods = if self.view.evicts.is_some() {
            "Pods that have not opted in are not moved"
        } else {
            "Pods that run there are not moved"
        };
        self.text(format!("Repair what fires: {how}. {pods}: drain the node if they must leave, and uncordon it afterwards."))
            .with(format!("kubectl drain {} --ignore-daemonsets", self.view.name))
    }

    fn by_itself(&self) -> Advice {
        let releases = self.view.claims.iter().flat_map(Claim::policies).map(|p| self.config.release_for(p).after);
        let after = humantime::format_duration(releases.max().unwrap_or(self.config.release.after));
        self.text(format!(
            "Nothing more, if only the alerts are awaited: they end, stay so for {after}, and the node comes back."
        ))
    }

    fn muted(&self) -> Option<Advice> {
        self.view.muted.as_ref().map(|why| self.text(format!("All that fires is {why}: nothing ends before that does.")))
    }

    fn waits(&self) -> Advice {
        let for_a_person = self.view.held_back.is_some() || self.view.waiting_for.starts_with("a person");
        match self.view.due {
            Some(_) if !for_a_person => self.text(format!("Wait for {}.", self.view.waiting_for)),
            _ => self.text(format!("See to what it waits for: {}.", self.view.waiting_for)),
        }
    }

    /// Its record cannot be used.
    fn unusable(&self, node: &NodeFacts) -> Vec<Advice> {
        let name = self.config.annotation("record");
        let path = name.replace('.', r"\.");
        let mut advice = vec![
            self.text(format!("Look at the record and decide: {}.", self.view.waiting_for))
                .with(format!("kubectl get node {} -o jsonpath='{{.metadata.annotations.{path}}}'", node.name)),
        ];
        if self.view.isolated {
            advice.push(self.text("Nothing here can change it: run the program and the configuration that wrote the record."));
        } else if let Some(taint) = node.taints.iter().find(|t| t.key == self.config.isolation.taint_key) {
            let what = format!("The node is well: take the taint {} off; the record's text is kept aside:", taint_text(taint));
            advice.push(self.text(what).with(self.command("release", " --reason '...'")));
        }
        advice
    }

    fn free(&self, node: &NodeFacts) -> Vec<Advice> {
        let mut advice = Vec::new();
        let view = self.view;
        let orphan = view.waiting_for.starts_with("a person");
        if orphan {
            let what = "Find out who put the taint there. If nobody needs it, take it off; nothing else is touched:";
            advice.push(self.text(what).with(self.command("release", " --reason '...'")));
        } else if let Some(claim) = view.claims.iter().find(|c| c.state == ClaimState::Released && c.fires()) {
            let what = format!(
                "{} fires although somebody released the node: repair it, or correct its rule. It isolates the node again once it \
                 ended, stayed so for its hold-down and fires anew. Keep new pods away until then:",
                claim.subject()
            );
            advice.push(self.text(what).with(format!("kubectl cordon {}", node.name)));
        } else if view.muted.is_some() {
            advice.push(
                self.text("Nothing, if the silence is right. If it is not, end it in Alertmanager: the node is isolated then."),
            );
        } else if self.firing().next().is_some() {
            advice.push(self.text("Nothing: what fires only blocks a release, and the node is not isolated."));
        } else {
            advice.push(self.text("Nothing needs to be done."));
        }
        if node.unschedulable {
            let what = "Somebody else cordoned it, for reasons that we do not know. If nobody needs that any more:";
            advice.push(self.text(what).with(format!("kubectl uncordon {}", node.name)));
        }
        if view.in_scope {
            let what = "Keep us away from it, whatever fires (a burn-in, a repair):";
            advice.push(self.text(what).with(self.command("ignore", " --reason '...'")));
        }
        advice
    }
}

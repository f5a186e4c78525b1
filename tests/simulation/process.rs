//! The running service, with its own runtime: dropping it is the death of the process, whatever it was doing.

use std::{future::Future, sync::Arc, time::Duration};

use gpu_quarantine::{
    alert::Pull,
    engine::{Pulled, Step},
    locate::NodeName,
    quarantine::{
        NodeView,
        evidence::{Question, Shown},
    },
    sources::ActiveAlert,
};
use serde_json::Value;
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::harness::{BEGIN, Faulty, Service, at};

/// Longer than the deadline of a webhook. The runtime's clock stands still but for sleeps, so that nobody waits for it.
const HANGS: Duration = Duration::from_secs(60);

/// The moment `now` seconds after the beginning.
pub(crate) fn moment(now: i64) -> jiff::Timestamp {
    at(BEGIN) + jiff::SignedDuration::from_secs(now)
}

pub(crate) struct Process {
    // First: what runs on it ends before anything else goes.
    runtime: Runtime,
    service: Arc<Service>,
    /// The loop of timers does one thing at a time.
    ticking: Option<JoinHandle<()>>,
    /// So does that of pulls.
    pulling: Option<JoinHandle<Pulled>>,
    /// And that of evidence.
    proving: Option<JoinHandle<()>>,
    refreshed: i64,
}

impl Process {
    pub(crate) fn start(cluster: Arc<Faulty>, config: &str, now: i64) -> Option<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime starts");
        let config = config.to_owned();
        let starting = async move { Service::on(cluster, &config, moment(now)).await };
        let service = runtime.block_on(async { tokio::time::timeout(HANGS, starting).await.ok() })?;
        Some(Self { runtime, service: Arc::new(service), ticking: None, pulling: None, proving: None, refreshed: now })
    }

    /// Run until it is done; `None` if it hangs, and goes on beside.
    fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T, JoinHandle<T>> {
        self.runtime.block_on(async {
            let mut work = tokio::spawn(work);
            match tokio::time::timeout(HANGS, &mut work).await {
                Ok(done) => Ok(done.expect("the service does not panic")),
                Err(_) => Err(work),
            }
        })
    }

    /// Post a body; `None` if there is no answer.
    pub(crate) fn post(&self, body: Vec<u8>) -> Option<(u16, Value)> {
        let service = Arc::clone(&self.service);
        self.run(async move { service.post(body).await }).ok()
    }

    /// Hand over a pull. `None` if it hangs or the one before still does.
    pub(crate) fn pull(&mut self, pull: Pull) -> Option<Pulled> {
        if self.pulling.as_ref().is_some_and(|p| !p.is_finished()) {
            return None;
        }
        let service = Arc::clone(&self.service);
        match self.run(async move { service.engine.pull(&pull).await }) {
            Ok(came) => Some(came),
            Err(hangs) => {
                self.pulling = Some(hangs);
                None
            }
        }
    }

    /// What is to be asked of Prometheus now. Nothing while the round before still hangs.
    pub(crate) fn questions(&self) -> Vec<Question> {
        if self.proving.as_ref().is_some_and(|p| !p.is_finished()) {
            return Vec::new();
        }
        self.service.engine.questions().into_iter().map(|(question, _)| question).collect()
    }

    pub(crate) fn looks_for_rendered(&self) -> bool {
        self.service.engine.looks_for_rendered()
    }

    /// Hand over what a round found.
    pub(crate) fn prove(&mut self, rendered: Option<Vec<ActiveAlert>>, shown: Vec<(NodeName, Shown)>) {
        if self.proving.as_ref().is_some_and(|p| !p.is_finished()) {
            return;
        }
        let service = Arc::clone(&self.service);
        let work = async move {
            if let Some(rendered) = rendered {
                service.engine.take_rendered(&rendered).await;
            }
            for (name, shown) in shown {
                service.engine.take_shown(&name, shown);
            }
        };
        self.proving = self.run(work).err();
    }

    /// A node as people see it.
    pub(crate) fn view(&self, node: &str) -> NodeView {
        let found = self.service.engine.views().into_iter().find(|view| view.name.as_str() == node);
        found.expect("the node is there")
    }

    /// The configuration is replaced.
    pub(crate) fn reload(&self, config: &str) {
        let (service, config) = (Arc::clone(&self.service), config.to_owned());
        match self.run(async move { service.reload(&config).await }) {
            Ok(reloaded) => reloaded.expect("the new configuration can follow the old one"),
            // It goes on beside.
            Err(hangs) => drop(hangs),
        }
    }

    /// Whether a pull, a timer or a round of evidence hangs.
    pub(crate) fn hangs(&self) -> bool {
        self.proving.as_ref().is_some_and(|p| !p.is_finished())
            || self.pulling.as_ref().is_some_and(|p| !p.is_finished())
            || self.ticking.as_ref().is_some_and(|t| !t.is_finished())
    }

    /// The service's clock.
    pub(crate) fn is_now(&self, now: i64) {
        self.service.clock.advance_to(moment(now));
    }

    /// What `serve` does by itself: timers, changes of nodes, and a look at everything each minute.
    pub(crate) fn tick(&mut self, now: i64, nodes_changed: bool) {
        if self.hangs() {
            // What hung may go on by now.
            self.runtime.block_on(async { tokio::time::sleep(Duration::from_secs(1)).await });
        }
        if self.ticking.as_ref().is_some_and(|t| !t.is_finished()) {
            return;
        }
        let due = self.service.engine.next_due().is_some_and(|due| due <= moment(now));
        let refresh = nodes_changed || now - self.refreshed >= 60;
        if !due && !refresh {
            return;
        }
        if refresh {
            self.refreshed = now;
        }
        let service = Arc::clone(&self.service);
        let work = async move {
            if due {
                service.engine.run_due().await;
            }
            if refresh {
                service.engine.refresh().await;
                service.engine.retry_parked().await;
            }
        };
        self.ticking = self.run(work).err();
    }

    /// The steps since this was asked last.
    pub(crate) fn steps(&self) -> Vec<Step> {
        std::mem::take(&mut *self.service.steps.lock().expect("no step panics"))
    }
}

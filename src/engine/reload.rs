//! Another configuration for the running engine.

use std::sync::Arc;

use super::Engine;
use crate::policy::Config;

/// A configuration that cannot replace the running one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadRefused {
    /// The cluster cannot tell what the new selectors look at.
    #[error("the nodes could not be read for the new selectors: {0}")]
    Labels(String),
    /// `instance` or `domain` differ.
    #[error("`{0}` is set at start only: restart to change it")]
    StartOnly(&'static str),
    /// The taint key differs and the old one would be orphaned.
    #[error("isolation.taint.key was {0}: add that to isolation.former_keys, so that nodes isolated with it can be given back")]
    KeyForgotten(String),
}

impl Engine {
    /// Replace the configuration and decide every node again that bears a record.
    ///
    /// # Errors
    ///
    /// If it cannot follow the running one; that stays in force then.
    pub async fn reload(&self, config: Config) -> Result<(), ReloadRefused> {
        let old = self.config();
        if config.instance != old.instance {
            return Err(ReloadRefused::StartOnly("instance"));
        }
        if config.domain != old.domain {
            return Err(ReloadRefused::StartOnly("domain"));
        }
        let (new, was) = (&config.isolation, &old.isolation);
        if new.taint_key != was.taint_key && !new.former_keys.contains(&was.taint_key) {
            return Err(ReloadRefused::KeyForgotten(was.taint_key.clone()));
        }
        self.cluster.keep_labels(config.node_label_keys()).await.map_err(ReloadRefused::Labels)?;
        self.config.store(Arc::new(config));
        self.forget_shown();
        self.look_at_all(true).await;
        // Limits and hold-downs may have changed: somebody may be let in, and timers may have moved.
        self.admit_waiting().await;
        self.timers.notify_one();
        self.reloads.send_modify(|n| *n += 1);
        Ok(())
    }
}

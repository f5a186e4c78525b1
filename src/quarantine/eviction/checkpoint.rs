//! Time for a checkpoint: a pod may ask for it before it is asked to leave.
//!
//! There is no standard for it; what every eviction delivers is SIGTERM and the pod's grace period. These two annotations are ours.

use jiff::Timestamp;

use super::{
    plan::Chosen,
    state::{Evictee, EvicteeState, cut},
};
use crate::{locate::PodFacts, policy::Config, quarantine::release::later};

/// The longest path that is called.
const MAX_PATH: usize = 256;

/// Where a pod asks to be called: `<port>/<path>`, on its own address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The port.
    pub port: u16,
    /// The path, with its leading `/`.
    pub path: String,
}

impl Call {
    /// Parse the value of the annotation.
    ///
    /// # Errors
    ///
    /// If it is not a port and a path.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (port, path) = text.split_once('/').unwrap_or((text, ""));
        let port = port.parse::<u16>().ok().filter(|port| *port > 0);
        // Only what can stand in the path and query of a URL (RFC 3986); a pod's annotation may say anything.
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@%/?".contains(c);
        match port.filter(|_| path.len() <= MAX_PATH && path.chars().all(allowed)) {
            Some(port) => Ok(Self { port, path: format!("/{path}") }),
            None => Err(format!("{:?} is not <port>/<path>", text.chars().take(64).collect::<String>())),
        }
    }
}

/// For what a pod waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Time {
    /// For the workload to say that it wrote one, at most until then.
    Until(Timestamp),
    /// For the answer to a call, at most until then.
    Call(Call, Timestamp),
}

impl Evictee {
    /// What the pod waits for before it is asked to leave; `None` if nothing, or if it has waited. What came is noted.
    pub(super) fn wait_for_checkpoint(
        &mut self,
        pod: &PodFacts,
        chosen: &Chosen<'_>,
        called: Option<&str>,
        config: &Config,
        isolated: Timestamp,
        now: Timestamp,
    ) -> Option<Time> {
        let call = pod.annotations.get(&config.annotation("checkpoint"));
        let written = pod.annotations.get(&config.annotation("checkpointed-at"));
        if self.checkpoint.is_some() || (call.is_none() && written.is_none()) {
            return None;
        }
        let written = written.and_then(|text| text.parse::<Timestamp>().ok()).filter(|at| *at > isolated);
        let within = chosen.rules.checkpoint;
        let over = self.state == EvicteeState::Checkpoint && later(self.at, within) <= now;
        let call = call.map(|text| Call::parse(text)).transpose();
        let came = match (&call, written, chosen.hopeless) {
            _ if called.is_some() => called.unwrap_or_default().to_owned(),
            (_, Some(at), _) => format!("written at {at}"),
            (_, None, Some(fault)) => format!("not waited for: no progress is possible with {fault}"),
            _ if within.is_zero() => "not waited for: the policy gives no time".to_owned(),
            (Err(why), None, None) => format!("not asked for: the annotation {why}"),
            _ if over => format!("none came within {}", humantime::format_duration(within)),
            _ => {
                if self.state != EvicteeState::Checkpoint {
                    self.move_to(EvicteeState::Checkpoint, None, now);
                }
                let until = later(self.at, within);
                return Some(match call.ok().flatten() {
                    Some(call) => Time::Call(call, until),
                    None => Time::Until(until),
                });
            }
        };
        self.checkpoint = Some(cut(&came));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_and_a_path_are_read_and_nothing_else_is() {
        let call = |port, path: &str| Ok(Call { port, path: path.to_owned() });
        for (text, want) in [
            ("8080/checkpoint", call(8080, "/checkpoint")),
            ("8080", call(8080, "/")),
            ("1/a/b?step=now", call(1, "/a/b?step=now")),
        ] {
            assert_eq!(Call::parse(text), want, "{text}");
        }
        for text in ["", "0/a", "65536/a", "http://10.0.0.1/a", "8080/a b", "8080/a\r\nHost: x", "8080/#a", "-1/a"] {
            assert!(Call::parse(text).is_err(), "{text}");
        }
    }
}

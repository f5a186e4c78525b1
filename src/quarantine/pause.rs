//! The pause: a person's word that nothing new is begun.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::record::Unknown;

/// A person's word that nothing new is begun. Releases go on, unless told otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Who said so.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Why.
    pub reason: String,
    /// Whether nothing is released either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub releases: bool,
    /// Fields that we do not know.
    #[serde(flatten)]
    pub other: Unknown,
}

impl std::fmt::Display for Pause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let releases = if self.releases { ", releases as well" } else { "" };
        write!(f, "paused by {} since {}{releases}: {}", self.by, self.at, self.reason)
    }
}

/// What a person says of a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseWord {
    /// Begin nothing new from now on.
    Pause(Pause),
    /// Go on.
    Resume,
}

impl PauseWord {
    /// The pause as it is from then on.
    #[must_use]
    pub fn pause(&self) -> Option<&Pause> {
        match self {
            Self::Pause(pause) => Some(pause),
            Self::Resume => None,
        }
    }
}

/// What pauses a service now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paused {
    /// Why nothing new is begun, as a clause, if so.
    pub why: Option<String>,
    /// Whether nothing is released either.
    pub releases: bool,
}

impl Paused {
    /// By the word in the ledger and by the annotation on it, of that name and with that reason; both, until both are gone.
    #[must_use]
    pub fn by(word: Option<&Pause>, annotation: Option<(&str, &str)>) -> Self {
        let annotated = annotation.map(|(name, reason)| {
            let reason = if reason.trim().is_empty() { "no reason is given" } else { reason };
            format!("paused by the annotation {name} of the ledger: {reason}")
        });
        let clauses: Vec<String> = word.map(ToString::to_string).into_iter().chain(annotated).collect();
        Self { why: (!clauses.is_empty()).then(|| clauses.join("; ")), releases: word.is_some_and(|word| word.releases) }
    }

    /// Why nothing is released, if so.
    #[must_use]
    pub fn no_releases(&self) -> Option<&str> {
        self.why.as_deref().filter(|_| self.releases)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_word_and_an_annotation_both_pause_and_only_the_word_can_keep_nodes() {
        let pause = |releases: bool| -> Pause {
            serde_json::from_value(
                json!({"by": "ann", "at": "2026-11-29T20:00:00Z", "reason": "a rollout", "releases": releases}),
            )
            .unwrap()
        };
        let annotation = Some(("gpu-quarantine.dev/pause", ""));
        assert_eq!(Paused::by(None, None), Paused::default());
        let both = Paused::by(Some(&pause(false)), annotation);
        assert_eq!(
            both.why.as_deref(),
            Some(
                "paused by ann since 2026-11-29T20:00:00Z: a rollout; paused by the annotation gpu-quarantine.dev/pause of the \
                 ledger: no reason is given"
            )
        );
        assert_eq!(both.no_releases(), None);
        let all = Paused::by(Some(&pause(true)), None);
        assert_eq!(all.no_releases(), Some("paused by ann since 2026-11-29T20:00:00Z, releases as well: a rollout"));
        assert_eq!(Paused::by(None, annotation).no_releases(), None);
    }

    #[test]
    fn a_pause_of_an_earlier_program_lets_releases_go_on() {
        let text = r#"{"by":"ann","at":"2026-11-29T20:00:00Z","reason":"a rollout"}"#;
        let pause: Pause = serde_json::from_str(text).unwrap();
        assert!(!pause.releases);
        assert_eq!(serde_json::to_string(&pause).unwrap(), text);
    }
}

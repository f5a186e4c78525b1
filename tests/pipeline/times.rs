//! The intervals: what is shipped, with its durations replaced in the text.

use std::{fs, path::Path};

/// Which intervals a pipeline runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// A second where it is half a minute.
    Compressed,
    /// Those that are shipped, with what docs/alerts.md recommends for the scrape.
    Shipped,
}

/// Of the route. `repeat_interval` stays as it is: a repeat heals within minutes what the tests want to see healed by something else.
const ROUTE: [(&str, &str); 3] =
    [("group_wait: 10s", "group_wait: 1s"), ("group_interval: 30s", "group_interval: 2s"), ("timeout: 10s", "timeout: 2s")];

/// Of the rules. Windows of 5 minutes and more only look back further than a test lasts.
const RULES: [(&str, &str); 14] = [
    ("interval: 30s", "interval: 1s"),
    ("interval: 2m", "interval: 1s"),
    ("interval: 15m", "interval: 1s"),
    (" for: 1m", " for: 1s"),
    (" for: 90s", " for: 2s"),
    (" for: 2m", " for: 2s"),
    (" for: 10m", " for: 10s"),
    (" for: 15m", " for: 15s"),
    (" for: 1h", " for: 60s"),
    // What is bridged is compressed more than what is waited for: nothing is there to be bridged but a scrape or two.
    ("keep_firing_for: 5m", "keep_firing_for: 1s"),
    ("keep_firing_for: 10m", "keep_firing_for: 1s"),
    ("keep_firing_for: 30m", "keep_firing_for: 3s"),
    ("[1m]", "[3s]"),
    ("offset 2m", "offset 3s"),
];

impl Times {
    /// How often is scraped, and how often a rule is evaluated whose group does not say.
    pub(crate) fn scrape(self) -> &'static str {
        if self == Self::Compressed { "1s" } else { "30s" }
    }

    /// What the rule files become.
    pub(crate) fn rules(self) -> Vec<(String, String)> {
        let dir = root().join("alert-rules");
        let mut files: Vec<_> = fs::read_dir(&dir).expect("the rules are there").map(|e| e.expect("an entry").path()).collect();
        files.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
        files.sort();
        let texts = files.iter().map(|path| {
            let text = fs::read_to_string(path).expect("a rule file");
            let name = path.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
            (name, self.replaced(text, &RULES))
        });
        texts.collect()
    }

    /// What the shipped Alertmanager configuration becomes.
    pub(crate) fn route(self) -> String {
        self.replaced(fs::read_to_string(root().join("deploy/alertmanager/gpu-quarantine.yaml")).expect("the route"), &ROUTE)
    }

    fn replaced(self, text: String, by: &[(&str, &str)]) -> String {
        if self == Self::Shipped {
            return text;
        }
        by.iter().fold(text, |text, (from, to)| text.replace(from, to))
    }
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

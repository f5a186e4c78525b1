//! `pause` and `resume`: a person's word in the ledger, directly against the API server, so that it works when the service is down.

use super::{Failure, Place, load_config, printable, runtime};
use crate::{
    cluster::{
        LedgerError, LedgerWrite,
        kubernetes::{self, DirectLedger},
    },
    engine::{Clock, SystemClock},
    policy::Config,
    quarantine::{Ledger, Pause, StoredLedger, Unknown},
};

/// How often the ledger is read again when others write it as well.
const TRIES: u32 = 16;
/// When every service has heard of it: it reads the ledger every 10 s.
pub(super) const HEARD: &str = "15s";

/// Begin nothing new until `resume`: no isolation, no eviction. Releases go on.
#[derive(Debug, clap::Args)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    place: Place,
    /// Who you are, as it is written down.
    #[arg(long = "as", value_name = "NAME", env = "USER", hide_env_values = true, default_value = "somebody")]
    who: String,
    /// Why, in a few words.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Release nothing either. What a person releases by command is released all the same.
    #[arg(long)]
    releases: bool,
}

/// End the pause: what waits is looked at again and let in, in its order.
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    place: Place,
}

pub(super) fn pause(args: PauseArgs) -> Result<(), Failure> {
    let word = Pause { by: args.who, at: SystemClock.now(), reason: args.reason, releases: args.releases, other: Unknown::new() };
    let (config, said) = (load_config(&args.place.config)?, word.to_string());
    runtime()?.block_on(tell(&args.place, &config, Some(word)))?;
    println!("{}", printable(&format!("ConfigMap {}: {said}. Every service has heard of it within {HEARD}.", config.ledger)));
    Ok(())
}

pub(super) fn resume(args: &ResumeArgs) -> Result<(), Failure> {
    let config = load_config(&args.place.config)?;
    runtime()?.block_on(tell(&args.place, &config, None))?;
    println!("The pause is over. Every service has heard of it within {HEARD}.");
    Ok(())
}

async fn tell(place: &Place, config: &Config, word: Option<Pause>) -> Result<(), Failure> {
    let failed = |e: kubernetes::ConnectError| Failure::unreachable(e.to_string());
    let client = kubernetes::config(place.kubeconfig.as_deref(), place.context.as_deref()).await.map_err(failed)?;
    let ledger = DirectLedger::new(client, config.ledger.clone()).map_err(failed)?;
    let what = if word.is_some() { "nothing is paused" } else { "the pause goes on" };
    store(&ledger, config, word).await.map_err(|why| Failure::unreachable(format!("{what}: {why}")))
}

/// Write the pause into the ledger; or take it out, and the annotation that pauses with it.
pub(super) async fn store(store: &DirectLedger, config: &Config, word: Option<Pause>) -> Result<(), String> {
    let annotation = config.annotation("pause");
    for _ in 0..TRIES {
        let stored = store.read().await.map_err(|e| e.to_string())?;
        let annotated = stored.as_ref().is_some_and(|stored| stored.annotations.contains_key(&annotation));
        let (version, text) = stored.map_or((None, None), |stored| (Some(stored.version), stored.text));
        let (mut ledger, unreadable) = match text.as_deref().map(|text| Ledger::read(text, &config.instance)) {
            None => (Ledger::new(&config.instance), None),
            Some(StoredLedger::Ours(ledger)) => (*ledger, None),
            Some(StoredLedger::Untouchable(why)) => return Err(format!("ConfigMap {} is not touched: {why}", config.ledger)),
            Some(StoredLedger::Unreadable(_)) => (Ledger::new(&config.instance), text.as_deref()),
        };
        let without = Some(annotation.as_str()).filter(|_| annotated && word.is_none());
        if ledger.paused == word && without.is_none() {
            return Ok(());
        }
        ledger.paused.clone_from(&word);
        let text = ledger.fit(SystemClock.now());
        match store.write(LedgerWrite { over: version.as_deref(), text: &text, unreadable, without }).await {
            Ok(()) => return Ok(()),
            Err(LedgerError::Conflict) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(LedgerError::Conflict.to_string())
}

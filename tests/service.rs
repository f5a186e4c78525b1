//! The program itself: command line, signals, exit codes, real HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "support/process.rs"]
mod process;

use std::{
    fs,
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use process::{Process, root, run, serve};

const CONFIG: &str = "scope:
  nodes: nvidia.com/gpu.present=true
release:
  after: 1h
  require: [resolved]
policies:
  - name: gpu-lost
    match: ['severity=\"critical\"']
    action: isolate
";
const SUCCESSFUL: &str = "gpu_quarantine_config_last_reload_successful";
const FIRING: &str = "payloads/02-firing-grouped.json";
const NODE: &str = "gpu-node-12";

#[tokio::test]
async fn a_posted_alert_isolates_its_node_and_sigterm_ends_the_service_well() {
    let mut service = Process::start(CONFIG, &[]);
    assert_eq!(service.post(FIRING).await, ["recorded"; 4]);
    assert_eq!(service.post(FIRING).await, ["unchanged"; 4]);
    let node = service.node(NODE).await;
    assert_eq!((&node["state"], &node["taints"][1]["key"]), (&"isolated".into(), &"gpu-quarantine.dev/isolated".into()));
    let line = service.logged("The action on a node changed.");
    assert!(line.contains("isolate") && line.contains("gpu-lost"), "{line}");
    service.signal("TERM");
    assert_eq!(service.ended().code(), Some(0), "{}", service.log());
}

#[tokio::test]
async fn sigint_ends_the_service_well_although_clients_hold_connections_open() {
    let mut service = Process::start(CONFIG, &[]);
    let silent = TcpStream::connect(&service.address).unwrap();
    assert_eq!(service.send("GET", "/-/healthy", "").await.0, 200);
    service.signal("INT");
    assert_eq!(service.ended().code(), Some(0), "{}", service.log());
    drop(silent);
}

#[tokio::test]
async fn it_says_that_it_is_healthy_and_ready() {
    let service = Process::start(CONFIG, &[]);
    for (path, word) in [("/-/healthy", "healthy"), ("/-/ready", "ready")] {
        let (status, text) = service.send("GET", path, "").await;
        assert_eq!(status, 200);
        assert!(text.contains(word), "{text}");
    }
}

#[tokio::test]
async fn a_broken_file_changes_nothing_at_sighup_and_the_log_says_where_it_is_broken() {
    let service = Process::start(CONFIG, &[]);
    assert_eq!(service.metric(SUCCESSFUL).await, "1");
    let loaded = service.metric("gpu_quarantine_config_last_reload_success_timestamp_seconds").await;
    service.configure(&CONFIG.replace("action: isolate", "action: explode"));
    service.signal("HUP");
    let line = service.logged("The configuration was not loaded");
    assert!(line.contains("config.yaml:9:13") && line.contains("explode"), "{line}");
    assert_eq!(service.metric(SUCCESSFUL).await, "0");
    let since = service.metric("gpu_quarantine_config_last_reload_success_timestamp_seconds").await;
    assert_eq!(since, loaded, "the last success was before");
    assert_eq!(service.post(FIRING).await, ["recorded"; 4], "the old configuration stays in force");

    service.configure(&CONFIG.replace("action: isolate", "action: observe"));
    service.signal("HUP");
    service.logged("The configuration was loaded.");
    assert_eq!(service.metric(SUCCESSFUL).await, "1");
    assert_eq!(service.post(FIRING).await, ["observed"; 4]);
    assert_eq!(service.node(NODE).await["isolated"], true, "claims survive edits of the configuration");
}

#[tokio::test]
async fn reload_over_http_answers_with_what_is_wrong_and_where() {
    let service = Process::start(CONFIG, &[]);
    for (broken, part) in [
        (CONFIG.replace("after: 1h", "after: soon"), "config.yaml:4:10"),
        (CONFIG.replace("policies:", "polices:"), "config.yaml:6:1"),
        (format!("instance: other\n{CONFIG}"), "instance"),
        (format!("isolation: {{taint: {{key: example.com/other}}}}\n{CONFIG}"), "former_keys"),
        (String::new(), "config.yaml:1:1"),
    ] {
        service.configure(&broken);
        let (status, text) = service.send("POST", "/-/reload", "").await;
        assert_eq!(status, 500);
        assert!(text.contains(part) && text.contains("the old configuration stays in force"), "{text}");
        assert_eq!(service.metric(SUCCESSFUL).await, "0");
    }
    fs::remove_file(&service.config).unwrap();
    let (status, text) = service.send("POST", "/-/reload", "").await;
    assert!(status == 500 && text.contains("cannot read"), "{text}");

    service.configure(&CONFIG.replace("name: gpu-lost", "name: another"));
    let (status, text) = service.send("POST", "/-/reload", "").await;
    assert_eq!(status, 200, "{text}");
    assert_eq!(service.metric(SUCCESSFUL).await, "1");
    service.post(FIRING).await;
    assert_eq!(service.node(NODE).await["claims"][0]["policy"], "another");
    assert_eq!(service.send("GET", "/-/reload", "").await.0, 405, "reading a page must not reload");
}

#[tokio::test]
async fn a_shorter_hold_down_moves_timers_that_are_running() {
    let service = Process::start(CONFIG, &[]);
    service.post(FIRING).await;
    assert_eq!(service.post("payloads/03-resolved-all.json").await, ["resolved"; 3]);
    service.until(NODE, |n| n["state"] == "clearing").await;
    // By now the timers wait for the old time: what changed on nodes is gathered for 200 ms, looked at, and nothing follows.
    tokio::time::sleep(Duration::from_millis(600)).await;
    // Long enough that it is not over at the reload itself: only a timer can carry it out.
    service.configure(&CONFIG.replace("after: 1h", "after: 3s"));
    service.signal("HUP");
    let begin = Instant::now();
    let view = service.until(NODE, |n| n["state"] == "free").await;
    assert!(begin.elapsed() < Duration::from_secs(30), "not only when everything is looked at again, once a minute");
    assert_eq!(view["history"][0]["by"], "resolved");
    assert_eq!(view["taints"][0]["key"], "example.com/dedicated");
    assert_eq!(view["taints"].as_array().unwrap().len(), 1, "only ours went");
}

#[tokio::test]
async fn limits_of_the_command_line_hold() {
    let service = Process::start(CONFIG, &["--web.max-body-size", "1000"]);
    let body = fs::read(root().join("fixtures").join(FIRING)).unwrap();
    let (status, text) = service.send("POST", "/api/v1/alerts", body).await;
    assert_eq!(status, 413);
    assert!(text.contains("1000 bytes"), "{text}");
}

#[tokio::test]
async fn a_log_that_is_no_terminal_has_no_escape_codes() {
    let service = Process::start(CONFIG, &["--log.format", "text"]);
    service.post(FIRING).await;
    service.logged("The action on a node changed.");
    assert!(!service.log().contains('\u{1b}'), "{}", service.log());
}

#[test]
fn it_does_not_listen_beyond_this_machine_unless_told_that_this_is_meant() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    fs::write(&config, CONFIG).unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9876"] {
        let (code, _, err) = run(serve(&config).args(["--web.listen-address", address]));
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("--web.allow-unauthenticated"), "{err}");
    }
    let service = Process::start(CONFIG, &["--web.allow-unauthenticated"]);
    assert!(service.address.starts_with("127.0.0.1:"));
}

#[test]
fn a_bad_configuration_ends_it_with_2_and_shows_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    let broken = CONFIG.replace("severity=", "severity~").replace("after: 1h", "after: 1 fortnight");
    fs::write(&config, broken).unwrap();
    let (code, out, err) = run(serve(&config).args(["--web.listen-address", "127.0.0.1:0"]));
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    let file = config.display().to_string();
    assert!(err.contains(&format!("{file}:4:10: ")) && err.contains(&format!("{file}:8:")), "all problems at once: {err}");
    assert!(err.contains(" 4 |   after: 1 fortnight\n") && err.contains("   |          ^"), "with the line itself: {err}");
}

#[test]
fn files_and_flags_that_are_no_good_end_it_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    fs::write(&config, CONFIG).unwrap();
    let (code, _, err) = run(&mut serve(&dir.path().join("absent.yaml")));
    assert!(code == Some(2) && err.contains("absent.yaml"), "{code:?} {err}");
    for args in [["--web.deadline", "soon"], ["--log.level", "a=b=c"], ["--web.listen-address", "nowhere"], ["--no-such", "x"]] {
        let (code, _, err) = run(serve(&config).args(["--web.listen-address", "127.0.0.1:0"]).args(args));
        assert_eq!(code, Some(2), "{args:?}: {err}");
    }
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gpu-quarantine"));
    let (code, _, err) = run(command.args(["serve", "--cluster"]).arg(&config).arg("--config.file").arg(&config));
    assert!(code == Some(2) && err.contains("config.yaml"), "not a cluster: {code:?} {err}");
}

#[test]
fn a_port_that_is_taken_ends_it_with_3() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    fs::write(&config, CONFIG).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, err) = run(serve(&config).args(["--web.listen-address", &address]));
    assert_eq!(code, Some(3), "{err}");
    assert!(err.contains(&address), "{err}");
}

#[tokio::test]
async fn without_peers_it_says_what_it_cannot_promise_and_nobody_can_be_asked() {
    let service = Process::start(CONFIG, &[]);
    assert!(service.logged("No sources.alertmanagers is configured").contains("a silence is no veto"));
    let (status, text) = service.send("POST", "/api/v1/pull", "").await;
    assert_eq!(status, 409);
    assert!(text.contains("sources.alertmanagers"), "{text}");
    assert!(service.send("GET", "/metrics", "").await.1.contains("gpu_quarantine_pull_configured 0"));
}

#[tokio::test]
async fn a_recording_never_holds_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let (config, recording) = (dir.path().join("config.yaml"), dir.path().join("recording"));
    let alertmanagers = "alertmanagers: {urls: ['http://127.0.0.1:1'], receiver: gpu-quarantine";
    for source in [alertmanagers, "prometheus: {query_url: 'http://127.0.0.1:1'"] {
        let sources = format!("sources: {{{source}, http: {{authorization: {{credentials: hush}}}}}}}}\n");
        fs::write(&config, format!("{CONFIG}{sources}")).unwrap();
        let mut command = serve(&config);
        command.args(["--web.listen-address", "127.0.0.1:0", "--record"]).arg(&recording);
        let (code, _, err) = run(&mut command);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains("credentials_file") && !err.contains("hush"), "{err}");
        assert!(!recording.exists());
    }
}
